#!/usr/bin/env python3
"""scripts/convert_pt.py: what it writes, and what it refuses to read."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

import torch
from safetensors.torch import load_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
MEDUSA = ROOT / "tests" / "golden" / "drafters" / "medusa" / "published"


class RunsCode:
    """What a pickle can do: it calls a function when it is read."""

    def __init__(self, file):
        self.file = str(file)

    def __reduce__(self):
        return open, (self.file, "w")


class ConvertPt(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def convert(self, *words):
        return subprocess.run([sys.executable, ROOT / "scripts" / "convert_pt.py", *words], capture_output=True, text=True)

    def test_the_file_that_medusa_published_becomes_the_same_tensors(self):
        output = self.folder / "medusa_lm_head.safetensors"
        ran = self.convert(MEDUSA / "medusa_lm_head.pt", "--output", output)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        found, expected = load_file(output), load_file(MEDUSA / "medusa_lm_head.safetensors")
        self.assertEqual(found.keys(), expected.keys())
        for name, tensor in expected.items():
            self.assertTrue(torch.equal(found[name], tensor), name)
        again = self.convert(MEDUSA / "medusa_lm_head.pt", "--output", output)
        self.assertEqual(again.returncode, 1)
        self.assertIn("exists already", again.stderr)

    def test_tensors_that_share_memory_are_written_each(self):
        tensor = torch.arange(6.0).view(2, 3)
        torch.save({"model": {"a": tensor, "b": tensor, "c": tensor.t()}}, self.folder / "pytorch_model.bin")
        ran = self.convert(self.folder / "pytorch_model.bin", "--key", "model")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        found = load_file(self.folder / "model.safetensors")
        self.assertTrue(torch.equal(found["b"], tensor) and torch.equal(found["c"], tensor.t()))

    def test_code_in_a_file_is_not_run(self):
        trace, file = self.folder / "trace", self.folder / "heads.pt"
        torch.save({"a": RunsCode(trace)}, file)
        ran = self.convert(file)
        self.assertEqual(ran.returncode, 1)
        self.assertIn("expected a PyTorch file of tensors alone", ran.stderr)
        self.assertFalse(trace.exists())
        self.assertFalse((self.folder / "heads.safetensors").exists())

    def test_what_is_no_dictionary_of_tensors_is_named(self):
        file = self.folder / "heads.pt"
        for content, message in ((torch.zeros(2), "found Tensor"), ({"epoch": 3}, "'epoch' is a int")):
            torch.save(content, file)
            ran = self.convert(file)
            self.assertEqual(ran.returncode, 1)
            self.assertIn(message, ran.stderr)
        file.write_bytes(b"no pickle")
        self.assertEqual(self.convert(file).returncode, 1)


if __name__ == "__main__":
    unittest.main()
