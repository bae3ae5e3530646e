#!/usr/bin/env python3
"""scripts/studies: cells are run once and continued, questions are kept apart, and the statistics are right."""

import json
import math
import os
import pathlib
import signal
import stat
import sys
import tempfile
import time
import unittest
from collections import Counter
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import study  # noqa: E402
from studies import ablation, break_even, cells, common, jobs, pages, requests, sampling, table  # noqa: E402

# Writes its arguments to `runs`, and fails while a file `fail` stands beside the program.
PROGRAM = """#!/bin/sh
here=$(dirname "$0")
echo "$@" >> $here/runs
[ -e $here/fail ] && { echo "out of luck"; exit 7; }
while [ $# != 0 ]; do [ "$1" = --output ] && echo made > "$2"; shift; done
exit 0
"""


class Cells(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.program = self.folder / "tool"
        self.program.write_text(PROGRAM)
        self.program.chmod(self.program.stat().st_mode | stat.S_IXUSR)
        self.enterContext(mock.patch.object(cells, "program", lambda name: self.folder / name))
        self.enterContext(mock.patch("sys.stderr"))
        self.input = self.folder / "input"
        self.input.write_text("1")
        self.runner = cells.Runner(self.folder / "study", "test")

    def first(self):
        return cells.Cell("first", "tool", ["make", self.input, "--output", cells.Own("out")], "sort", 1, resume=["--resume"])

    def second(self, *words):
        return cells.Cell("second", "tool", ["use", cells.Output(self.first(), "out"), *words, "--output", cells.Own("out")], "sort", 1)

    def runs(self):
        return (self.folder / "runs").read_text().splitlines()

    def test_a_cell_runs_once_after_what_it_needs(self):
        self.runner.run([self.second()])
        self.assertEqual([run.split()[0] for run in self.runs()], ["make", "use"])
        self.runner.run([self.first(), self.second()])
        self.assertEqual(len(self.runs()), 2)
        self.assertEqual(self.runner.path(cells.Output(self.second(), "out")).read_text(), "made\n")

    def test_what_changes_runs_again_and_nothing_else(self):
        self.runner.run([self.second()])
        self.runner.run([self.second("--other")])
        self.assertEqual([run.split()[0] for run in self.runs()], ["make", "use", "use"])
        self.input.write_text("2, another size")
        self.assertEqual(len(self.runner.missing([self.second()])), 2)
        self.input.write_text("1")
        os.utime(self.input)  # the same contents
        self.assertEqual(self.runner.missing([self.second()]), [])
        self.program.write_text(PROGRAM + "# another version\n")
        self.assertEqual(len(self.runner.missing([self.second()])), 2)

    def test_a_cell_that_failed_says_why_and_goes_on(self):
        (self.folder / "fail").touch()
        with self.assertRaisesRegex(cells.Failed, r"(?s)first: exit code 7; .*out of luck"):
            self.runner.run([self.first()])
        (self.folder / "fail").unlink()
        self.runner.run([self.first()])
        self.assertTrue(self.runs()[1].endswith("--resume"))
        self.assertGreater(self.runner.read(cells.Output(self.first(), "cell.json"))["seconds"], 0)

    def test_two_studies_in_one_folder_are_refused(self):
        self.runner.lock()
        with self.assertRaisesRegex(cells.Failed, "another study works in"):
            cells.Runner(self.folder / "study", "test").lock(patience=0)

    def test_a_run_whose_study_was_killed_ends_and_the_next_study_waits_for_it(self):
        self.program.write_text("#!/bin/sh\n[ -e $(dirname $0)/begun ] && exit 0\n"
                                "trap 'sleep 1; echo saved > $(dirname $0)/saved; exit 75' TERM\ntouch $(dirname $0)/begun\n"
                                "while :; do sleep 0.1; done\n")
        killed = os.fork()
        if killed == 0:
            try:
                runner = cells.Runner(self.folder / "study", "test")
                runner.lock()
                runner.run([self.first()])
            finally:
                os._exit(0)
        self.wait_for(self.folder / "begun")
        os.kill(killed, signal.SIGKILL)
        os.waitpid(killed, 0)
        self.runner.lock()
        self.assertEqual((self.folder / "saved").read_text(), "saved\n")
        self.runner.run([self.first()])

    def wait_for(self, file):
        for _ in range(600):
            if file.exists():
                return
            time.sleep(0.05)
        self.fail(f"{file} is not written")

    def test_time_left_counts_what_runs_later_and_what_earlier_runs_took(self):
        said = []
        with mock.patch.object(cells.Runner, "say", lambda runner, text: said.append(text)), mock.patch.object(cells.Runner, "run_one", return_value=20.0):
            third = cells.Cell("third", "tool", ["third"], "sort", 30)
            self.runner.run([self.first()], [self.second(), third])
            self.runner.run([third])
        self.assertIn("1/3 first, about 1 s", said[0])
        self.assertIn("about 32 s left", said[0])
        self.assertIn("2/2 third, about 10 min", said[1])
        (self.folder / "study" / "cells" / "old").mkdir(parents=True)
        (self.folder / "study" / "cells" / "old" / "cell.json").write_text('{"sort": "sort", "seconds": 50, "expected_seconds": 10}')
        again = cells.Runner(self.folder / "study", "test")
        again.lock()
        self.assertEqual(again.expected(third), 150)
        other = cells.Cell("other", "tool", ["other"], "another sort", 30)
        self.assertEqual(again.expected(other), 30)  # 50 seconds of another sort say little
        again._count("sort", 40, 20)
        self.assertEqual(again.expected(other), 90)


class Questions(unittest.TestCase):
    def parts(self, prompts=()):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        return jobs.Jobs(cells.Runner(folder, "test"), folder, jobs.Size(), "cpu", 10, list(prompts)).questions()

    def assert_apart(self, parts):
        texts = {name: {requests.text_of(record) for record in records} for name, records in parts.items()}
        self.assertFalse(texts["train"] & (texts["dev"] | texts["eval"]))
        self.assertFalse(texts["dev"] & texts["eval"])

    def test_no_question_stands_in_two_parts(self):
        parts = self.parts()
        self.assert_apart(parts)
        self.assertEqual(len({record["category"] for record in parts["eval"]}), 7)
        answered = {requests.text_of(record) for record in requests.read_lines(jobs.STUDY_DATA / "gsm8k.jsonl")}
        self.assertFalse(answered & {requests.text_of(record) for record in parts["train"]})

    def test_a_question_is_known_in_another_record(self):
        self.assertEqual(requests.text_of({"prompt": "What is rain?"}),
                         requests.text_of({"messages": [{"role": "user", "content": " What is  RAIN"}]}))

    def test_a_question_is_known_within_a_conversation_and_behind_a_system_message(self):
        alone = {"prompt": "What is rain?"}
        again = [{"turns": ["What is rain?", "And snow?"]}, {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "what is rain"}]},
                 {"messages": [{"role": "user", "content": [{"type": "text", "text": "What is rain?"}]}]}]
        for record in again:
            self.assertEqual(requests.not_among([alone], [record]), [])
            self.assertEqual(requests.not_among([record], [alone]), [])
        others = [{"turns": ["Say something.", "What is rain?"]}, {"messages": [{"role": "user", "content": "What is rain?"}], "documents": ["x"]}]
        self.assertEqual(requests.not_among(others, [alone]), others)

    def requests(self, *records):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        (folder / "mine.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
        return requests.read_requests(folder / "mine.jsonl")

    def test_users_requests_are_what_they_ask_alone(self):
        messages = [{"role": "user", "content": "Hello"}]
        self.assertEqual(self.requests({"prompt": ["a", "b"], "temperature": 0.7, "seed": 1, "max_tokens": 1000, "id": 4},
                                       {"custom_id": "x", "url": "/v1/chat/completions", "body": {"model": "m", "messages": messages, "top_p": 0.1}},
                                       {"turns": ["c"], "category": ["d"], "metadata": {"answer": "Paris"}}),
                         [{"prompt": "a"}, {"prompt": "b"}, {"messages": messages}, {"turns": ["c"], "category": '["d"]'}])

    def test_requests_that_ask_nothing_are_refused_with_their_place(self):
        for record, found in (({"question": "a"}, "found none"), ({"body": "a"}, "found none"), ({"prompt": "a", "turns": ["a"]}, "prompt and turns"),
                              ({"messages": ["a"]}, "messages: expected a list of objects"), ({"turns": "a"}, "turns: expected a list of texts")):
            with self.assertRaisesRegex(cells.Failed, f"mine.jsonl, request 2: .*{found}"):
                self.requests({"prompt": "a"}, record)

    def test_prompts_of_ones_own_are_shared_out(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        file = folder / "mine.jsonl"
        file.write_text("".join(json.dumps({"prompt": f"question {number // 2}"}) + "\n" for number in range(160)))
        parts = self.parts([file])
        self.assert_apart(parts)
        self.assertEqual(sum(map(len, parts.values())), 80)
        file.write_text(json.dumps({"prompt": "alone"}) + "\n")
        with self.assertRaisesRegex(cells.Failed, "too few different prompts"):
            self.parts([file])


class Machines(unittest.TestCase):
    def test_speeds_of_two_are_not_joined(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        study.keep_to_one_machine(folder, "cpu")
        study.keep_to_one_machine(folder, "cpu")
        with mock.patch.dict(os.environ, {"CLOVER_CPU_PATH": "portable"}), self.assertRaisesRegex(cells.Failed, "CLOVER_CPU_PATH=portable: give --output"):
            study.keep_to_one_machine(folder, "cpu")


class LearningRates(unittest.TestCase):
    def rates(self, best):
        """What is tried with Clover, whose configuration has 4e-3, if the tokens a step fall with the distance from `best`."""
        study = common.Study(mock.Mock(size=jobs.Size()))
        measured = set()
        with mock.patch.object(common.Study, "dev_evaluation", lambda self, kind, rate, *options: mock.Mock(cell=rate)):
            study.jobs.runner.is_there = measured.__contains__
            study.jobs.runner.read = lambda evaluation: {"tokens_per_step": 2 - abs(math.log(evaluation.cell / best))}
            for _ in range(1 + common.MORE_RATES):
                measured.update(study.rates("clover"))
            return study.rates("clover"), study.best_rate("clover")

    def test_the_search_goes_on_while_the_best_stands_at_the_edge(self):
        self.assertEqual(self.rates(4e-3), ([2e-3, 4e-3, 8e-3], 4e-3))
        self.assertEqual(self.rates(16e-3), ([2e-3, 4e-3, 8e-3, 16e-3, 32e-3], 16e-3))
        self.assertEqual(self.rates(1), ([2e-3, 4e-3, 8e-3, 16e-3, 32e-3, 64e-3], 64e-3))
        self.assertEqual(self.rates(1e-3), ([5e-4, 1e-3, 2e-3, 4e-3, 8e-3], 1e-3))


class Kinds(unittest.TestCase):
    def test_are_those_asked_for_and_the_two_that_table_compares(self):
        def kinds(study, *asked):
            return list(study(mock.Mock(size=jobs.Size(kinds=asked))).kinds)

        self.assertEqual(kinds(table.Table), list(jobs.KINDS))
        self.assertEqual(kinds(table.Table, "eagle"), ["medusa", "clover", "eagle"])
        self.assertEqual(kinds(break_even.BreakEven), ["medusa", "clover", "redrafter"])
        self.assertEqual(kinds(break_even.BreakEven, "eagle"), ["eagle"])


class Statistics(unittest.TestCase):
    def test_chi_squared_is_that_of_tables(self):
        for degrees, statistic in {1: 3.841, 2: 5.991, 3: 7.815, 4: 9.488, 10: 18.307, 15: 24.996}.items():
            self.assertAlmostEqual(sampling.upper_chi_squared(statistic, degrees), 0.05, delta=2e-4)

    def test_two_samples_differ_when_they_do(self):
        self.assertEqual(sampling.two_sample_p(Counter(a=500, b=500), Counter(a=500, b=500)), 1)
        self.assertLess(sampling.two_sample_p(Counter(a=600, b=400), Counter(a=500, b=500)), 1e-4)
        self.assertGreater(sampling.two_sample_p(Counter(a=510, b=490), Counter(a=490, b=510)), 0.1)

    def test_one_seed_tells_nothing_of_their_spread(self):
        self.assertAlmostEqual(pages.widest_spread([[1.0, 1.2], [1.5, 1.5]]), 0.1414, delta=1e-4)
        self.assertTrue(math.isnan(pages.widest_spread([[1.0], [1.5]])))
        one = common.Study(mock.Mock(size=jobs.Size(seeds=(1,))))
        self.assertEqual(one.seeds_sentence(), "One seed.")
        self.assertIn("uncertain", ablation.Ablation(one.jobs).order_sentence({"concatenation": 0.1}, math.nan))

    def test_draws_that_are_all_alike_are_no_test(self):
        self.assertTrue(math.isnan(sampling.two_sample_p(Counter(a=1000), Counter(a=1000))))

    def test_heads_pay_when_they_have_saved_what_they_cost(self):
        self.assertAlmostEqual(break_even.tokens_until(100, 50, 100), 10_000)  # a hundredth of a second for each token
        self.assertIsNone(break_even.tokens_until(100, 50, 50))

    def test_an_answer_is_right_by_its_last_number(self):
        answer = {"text": "5 apples cost 2 each, so $1,010.", "metadata": {"answer": "1010"}}
        self.assertTrue(sampling.is_right(answer))
        self.assertFalse(sampling.is_right({**answer, "text": "1010 or 7"}))
        self.assertFalse(sampling.is_right({**answer, "text": "none"}))


class Pages(unittest.TestCase):
    def test_a_page_says_where_auto_loses(self):
        def row(draft, size, ratio):
            return {"draft": draft, "batch_size": size, "ratio_to_off": ratio}

        rows = [row("clover", 1, 1.2), row("auto", 1, 1.17), row("clover", 4, 0.5), row("auto", 4, 0.985)]
        self.assertIn("In none of 2 cases", common.auto_sentence(rows, lambda row: "Clover"))
        rows += [row("clover", 8, 1.2), row("auto", 8, 1.1), row("clover", 16, 0.5), row("auto", 16, 0.95)]
        said = common.auto_sentence(rows, lambda row: "Clover")
        self.assertIn("In 2 of 4 cases", said)
        self.assertIn("Clover, batch 8 (1.10 of plain decoding, the best fixed tree 1.20)", said)

    def test_the_ablation_tells_losses_from_no_change(self):
        said = ablation.Ablation(mock.Mock()).order_sentence({"one": 0.1, "two": -0.03, "three": 0.005}, 0.01)
        self.assertRegex(said, '"two" yields fewer tokens .*; "three" changes them by no more than seeds differ')
        self.assertIn("as the paper has it", ablation.Ablation(mock.Mock()).order_sentence({"one": 0.1}, 0.01))

    def test_rounds_are_compared_with_plain_decoding_of_the_same_round(self):
        rows = [{"draft": draft, "batch_size": 1, "rounds": [{"decode_seconds": seconds} for seconds in took]}
                for draft, took in (("off", (2.0, 4.0)), ("auto", (1.0, 2.0)), ("clover", (1.0, 4.0)))]
        self.assertIn("0.50 on average and by 1.00 at most", common.rounds_sentence(rows))

    def test_what_is_no_number_is_null_in_json(self):
        self.assertEqual(pages.without_nan({"a": [math.nan, (1, math.nan)]}), {"a": [None, [1, None]]})

    def test_numbers_are_aligned_and_gaps_shown(self):
        self.assertEqual(pages.table(["a", "b"], [["x", 1.234], ["y", float("nan")]]),
                         "| a | b |\n|---|---:|\n| x | 1.23 |\n| y | – |")


if __name__ == "__main__":
    unittest.main()
