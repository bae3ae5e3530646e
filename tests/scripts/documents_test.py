#!/usr/bin/env python3
"""The Markdown files of the repository: lines that fit a screen, links that lead somewhere, paths that exist; and files that
comments of the sources name.

usage: documents_test.py [--list FOLDER]    with --list: prints what is wrong with the documents of a folder
"""

import pathlib
import re
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LONGEST_LINE = 120
MOST_LINES = {"README.md": 100, "docs/performance.md": 150}
# Folders whose name in backticks begins a path of the repository.
FOLDERS = {".ci", "cmake", "configs", "data", "docs", "infer", "kernels", "model", "scripts", "tests", "train"}
# What was true when it was written, paths included.
HISTORY = {"CHANGELOG.md"}

FENCE = re.compile(r"^\s*(```|~~~)")
LINK = re.compile(r"\]\(([^()\s]+)\)")  # its text may begin on the line before
CODE = re.compile(r"`([^`]+)`")
# A file that a comment of the sources sends its reader to.
POINTER = re.compile(r"(?<![\w/.$}])((?:%s)/[\w/.-]+\.(?:h|cc|cu|cuh|md|py))\b" % "|".join(sorted(FOLDERS - {".ci"})))
PATH = re.compile(r"[\w.-]+(/[\w.*-]+)+/?")


def documents(root: pathlib.Path) -> list[pathlib.Path]:
    """Every Markdown file that is ours: not of build trees, environments or models."""
    foreign = re.compile(r"^(build.*|models|\.venv|\.packages|\.git|_skbuild|dist)$")
    return sorted(f for f in root.rglob("*.md") if not any(foreign.match(part) for part in f.relative_to(root).parts))


def text_lines(file: pathlib.Path) -> list[tuple[int, str, bool]]:
    """(number, line, whether it stands in a code block) of every line."""
    found, fenced = [], False
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        fence = FENCE.match(line) is not None
        found.append((number, line, fenced or fence))
        fenced ^= fence
    return found


def anchors(file: pathlib.Path) -> set[str]:
    """The anchors that GitHub makes of a file's headings."""
    found: set[str] = set()
    for _, line, fenced in text_lines(file):
        if fenced or not re.match(r"#{1,6} ", line):
            continue
        title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", line.lstrip("#").strip())
        anchor = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        name, times = anchor, 0
        while name in found:
            times += 1
            name = f"{anchor}-{times}"
        found.add(name)
    return found


def link_problem(target: str, file: pathlib.Path) -> str | None:
    if re.match(r"[a-z]+:", target):
        return None  # another machine's
    path, _, anchor = target.partition("#")
    place = file if not path else file.parent / path
    if not place.exists():
        return f"the link to {target} leads nowhere"
    if anchor and (place.suffix != ".md" or anchor not in anchors(place)):
        return f"the link to {target} names no heading of that file"
    return None


def path_problem(code: str, root: pathlib.Path) -> str | None:
    path = re.sub(r":\d+$", "", code)
    if not PATH.fullmatch(path) or path.split("/")[0] not in FOLDERS:
        return None
    # Without its suffix a name stands for a header and its source.
    if any(root.glob(path.rstrip("/"))) or any(root.glob(path + ".*")):
        return None
    return f"`{code}` is no file or folder of the repository"


def messages(root: pathlib.Path) -> list[str]:
    """Parts of messages in the first column of the tables in docs/troubleshooting.md."""
    rows = [line for _, line, _ in text_lines(root / "docs" / "troubleshooting.md") if line.startswith("| ")]
    quoted = [code for row in rows for code in CODE.findall(row.split(" | ")[0])]
    parts = [part.strip(" \"'") for code in quoted for part in code.split("...")]
    return [part for part in parts if len(part) > 6]


def source_text(root: pathlib.Path) -> str:
    """The sources, each text of several literals as one."""
    files = [f for room in ("cmake", "kernels", "data", "model", "infer", "train") for f in (root / room).rglob("*")]
    files = [root / "CMakeLists.txt", *(f for f in files if f.suffix in {".cc", ".h", ".cmake"})]
    text = "\n".join(f.read_text(encoding="utf-8") for f in files)
    return re.sub(r'"\s*\n\s*"', "", text).replace('\\"', '"')


def pointers(root: pathlib.Path) -> list[str]:
    """Comments of the sources that send their reader to a file which is not there."""
    found = []
    for file in (f for folder in FOLDERS for f in sorted((root / folder).rglob("*"))):
        if file.suffix not in {".h", ".cc", ".cu", ".cuh"}:
            continue
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
            for path in POINTER.findall(line.partition("//")[2]):
                if not (root / path).exists():
                    found.append(f"{file.relative_to(root)}:{number}: the comment names {path}, which is not there")
    return found


def problems_of(root: pathlib.Path) -> list[str]:
    found = pointers(root)
    for file in documents(root):
        shown = file.relative_to(root).as_posix()
        lines = text_lines(file)
        most = MOST_LINES.get(shown)
        if most and len(lines) > most:
            found.append(f"{shown}:{len(lines)}: the file has {len(lines)} lines, at most {most} are allowed")
        for number, line, fenced in lines:
            wrong = []
            if len(line) > LONGEST_LINE and (fenced or not line.lstrip().startswith("|")):
                wrong.append(f"the line has {len(line)} characters, at most {LONGEST_LINE} are allowed outside tables")
            if not fenced:
                wrong += [link_problem(target, file) for target in LINK.findall(CODE.sub("`code`", line))]
                if shown not in HISTORY:
                    wrong += [path_problem(code, root) for code in CODE.findall(line)]
            found += [f"{shown}:{number}: {sentence}" for sentence in wrong if sentence]
    return found


class TheDocuments(unittest.TestCase):
    def test_they_are_as_they_should_be(self):
        self.assertTrue(documents(ROOT))
        problems = problems_of(ROOT)
        self.assertFalse(problems, "\n" + "\n".join(problems))

    def test_the_messages_that_are_explained_are_those_of_the_programs(self):
        of_others = {"error while loading shared libraries: libtorch_cpu.so", ", expected 2.11.0"}
        source = source_text(ROOT)
        self.assertFalse([m for m in messages(ROOT) if m not in source and m not in of_others])


class DamagedDocuments(unittest.TestCase):
    """Each kind of damage is found, and told with its place."""

    def problems(self, **files: str) -> list[str]:
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "docs").mkdir()
            for name, text in files.items():
                (root / (name.replace("__", "/") + ".md")).write_text(text, encoding="utf-8")
            return problems_of(root)

    def test_sound_documents_have_no_problems(self):
        page = "# A page\n\n## What it's for: this\n\n[down](#what-its-for-this), [over](docs/other.md#other)\n"
        self.assertEqual([], self.problems(README=page, docs__other="# Other\n\n[`up`](../README.md) `docs/other.md`\n"))

    def test_a_long_line(self):
        self.assertIn("README.md:2: the line has 121", self.problems(README="#\n" + "x" * 121)[0])
        self.assertIn("README.md:3: the line has 125", self.problems(README="#\n```\n|" + "x" * 124 + "\n```\n")[0])

    def test_a_long_row_of_a_table_is_fine(self):
        self.assertEqual([], self.problems(README="| " + "x" * 200 + " |\n"))

    def test_a_link_to_no_file(self):
        self.assertIn("README.md:1: the link to docs/none.md", self.problems(README="[a](docs/none.md)")[0])

    def test_a_picture_that_is_not_there(self):
        self.assertIn("README.md:1: the link to docs/none.png", self.problems(README="![a](docs/none.png)")[0])

    def test_a_link_to_no_heading(self):
        self.assertIn("#there", self.problems(README="# Here\n\n[a](#there)")[0])
        self.assertIn("#there", self.problems(README="[a](docs/b.md#there)", docs__b="# Here\n")[0])

    def test_links_in_code_blocks_are_code(self):
        self.assertEqual([], self.problems(README="```\n[a](b)\n```\n"))

    def test_a_path_that_does_not_exist(self):
        self.assertIn("`docs/none.md` is no file", self.problems(README="see `docs/none.md`")[0])
        self.assertIn("`infer/engine/` is no file", self.problems(README="see `infer/engine/`")[0])

    def test_what_only_looks_like_a_path(self):
        self.assertEqual([], self.problems(README="`build/bin/clover-infer`, `text/html`, `docs/<kind>.md`, `docs/a b`"))

    def test_a_comment_that_names_a_file_which_is_not_there(self):
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder, "infer", "grow.h")
            source.parent.mkdir()
            source.write_text("// Goes on in infer/grow.h.\n// See docs/none.md.\n", encoding="utf-8")
            self.assertEqual(["infer/grow.h:2: the comment names docs/none.md, which is not there"], problems_of(pathlib.Path(folder)))

    def test_too_many_lines(self):
        self.assertIn("101 lines, at most 100", self.problems(README="a\n" * 101)[0])


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "--list":
        print("\n".join(problems_of(pathlib.Path(sys.argv[2]).resolve())))
    else:
        unittest.main()
