#!/usr/bin/env python3
"""Measures on this machine's GPU what docs/gpu.md sets as aims, in under 12 minutes: tests, matrix products, attention,
decoding steps, drafting, equal answers, tokens/s, training, sanitizers.

    scripts/measure_gpu.py [--heads DIR DIR] [--only products,attention,steps] [--minutes 11]
    scripts/measure_gpu.py --pack DIR                          for a machine that has torch and nvcc alone (docs/gpu.md)
    scripts/measure_gpu.py --unpack DIR/part-1 .. --into FOLDER       there, then: --build FOLDER

The most important parts come first; each writes its entry of gpu.json and gpu.md.  When a part fails or runs out of time,
the others are still measured.  A part that is in gpu.json is not measured again without --again.

What a part measures is in gpu/parts.py and gpu/training.py, the tables are in gpu/tables.py, the programs that run in gpu/programs.py.
"""
import argparse
import json
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from gpu import parts, training
from gpu.parts import Session, say
from gpu.programs import BENCHES, MEBIBYTE, ROOT, TESTS, Failed, Programs, pack, unpack
from gpu.tables import markdown


@dataclass
class Part:
    measure: Callable[[Session], dict]
    seconds: int  # time limit
    programs: tuple[str, ...]  # that it runs
    depends: tuple[str, ...]  # names of the options that its figures depend on


STEPS, TEXT = ("device", "batch_sizes", "context", "rounds"), ("device", "target", "heads", "input")
# The most important first.
PARTS = {
    "kernel-tests": Part(parts.test_program("cuda_test"), 120, ("cuda_test",), ("device",)),
    "probe": Part(parts.probe, 40, (), ("device",)),
    "products": Part(parts.products, 90, ("linear_bench",), ("device",)),
    "steps": Part(parts.steps, 150, ("clover-infer",), (*STEPS, "shape")),
    "attention": Part(parts.attention, 60, ("attention_bench",), ("device",)),
    "engine-tests": Part(parts.test_program("cuda_engine_test"), 90, ("cuda_engine_test",), ("device",)),
    "other-steps": Part(parts.other_steps, 120, ("clover-infer",), (*STEPS, "other_shape")),
    "heads": Part(training.heads, 180, ("clover-infer", "clover-train"), ("device", "target")),
    "fit-shape": Part(training.fit_shape, 60, ("clover-train",), ("device", "target", "other_shape")),
    "equal": Part(parts.equal, 100, ("clover-infer",), TEXT),
    "text": Part(parts.text, 120, ("clover-infer",), (*TEXT, "rounds")),
    "training-tests": Part(parts.test_program("cuda_training_test"), 60, ("cuda_training_test",), ("device",)),
    "trace": Part(parts.trace, 90, ("clover-infer",), ("device", "shape", "context")),
    "memcheck": Part(parts.sanitizer("memcheck"), 90, ("cuda_test",), ("device",)),
    "peers": Part(parts.peers, 180, ("clover-infer",), ("device", "target", "input")),
    "racecheck": Part(parts.sanitizer("racecheck"), 60, ("cuda_test",), ("device",)),
}
MODEL = "SmolLM2-135M-Instruct"
MIN_SECONDS = 10  # a part is not begun with less time left


def main() -> int:
    arguments = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the programs it started are stopped, too
    os.environ["PATH"] += os.pathsep.join(["", str(ROOT / ".venv" / "bin"), "/usr/local/cuda/bin"])
    try:
        if arguments.unpack:
            return unpacked(arguments)
        programs = Programs(arguments.build or ROOT / "build", arguments.python)
        if arguments.pack:
            return packed(arguments, programs)
        return measure(arguments, programs)
    except Failed as failure:
        say(str(failure))
        return 2


def parse_arguments() -> argparse.Namespace:
    def sizes(value: str) -> list[int]:
        return sorted({1, *map(int, value.split(","))})

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    shapes = ROOT / "configs" / "targets"
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N, or cpu to try the script (with --quick and a small --shape)")
    parser.add_argument("--build", type=Path, help="folder of the programs, which are then taken as they are (default: build/, after cmake --build)")
    parser.add_argument("--python", default=sys.executable, help="interpreter whose torch the programs take where theirs is not there")
    parser.add_argument("--minutes", type=float, default=11, help="for everything, default %(default)s")
    parser.add_argument("--only", default=",".join(PARTS), help="parts, comma between; default: %(default)s")
    parser.add_argument("--again", action="store_true", help="measure what is in gpu.json, too")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "gpu", help="folder of the results, default build/gpu")
    parser.add_argument("--target", type=Path, help=f"folder of the model for heads, equal, text and peers, default models/{MODEL} or --build's")
    parser.add_argument("--heads", type=Path, nargs="+", action="extend", default=[],
                        help="trained for the target (default: --build's, or what the part heads trains)")
    parser.add_argument("--input", type=Path, default=ROOT / "scripts" / "demo_data" / "eval_questions.jsonl", help="requests for equal and text")
    parser.add_argument("--shape", type=Path, default=shapes / f"{parts.AIMED_SHAPE}.json", help="config.json of what steps measures")
    parser.add_argument("--other-shape", type=Path, default=shapes / "llama-3.1-8b.json", help="of what other-steps and fit-shape measure")
    parser.add_argument("--batch-sizes", type=sizes, default=[1, 4, 8, 16, 32, 48, 64], help="of steps and equal")
    parser.add_argument("--context", type=int, default=512, help="tokens behind which steps are measured")
    parser.add_argument("--rounds", type=int, default=2, help="times text, peers and steps measure everything")
    parser.add_argument("--quick", action="store_true", help="little of everything, to try the script")
    parser.add_argument("--peers-python", help="interpreter that has torch and transformers (default: peers makes an environment)")
    bare = parser.add_argument_group("for a machine that has torch and nvcc alone")
    bare.add_argument("--pack", type=Path, metavar="DIR", help="gather programs, their libraries, --heads and the --target in DIR/part-1, .. and stop")
    bare.add_argument("--part-size", type=int, default=56, metavar="MIB", help="of a part, default %(default)s")
    bare.add_argument("--unpack", type=Path, nargs="+", metavar="PART", help="put parts --into a folder, and stop; may be done part by part")
    bare.add_argument("--into", type=Path, metavar="FOLDER", help="of --unpack")
    arguments = parser.parse_args()
    chosen = arguments.only.split(",")
    if unknown := set(chosen) - set(PARTS):
        parser.error(f"--only: expected some of {', '.join(PARTS)}, found {', '.join(sorted(unknown))}")
    if bool(arguments.unpack) != bool(arguments.into):
        parser.error("--unpack PART.. and --into FOLDER belong together")
    arguments.only = [part for part in PARTS if part in chosen]
    carried = arguments.build or ROOT
    if arguments.target is None:
        arguments.target = next((folder / "models" / MODEL for folder in (carried, ROOT) if (folder / "models" / MODEL).exists()), ROOT / "models" / MODEL)
    arguments.heads = arguments.heads or sorted((carried / "heads").glob("heads-*"))
    return arguments


def unpacked(arguments: argparse.Namespace) -> int:
    for name in unpack(arguments.unpack, arguments.into):
        say(f"{name} is not complete yet: other parts hold the rest")
    return 0


def packed(arguments: argparse.Namespace, programs: Programs) -> int:
    for part in pack(programs, arguments.target, arguments.heads, arguments.pack, arguments.part_size * MEBIBYTE):
        files = {file.name: file.stat().st_size for file in sorted(part.iterdir())}
        say(f"{part}: " + ", ".join(f"{name} {size / MEBIBYTE:.1f} MiB" for name, size in files.items()))
    return 0


def measure(arguments: argparse.Namespace, programs: Programs) -> int:
    until = time.monotonic() + 60 * arguments.minutes
    arguments.output.mkdir(parents=True, exist_ok=True)
    needed = {name for part in arguments.only for name in PARTS[part].programs}
    if arguments.build is None:
        programs.build(tuple(name for name in (*BENCHES, *TESTS) if name in needed))
    file = arguments.output / "gpu.json"
    # Parts may be measured one by one.  Those of other settings (another device or model) are dropped.
    measured = json.loads(file.read_text()) if file.exists() else {}
    measured = {name: part for name, part in measured.items() if name in PARTS and part.get("settings") == settings_of(arguments, name)}
    session = Session(arguments, programs, measured)
    wanted = [name for name in arguments.only if arguments.again or name not in measured or "error" in measured[name]]
    for name in sorted(wanted, key=lambda name: name in measured):  # parts that failed before come last
        if until - time.monotonic() < MIN_SECONDS:
            say(f"the time is up before {name}; the same command goes on there")
            break
        session.deadline = min(until, time.monotonic() + PARTS[name].seconds)
        measure_part(session, name)
        ordered = {part: measured[part] for part in PARTS if part in measured}
        file.write_text(json.dumps(ordered, indent=1) + "\n")
        (arguments.output / "gpu.md").write_text(markdown(ordered))
    print(markdown({part: measured[part] for part in PARTS if part in measured}))
    failed = [name for name in arguments.only if name not in measured or "error" in measured[name]]
    if failed:
        say(f"not measured: {', '.join(failed)}")
    missed = any(not check["holds"] for name in arguments.only if name not in failed for check in measured[name]["checks"])
    return 1 if failed or missed else 0


def measure_part(session: Session, name: str) -> None:
    say(f"{name}: at most {session.left():.0f} s")
    begun = time.monotonic()
    try:
        part = PARTS[name].measure(session)
    except (Failed, OSError, KeyError, ValueError) as failure:  # a program that was stopped may leave half a file
        part = {"error": str(failure) if isinstance(failure, Failed) else repr(failure)}
        say(f"{name} could not be measured: {part['error']}")
    part["settings"] = settings_of(session.arguments, name)
    part["seconds"] = round(time.monotonic() - begun, 1)
    session.parts[name] = part


def settings_of(arguments: argparse.Namespace, part: str) -> dict:
    """The values of the options that a part's figures depend on."""
    values = {name: getattr(arguments, name) for name in (*PARTS[part].depends, "quick")}
    return {name: [str(one) for one in value] if isinstance(value, list) else str(value) for name, value in values.items()}


if __name__ == "__main__":
    sys.exit(main())
