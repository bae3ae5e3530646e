#!/usr/bin/env python3
"""Holds the rooms to their order: kernels, data -> model -> infer -> train.

A file may include its own room and the rooms before it; kernels and data do not know each other.  Also fails on a source
file of more than 400 lines.  Exit code 0: all fine; 1: every violation is printed as file:line: sentence.

usage: check_layers.py [--root FOLDER]
"""

import argparse
import pathlib
import re
import sys

MAY_INCLUDE = {
    "kernels": {"kernels"},
    "data": {"data"},
    "model": {"kernels", "data", "model"},
    "infer": {"kernels", "data", "model", "infer"},
    "train": {"kernels", "data", "model", "infer", "train"},
}
SOURCE_SUFFIXES = {".h", ".cc", ".cu", ".cuh", ".inc"}
MOST_LINES = 400

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def included_room(path: str, room: str, file: pathlib.Path, root: pathlib.Path) -> str | None:
    """The room an include leads to; None when it is no file of ours."""
    first = path.split("/")[0]
    if first in MAY_INCLUDE:
        return first
    # A path relative to the including file, "../infer/tree.h", is an arrow like any other.
    try:
        first = (file.parent / path).resolve().relative_to(root).parts[0]
    except ValueError:
        return None
    return first if first in MAY_INCLUDE and first != room else None


def violations_of(file: pathlib.Path, room: str, root: pathlib.Path) -> list[str]:
    lines = file.read_text(encoding="utf-8").splitlines()
    shown = file.relative_to(root)
    found = []
    if len(lines) > MOST_LINES:
        found.append(f"{shown}:{len(lines)}: the file has {len(lines)} lines, at most {MOST_LINES} are allowed; split it by subject")
    for number, line in enumerate(lines, start=1):
        match = INCLUDE.match(line)
        if not match:
            continue
        target = included_room(match.group(2), room, file, root)
        if target and target not in MAY_INCLUDE[room]:
            allowed = ", ".join(sorted(MAY_INCLUDE[room]))
            found.append(f"{shown}:{number}: {room} includes {match.group(2)}; {room} may only include {allowed}")
        elif target and match.group(1) == "<":
            found.append(f"{shown}:{number}: write our own header {match.group(2)} in quotes")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).parent.parent)
    root = parser.parse_args().root.resolve()
    files = 0
    violations = []
    for room in MAY_INCLUDE:
        for file in sorted((root / room).rglob("*")):
            if file.suffix in SOURCE_SUFFIXES and file.is_file():
                files += 1
                violations += violations_of(file, room, root)
    if files == 0:
        print(f"{root}: no source file found; is this the root of the repository?")
        return 1
    print("\n".join(violations) if violations else f"{files} files, every include points down the data path")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
