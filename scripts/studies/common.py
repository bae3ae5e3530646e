"""What several studies share: the data, heads of each kind at their better learning rate, and how figures are read."""

import json
import math
from functools import cached_property
from pathlib import Path
from statistics import mean
from typing import Callable

from .cells import Cell, Output
from .jobs import Jobs, default_learning_rate
from .pages import Page

NAMES = {"medusa": "Medusa", "clover": "Clover", "clover2": "Clover-2", "hydra": "Hydra", "redrafter": "ReDrafter", "eagle": "EAGLE",
         "eagle3": "EAGLE-3"}
ALL = "all tasks"
MORE_RATES = 3  # learning rates tried at most beyond the first ones
BUDGET = 4  # guesses a step where trees have a fixed size


class Study:
    """stages(): the cells, in groups; which cells a later group has may depend on the results of the ones before it."""

    name = ""

    def __init__(self, jobs: Jobs):
        self.jobs = jobs

    def stages(self) -> list[list[Output]]:
        raise NotImplementedError

    def page(self) -> Page:
        raise NotImplementedError

    def cells(self) -> list[Cell]:
        return [output.cell for stage in self.stages() for output in stage]

    # Data

    @cached_property
    def questions(self) -> dict[str, list[dict]]:
        return self.jobs.questions()

    @cached_property
    def files(self) -> dict[str, Path]:
        return {name: self.jobs.file(name, records) for name, records in self.questions.items()}

    @cached_property
    def bench_questions(self) -> list[dict]:
        return self.jobs.bench_part(self.questions["eval"])

    @cached_property
    def bench_file(self) -> Path:
        return self.jobs.file("bench", self.bench_questions)

    @cached_property
    def train_count(self) -> int:
        return len(self.questions["train"])

    @cached_property
    def eval_count(self) -> int:
        return len(self.questions["eval"])

    @cached_property
    def store(self) -> Output:
        return self.jobs.store(self.jobs.answers("training", self.files["train"], self.train_count))

    @cached_property
    def dev_answers(self) -> Output:
        return self.jobs.answers("development", self.files["dev"], len(self.questions["dev"]))

    @cached_property
    def eval_answers(self) -> Output:
        return self.jobs.answers("unseen", self.files["eval"], self.eval_count)

    # Heads

    def rates(self, kind: str, *options: str) -> list[float]:
        """Learning rates to try with these options of `fit`: more of them while the best measured one stands at the edge."""
        rates = sorted(default_learning_rate(kind) * factor for factor in self.jobs.size.learning_rates)
        for _ in range(MORE_RATES if len(rates) > 1 else 0):
            best = self.best_of(kind, rates, *options)
            if best == rates[-1]:
                rates.append(2 * best)
            elif best == rates[0]:
                rates.insert(0, best / 2)
            else:
                break
        return rates

    def heads(self, kind: str, rate: float, seed: int = 1, *options: str, label: str = "", features: bool = True) -> Output:
        return self.jobs.heads(kind, rate, self.store, self.train_count, seed, *options, label=label, features=features)

    def dev_evaluation(self, kind: str, rate: float, *options: str, name: str = "") -> Output:
        title = f"{name or NAMES[kind]} at {rate:g}"
        return self.jobs.evaluation(title, self.heads(kind, rate, 1, *options, label=name), self.dev_answers, len(self.questions["dev"]))

    def rate_search(self, kinds: tuple[str, ...]) -> list[list[Output]]:
        """Stages: each tries the rates that the results of the one before it suggest."""
        return self.searched([self.rates_of(kind) for kind in kinds])

    def searched(self, evaluations: list[list[Output]]) -> list[list[Output]]:
        return [[evaluation for of_one in evaluations for evaluation in of_one]] * (1 + MORE_RATES)

    def rates_of(self, kind: str, *options: str, name: str = "") -> list[Output]:
        """Heads of a kind with these options of `fit` at each of its learning rates."""
        return [self.dev_evaluation(kind, rate, *options, name=name) for rate in self.rates(kind, *options)]

    def best_of(self, kind: str, rates: list[float], *options: str) -> float | None:
        """The rate with the most tokens a step on the development questions; None until all are measured."""
        measured = {}
        for rate in rates:
            evaluation = self.dev_evaluation(kind, rate, *options)
            if not self.jobs.runner.is_there(evaluation.cell):
                return None
            measured[rate] = self.jobs.runner.read(evaluation)["tokens_per_step"]
        return max(measured, key=measured.get)

    def best_rate(self, kind: str, *options: str) -> float:
        """As best_of all rates; the configuration's until all are measured."""
        return self.best_of(kind, self.rates(kind, *options), *options) or default_learning_rate(kind)

    def best_heads(self, kind: str) -> Output:
        return self.heads(kind, self.best_rate(kind))

    def seeds_sentence(self) -> str:
        count = len(self.jobs.size.seeds)
        return f"Mean and spread over {count} seeds." if count > 1 else "One seed."

    def evaluation(self, title: str, heads: Output) -> Output:
        return self.jobs.evaluation(title, heads, self.eval_answers, self.eval_count)

    def copying(self) -> Output:
        """Speed of `auto` without heads, which copies guesses from the text: what heads are worth shows beside this, too."""
        return self.jobs.bench("speed without heads, by copying from the text", [], self.bench_file, len(self.bench_questions), "--draft", "off,auto",
                               guesses=(0, 0))

    # Results

    def copying_rows(self) -> dict[int, dict]:
        """Of `auto` without heads, by batch size."""
        return {row["batch_size"]: row for row in self.read(self.copying())["configurations"] if row["draft"] == "auto"}

    def read(self, output: Output) -> dict:
        return self.jobs.runner.read(output)

    def machine(self) -> dict:
        """As the first report that names it has it."""
        for cell in self.cells():
            for file in sorted(self.jobs.runner.place(cell).glob("*.json")):
                found = json.loads(file.read_text())
                if "machine" in found:
                    return found["machine"]
        return {}

    def learned_sentence(self) -> str:
        return f"Target {self.jobs.target.name}; heads learned from its answers to {self.train_count} questions"

    def speed_sentence(self) -> str:
        return (f"Speed is that of answers of up to {self.jobs.size.bench_tokens} tokens to {len(self.bench_questions)} of the unseen questions, in "
                f"{self.jobs.size.rounds} rounds.")

    def data_sentence(self) -> str:
        tasks: dict[str, int] = {}
        for record in self.questions["eval"]:
            tasks[record.get("category", "prompts")] = tasks.get(record.get("category", "prompts"), 0) + 1
        said = ", ".join(f"{count} {task}" for task, count in tasks.items())
        return (f"{self.learned_sentence()}; measured on {self.eval_count} "
                f"unseen ones ({said}), none of which is among the training questions, compared by text. {BUDGET} guesses a step, which the policy "
                "`clover` chooses for every kind of heads.")

    def rates_sentence(self, best: dict[str, tuple]) -> str:
        """Which learning rates were chosen, and where another might be better still; best: by name the kind and options of `fit`."""
        count = len(self.jobs.size.learning_rates)
        if count == 1:
            return "Learning rates are the configurations'."
        chosen = {name: (self.best_rate(*recipe), self.rates(*recipe)) for name, recipe in best.items()}
        at_edge = [f"{name} ({rate:g}, the {'highest' if rate == rates[-1] else 'lowest'} tried)" for name, (rate, rates) in chosen.items() if rate in (rates[0], rates[-1])]
        said = (f"{count} to {count + MORE_RATES} learning rates were tried for each, and the one with the most tokens a step on the development questions "
                "is used")
        return f"{said}; another might be better still for {', '.join(at_edge)}." if at_edge else f"{said}."


def is_of(row: dict, heads: Output) -> bool:
    """Whether a row of a bench was measured with these heads; their folder may have been moved since."""
    return bool(row["heads"]) and heads.cell.key in row["heads"]


def is_plain(row: dict) -> bool:
    return row["draft"] == "off"


def auto_sentence(rows: list[dict], name_of: Callable[[dict], str]) -> str:
    """Where `auto` loses more than runs differ: 2 % to plain decoding or 3 % to a fixed tree of the same heads.  Such are faults."""
    fixed: dict[tuple, float] = {}
    for row in rows:
        if row["draft"] == "clover":
            place = (name_of(row), row["batch_size"])
            fixed[place] = max(fixed.get(place, 0.0), row["ratio_to_off"])

    def best_fixed(name: str, size: int) -> str:
        return f", the best fixed tree {fixed[name, size]:.2f}" if (name, size) in fixed else ""

    autos = [(name_of(row), row["batch_size"], row["ratio_to_off"]) for row in rows if row["draft"] == "auto"]
    lost = [f"{name}, batch {size} ({ratio:.2f} of plain decoding{best_fixed(name, size)})" for name, size, ratio in autos
            if ratio < max(0.98, 0.97 * fixed.get((name, size), 0))]
    loses = "`auto` loses more than 2 % to plain decoding" + (" or 3 % to the best fixed tree" if fixed else "")
    return f"In none of {len(autos)} cases {loses}." if not lost else f"In {len(lost)} of {len(autos)} cases {loses}: {'; '.join(lost)}."


def rounds_sentence(rows: list[dict]) -> str:
    """How far rounds of a bench differ in tokens/s over plain decoding's of the same round."""
    plain = {row["batch_size"]: row["rounds"] for row in rows if is_plain(row)}
    ratios = [[alone["decode_seconds"] / round["decode_seconds"] for alone, round in zip(plain[row["batch_size"]], row["rounds"])]
              for row in rows if not is_plain(row)]
    ranges = [max(of_row) - min(of_row) for of_row in ratios if len(of_row) > 1]
    return f"Between rounds these ratios differ by {mean(ranges):.2f} on average and by {max(ranges):.2f} at most." if ranges else ""


def tokens_by_task(evaluation: dict) -> dict[str, float]:
    """Tokens a step over all questions and by task."""
    by_task = {task: found["tokens_per_step"] for task, found in evaluation["by_category"].items() if "tokens_per_step" in found}
    return {ALL: evaluation["tokens_per_step"], **(by_task if len(by_task) > 1 else {})}


def extra_ratio(tokens: float, others: float) -> float:
    """Tokens a step beyond the one that plain decoding yields, over those of others; not a number where they yield none."""
    return (tokens - 1) / (others - 1) if others > 1 else math.nan


def tops(evaluation: dict, rank: int) -> list[float]:
    """By head: share of right tokens among its best `rank` guesses, in per cent, where it is given the right earlier tokens."""
    return [100 * head["teacher_forced"][rank - 1] for head in evaluation["heads"]]


def slashed(values: list[float]) -> str:
    return " / ".join(f"{value:.0f}" for value in values)
