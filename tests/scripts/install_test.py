#!/usr/bin/env python3
"""`cmake --install` yields programs that run from where they lie, and the wheel's settings are those of the build.

usage: install_test.py [--build FOLDER]    without a build only the wheel's settings are looked at
"""

import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD: pathlib.Path | None = None
PROGRAMS = ("clover-infer", "clover-train")
TARGET = ROOT / "tests" / "golden" / "targets" / "tied-bf16"


def cache_entry(name: str) -> str:
    text = (BUILD / "CMakeCache.txt").read_text(encoding="utf-8")
    found = re.search(rf"^{name}:[A-Z]+=(.*)$", text, re.MULTILINE)
    return found.group(1) if found else ""


class Installed(unittest.TestCase):
    """Everything is started with an empty environment, in a folder that has nothing to do with the project."""

    @classmethod
    def setUpClass(cls):
        if BUILD is None:
            raise unittest.SkipTest("no --build FOLDER")
        folder = tempfile.TemporaryDirectory(prefix="clover-install-")
        cls.addClassCleanup(folder.cleanup)
        cls.prefix = pathlib.Path(folder.name) / "prefix"
        cls.elsewhere = pathlib.Path(folder.name) / "elsewhere"
        cls.elsewhere.mkdir()
        cmake = cache_entry("CMAKE_COMMAND") or "cmake"
        subprocess.run([cmake, "--install", BUILD, "--prefix", cls.prefix], check=True, stdout=subprocess.DEVNULL)

    def run_program(self, name: str, *arguments, **environment) -> subprocess.CompletedProcess:
        command = [self.prefix / "bin" / name, *arguments]
        return subprocess.run(command, cwd=self.elsewhere, env=environment, capture_output=True, text=True, timeout=120)

    def libraries(self, name: str) -> dict[str, str]:
        """What the loader finds for each library that a program needs."""
        listed = self.run_program(name, LD_TRACE_LOADED_OBJECTS="1").stdout
        return dict(re.findall(r"^\s*(\S+) => (\S+)", listed, re.MULTILINE))

    def test_programs_know_their_version(self):
        version = re.search(r"project\(clover VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text()).group(1)
        for program in PROGRAMS:
            done = self.run_program(program, "--version")
            self.assertEqual((0, True), (done.returncode, version in done.stdout), done)

    def test_programs_work(self):
        done = self.run_program("clover-train", "init", "--target", TARGET, "--kind", "clover", "--output", "heads")
        self.assertEqual(0, done.returncode, done.stderr)
        done = self.run_program("clover-infer", "inspect", "heads")
        self.assertEqual(0, done.returncode, done.stderr)
        done = self.run_program("clover-infer", "bench", "--random-weights", TARGET / "config.json", "--rows", "1,5",
                                "--context", "8", "--rounds", "1", "--random-heads", "clover")
        self.assertEqual((0, True), (done.returncode, "drafting, clover" in done.stderr), done)

    def test_configs_and_documents_are_there(self):
        share = self.prefix / "share" / "clover"
        done = self.run_program("clover-train", "fit", "--config", share / "configs" / "clover.toml", "--print-config")
        self.assertEqual(0, done.returncode, done.stderr)
        for file in ("configs/targets/vicuna-7b.json", "docs/install.md", "README.md", "LICENSE"):
            self.assertTrue((share / file).is_file(), file)

    def test_torch_is_that_of_the_build(self):
        for program in PROGRAMS:
            self.assertEqual(self.torch_of_the_build() / "lib" / "libtorch_cpu.so",
                             pathlib.Path(self.libraries(program)["libtorch_cpu.so"]))

    def test_torch_beside_the_programs_comes_first(self):
        packages = self.torch_of_the_build().parent
        inner = re.search(r"/(lib(?:64)?/python3\.\d+/(?:site|dist)-packages)$", packages.as_posix())
        if not inner:
            self.skipTest(f"{packages} is no folder of a Python environment")
        beside = self.prefix / inner.group(1)
        beside.parent.mkdir(parents=True)
        beside.symlink_to(packages)
        try:
            found = pathlib.Path(self.libraries("clover-infer")["libtorch_cpu.so"])
        finally:
            beside.unlink()
        self.assertTrue(found.is_relative_to(self.prefix / "bin" / ".." / "lib"), found)

    def torch_of_the_build(self) -> pathlib.Path:
        python = cache_entry("LIBTORCH_PYTHON")
        code = "import importlib.util, os; print(os.path.dirname(importlib.util.find_spec('torch').origin))"
        return pathlib.Path(subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip())


class TheWheel(unittest.TestCase):
    def setUp(self):
        self.settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

    def test_it_wants_the_torch_that_it_is_built_with(self):
        wanted = re.search(r"LIBTORCH_VERSION_WANTED ([0-9.]+)", (ROOT / "cmake" / "FindLibTorch.cmake").read_text())
        self.assertIn(f"torch=={wanted.group(1)}", self.settings["project"]["dependencies"])

    def test_its_version_is_found(self):
        version = self.settings["tool"]["scikit-build"]["metadata"]["version"]
        found = re.search(version["regex"], (ROOT / version["input"]).read_text(encoding="utf-8"))
        self.assertRegex(found["value"], r"^\d+\.\d+\.\d+$")

    def test_it_holds_the_programs(self):
        self.assertEqual(list(PROGRAMS), self.settings["tool"]["scikit-build"]["build"]["targets"])


if __name__ == "__main__":
    if len(sys.argv) > 2 and sys.argv[1] == "--build":
        BUILD = pathlib.Path(sys.argv[2]).resolve()
        del sys.argv[1:3]
    unittest.main()
