"""Which tests scripts/changed_tests.py runs again."""
import contextlib
import io
import json
import pathlib
import sys
import tempfile
import unittest
import unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import changed_tests  # noqa: E402


class ChangedTests(unittest.TestCase):
    """ctest is played: it lists four tests and says which of those that it is given pass."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name).resolve()
        self.build = self.root / "build"
        (self.build / "tests").mkdir(parents=True)
        (self.build / "Testing").mkdir()
        (self.root / "golden").mkdir()
        for name in ["alone", "starts", "gpu", "program"]:
            (self.build / "tests" / name).write_text(name)
        (self.root / "golden/file").write_text("expected")
        patched = unittest.mock.patch.multiple(changed_tests, ROOT=self.root, ANY_MAY_READ=[self.root / "golden"])
        patched.start()
        self.addCleanup(patched.stop)
        self.failing = set()
        self.meanwhile = lambda: None
        self.listed = [
            self.listed_test("alone"),
            self.listed_test("starts", REQUIRED_FILES=[str(self.build / "tests/program")]),
            self.listed_test("gpu", LABELS=["cuda"]),
            {"name": "script", "command": ["/usr/bin/python3", "script.py"], "properties": []},
        ]

    def listed_test(self, name: str, **properties) -> dict:
        return {"name": name, "command": [str(self.build / "tests" / name)], "properties": [{"name": key, "value": value} for key, value in properties.items()]}

    def ctest(self, command, **_):
        if "--show-only=json-v1" in command:
            return unittest.mock.Mock(stdout=json.dumps({"tests": self.listed}))
        asked = command[command.index("-R") + 1].removeprefix("^(").removesuffix(")$").split("|")
        self.ran += asked
        self.meanwhile()
        cases = "".join(f'<testcase name="{name}" status="{"fail" if name in self.failing else "run"}"/>' for name in asked)
        pathlib.Path(command[command.index("--output-junit") + 1]).write_text(f"<testsuite>{cases}</testsuite>")
        return unittest.mock.Mock(returncode=8 if self.failing & set(asked) else 0)

    def run_again(self, *words: str) -> list[str]:
        self.ran = []
        with unittest.mock.patch("subprocess.run", self.ctest), contextlib.redirect_stdout(io.StringIO()):
            with unittest.mock.patch.object(sys, "argv", ["changed_tests", "--build", str(self.build), *words]):
                self.code = changed_tests.main()
        return self.ran

    def test_what_passed_and_did_not_change_is_left_out(self):
        self.assertEqual(self.run_again(), ["alone", "starts", "gpu", "script"])
        self.assertEqual(self.run_again(), ["gpu", "script"], "what they depend on is not known")
        self.assertEqual(self.run_again("--all"), ["alone", "starts", "gpu", "script"])

    def test_what_it_depends_on_runs_it_again(self):
        self.run_again()
        (self.build / "tests/alone").write_text("another program")
        self.assertEqual(self.run_again(), ["alone", "gpu", "script"])
        (self.build / "tests/program").write_text("started by it")
        self.assertEqual(self.run_again(), ["starts", "gpu", "script"])
        (self.root / "golden/file").write_text("other figures")
        self.assertEqual(self.run_again(), ["alone", "starts", "gpu", "script"])
        (self.root / "golden/new").write_text("")
        self.assertEqual(self.run_again(), ["alone", "starts", "gpu", "script"])
        self.listed[0]["command"].append("--gtest_filter=*")
        self.assertEqual(self.run_again(), ["alone", "gpu", "script"])
        with unittest.mock.patch.dict("os.environ", OMP_NUM_THREADS="3"):
            self.assertEqual(self.run_again(), ["alone", "starts", "gpu", "script"])

    def test_what_failed_runs_again(self):
        self.run_again()
        self.failing = {"alone"}
        self.run_again("--all")
        self.assertEqual(self.code, 8)
        self.assertEqual(self.run_again(), ["alone", "gpu", "script"])

    def test_what_changed_while_it_ran_runs_again(self):
        self.meanwhile = lambda: (self.build / "tests/alone").write_text("relinked")
        self.run_again()
        self.assertEqual(self.run_again(), ["alone", "gpu", "script"])
        (self.build / "tests/alone").write_text("as it was")
        self.run_again("--all")
        self.assertEqual(self.run_again(), ["alone", "gpu", "script"])


if __name__ == "__main__":
    unittest.main()
