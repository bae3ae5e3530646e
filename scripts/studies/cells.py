"""Cells: runs of clover-infer and clover-train, each kept under the hash of all that it depends on.

A cell is a command line.  Its key is the hash of the program, of the words of the command line, of the contents of the
files that it reads and of the keys of the cells whose output it reads.  What it writes lies in cells/KEY, and a cell whose
folder is there is never run again.  A cell that was stopped leaves cells/KEY.part; programs that can go on do so.
"""

import ctypes
import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Sequence

ROOT = Path(__file__).resolve().parents[2]
LAST_LINES = 12  # of a log, which a failure shows
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SECONDS_TO_SAVE = 60  # which a run may take to save what it has when its study was killed


@dataclass(frozen=True)
class Output:
    """A file or folder that another cell has written."""

    cell: "Cell"
    name: str


@dataclass(frozen=True)
class Own:
    """A file or folder that this cell writes."""

    name: str


@dataclass(frozen=True)
class Cache:
    """A file that makes a cell faster and changes nothing in its result: not part of its key."""

    path: Path


Word = str | Path | Output | Own | Cache


@dataclass(eq=False)
class Cell:
    """One run of a program.

    words: the command line after the program; a Path is a file or folder that is read, and counts by its contents.
    sort: what its duration is like ("fit clover"): cells of one sort correct each other's estimates.
    seconds: expected duration.
    resume: further words when it was begun before; None: begins anew.
    """

    title: str
    program: str
    words: list[Word]
    sort: str
    seconds: float
    resume: list[str] | None = None

    @cached_property
    def key(self) -> str:
        digest = hashlib.blake2b(digest_size=12)

        def add(*texts: str) -> None:
            for text in texts:
                digest.update(f"{len(text)}:{text}".encode())

        add(self.program, contents_hash(program(self.program)))
        for word in self.words:
            match word:
                case str():
                    add("word", word)
                case Path():
                    add("contents", contents_hash(word))
                case Output():
                    add("output", word.cell.key, word.name)
                case Own():
                    add("own", word.name)
        return digest.hexdigest()

    @property
    def needs(self) -> list["Cell"]:
        return [word.cell for word in self.words if isinstance(word, Output)]


def program(name: str) -> Path:
    return ROOT / "build" / "bin" / name


_hashes: dict[tuple, str] = {}


def contents_hash(path: Path) -> str:
    """Of a file, or of the names and contents of all files of a folder."""
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    digest = hashlib.blake2b(digest_size=16)
    for file in files:
        found = file.stat()
        known = (file, found.st_size, found.st_mtime_ns)
        if known not in _hashes:
            with open(file, "rb") as stream:
                _hashes[known] = hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
        digest.update(f"{file.relative_to(path)}:{_hashes[known]}\n".encode())
    return digest.hexdigest()


class Failed(Exception):
    """One sentence for the user."""


@dataclass
class Runner:
    """Runs cells that are not there yet, in an order in which each finds what it needs."""

    folder: Path  # holds cells/
    title: str
    _ran: dict[str, list[tuple[float, float]]] = field(default_factory=dict)  # seconds measured and expected, by sort
    _lock: object = None
    _began: float = field(default_factory=time.monotonic)
    _run_count: int = 0  # cells run by this process

    def lock(self, patience: float = SECONDS_TO_SAVE) -> None:
        """One study at a time works in the folder.  Runs inherit the lock: one that outlives its study holds it until it ends."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = open(self.folder / "lock", "w")
        began = time.monotonic()
        while not self._take_lock():
            if time.monotonic() - began >= patience:
                raise Failed(f"another study works in {self.folder}: wait for it, or give --output another folder")
            if time.monotonic() - began < 1:
                self.say(f"another study works in {self.folder}, or saves what it has: waiting for {duration(patience)}")
            time.sleep(1)
        self.read_durations()

    def _take_lock(self) -> bool:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def read_durations(self) -> None:
        """What earlier cells here took correct the estimates."""
        for file in sorted(self.folder.glob("cells/*/cell.json")):
            try:
                ran = json.loads(file.read_text())
                self._count(ran["sort"], ran["seconds"], ran["expected_seconds"])
            except (ValueError, KeyError):
                continue  # of an early version, or damaged: it corrects nothing

    def _count(self, sort: str, seconds: float, expected: float) -> None:
        self._ran.setdefault(sort, []).append((seconds, max(expected, 0.1)))

    def place(self, cell: Cell) -> Path:
        return self.folder / "cells" / cell.key

    def path(self, output: Output) -> Path:
        return self.place(output.cell) / output.name

    def is_there(self, cell: Cell) -> bool:
        return (self.place(cell) / "cell.json").exists()

    def missing(self, cells: list[Cell]) -> list[Cell]:
        """Those cells, and the ones that they need, that are not there; each behind what it needs."""
        found: dict[str, Cell] = {}

        def visit(cell: Cell) -> None:
            if cell.key in found or self.is_there(cell):
                return
            for needed in cell.needs:
                visit(needed)
            found.setdefault(cell.key, cell)

        for cell in cells:
            visit(cell)
        return list(found.values())

    def expected(self, cell: Cell) -> float:
        """Seconds, corrected by what cells of its sort, or else all of a minute or more together, have taken: a few seconds say little."""
        ran = self._ran.get(cell.sort)
        if not ran:
            ran = [times for some in self._ran.values() for times in some]
            if sum(seconds for seconds, _ in ran) < 60:
                return cell.seconds
        return cell.seconds * sum(seconds for seconds, _ in ran) / sum(expected for _, expected in ran)

    def run(self, cells: list[Cell], later: Sequence[Cell] = ()) -> None:
        """later: what runs after them, of which only the time is of interest now."""
        todo = self.missing(cells)
        keys = {cell.key for cell in todo}
        others = [cell for cell in self.missing(later) if cell.key not in keys]
        for number, cell in enumerate(todo):
            left = sum(self.expected(other) for other in todo[number:] + others)
            self._run_count += 1
            self.say(f"{self._run_count}/{self._run_count - 1 + len(todo) - number + len(others)} {cell.title}, about {duration(self.expected(cell))}; "
                     f"{duration(time.monotonic() - self._began)} elapsed, about {duration(left)} left")
            self._count(cell.sort, self.run_one(cell), cell.seconds)

    def run_one(self, cell: Cell) -> float:
        place, part = self.place(cell), self.place(cell).with_suffix(".part")
        before = 0.0  # seconds of earlier tries that it goes on from
        goes_on = part.exists() and cell.resume is not None
        if goes_on and (part / "seconds").exists():
            before = float((part / "seconds").read_text())
        if not goes_on:
            shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True, exist_ok=True)
        command = [str(program(cell.program)), *(self.spell(word, part) for word in cell.words), *(cell.resume or [] if goes_on else [])]
        started = time.monotonic()
        log = part / "log"
        try:
            with open(log, "a") as stream:
                stream.write(" ".join(command) + "\n")
                stream.flush()
                code = run_to_its_end(command, stream, self._lock)
        finally:
            seconds = before + time.monotonic() - started
            (part / "seconds").write_text(f"{seconds:.3f}")
        if code != 0:
            last = "\n".join(log.read_text(errors="replace").splitlines()[-LAST_LINES:])
            raise Failed(f"{cell.title}: exit code {code}; what was finished is kept, and {log} ends with\n{last}")
        (part / "cell.json").write_text(json.dumps({"title": cell.title, "command": command, "sort": cell.sort, "seconds": seconds,
                                                    "expected_seconds": cell.seconds}, indent=1) + "\n")
        os.replace(part, place)
        return seconds

    def spell(self, word: Word, part: Path) -> str:
        match word:
            case Output():
                return str(self.path(word))
            case Own():
                return str(part / word.name)
            case Cache():
                word.path.parent.mkdir(parents=True, exist_ok=True)
                return str(word.path)
        return str(word)

    def read(self, output: Output) -> dict:
        return json.loads(self.path(output).read_text())

    def say(self, text: str) -> None:
        print(f"{self.title}: {text}", file=sys.stderr, flush=True)


def run_to_its_end(command: list[str], log, lock) -> int:
    """Runs a program, which inherits the file `lock`; when this process is stopped it may save what it has, and is waited for."""
    held = [lock.fileno()] if lock else []
    process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True, pass_fds=held, preexec_fn=end_with_parent)
    try:
        return process.wait()
    except KeyboardInterrupt:
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)  # a second one would end the program before it has saved
        process.terminate()
        process.wait()
        raise


def end_with_parent() -> None:
    """Lets the kernel end this process as SIGTERM does when its parent is killed."""
    set_parent_death_signal = 1  # PR_SET_PDEATHSIG of prctl(2)
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGTERM)


def duration(seconds: float) -> str:
    """"45 s", "12 min" or "3 h 05 min"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"
