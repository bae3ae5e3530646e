#!/usr/bin/env python3
"""What Clover promises of a GPU, measured on yours: equal answers, the cost of steps, attention, tokens/s.

    scripts/measure_gpu.py --heads DIR DIR [--only equal,attention,text,steps] [--output build/gpu]

Heads are those that scripts/demo leaves (build/demo/heads-clover build/demo/heads-medusa).  About 15 minutes; parts can be
taken one by one, each fills its part of gpu.json and gpu.md.  Ratios are to the copy bandwidth measured in the same run.
"""
import argparse
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PARTS = ("equal", "attention", "text", "steps")


def main() -> int:
    arguments = parse_arguments()
    arguments.output.mkdir(parents=True, exist_ok=True)
    file = arguments.output / "gpu.json"
    figures = json.loads(file.read_text()) if file.exists() else {}
    for part in arguments.only:
        say(part)
        figures[part] = {"equal": equal, "steps": steps, "attention": attention, "text": text}[part](arguments)
        file.write_text(json.dumps(figures, indent=1) + "\n")
        (arguments.output / "gpu.md").write_text(markdown(figures))
    print(markdown(figures))
    return 0 if all(check["holds"] for part in figures.values() for check in part["checks"]) else 1


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N, or cpu to try the script")
    parser.add_argument("--target", type=Path, default=ROOT / "models" / "SmolLM2-135M-Instruct")
    parser.add_argument("--heads", type=Path, nargs="+", default=[], help="trained for the target; the first ones' answers are compared")
    parser.add_argument("--input", type=Path, default=ROOT / "scripts" / "demo_data" / "eval_questions.jsonl", help="requests for equal and text; 48 or more")
    parser.add_argument("--shape", type=Path, default=ROOT / "configs" / "targets" / "vicuna-7b.json")
    parser.add_argument("--batch-sizes", default="1,4,16,48")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--only", type=lambda names: names.split(","), default=list(PARTS), help="comma between: " + ", ".join(PARTS))
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "gpu")
    arguments = parser.parse_args()
    if unknown := set(arguments.only) - set(PARTS):
        parser.error(f"--only {','.join(sorted(unknown))}: expected some of {', '.join(PARTS)}")
    if not arguments.heads and {"equal", "text"} & set(arguments.only):
        parser.error("--heads: expected the folders of trained heads (scripts/demo leaves build/demo/heads-clover and heads-medusa)")
    return arguments


def say(line: str) -> None:
    print(f"measure_gpu: {line}", file=sys.stderr, flush=True)


def run(program: str, *options: object, refused: tuple[int, ...] = ()) -> int:
    command = [str(ROOT / "build" / "bin" / program), *map(str, options)]
    say(" ".join(command).replace(str(ROOT) + "/", ""))
    code = subprocess.run(command).returncode
    if code != 0 and code not in refused:
        sys.exit(f"measure_gpu: {program} ended with {code}; its message stands above")
    return code


def report_of(arguments: argparse.Namespace, name: str, *command: object, refused: tuple[int, ...] = ()) -> dict:
    file = arguments.output / f"{name}.json"
    file.unlink(missing_ok=True)
    run(*command, "--json", file, refused=refused)
    return json.loads(file.read_text())


def check(what: str, found: float, at_least: float | None = None, at_most: float | None = None) -> dict:
    holds = (at_least is None or found >= at_least) and (at_most is None or found <= at_most)
    return {"what": what, "found": found, "expected": f"at least {at_least}" if at_most is None else f"at most {at_most}", "holds": holds}


# ---- the parts; each returns {"checks": [...]} and what its tables need


def equal(arguments: argparse.Namespace) -> dict:
    checks = []
    for temperature in (0, 0.8):
        for graphs in ([], ["--no-graphs"]):
            report = report_of(arguments, "equal", "clover-infer", "verify-equal", "--target", arguments.target, "--heads", arguments.heads[0],
                               "--device", arguments.device, "--input", arguments.input, "--batch-sizes", arguments.batch_sizes,
                               "--temperature", temperature, "--seed", 1, *graphs, refused=(1,))
            what = f"answers that differ: {report['requests']} requests, {report['configurations']} settings, temperature {temperature}"
            checks.append(check(what + (", no graphs" if graphs else ""), len(report["differences"]), at_most=0))
    return {"checks": checks}


def attention(arguments: argparse.Namespace) -> dict:
    report = report_of(arguments, "attention", "attention_bench", *([] if arguments.device == "cpu" else ["--gpu"]))
    checks = []
    for entry in report["cases"]:
        if entry["sequences"] == 16 and entry["context"] == 4096:
            checks.append(check(f"attention, {entry['name']}: its reading, of copy bandwidth", entry["of_bandwidth"], at_least=0.8))
            checks.append(check(f"attention, {entry['name']}: LibTorch's time over ours", entry["libtorch_over_ours"], at_least=0.9))
    return {"checks": checks, "cases": report["cases"]}


TABLE_SIZES = (4, 8, 16, 24, 32, 48)  # of Table 1 of the Clover paper


def text(arguments: argparse.Namespace) -> dict:
    report = report_of(arguments, "text", "clover-infer", "bench", "--target", arguments.target, "--heads", *arguments.heads, "--device",
                       arguments.device, "--input", arguments.input, "--batch-sizes", ",".join(map(str, (1, *TABLE_SIZES))), "--draft",
                       "off,clover,auto", "--budgets", 4, "--rounds", arguments.rounds)
    differ = sum(entry["differs_from_off"] for entry in report["configurations"])
    return {"checks": [check("answers that differ from plain decoding's while speed is measured", differ, at_most=0)],
            "machine": report["machine"], "configurations": report["configurations"]}


MOST_OF_PLAIN = {1: 1.05, 4: 1.08, 16: 1.15, 48: 1.5}  # a step of 5 rows a sequence
MOST_DRAFTING = {0: 0.14, 8192: 0.09}  # of a plain step of one sequence, by vocabulary (0: all of it)


def steps(arguments: argparse.Namespace) -> dict:
    """Steps of a 7B shape with random weights; the acceptance of real heads, measured by `text`, makes tokens/s of them."""
    known = arguments.output / "text.json"
    assume = ["--assume-acceptance", known] if known.exists() else []
    sizes = sorted({*map(int, arguments.batch_sizes.split(",")), *(TABLE_SIZES if assume else ())})
    report = report_of(arguments, "steps", "clover-infer", "bench", "--random-weights", arguments.shape, "--device", arguments.device,
                       "--context", 512, "--rows", "1,5", "--batch-sizes", ",".join(map(str, sizes)), "--random-heads", "clover,medusa",
                       "--draft-vocab", "0,8192", "--rounds", arguments.rounds, *assume)
    passes = {(entry["batch_size"], entry["rows"]): entry for entry in report["configurations"] if "rows" in entry}
    plain = passes[1, 1]
    share = plain["bytes_read"] / report["read_bandwidth"] / plain["seconds"]
    checks = [check("a plain step of one sequence: its reading, of copy bandwidth", share, at_least=0.85)]
    for size, most in MOST_OF_PLAIN.items():
        if (size, 5) in passes:
            cost = passes[size, 5]["seconds"] / passes[size, 1]["seconds"]
            checks.append(check(f"5 rows each over a plain step, batch {size}", cost, at_most=most))
    for entry in report["configurations"]:
        if entry["batch_size"] == 1 and entry.get("kind") == "clover":
            most = MOST_DRAFTING.get(entry["draft_vocab"], MOST_DRAFTING[0])
            checks.append(check(f"drafting over a plain step, {entry['draft_vocab']} tokens", entry["seconds"] / plain["seconds"], at_most=most))
    return {"checks": checks, "machine": report["machine"], "copy_bandwidth": report["read_bandwidth"],
            "projection": report.get("projection", []), "shape": arguments.shape.stem}


# ---- what is written


def markdown(figures: dict) -> str:
    lines = ["| what | found | expected | |", "|---|---:|---|---|"]
    for part in figures.values():
        for one in part["checks"]:
            lines.append(f"| {one['what']} | {one['found']:.3g} | {one['expected']} | {'holds' if one['holds'] else '**fails**'} |")
    if "attention" in figures:
        lines += ["", "| attention of one layer | us | GB/s | of bandwidth | LibTorch's time over ours |", "|---|---:|---:|---:|---:|"]
        lines += [f"| {case['name']} | {case['microseconds']:.1f} | {case['gigabytes_per_second']:.0f} | {case['of_bandwidth']:.0%} | "
                  f"{case['libtorch_over_ours']:.2f} |" for case in figures["attention"]["cases"]]
    if "text" in figures:
        speeds = {}
        for entry in figures["text"]["configurations"]:
            heads = Path(entry["heads"]).name.removeprefix("heads-") if entry.get("heads") and entry["draft"] != "off" else ""
            method = "plain" if entry["draft"] == "off" else f"{heads}, {entry['draft']}" if entry["draft"] == "auto" else heads
            speeds.setdefault(method, {}).setdefault(entry["batch_size"], entry["tokens_per_second"])
        lines += ["", "Tokens/s of real text:", "", *table(speeds)]
    if figures.get("steps", {}).get("projection"):
        speeds = {}
        for entry in figures["steps"]["projection"]:
            method = "plain" if entry["kind"] is None else f"{entry['kind']}, vocabulary {entry['draft_vocab']}"
            speeds.setdefault(method, {})[entry["batch_size"]] = entry["tokens_per_second"]
        lines += ["", f"Tokens/s of {figures['steps']['shape']}, a projection: measured steps of random weights, acceptance of the heads above:",
                  "", *table(speeds)]
    return "\n".join(lines) + "\n"


def table(speeds: dict) -> list[str]:
    """Table 1's layout: a row a batch size, a column a method, in brackets how many times plain decoding."""
    lines = ["| batch | " + " | ".join(speeds) + " |", "|---:|" + "---:|" * len(speeds)]
    for size in sorted({size for of in speeds.values() for size in of}):
        cells = [f"{of[size]:.0f} ({of[size] / speeds['plain'][size]:.2f})" if size in of else "" for of in speeds.values()]
        lines.append(f"| {size} | " + " | ".join(cells) + " |")
    return lines


if __name__ == "__main__":
    sys.exit(main())
