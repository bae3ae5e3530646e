"""measure_gpu.py goes on after a failure and where it stopped, stops what takes too long, and gets programs to a bare machine;
the programs are stand-ins, no GPU is needed."""

import contextlib
import io
import json
import os
import pathlib
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
sys.dont_write_bytecode = True
import measure_gpu  # noqa: E402
from gpu import programs as gpu_programs  # noqa: E402

PRODUCTS = {"copy_bandwidth": 3e12, "products": [
    {"shape": "7B", "product": "layer", "rows": rows, "microseconds": 150.0, "of_bandwidth": share} for rows, share in ((16, 0.9), (80, 0.5))]}
ATTENTION = {"cases": [{"name": "7B: a prompt of 2048 tokens", "microseconds": 100.0, "gigabytes_per_second": 10.0, "of_bandwidth": 0.1,
                        "gigaflops": 1e5, "libtorch_over_ours": 0.9}]}
# Notes that it ran, and writes a report where --json says.
REPORTS = """#!/bin/sh
echo {name} >> "$(dirname "$0")/ran"
while [ "$1" != --json ]; do shift; done
cat > "$2" <<'REPORT'
{report}
REPORT
"""


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.build = pathlib.Path(folder.name, "build")
        self.output = pathlib.Path(folder.name, "gpu")
        (self.build / "bin").mkdir(parents=True)
        (self.build / "tests").mkdir()
        self.root = pathlib.Path(folder.name)

    def put(self, name: str, text: str):
        file = self.build / ("tests" if name.endswith("_test") else "bin") / name
        file.write_text(text)
        file.chmod(0o755)

    def put_report(self, name: str, report: dict):
        self.put(name, REPORTS.format(name=name, report=json.dumps(report)))

    def measure(self, *options: str) -> tuple[int, dict, str]:
        sys.argv = ["measure_gpu.py", "--build", str(self.build), "--output", str(self.output), *options]
        page, notes = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(page), contextlib.redirect_stderr(notes):
            code = measure_gpu.main()
        file = self.output / "gpu.json"
        return code, json.loads(file.read_text()) if file.exists() else {}, page.getvalue()

    def ran(self) -> list[str]:
        file = self.build / "bin" / "ran"
        return file.read_text().split() if file.exists() else []


class Measuring(Folder):
    def test_a_part_that_fails_does_not_keep_others_from_being_measured(self):
        self.put("linear_bench", "#!/bin/sh\nexit 2\n")
        self.put_report("attention_bench", ATTENTION)
        code, parts, page = self.measure("--only", "products,attention")
        self.assertEqual(code, 1)
        self.assertIn("linear_bench ended with 2", parts["products"]["error"])
        self.assertTrue(parts["attention"]["checks"][0]["holds"])
        self.assertIn("| products | not measured: linear_bench ended with 2 | | |", page)

    def test_it_goes_on_where_it_stopped(self):
        self.put("linear_bench", "#!/bin/sh\nexit 2\n")
        self.put_report("attention_bench", ATTENTION)
        self.measure("--only", "products,attention")
        self.put_report("linear_bench", PRODUCTS)
        code, parts, page = self.measure("--only", "products,attention")
        self.assertEqual(self.ran(), ["attention_bench", "linear_bench"])
        self.assertEqual([one["holds"] for one in parts["products"]["checks"]], [True, False])  # 0.5 of bandwidth at 80 rows
        self.assertEqual(code, 1)
        self.assertIn("**missed**", page)
        self.measure("--only", "attention", "--again")
        self.assertEqual(self.ran(), ["attention_bench", "linear_bench", "attention_bench"])

    def test_figures_of_another_device_are_not_kept(self):
        self.put_report("attention_bench", ATTENTION)
        self.measure("--only", "attention")
        self.measure("--only", "attention", "--device", "cuda:1")
        self.assertEqual(len(self.ran()), 2)

    def test_what_takes_too_long_is_stopped_with_all_it_has_started(self):
        left = self.build / "left"
        self.put("linear_bench", f"#!/bin/sh\n(sleep 3; touch {left}) &\nsleep 60\n")
        self.put_report("attention_bench", ATTENTION)
        self.addCleanup(setattr, measure_gpu, "MIN_SECONDS", measure_gpu.MIN_SECONDS)
        self.addCleanup(setattr, measure_gpu.PARTS["products"], "seconds", measure_gpu.PARTS["products"].seconds)
        measure_gpu.PARTS["products"].seconds = 1
        begun = time.monotonic()
        _, parts, _ = self.measure("--only", "products,attention")
        self.assertLess(time.monotonic() - begun, 20)
        self.assertIn("its time was up", parts["products"]["error"])
        self.assertIn("cases", parts["attention"])
        time.sleep(3)
        self.assertFalse(left.exists())

    def test_nothing_begins_when_all_the_time_is_up(self):
        self.put_report("attention_bench", ATTENTION)
        code, parts, _ = self.measure("--only", "attention", "--minutes", "0.1")
        self.assertEqual((code, parts, self.ran()), (1, {}, []))

    def test_tests_that_fail_are_counted(self):
        self.put("cuda_test", """#!/bin/sh
echo "[ RUN      ] A.a"; echo "[       OK ] A.a (1 ms)"; echo "[ RUN      ] A.b"; echo "[  FAILED  ] A.b (1 ms)"
echo "[  FAILED  ] 1 test, listed below:"; echo "[  FAILED  ] A.b"; exit $((CLOVER_NEEDS_GPU))
""")
        code, parts, _ = self.measure("--only", "kernel-tests")
        self.assertEqual(code, 1)
        self.assertEqual((parts["kernel-tests"]["passed"], parts["kernel-tests"]["failed"]), (1, ["A.b"]))
        self.assertEqual(parts["kernel-tests"]["checks"][0]["found"], 1)

    def test_a_test_program_that_dies_is_no_success(self):
        self.put("cuda_test", '#!/bin/sh\necho "[ RUN      ] A.a"\nkill -SEGV $$\n')
        _, parts, _ = self.measure("--only", "kernel-tests")
        self.assertIn("error", parts["kernel-tests"])

    def test_a_program_that_is_missing_is_named(self):
        _, parts, _ = self.measure("--only", "products")
        self.assertIn("holds no linear_bench", parts["products"]["error"])


class Carrying(Folder):
    def test_parts_come_out_as_they_went_in(self):
        model = self.root / "model"
        model.mkdir()
        (model / "config.json").write_text("{}")
        (model / "model.safetensors").write_bytes(os.urandom(30_000))
        heads = self.root / "heads-clover"
        heads.mkdir()
        (heads / "config.json").write_text("[]")
        self.put("cuda_test", "#!/bin/sh\n")
        self.put("clover-infer", "#!/bin/sh\nexit 3\n")
        with contextlib.redirect_stderr(io.StringIO()):
            parts = gpu_programs.pack(gpu_programs.Programs(self.build), model, [heads], self.root / "pack", 10_000)
        self.assertGreater(len(parts), 3)
        for part in parts:
            self.assertLessEqual(sum(file.stat().st_size for file in part.iterdir()), 10_000)
        into = self.root / "there"
        self.assertEqual(gpu_programs.unpack([parts[-1]], into), ["model"])
        self.assertEqual(gpu_programs.unpack([parts[0]], into), ["model"])
        self.assertTrue(os.access(into / "bin" / "clover-infer", os.X_OK))
        self.assertEqual((into / "heads" / "heads-clover" / "config.json").read_text(), "[]")
        self.assertFalse((into / "models").exists())
        self.assertEqual(gpu_programs.unpack(parts[1:-1], into), [])
        self.assertEqual((into / "models" / "model" / "model.safetensors").read_bytes(), (model / "model.safetensors").read_bytes())
        self.assertTrue(gpu_programs.Programs(into).has("clover-infer", "cuda_test"))

    def test_nothing_to_pack_is_said(self):
        with self.assertRaisesRegex(gpu_programs.Failed, "holds no programs"):
            gpu_programs.pack(gpu_programs.Programs(self.build), self.root / "none", [], self.root / "pack", 10_000)


if __name__ == "__main__":
    unittest.main()
