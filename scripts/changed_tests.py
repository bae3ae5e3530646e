#!/usr/bin/env python3
"""Runs the tests of a build folder with ctest, but for those that have passed and depend on nothing that has changed since.

    scripts/changed_tests.py [--build build] [--all] [--jobs N]      the tests; --all: the unchanged ones, too
    scripts/changed_tests.py [--build build] [--all] --list          what would run, with the CPU seconds that each takes

A test depends on its program and command line, on what its REQUIRED_FILES name (programs that it starts, files and folders
that it reads), on tests/golden and configs, which any test may read, on LibTorch, the machine's packages and its CPU.  A test
whose program lies outside of the build folder and that names no REQUIRED_FILES runs every time, as do those that need a GPU.
"""
import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ANY_MAY_READ = [ROOT / "tests/golden", ROOT / "configs"]
LARGE = 64 << 20  # bytes; of larger files size and time count, not what they hold


@dataclass
class Test:
    name: str
    command: list[str]
    properties: dict[str, object]

    @property
    def seconds(self) -> float:
        return float(self.properties.get("COST", 1))

    @property
    def inputs(self) -> list[Path]:
        return [Path(self.command[0]), *map(Path, self.properties.get("REQUIRED_FILES", []))]

    def is_known(self, build: Path) -> bool:
        """Whether all that it depends on is."""
        if not self.command[0] or "cuda" in self.properties.get("LABELS", []):
            return False
        return "REQUIRED_FILES" in self.properties or Path(self.command[0]).is_relative_to(build)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    build = arguments.build.resolve()
    tests = tests_of(build)
    stamps = Stamps(build, common_hash())
    chosen = tests if arguments.all else [test for test in tests if not stamps.hold(test)]
    if arguments.list:
        for test in chosen:
            print(f"{test.seconds:g} {test.name}")
        return 0
    if len(chosen) < len(tests):
        left_out = [test.name for test in tests if test not in chosen]
        print(f"{len(left_out)} of {len(tests)} tests passed as they are now, and are left out (--all runs them): " + ", ".join(left_out), flush=True)
    return run(build, chosen, stamps, arguments.jobs) if chosen else 0


def tests_of(build: Path) -> list[Test]:
    listed = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], check=True, capture_output=True, text=True).stdout
    tests = []
    for test in json.loads(listed)["tests"]:
        properties = {property["name"]: property["value"] for property in test.get("properties", [])}
        tests.append(Test(test["name"], test.get("command") or [""], properties))  # without a command: its program is not built
    return tests


def run(build: Path, tests: list[Test], stamps: "Stamps", jobs: int) -> int:
    names = "^(" + "|".join(re.escape(test.name) for test in tests) + ")$"
    report = build / "Testing/changed_tests.xml"
    report.unlink(missing_ok=True)
    # As it is now: what changes while they run makes another hash, and they run again.
    hashes = {test.name: stamps.hash_of(test) for test in tests if test.is_known(build)}
    code = subprocess.run(["ctest", "--test-dir", build, "--output-on-failure", "--parallel", str(jobs), "-R", names, "--output-junit", report]).returncode
    passed = names_of_passed(report) if report.exists() else set()
    for test in tests:
        if test.name in passed and test.name in hashes:
            stamps.keep(test, hashes[test.name])
        else:
            stamps.drop(test)
    return code


def names_of_passed(report: Path) -> set[str]:
    cases = xml.etree.ElementTree.parse(report).getroot().iter("testcase")
    return {case.get("name") for case in cases if case.get("status") == "run" and case.find("failure") is None and case.find("skipped") is None}


class Stamps:
    """A file a test that has passed: the hash of what it depended on."""

    def __init__(self, build: Path, common: str):
        self.build, self.common = build, common
        self.folder = build / "Testing/passed"
        self.hashes: dict[Path, str] = {}

    def hash_of(self, test: Test) -> str:
        parts = [self.common, json.dumps([test.command, test.properties.get("ENVIRONMENT")])]
        for path in test.inputs:
            if path not in self.hashes:
                self.hashes[path] = hash_of_files(path)
            parts.append(self.hashes[path])
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def hold(self, test: Test) -> bool:
        stamp = self.folder / test.name
        return test.is_known(self.build) and stamp.exists() and stamp.read_text() == self.hash_of(test)

    def keep(self, test: Test, hash_before: str) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / test.name).write_text(hash_before)

    def drop(self, test: Test) -> None:
        (self.folder / test.name).unlink(missing_ok=True)


def common_hash() -> str:
    parts = [hash_of_files(path) for path in ANY_MAY_READ]
    libraries = [*sorted(ROOT.glob(".venv/lib/python3*/site-packages/torch/lib/*.so*")), Path("/var/lib/dpkg/status"), ROOT / ".packages"]
    libraries += [Path(shutil.which(tool) or f"/usr/local/cuda/bin/{tool}") for tool in ("nvcc", "cuobjdump")]  # packages may not know them
    parts += [size_and_time(path) for path in libraries if path.exists()]
    cpu = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    parts += sorted(set(re.findall(r"^(?:model name|flags|Features)\s*:.*", cpu, re.MULTILINE)))
    parts.append(f"{os.cpu_count()} CPUs")
    parts += [f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith(("CLOVER_", "OMP_", "GOMP_", "GTEST_"))]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def hash_of_files(path: Path) -> str:
    """Of a file, or of all in a folder with their names."""
    files = sorted(file for file in path.rglob("*") if file.is_file() and "__pycache__" not in file.parts) if path.is_dir() else [path]
    total = hashlib.sha256()
    for file in files:
        total.update(str(file).encode())
        if not file.exists():
            total.update(b"missing")
        elif file.stat().st_size > LARGE:
            total.update(size_and_time(file).encode())
        else:
            total.update(file.read_bytes())
    return total.hexdigest()


def size_and_time(path: Path) -> str:
    about = path.stat()
    return f"{path} {about.st_size} {about.st_mtime_ns}"


if __name__ == "__main__":
    sys.exit(main())
