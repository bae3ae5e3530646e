#!/usr/bin/env python3
"""scripts/study --quick, killed twice and resumed: every study ends, no answer differs, and a further run changes nothing."""

import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
STUDIES = ("table", "ablation", "sensitivity", "break-even", "sampling", "synthesis")


class QuickStudy(unittest.TestCase):
    def test_every_study_ends_though_it_is_killed_twice(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        command = [sys.executable, str(ROOT / "scripts" / "study.py"), "--quick", "--output", str(folder)]
        for number, seconds in ((signal.SIGKILL, 6), (signal.SIGINT, 8)):
            study = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
            time.sleep(seconds)
            study.send_signal(number)
            self.assertNotEqual(study.wait(timeout=30), 0)
        ran = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(ran.returncode, 0, ran.stderr[-3000:])
        self.assertIn("runs, about", ran.stderr)
        results = {name: (folder / name / "study.json").read_text() for name in STUDIES}
        self.assertEqual(json.loads(results["table"])["answers_that_differ"], 0)
        self.assertEqual(json.loads(results["sensitivity"])["differ"], 0)
        self.assertEqual([row["differ"] for row in json.loads(results["sampling"])["rows"] if row["mode"] == "match"], [0] * 4)
        for name in STUDIES:
            page = (folder / name / "study.md").read_text()
            for image in pathlib.Path(folder / name).glob("*.png"):
                self.assertIn(f"({image.name})", page)
        again = subprocess.run(command, capture_output=True, text=True)
        self.assertIn("0 runs, about 0 s in all", again.stderr)
        for name in STUDIES:
            self.assertEqual((folder / name / "study.json").read_text(), results[name], name)


if __name__ == "__main__":
    unittest.main()
