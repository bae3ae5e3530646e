"""Studies of heads: which kind, which settings, what they cost and when they pay, by clover-infer and clover-train alone."""

import argparse
import datetime
import json
import os
import shlex
import signal
import sys
from collections import Counter
from pathlib import Path

from studies import tiny_model
from studies.ablation import Ablation
from studies.break_even import BreakEven
from studies.cells import ROOT, STOP_SIGNALS, Cell, Failed, Own, Runner, duration
from studies.common import Study
from studies.jobs import KINDS, QUICK, Jobs, Size
from studies.sampling import Sampling
from studies.sensitivity import Sensitivity
from studies.synthesis import Synthesis
from studies.table import Table

STUDIES = {study.name: study for study in (Table, Ablation, Sensitivity, BreakEven, Sampling, Synthesis)}
MODEL = ROOT / "models" / "SmolLM2-135M-Instruct"
DESCRIPTION = """\
  table        every kind of heads: tokens a step, tokens/s at several batch sizes, by task, accuracy by head
  ablation     from Medusa to Clover, one ingredient at a time, over several seeds
  sensitivity  tree size, learning rate, number of heads, context, amount of data
  break-even   what heads cost to make and what they save: after how many answers have they paid?
  sampling     exact verification beside typical acceptance at several temperatures
  synthesis    training on conversations that the model makes up, beside training on its answers to questions
"""


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/study", description=__doc__ + "\n\n" + DESCRIPTION,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="one or several of the above, or all")
    parser.add_argument("--target", type=Path, default=MODEL, help="folder of the model (default: %(default)s)")
    parser.add_argument("--prompts", type=Path, nargs="+", default=[], metavar="FILE",
                        help="requests as for clover-infer batch, shared out between training and measuring (default: GSM8K for training, GSM8K "
                             "and Spec-Bench for measuring)")
    parser.add_argument("--train-questions", type=int, help="how many are answered for training (default: 480)")
    parser.add_argument("--bench-questions", type=int, help="how many of each task speed is measured with, four times as many where there is one task (default: 8)")
    parser.add_argument("--conversations", type=int, help="how many `synthesis` makes up (default: as many as --train-questions)")
    parser.add_argument("--seeds", type=int, help="how many `ablation`, `sensitivity` and `synthesis` compare (default: 3)")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=[], metavar="KIND",
                        help=f"of heads, which table and break-even compare: {', '.join(KINDS)} (default: all of them, and three of them)")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N, as for clover-infer (default: %(default)s)")
    parser.add_argument("--output", type=Path, help="folder of cells and results (default: build/studies/MODEL)")
    parser.add_argument("--dry-run", action="store_true", help="say what would run, and stop")
    parser.add_argument("--quick", action="store_true", help="every study on a tiny random model: tries the whole path")
    arguments = parser.parse_args()
    if arguments.quick and not arguments.names:
        arguments.names = ["all"]
    if not arguments.names:
        parser.error(f"expected a study: {', '.join(STUDIES)}, or all")
    unknown = set(arguments.names) - {*STUDIES, "all"}
    if unknown:
        parser.error(f"unknown study {min(unknown)}: expected one of {', '.join(STUDIES)}, or all")
    return arguments


def main() -> int:
    arguments = parse_arguments()
    for number in STOP_SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:  # as nohup has it
            signal.signal(number, signal.default_int_handler)  # as Ctrl-C: what runs may save what it has
    names = list(STUDIES) if "all" in arguments.names else list(dict.fromkeys(arguments.names))
    try:
        run(arguments, names)
    except Failed as failure:
        print(f"study: error: {failure}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("study: stopped; what was finished is kept, the same command goes on", file=sys.stderr)
        return 130
    return 0


def run(arguments: argparse.Namespace, names: list[str]) -> None:
    start = Path(os.environ.get("CLOVER_STUDY_FROM", "."))  # where the user is
    target = (start / arguments.target).resolve()
    if not (target / "config.json").exists():
        raise Failed(f"{target} is no model folder: give --target one, or make one with scripts/setup")
    name = "quick" if arguments.quick else target.name + ("" if arguments.device == "cpu" else "-cuda")
    folder = arguments.output or ROOT / "build" / "studies" / name
    runner = Runner((start / folder).resolve(), "study")
    if arguments.dry_run:
        runner.read_durations()
    else:
        runner.lock()
        keep_to_one_machine(runner.folder, arguments.device)
    if arguments.quick:
        tiny = runner.folder / f"tiny-{target.name}"
        tiny_model.make(target, tiny)
        target = tiny
    size = QUICK if arguments.quick else Size()
    if arguments.device != "cpu" and not arguments.quick:
        # With as many questions as fill the largest batch, ten of each of seven tasks.
        size.batch_sizes, size.bench_questions, size.dev_questions = (1, 4, 16, 32, 64), 10, 64
    for option in ("train_questions", "bench_questions", "conversations", "seeds"):
        if (count := getattr(arguments, option)) is None:
            continue
        if count < 1:
            raise Failed(f"--{option.replace('_', '-')}: expected 1 or more, found {count}")
        setattr(size, option, tuple(range(1, count + 1)) if option == "seeds" else count)
    size.kinds = tuple(dict.fromkeys(arguments.kinds))
    jobs = Jobs(runner, target, size, arguments.device, step_milliseconds(runner, target, arguments.device), [(start / file).resolve() for file in arguments.prompts])
    studies = [STUDIES[name](jobs) for name in names]
    announce(runner, studies)
    if arguments.dry_run:
        return
    for number, study in enumerate(studies):
        for stage in range(len(study.stages())):
            first, *rest = study.stages()[stage:]  # which cells a stage has depends on the ones before
            later = [output.cell for outputs in rest for output in outputs] + [cell for other in studies[number + 1:] for cell in other.cells()]
            runner.run([output.cell for output in first], later)
        write(study, runner, target)


def keep_to_one_machine(folder: Path, device: str) -> None:
    """Speeds of two machines, or of two paths of the kernels, are never joined in one folder of cells."""
    told = dict(line.split(":", 1) for line in Path("/proc/cpuinfo").read_text().splitlines() if ":" in line)
    cpu = " ".join(value.strip() for name, value in told.items() if name.strip() in ("model name", "cpu family", "model", "CPU part"))
    here = f"{cpu or 'unknown CPU'}, {len(os.sched_getaffinity(0))} cores, device {device.split(':')[0]}" + \
        "".join(f", {name}={os.environ[name]}" for name in ("CLOVER_CPU_PATH", "OMP_NUM_THREADS") if name in os.environ)
    file = folder / "machine"
    if not file.exists():
        file.write_text(here + "\n")
    elif file.read_text().strip() != here:
        raise Failed(f"{folder} holds runs measured on {file.read_text().strip()}; this is {here}: give --output another folder")


def step_milliseconds(runner: Runner, target: Path, device: str) -> float:
    """Of a pass of 16 rows: what all estimates are made from."""
    cell = Cell("how fast this machine is", "clover-infer", ["bench", "--target", target, "--device", device, "--rows", "16", "--context", "256", "--rounds", "4",
                                                            "--json", Own("rows.json")], "machine", 10)
    runner.run([cell])
    return 1000 * json.loads((runner.place(cell) / "rows.json").read_text())["configurations"][0]["seconds"]


def announce(runner: Runner, studies: list[Study]) -> None:
    todo = runner.missing([cell for study in studies for cell in study.cells()])
    sorts = Counter(cell.sort for cell in todo)
    seconds = {sort: sum(runner.expected(cell) for cell in todo if cell.sort == sort) for sort in sorts}
    runner.say(f"{len(todo)} runs, about {duration(sum(seconds.values()))} in all; results go to {runner.folder}")
    for sort, count in sorts.items():
        runner.say(f"  {count:4d} x {sort}, {duration(seconds[sort])}")
    if todo and any(len(study.stages()) > 1 for study in studies) and len(studies[0].jobs.size.learning_rates) > 1:
        runner.say("  and more fits and evaluations while the best learning rate of a kind stands at the edge of those tried")


def date_of(study: Study, runner: Runner) -> str:
    """The day on which the last of the study's cells ended, or both days when the first ended on another."""
    times = [(runner.place(cell) / "cell.json").stat().st_mtime for cell in study.cells()]
    days = sorted({datetime.date.fromtimestamp(time).isoformat() for time in (min(times), max(times))})
    return " to ".join(days)


def write(study: Study, runner: Runner, target: Path) -> None:
    machine = study.machine()
    folder = runner.folder / study.name
    notes = folder / "notes.md"  # what people add to their page
    command = shlex.join(["scripts/study", *(word.replace(str(ROOT) + os.sep, "") for word in sys.argv[1:])])
    about = (f"Measured with {target.name} on {machine.get('gpu') or machine.get('cpu', 'an unknown CPU')}, {machine.get('threads', '?')} threads, "
             f"{'CUDA' if 'gpu' in machine else machine.get('kernels', '?')} kernels, {date_of(study, runner)}, by")
    study.page().write(folder, about, command, machine, notes.read_text() if notes.exists() else "")
    runner.say(f"{study.name}: {folder / 'study.md'}")


if __name__ == "__main__":
    sys.exit(main())
