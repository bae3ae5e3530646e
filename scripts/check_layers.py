#!/usr/bin/env python3
"""Holds the rooms to their order, and the rooms within each of them to theirs.

A file may include its own room and the rooms before it in the table below; kernels and data do not know each other.  Also
fails on a source file of more than 400 lines, on a folder of more than 24 files, and when docs/architecture.md shows
another map than the table.  Exit code 0: all fine; 1: every violation is printed as file:line: sentence.

usage: check_layers.py [--root FOLDER] [--map]
"""

import argparse
import collections
import pathlib
import re
import sys

# In the order of the data path, and what each may include beside itself.
ROOMS = {
    "kernels": [],
    "data": [],
    "model": ["kernels", "data"],
    "infer": ["kernels", "data", "model"],
    "train": ["kernels", "data", "model", "infer"],
}
# The rooms within a room, in order: each may include the ones before it.
INNER_ROOMS = {
    "kernels": {
        "op": "what every op is made of: its call, the checks of its arguments, where it runs",
        "cpu": "a CPU's threads, vector lanes and instruction families",
        "gpu": "GPUs, streams, captured graphs, and the CUDA that kernels are written in",
        "weights": "weight matrices in the one layout that all products stream",
        "rows": "norms and activations of rows, and rows of the KV cache that move",
        "vocabulary": "rows of logits: edits, top-k, sampling",
        "trees": "candidate trees on the device: how they grow, and which path the target accepts",
        "attention": "attention of a pass's rows to their paths in the paged KV cache",
        "linear": "products with weights, and the operations fused into them",
    },
    "data": {
        "files": "bytes on disk: safetensors, JSON, mapped files, atomically written folders, checksums",
        "text": "UTF-8, and what tokenizers do to a text before they cut it",
        "tokenizer/files": "what the files of a model's folder say of its tokenizer",
        "tokenizer": "text into token ids and back",
        "chat/jinja/values": "the values of the template language, how they are computed with and printed",
        "chat/jinja/functions": "its filters, tests, methods and functions",
        "chat/jinja/syntax": "a template's text into its syntax tree",
        "chat/jinja": "runs a template",
        "chat": "conversations into the text that a model was trained on",
        "training": "lines of a user's file into samples, and the token store that keeps them",
    },
    "model": {
        "cache": "the paged KV cache, and where a pass's rows go in it",
        "target": "the large language model: its configuration, layers and forward pass",
        "drafters": "the light heads: what they share, and one file a kind",
        "graphs": "passes and drafts, captured as CUDA graphs and replayed",
        "checkpoint": "heads on disk",
    },
    "infer": {
        "program": "what the command lines of both programs share",
        "tree": "candidate trees: how they grow, and how a verified one is accepted",
        "cost": "how long a pass takes on this machine, and which guesses pay for their time",
        "controls": "penalties, bans and biases: what a request does to logits",
        "engine": "sequences through decoding steps",
        "requests": "lines and options into requests, and answers into records",
        "batch": "files of requests into files of answers, resumable, by one process or many",
        "bench": "measurements, and the check that speculation changes no token",
        "commands": "clover-infer",
    },
    "train": {
        "ranks": "sums over processes, by NCCL or in one process",
        "optimiser": "AdamW, learning rates, the order of samples",
        "objective": "rollouts over the depths of a batch, the terms of the loss, accuracy of heads",
        "features": "what the frozen target computes for training, kept in memory or in a file",
        "synthesize": "conversations that the target makes with itself, as training data",
        "store": "a user's file into a token store, and what is checked of one",
        "heads/formats": "other projects' layouts of heads, one file each",
        "heads": "heads in and out: folders of ours, and of other projects",
        "evaluate": "how good heads are, with the real decoder",
        "logs": "log.jsonl, and the events that TensorBoard shows",
        "run": "one training run: settings, steps, checkpoints, logs",
        "commands": "clover-train",
    },
}
SOURCE_SUFFIXES = {".h", ".cc", ".cu", ".cuh", ".inc"}
MOST_LINES = 400
MOST_FILES = 24
MAP_FILE = "docs/architecture.md"

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def the_map() -> str:
    """The table as Markdown, which MAP_FILE shows."""
    lines = []
    for room, inner in INNER_ROOMS.items():
        lines += [f"| `{room}/` | |", *(f"| `{room}/{name}/` | {about} |" for name, about in inner.items())]
    return "\n".join(["| folder | what it holds |", "|---|---|", *lines]) + "\n"


def inner_room(path: str) -> str | None:
    """The deepest inner room that a file of a room lies in; None when it lies in none."""
    room, *rest = path.split("/")
    for depth in range(len(rest) - 1, 0, -1):
        name = "/".join(rest[:depth])
        if name in INNER_ROOMS[room]:
            return name
    return None


def included_file(bracket: str, path: str, file: pathlib.Path, root: pathlib.Path) -> str | None:
    """The file of ours that an include leads to, from the root; None when it is no file of ours."""
    if path.split("/")[0] in ROOMS:
        return path
    if bracket == "<":
        return None
    # A path relative to the including file, "../infer/tree/grow.h", is an arrow like any other.
    try:
        found = (file.parent / path).resolve().relative_to(root)
    except ValueError:
        return None
    known = found.parts[0] in ROOMS and (path.startswith("../") or (root / found).exists())
    return found.as_posix() if known else None


def forbidden(source: str, target: str, written: str) -> str | None:
    """What is wrong with `source` including `target`, which it writes as `written`; None: nothing."""
    room, target_room = source.split("/")[0], target.split("/")[0]
    if target_room != room:
        if target_room in ROOMS[room]:
            return None
        return f"{room} includes {written}; {room} may only include {', '.join(sorted([room, *ROOMS[room]]))}"
    order = list(INNER_ROOMS[room])
    own, other = inner_room(source), inner_room(target)
    if own is None or other is None or order.index(other) <= order.index(own):
        return None
    return f"{room}/{own} includes {written}; within {room}, {other} comes after {own}"


def violations_of(file: pathlib.Path, root: pathlib.Path) -> list[str]:
    lines = file.read_text(encoding="utf-8").splitlines()
    shown = file.relative_to(root).as_posix()
    found = []
    if len(lines) > MOST_LINES:
        found.append(f"{shown}:{len(lines)}: the file has {len(lines)} lines, at most {MOST_LINES} are allowed; split it by subject")
    for number, line in enumerate(lines, start=1):
        match = INCLUDE.match(line)
        target = match and included_file(match.group(1), match.group(2), file, root)
        if not target:
            continue
        wrong = forbidden(shown, target, match.group(2))
        if wrong:
            found.append(f"{shown}:{number}: {wrong}")
        elif match.group(1) == "<":
            found.append(f"{shown}:{number}: write our own header {match.group(2)} in quotes")
    return found


def misplaced(files: list[pathlib.Path], root: pathlib.Path) -> list[str]:
    """Files that lie in no inner room, and folders that hold too many."""
    found = []
    for file in files:
        shown = file.relative_to(root).as_posix()
        if inner_room(shown) is None:
            found.append(f"{shown}:1: the file lies in no inner room of its room; put it into one of the table in check_layers.py")
    for folder, count in collections.Counter(file.parent for file in files).items():
        if count > MOST_FILES:
            found.append(f"{folder.relative_to(root)}:1: the folder holds {count} files, at most {MOST_FILES} are allowed; "
                         "part it by subject")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).parent.parent)
    parser.add_argument("--map", action="store_true", help=f"print the table as {MAP_FILE} shows it, and check nothing")
    arguments = parser.parse_args()
    if arguments.map:
        print(the_map(), end="")
        return 0
    root = arguments.root.resolve()
    files = [file for room in ROOMS for file in sorted((root / room).rglob("*"))
             if file.suffix in SOURCE_SUFFIXES and file.is_file()]
    if not files:
        print(f"{root}: no source file found; is this the root of the repository?")
        return 1
    violations = [violation for file in files for violation in violations_of(file, root)] + misplaced(files, root)
    page = root / MAP_FILE
    if page.exists() and the_map() not in page.read_text(encoding="utf-8"):
        violations.append(f"{MAP_FILE}:1: the map is not the table of check_layers.py; paste what check_layers.py --map prints")
    print("\n".join(violations) if violations else f"{len(files)} files, every include points down the data path")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
