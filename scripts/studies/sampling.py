"""Study `sampling`: exact verification beside Medusa's typical acceptance, at several temperatures."""

import json
import math
import re
from collections import Counter
from pathlib import Path

from .cells import Cell, Output, Own
from .common import Study
from .jobs import STUDY_DATA
from .pages import Page, draw_lines, table
from .requests import read_lines

TEMPERATURES = (0.0, 0.4, 0.7, 1.0)
MODES = ("plain", "match", "typical")
NAMES = {"plain": "plain decoding", "match": "exact (`match`)", "typical": "typical acceptance"}
BATCH = 4
DRAWS = 2000  # of one prompt, for the test of the distribution
TOKENS = 3  # of each draw
DIFFERENT = 0.001  # p below which two distributions are said to differ
TOP_K = 4  # so that the distribution has few outcomes


class Sampling(Study):
    name = "sampling"

    def stages(self) -> list[list[Output]]:
        return [*self.rate_search(("clover",)),
                [*(self.answered(temperature, mode) for temperature in TEMPERATURES for mode in MODES),
                 *(self.drawn(mode) for mode in MODES), self.drawn("plain", seed=2)]]

    # Cells

    def records(self) -> list[dict]:
        """Questions whose right answers are known, or the user's prompts."""
        if self.jobs.prompts:
            return self.questions["eval"]
        return read_lines(STUDY_DATA / "gsm8k.jsonl")[: self.jobs.size.sampling_questions]

    def answered(self, temperature: float, mode: str) -> Output:
        records = self.records()
        return self.batch(f"{len(records)} answers, temperature {temperature:g}, {mode}", self.jobs.file("sampling", records), len(records), mode,
                          self.jobs.size.answer_tokens, "--temperature", f"{temperature:g}", "--seed", "1")

    def drawn(self, mode: str, seed: int = 1) -> Output:
        """Many short answers to one prompt; each request has randomness of its own, and each mode a seed of its own."""
        count = self.jobs.size.draws
        questions = self.jobs.file(f"draws-{count}", [{"id": str(number), **without_id(self.records()[0])} for number in range(count)])
        return self.batch(f"{count} draws of {TOKENS} tokens, {mode}", questions, count, mode, TOKENS, "--temperature", "1.5", "--top-k", str(TOP_K),
                          "--seed", str(100 * (MODES.index(mode) + 1) + seed))

    def batch(self, title: str, questions: Path, count: int, mode: str, tokens: int, *options: str) -> Output:
        """The report; the answers lie beside it."""
        drafts = ["--draft", "off"] if mode == "plain" else ["--draft", "clover", "--budget", "4", "--verify", mode,
                                                             "--heads", self.best_heads("clover")]
        words = ["batch", *self.jobs.of_target(), "--input", questions, "--output", Own("answers.jsonl"), "--json", Own("report.json"),
                 "--max-batch", str(BATCH if tokens > TOKENS else 16), "--max-tokens", str(tokens), *drafts, *options]
        seconds = 2 + count * (tokens + 8) * self.jobs.step_ms / 8e3
        return Output(Cell(title, "clover-infer", words, "sampling", seconds), "report.json")

    # The page

    def answers(self, report: Output) -> list[dict]:
        found = read_lines(self.jobs.runner.place(report.cell) / "answers.jsonl")
        return sorted(found, key=lambda record: record["line"])

    def page(self) -> Page:
        rows = []
        for temperature in TEMPERATURES:
            plain = self.answers(self.answered(temperature, "plain"))
            for mode in MODES:
                report, found = self.read(self.answered(temperature, mode))["configurations"][0], self.answers(self.answered(temperature, mode))
                rows.append({"temperature": temperature, "mode": mode, "tokens_per_step": report["tokens_per_step"],
                             "tokens_per_second": report["tokens_per_second"],
                             "differ": sum(one["token_ids"] != other["token_ids"] for one, other in zip(found, plain)),
                             "right": None if self.jobs.prompts else sum(is_right(one) for one in found), "answers": len(found)})
        reference = outcomes(self.answers(self.drawn("plain")))
        probabilities = {name: two_sample_p(reference, outcomes(self.answers(report))) for name, report in
                         {"plain": self.drawn("plain", seed=2), "match": self.drawn("match"), "typical": self.drawn("typical")}.items()}
        figures = {"rows": rows, "chi_squared_p": probabilities, "draws": self.jobs.size.draws}
        return Page(f"Sampled answers on {self.jobs.target.name}: exact or typical", self.answer(rows, probabilities), figures,
                    [self.section(rows), self.distribution_section(probabilities)],
                    {"sampling.png": lambda axes: draw_lines(
                        axes, list(TEMPERATURES), {mode: [row["tokens_per_step"] for row in rows if row["mode"] == mode] for mode in MODES},
                        ("temperature", "tokens a step"), log=False)})

    def answer(self, rows: list[dict], probabilities: dict[str, float]) -> str:
        hottest = {row["mode"]: row for row in rows if row["temperature"] == TEMPERATURES[-1]}
        exact = sum(row["differ"] for row in rows if row["mode"] == "match")
        count = hottest["plain"]["answers"]
        return (f"At temperature {TEMPERATURES[-1]:g} typical acceptance yields {hottest['typical']['tokens_per_step']:.2f} tokens a step where exact "
                f"verification yields {hottest['match']['tokens_per_step']:.2f}. {exact} of {count * len(TEMPERATURES)} "
                f"answers under exact verification differ from plain decoding's with the same seed. A test of {self.jobs.size.draws} short answers shows "
                f"{shown(probabilities['match'])} between the distributions of exact verification and of plain decoding, and "
                f"{shown(probabilities['typical'])} for typical acceptance.{self.right_sentence(hottest)}")

    def right_sentence(self, hottest: dict[str, dict]) -> str:
        if self.jobs.prompts:  # whose right answers are not known
            return ""
        return (f" Of {hottest['plain']['answers']} questions {hottest['plain']['right']} are answered rightly by plain decoding, "
                f"{hottest['match']['right']} by exact verification and {hottest['typical']['right']} by typical acceptance.")

    def section(self, rows: list[dict]) -> str:
        lines = [[f"{row['temperature']:g}", NAMES[row["mode"]], row["tokens_per_step"], round(row["tokens_per_second"]),
                  f"{row['differ']} of {row['answers']}", "unknown" if self.jobs.prompts else f"{row['right']} of {row['answers']}"] for row in rows]
        slower = any(row["mode"] == "match" and row["tokens_per_second"] < plain_of(rows, row)["tokens_per_second"] for row in rows)
        warning = (f" On this machine a pass that checks 4 guesses for each of {BATCH} sequences takes longer than its tokens are worth; `--draft auto` "
                   "guesses less there, or nothing.") if slower else ""
        return (f"## Temperatures\n\n{self.jobs.target.name} with Clover heads, 4 guesses a step, batch {BATCH}, the same seed in every row. "
                "Guesses are a fixed function of the text, so drawing the target's own token and following it while a guess equals it "
                "(`match`) accepts a guess with its probability under the target, as rejection sampling does." + warning + "\n\n" +
                table(["temperature", "verification", "tokens a step", "tokens/s", "answers that differ from plain", "right answers"], lines))

    def distribution_section(self, probabilities: dict[str, float]) -> str:
        lines = [["plain decoding, another seed", f"{probabilities['plain']:.3g}"], ["exact (`match`)", f"{probabilities['match']:.3g}"],
                 ["typical acceptance", f"{probabilities['typical']:.3g}"]]
        return (f"## Distribution\n\n{self.jobs.size.draws} draws of {TOKENS} tokens behind one prompt at temperature 1.5, top-k {TOP_K}, against as "
                "many of plain decoding: probability of a difference as large by chance (chi-squared of two samples, outcomes expected "
                f"less than five times joined). Below {DIFFERENT:g} the distribution is another one.\n\n" + table(["", "p"], lines))


def shown(p: float) -> str:
    return "nothing, since the draws are too much alike," if math.isnan(p) else f"{'a' if p < DIFFERENT else 'no'} difference (p = {p:.2g})"


def plain_of(rows: list[dict], row: dict) -> dict:
    """The row of plain decoding at the same temperature."""
    return next(one for one in rows if one["mode"] == "plain" and one["temperature"] == row["temperature"])


def without_id(record: dict) -> dict:
    return {name: value for name, value in record.items() if name not in ("id", "metadata", "category")}


def is_right(answer: dict) -> bool:
    """Whether the last number of the text is the right one."""
    right = answer["metadata"].get("answer") if isinstance(answer.get("metadata"), dict) else None
    numbers = re.findall(r"-?\d+(?:\.\d+)?", str(answer["text"]).replace(",", ""))
    return right is not None and bool(numbers) and float(numbers[-1]) == float(right)


def outcomes(answers: list[dict]) -> Counter:
    return Counter(json.dumps(answer["token_ids"]) for answer in answers)


def two_sample_p(one: Counter, other: Counter) -> float:
    """Of the chi-squared statistic for two samples of equal size being drawn from one distribution."""
    pairs, rare = [], [0, 0]
    for outcome in one | other:
        counts = [one[outcome], other[outcome]]
        if sum(counts) >= 10:
            pairs.append(counts)
        else:
            rare = [rare[0] + counts[0], rare[1] + counts[1]]
    if sum(rare) >= 10:
        pairs.append(rare)
    if len(pairs) < 2:
        return math.nan  # too few different outcomes for a test
    statistic = sum((a - b) ** 2 / (a + b) for a, b in pairs)
    return upper_chi_squared(statistic, len(pairs) - 1)


def upper_chi_squared(statistic: float, degrees: int) -> float:
    """Probability that a chi-squared variable exceeds `statistic`, by the sum over half degrees (Abramowitz and Stegun 26.4.4, 26.4.5)."""
    half = statistic / 2
    if degrees % 2:
        total, term, power = math.erfc(math.sqrt(half)), math.exp(-half) * math.sqrt(half) / math.gamma(1.5), 1.5
    else:
        total, term, power = 0.0, math.exp(-half), 1.0
    while power < (degrees + 1) / 2:
        total += term
        term *= half / power
        power += 1
    return min(1.0, total)
