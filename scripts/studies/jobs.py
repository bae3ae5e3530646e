"""The jobs that studies are made of: questions, answers, stores, heads, evaluations, benches, as cells."""

import hashlib
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .cells import ROOT, Cache, Cell, Failed, Output, Own, Runner, Word, contents_hash, program
from .requests import not_among, read_lines, read_requests, text_of

DEMO_DATA = ROOT / "scripts" / "demo_data"
STUDY_DATA = ROOT / "scripts" / "study_data"
# Relative duration of training by kind: Medusa's is 1.
TRAINING_COST = {"medusa": 1.0, "clover": 1.3, "clover2": 2.0, "hydra": 1.2, "redrafter": 1.7, "eagle": 2.0, "eagle3": 2.5}
KINDS = tuple(TRAINING_COST)
BATCH = 16  # samples of an optimiser step, in all configurations


@dataclass
class Size:
    """How much of everything a study takes."""

    train_questions: int = 480
    dev_questions: int = 24  # choose among settings
    eval_questions: int = 24  # of each task, what is reported; of the training questions' own twice as many
    bench_questions: int = 8  # of each task, for speed
    answer_tokens: int = 160
    bench_tokens: int = 64
    epochs: float = 3
    batch_sizes: tuple[int, ...] = (1, 4, 16)
    rounds: int = 2
    seeds: tuple[int, ...] = (1, 2, 3)
    kinds: tuple[str, ...] = ()  # of heads, of `table` and `break-even`; none: the study's own choice
    learning_rates: tuple[float, ...] = (0.5, 1.0, 2.0)  # times the kind's own
    # Of `sensitivity`: learning rates as above, numbers of heads, tokens before the question, shares of the answers.
    rate_factors: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0, 4.0)
    head_counts: tuple[int, ...] = (2, 3, 4, 5, 6)
    contexts: tuple[int, ...] = (64, 250, 1000, 2000)
    data_shares: tuple[float, ...] = (0.125, 0.25, 0.5, 1.0)
    sampling_questions: int = 200
    draws: int = 2000
    conversations: int = 0  # that `synthesis` makes up; 0: as many as training questions
    synthesis: tuple[str | Path, ...] = ()  # options of `synthesize`


QUICK = Size(train_questions=12, dev_questions=2, eval_questions=2, bench_questions=1, answer_tokens=12, bench_tokens=8, epochs=1, batch_sizes=(1, 2),
             rounds=1, seeds=(1, 2), learning_rates=(1.0,), rate_factors=(0.5, 1.0), head_counts=(2, 3), contexts=(64, 250), data_shares=(0.5, 1.0),
             sampling_questions=4, draws=40,
             synthesis=("--first-questions", DEMO_DATA / "train_questions.jsonl", "--temperature", "8", "--stop", "e"))  # a random model never ends


@dataclass
class Jobs:
    """Makes cells for one target and one set of questions."""

    runner: Runner
    target: Path
    size: Size
    device: str
    step_ms: float  # of a pass of 16 rows on this machine
    prompts: list[Path] = field(default_factory=list)  # the user's; none: the questions that come with Clover

    # Questions

    def questions(self) -> dict[str, list[dict]]:
        """"train", "dev" and "eval": requests; no text stands in two of them."""
        if self.prompts:
            parts = self._split_of_prompts()
        else:
            train = read_lines(DEMO_DATA / "train_questions.jsonl")
            held_out = read_lines(DEMO_DATA / "eval_questions.jsonl")
            for record in held_out:
                record["category"] = "gsm8k"
            parts = {"train": train[: self.size.train_questions],
                     "dev": train[-self.size.dev_questions:],
                     "eval": held_out[: 2 * self.size.eval_questions] + self._spec_bench()}
        parts["train"] = not_among(parts["train"], parts["dev"] + parts["eval"])
        parts["dev"] = not_among(parts["dev"], parts["eval"])
        if not all(parts.values()):
            raise Failed(f"too few different prompts: {', '.join(f'{len(part)} {name}' for name, part in parts.items())}; give more")
        return parts

    def unused_questions(self) -> list[dict]:
        """Those that come with Clover and are in no part."""
        if self.prompts:
            return []
        used = {text_of(record) for part in self.questions().values() for record in part}
        return [record for record in read_lines(DEMO_DATA / "train_questions.jsonl") if text_of(record) not in used]

    def bench_part(self, records: list[dict]) -> list[dict]:
        """The first of each task, or of all where the records name none: as many as fill the largest batch, at least."""
        by_task: dict[str, list[dict]] = {}
        for record in records:
            by_task.setdefault(record.get("category", ""), []).append(record)
        count = self.size.bench_questions if len(by_task) > 1 else 4 * self.size.bench_questions
        count = max(count, math.ceil(max(self.size.batch_sizes) / len(by_task)))
        return [record for task in by_task.values() for record in task[:count]]

    def _split_of_prompts(self) -> dict[str, list[dict]]:
        records = {text_of(record): record for file in self.prompts for record in read_requests(file)}
        # By hash, so that every file has its share of each part.
        found = [records[text] for text in sorted(records, key=lambda text: hashlib.sha256(text.encode()).digest())]
        measured = min(4 * self.size.eval_questions, len(found) // 4)
        dev = min(self.size.dev_questions, len(found) // 8)
        return {"eval": found[:measured], "dev": found[measured:measured + dev],
                "train": found[measured + dev:][: self.size.train_questions]}

    def _spec_bench(self) -> list[dict]:
        by_category: dict[str, list[dict]] = {}
        for record in read_lines(STUDY_DATA / "spec_bench.jsonl"):
            by_category.setdefault(record["category"], []).append(record)
        return [record for records in by_category.values() for record in records[: self.size.eval_questions]]

    def file(self, name: str, records: list[dict]) -> Path:
        """Writes requests where cells read them from."""
        path = self.runner.folder / "questions" / f"{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        numbered = [{**record, "id": number} for number, record in enumerate(records)]  # ids of several files may be the same
        text = "".join(json.dumps(record) + "\n" for record in numbered)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
        return path

    # Cells

    def of_target(self) -> list:
        return ["--target", self.target, "--device", self.device]

    def answers(self, name: str, questions: Path, count: int, *options: str) -> Output:
        words = ["batch", *self.of_target(), "--input", questions, "--output", Own("answers.jsonl"), "--draft", "off",
                 "--max-batch", "16", "--max-tokens", str(self.size.answer_tokens), *options]
        seconds = 2 + count * self.size.answer_tokens * self.step_ms / 16e3
        return Output(Cell(f"answers to {count} {name} questions", "clover-infer", words, "answers", seconds, resume=[]), "answers.jsonl")

    def synthesized(self, count: int) -> Output:
        """Conversations that the target makes up, in place of answers to questions."""
        words = ["synthesize", *self.of_target(), "--count", str(count), "--holdout", "0", "--max-tokens", str(self.size.answer_tokens),
                 "--output", Own("answers.jsonl"), *self.size.synthesis]
        seconds = 5 + 2 * count * self.size.answer_tokens * self.step_ms / 16e3
        return Output(Cell(f"{count} conversations that the model makes up", "clover-train", words, "synthesize", seconds, resume=[]), "answers.jsonl")

    def store(self, answers: Output) -> Output:
        words = ["prepare", "--target", self.target, "--input", answers, "--output", Own("store"), "--holdout", "0"]
        return Output(Cell("a training set of them", "clover-train", words, "store", 5), "store")

    def heads(self, kind: str, learning_rate: float, store: Output, count: int, seed: int = 1, *options: str, label: str = "",
              features: bool = True) -> Output:
        """Heads after the last step of a fit with the kind's configuration; count: answers of the store.

        features: whether fits on the same answers share the target's features, which the first one computes; without, the cost
        that a fit records is all of it."""
        words = ["fit", "--config", ROOT / "configs" / f"{kind}.toml", *self.of_target(), "--data", store, "--output", Own("run"),
                 "--lr", f"{learning_rate:g}", "--epochs", f"{self.size.epochs:g}", "--seed", str(seed), "--eval-every", "0",
                 "--eval-prompts", "0", "--warmup", str(self.warmup_steps(count)), "--checkpoint-every", "20", *options]
        if features:
            words += ["--feature-file", Cache(self.runner.folder / "features" / features_name(store, words))]
        seconds = 5 + TRAINING_COST[kind] * count * self.size.answer_tokens * self.size.epochs * self.step_ms / 24e3
        title = f"fit {label or kind}, learning rate {learning_rate:g}" + (f", seed {seed}" if seed != 1 else "")
        return Output(Cell(title, "clover-train", words, f"fit {kind}", seconds, resume=["--resume", "auto"]), "run/last")

    def warmup_steps(self, count: int) -> int:
        """Ten, or a quarter of the steps of a shorter fit."""
        return max(1, min(10, round(self.size.epochs * math.ceil(count / BATCH) / 4)))

    def evaluation(self, title: str, heads: Output, answers: Output, count: int) -> Output:
        """Accuracy by head and tokens a step with four guesses, policy `clover`, on the questions of `answers`."""
        words = ["eval", *self.of_target(), "--heads", heads, "--input", answers, "--json", Own("eval.json"), "--limit", "1000000",
                 "--max-tokens", str(self.size.answer_tokens), "--max-batch", "16",
                 "--feature-file", Cache(self.runner.folder / "features" / features_name(answers, heads.cell.words))]
        seconds = 3 + count * self.size.answer_tokens * self.step_ms / 30e3
        return Output(Cell(f"evaluation of {title}", "clover-train", words, "eval", seconds), "eval.json")

    def bench(self, title: str, heads: list[Output], questions: Path, count: int, *options: str, batch_sizes: tuple[int, ...] = (),
              guesses: Sequence[int] = (0,), prompt_tokens: int = 150, rounds: int = 0) -> Output:
        """Speed beside plain decoding; guesses: of each setting that is measured, 0 of plain decoding and of `auto`; prompt_tokens: of a
        question, about."""
        sizes, rounds = batch_sizes or self.size.batch_sizes, rounds or self.size.rounds
        words: list = ["bench", *self.of_target()]
        if heads:
            words += ["--heads", *heads]
        words += ["--input", questions, "--batch-sizes", ",".join(map(str, sizes)), "--max-tokens", str(self.size.bench_tokens),
                  "--rounds", str(rounds), "--json", Own("bench.json"), *options]
        reading = prompt_tokens * self.step_ms / 16e3
        seconds = 5 + rounds * count * sum(reading + self.size.bench_tokens * self.token_seconds(size, number) for size in sizes for number in guesses)
        return Output(Cell(title, "clover-infer", words, "bench", seconds), "bench.json")

    def token_seconds(self, size: int, guesses: int) -> float:
        """Of a batch of `size` sequences that each check so many guesses a step; a pass costs more by its rows, and a step yields more."""
        rows, tokens = size * (1 + guesses), size * (1.4 if guesses else 1)
        return self.step_ms / 1e3 * (0.5 + 0.04 * rows) / tokens


def features_name(data: Output, fit: list[Word]) -> str:
    """Of a file of the target's features for data: of one version of the program, and of what the heads of a fit read."""
    return f"{data.cell.key}-{contents_hash(program('clover-train'))[:8]}-{taps_of(fit)}"


def taps_of(fit: list[Word]) -> str:
    if "--tap-layers" in fit:
        return "taps-" + fit[fit.index("--tap-layers") + 1].replace(",", "-")
    return "taps" if ROOT / "configs" / "eagle3.toml" in fit else "last"


def default_learning_rate(kind: str) -> float:
    """Of configs/KIND.toml."""
    text = (ROOT / "configs" / f"{kind}.toml").read_text()
    found = re.search(r"^lr\s*=\s*([0-9.e-]+)", text, re.MULTILINE)
    if not found:
        raise Failed(f"configs/{kind}.toml has no line lr = ...")
    return float(found[1])
