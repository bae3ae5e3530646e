"""Runs the steps of scripts/demo: generate, prepare, fit, eval and bench, each by the programs a user would call."""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from studies.pages import draw_bars, draw_plot

ROOT = Path(__file__).resolve().parent.parent
MODEL = ROOT / "models" / "SmolLM2-135M-Instruct"
QUESTIONS = ROOT / "scripts" / "demo_data"
KINDS = ("clover", "medusa", "redrafter")
# Which heads are measured together, and by which policies: each its own, and `auto`.
BENCHES = {"bench": (("clover", "medusa"), "off,clover,auto"), "bench-redrafter": (("redrafter",), "off,beam,auto")}


@dataclass
class Plan:
    """How much data each step uses."""

    name: str
    train_questions: int
    eval_questions: int
    answer_tokens: int
    bench_questions: int
    bench_tokens: int
    batch_sizes: str
    rounds: int
    fit: list[str]  # further options of clover-train fit


FULL = Plan("demo", 1600, 32, 256, 12, 96, "1,4,8", 3, [])
QUICK = Plan(
    "demo-quick", 40, 8, 96, 8, 64, "1,4", 1,
    ["--epochs", "4", "--warmup", "5", "--eval-prompts", "4", "--eval-every", "0", "--eval-max-tokens", "48"],
)
# The full plan takes about 50 minutes where a pass of 16 rows takes this many milliseconds; slower machines get fewer questions.
FULL_STEP_MS = 15.5
FEATURES = "features.safetensors"  # the target's features of the training set, computed once for all kinds of heads
# A file in build/demo/ that marks its results as copies from a quick run.
STAND_IN = "from-a-quick-run"


def say(text: str) -> None:
    print(f"demo: {text}", flush=True)


def program(name: str) -> str:
    return str(ROOT / "build" / "bin" / name)


def run(log: Path, *command: str) -> None:
    """Runs one program and adds its command line to the log; ends the demo when the program fails."""
    line = " ".join(command)
    with log.open("a") as file:
        file.write(line + "\n")
    say(line.replace(str(ROOT) + "/", ""))
    code = subprocess.run(command, cwd=ROOT).returncode
    if code != 0:
        sys.exit(f"demo: error: the command above ended with exit code {code}; what was finished is kept, run scripts/demo again")


def copy_first_lines(source: Path, count: int, target: Path) -> None:
    with source.open() as lines:
        chosen = [line for _, line in zip(range(count), lines)]
    write_atomically(target, "".join(chosen))


def write_atomically(target: Path, text: str) -> None:
    """Writes a file as a whole or not at all, so that an interrupted demo can continue."""
    unfinished = target.with_name(target.name + ".new")
    unfinished.write_text(text)
    os.replace(unfinished, target)


def copy_atomically(source: Path, target: Path) -> None:
    """Copies a folder as a whole or not at all."""
    unfinished = target.with_name(target.name + ".new")
    for old in (unfinished, target):
        shutil.rmtree(old, ignore_errors=True)
    shutil.copytree(source, unfinished)
    os.replace(unfinished, target)


def step_milliseconds(work: Path) -> float:
    """Milliseconds of a pass of 16 rows on this machine, measured by clover-infer bench."""
    file = work / "rows.json"
    run(work / "commands.log", program("clover-infer"), "bench", "--target", str(MODEL), "--rows", "16", "--context", "256",
        "--rounds", "5", "--json", str(file))
    return json.loads(file.read_text())["configurations"][0]["seconds"] * 1000


def scaled(plan: Plan, work: Path) -> Plan:
    """The plan with fewer training questions where this machine is slow."""
    milliseconds = step_milliseconds(work)
    share = min(1.0, FULL_STEP_MS / milliseconds)
    questions = max(200, int(plan.train_questions * share))
    if questions < plan.train_questions:
        say(f"a step of 16 rows takes {milliseconds:.0f} ms here, so {questions} of {plan.train_questions} training questions are "
            "used: heads will be a little worse than the README's")
    plan.train_questions = questions
    return plan


def answer(work: Path, questions: Path, answers: Path, tokens: int) -> None:
    """Lets the model answer a file of questions."""
    run(work / "commands.log", program("clover-infer"), "batch", "--target", str(MODEL), "--input", str(questions),
        "--output", str(answers), "--draft", "off", "--max-batch", "16", "--max-tokens", str(tokens))


def train(work: Path, kind: str, plan: Plan) -> None:
    """Trains heads of one kind, or continues, and copies the best checkpoint to heads-KIND."""
    folder = work / f"run-{kind}"
    heads = work / f"heads-{kind}"
    resume = ["--resume", "auto"] if folder.exists() else []
    run(work / "commands.log", program("clover-train"), "fit", "--config", str(ROOT / "configs" / f"demo-{kind}.toml"),
        "--target", str(MODEL), "--data", str(work / "store"), "--output", str(folder), "--feature-file",
        str(work / FEATURES), *plan.fit, *resume)
    copy_atomically(folder / "best", heads)


def measure(work: Path, plan: Plan) -> dict:
    """Evaluates all heads and runs the speed benchmark (bench.json).  Returns the evaluations by kind."""
    for kind in KINDS:
        run(work / "commands.log", program("clover-train"), "eval", "--target", str(MODEL), "--heads",
            str(work / f"heads-{kind}"), "--input", str(work / "eval_answers.jsonl"), "--json",
            str(work / f"eval-{kind}.json"), "--max-tokens", str(plan.answer_tokens))
    copy_first_lines(work / "eval_questions.jsonl", plan.bench_questions, work / "bench_questions.jsonl")
    for name, (kinds, drafts) in BENCHES.items():
        heads = [part for kind in kinds for part in ("--heads", str(work / f"heads-{kind}"))]
        run(work / "commands.log", program("clover-infer"), "bench", "--target", str(MODEL), *heads, "--input",
            str(work / "bench_questions.jsonl"), "--batch-sizes", plan.batch_sizes, "--max-tokens", str(plan.bench_tokens),
            "--draft", drafts, "--budgets", "4", "--rounds", str(plan.rounds), "--json", str(work / f"{name}.json"))
    return {kind: json.loads((work / f"eval-{kind}.json").read_text()) for kind in KINDS}


NAMES = {"clover": "Clover", "medusa": "Medusa", "redrafter": "ReDrafter"}


def table_rows(configurations: list[dict], evals: dict) -> list[dict]:
    """The rows of the result table: each method at each batch size, once, batch size by batch size."""
    rows = []
    for entry in sorted(configurations, key=lambda entry: entry["batch_size"]):
        heads = Path(entry["heads"]).name.removeprefix("heads-") if entry.get("heads") else ""
        limit = f"budget {entry['budget']}" if entry["draft"] == "clover" else entry["draft"]
        method = "plain" if entry["draft"] == "off" else f"{NAMES[heads]}, {limit}"
        accuracy = evals.get(heads, {}) if entry["draft"] != "off" else {}
        rows.append({
            "method": method, "heads": heads if entry["draft"] != "off" else None, "draft": entry["draft"],
            "batch_size": entry["batch_size"], "tokens_per_step": entry["tokens_per_step"],
            "tokens_per_second": entry["tokens_per_second"], "ratio_to_plain": entry["ratio_to_off"],
            "differs_from_plain": entry["differs_from_off"],
            "top1": [head["teacher_forced"][0] for head in accuracy.get("heads", [])],
            "top5": [head["teacher_forced"][4] for head in accuracy.get("heads", [])],
        })
    seen, unique = set(), []
    for row in rows:
        key = (row["method"], row["batch_size"])
        if key not in seen:
            seen.add(key)
            unique.append(row)
    return unique


def percent(values: list[float]) -> str:
    return "/".join(f"{100 * value:.0f}" for value in values) or "-"


def markdown(rows: list[dict]) -> str:
    lines = ["| method | batch | tokens/step | top-1 per head, % | top-5 per head, % | tokens/s | ratio to plain | answers that differ |",
             "|---|---|---|---|---|---|---|---|"]
    for row in rows:
        lines.append(f"| {row['method']} | {row['batch_size']} | {row['tokens_per_step']:.2f} | {percent(row['top1'])} | "
                     f"{percent(row['top5'])} | {row['tokens_per_second']:.1f} | {row['ratio_to_plain']:.2f} | "
                     f"{row['differs_from_plain']} |")
    return "\n".join(lines) + "\n"


def plot(rows: list[dict], machine: dict, file: Path) -> None:
    sizes = sorted({row["batch_size"] for row in rows})
    speeds = {row["method"]: dict.fromkeys(sizes, 0) for row in rows}
    for row in rows:
        speeds[row["method"]][row["batch_size"]] = row["tokens_per_second"]

    def draw(axes) -> None:
        series = {method: list(by_size.values()) for method, by_size in speeds.items()}
        draw_bars(axes, [f"batch {size}" for size in sizes], series, "tokens/s, decoding", "%.0f")
        axes.set_title(f"SmolLM2-135M bf16, unseen GSM8K questions, {machine.get('cpu', 'CPU')}, "
                       f"{machine.get('threads', '?')} threads", fontsize=9)

    draw_plot(file, draw)


def fill_full_results(work: Path, names: list[str]) -> None:
    """Copies a quick run's results to the folder of the full run, unless a full run has been started there."""
    full = work.parent / FULL.name
    if full.exists() and not (full / STAND_IN).exists():
        return
    full.mkdir(exist_ok=True)
    (full / STAND_IN).touch()
    for name in names:
        if (work / name).is_dir():
            copy_atomically(work / name, full / name)
        else:
            shutil.copy2(work / name, full / name)


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/demo", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="little data: about 4 minutes instead of up to 55")
    quick = parser.parse_args().quick
    started = time.monotonic()
    plan = QUICK if quick else FULL
    work = ROOT / "build" / plan.name
    if (work / STAND_IN).exists():
        shutil.rmtree(work)
    work.mkdir(parents=True, exist_ok=True)
    say(f"{'about 4' if quick else 'at most 55'} minutes on 2 cores; results go to {work.relative_to(ROOT)}/")

    questions = work / "train_questions.jsonl"
    if not questions.exists():
        if not quick:
            plan = scaled(plan, work)
        copy_first_lines(QUESTIONS / "eval_questions.jsonl", plan.eval_questions, work / "eval_questions.jsonl")
        copy_first_lines(QUESTIONS / "train_questions.jsonl", plan.train_questions, questions)
    say("1/6 the model answers the questions, 16 at a time (a job that was cut off continues)")
    answer(work, questions, work / "train_answers.jsonl", plan.answer_tokens)
    answer(work, work / "eval_questions.jsonl", work / "eval_answers.jsonl", plan.answer_tokens)
    say("2/6 the answers become a training set")
    if not (work / "store" / "store.json").exists():
        run(work / "commands.log", program("clover-train"), "prepare", "--target", str(MODEL), "--input",
            str(work / "train_answers.jsonl"), "--output", str(work / "store"), "--holdout", "0.1" if quick else "0.02",
            "--preview", "1")
    for number, kind in enumerate(KINDS):
        say(f"{3 + number}/6 {kind} heads are trained")
        if not (work / f"heads-{kind}" / "config.json").exists():
            train(work, kind, plan)
    (work / FEATURES).unlink(missing_ok=True)
    say("6/6 on questions neither has seen")
    evals = measure(work, plan)
    benches = [json.loads((work / f"{name}.json").read_text()) for name in BENCHES]
    bench = benches[0]
    rows = table_rows([entry for one in benches for entry in one["configurations"]], evals)
    (work / "table.json").write_text(json.dumps({"machine": bench["machine"], "build": bench["build"], "rows": rows}, indent=1) + "\n")
    (work / "table.md").write_text(markdown(rows))
    plot(rows, bench["machine"], work / "speed.png")
    if quick:
        fill_full_results(work, [*(f"heads-{kind}" for kind in KINDS), "table.json", "table.md", "speed.png", "commands.log"])
    print(markdown(rows))
    different = sum(row["differs_from_plain"] for row in rows)
    say(f"{'every answer is' if different == 0 else f'{different} answers are NOT'} the same as plain decoding's")
    say(f"done in {(time.monotonic() - started) / 60:.1f} minutes: {work.relative_to(ROOT)}/table.md, speed.png, heads-KIND/")
    if different:
        sys.exit(1)


if __name__ == "__main__":
    main()
