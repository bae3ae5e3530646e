#!/usr/bin/env python3
"""What Clover aims at on a GPU, measured on yours: equal answers, attention, tokens/s, the cost of steps.

    scripts/measure_gpu.py --heads DIR DIR [--only attention,equal,text,steps,peers]

Heads are those that scripts/demo leaves (build/demo/heads-clover build/demo/heads-medusa).  Parts can be taken one by one,
each fills its part of gpu.json and gpu.md; `steps` makes tokens/s of a large shape out of what `text` got accepted.
`attention` and `steps` need neither a model nor heads.  A part that fails does not keep the others from being measured.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PARTS = ("attention", "equal", "text", "steps", "peers")  # the last may need a package registry
# What the figures of a part depend on.
SETTINGS = {"attention": ["device"], "steps": ["device", "shape"], "peers": ["device", "target", "input"],
            "equal": ["device", "target", "heads", "input"], "text": ["device", "target", "heads", "input"]}
TABLE_SIZES = (1, 4, 8, 16, 24, 32, 48)  # of Table 1 of the Clover paper, and 1

# Aims for a 7B shape at context 512 (docs/performance.md), in bf16.
AIMED_SHAPE = "vicuna-7b"
LEAST_OF_BANDWIDTH = 0.85  # a plain step of one sequence
MOST_IDLE = 0.03  # of it, no kernel running
MOST_OF_PLAIN = {1: 1.05, 4: 1.08, 16: 1.15, 48: 1.5}  # a step of 5 rows a sequence, by batch size
MOST_DRAFTING = {8192: 0.09, None: 0.14}  # of a plain step of one sequence, by vocabulary; None: the whole one
LEAST_OF_ATTENTION, LEAST_OVER_LIBTORCH = 0.8, 0.9  # 16 sequences behind 4096 tokens
TRACED_STEPS = 9  # bench --trace looks at eight and the one that has begun ahead
LEAST_OVER_TRANSFORMERS = 3  # plain decoding of one sequence, SmolLM2-135M


class Failed(Exception):
    """A program ended with an error; its message stands on stderr."""


def main() -> int:
    arguments = parse_arguments()
    arguments.output.mkdir(parents=True, exist_ok=True)
    build()
    file = arguments.output / "gpu.json"
    # Parts may be measured one by one; those of another device or model say nothing here.
    parts = json.loads(file.read_text()) if file.exists() else {}
    parts = {name: part for name, part in parts.items()
             if name in PARTS and part.get("settings") == settings_of(arguments, name, part.get("settings") or {})}
    failed = []
    for part in arguments.only:
        say(part)
        try:
            parts[part] = {"equal": equal, "attention": attention, "text": text, "peers": peers, "steps": steps}[part](arguments, parts)
        except Failed as failure:
            say(f"{part} could not be measured: {failure}")
            failed.append(part)
            parts.pop(part, None)  # of an earlier run
        else:
            parts[part]["settings"] = settings_of(arguments, part, {})
            if part == "text":
                parts.get("steps", {}).pop("projection", None)  # of what other heads got accepted
        file.write_text(json.dumps(parts, indent=1) + "\n")
        (arguments.output / "gpu.md").write_text(markdown(parts))
    print(markdown(parts))
    if failed:
        say(f"not measured: {', '.join(failed)}; what failed stands above")
    missed = any(not check["holds"] for part in arguments.only if part not in failed for check in parts[part]["checks"])
    return 1 if failed or missed else 0


def settings_of(arguments: argparse.Namespace, part: str, before: dict) -> dict:
    """What a part is measured with; heads that are not named now are those of `before`."""
    settings = {name: str(getattr(arguments, name)) for name in SETTINGS[part] if name != "heads"}
    if "heads" in SETTINGS[part]:
        settings["heads"] = [str(folder) for folder in arguments.heads] or before.get("heads")
    return settings


def parse_arguments() -> argparse.Namespace:
    def sizes(value: str) -> list[int]:
        return sorted({1, *map(int, value.split(","))})

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N, or cpu to try the script (with a small --shape and --input)")
    parser.add_argument("--target", type=Path, default=ROOT / "models" / "SmolLM2-135M-Instruct", help="folder of the model for equal and text")
    parser.add_argument("--heads", type=Path, nargs="+", action="extend", default=None, help="trained for the target; equal takes the first")
    parser.add_argument("--input", type=Path, default=ROOT / "scripts" / "demo_data" / "eval_questions.jsonl", help="requests for equal and text")
    parser.add_argument("--shape", type=Path, default=ROOT / "configs" / "targets" / f"{AIMED_SHAPE}.json", help="config.json of what steps measures")
    parser.add_argument("--batch-sizes", type=sizes, default=[1, 4, 16, 48], help="for equal and steps; text takes " + ", ".join(map(str, TABLE_SIZES)))
    parser.add_argument("--rounds", type=int, default=2, help="times text, peers and steps measure everything")
    parser.add_argument("--peers-python", help="interpreter that has torch and transformers (default: peers makes an environment)")
    parser.add_argument("--only", default=",".join(PARTS), help="parts, comma between; default: %(default)s")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "gpu", help="folder of the results, default build/gpu")
    arguments = parser.parse_args()
    chosen = arguments.only.split(",")
    if unknown := set(chosen) - set(PARTS):
        parser.error(f"--only: expected some of {', '.join(PARTS)}, found {', '.join(sorted(unknown))}")
    arguments.only = [part for part in PARTS if part in chosen]
    arguments.heads = arguments.heads or []
    if not arguments.heads and {"equal", "text"} & set(chosen):
        parser.error("--heads: expected the folders of trained heads (scripts/demo leaves build/demo/heads-clover and heads-medusa)")
    return arguments


def say(line: str) -> None:
    print(f"measure_gpu: {line}", file=sys.stderr, flush=True)


def build() -> None:
    os.environ["PATH"] += os.pathsep + str(ROOT / ".venv" / "bin")  # tools that scripts/setup --no-root brings
    if not (ROOT / "build" / "CMakeCache.txt").exists():
        sys.exit("measure_gpu: build/ is not there yet: run scripts/setup --cuda first")
    subprocess.run(["cmake", "--build", str(ROOT / "build"), "--target", "clover-infer", "attention_bench"], check=True, stdout=sys.stderr)


def report_of(arguments: argparse.Namespace, name: str, program: str, *options: object, refused: tuple[int, ...] = (),
              seconds: int | None = None) -> dict:
    """The --json of a program that ends with 0, or with one of `refused` and a report all the same, in so many seconds."""
    file = arguments.output / f"{name}.json"
    file.unlink(missing_ok=True)
    command = [str(ROOT / "build" / "bin" / program), *map(str, options), "--json", str(file)]
    say(" ".join(command).replace(str(ROOT) + "/", ""))
    try:
        code = subprocess.run(command, timeout=seconds).returncode
    except subprocess.TimeoutExpired:
        raise Failed(f"{program} took more than {seconds} seconds") from None
    if code not in (0, *refused) or not file.exists():
        raise Failed(f"{program} ended with {code}")
    return json.loads(file.read_text())


def check(what: str, found: float, at_least: float | None = None, at_most: float | None = None) -> dict:
    """What is neither aimed at from below nor from above holds anyhow."""
    holds = (at_least is None or found >= at_least) and (at_most is None or found <= at_most)
    aim = f"at least {at_least}" if at_least is not None else f"at most {at_most}" if at_most is not None else ""
    return {"what": what, "found": found, "aim": aim, "holds": holds}


# ---- the parts; each returns {"checks": [...]} and what its tables need


def equal(arguments: argparse.Namespace, _: dict) -> dict:
    checks = []
    for temperature in (0, 0.8):
        for graphs in ([], ["--no-graphs"]):
            report = report_of(arguments, "equal", "clover-infer", "verify-equal", "--target", arguments.target, "--heads", arguments.heads[0],
                               "--device", arguments.device, "--input", arguments.input, "--batch-sizes", ",".join(map(str, arguments.batch_sizes)),
                               "--temperature", temperature, "--seed", 1, *graphs, refused=(1,))
            what = f"answers that differ: {report['requests']} requests, {report['configurations']} settings, temperature {temperature}"
            checks.append(check(what + (", no graphs" if graphs else ""), len(report["differences"]), at_most=0))
    return {"checks": checks}


def attention(arguments: argparse.Namespace, _: dict) -> dict:
    report = report_of(arguments, "attention", "attention_bench", "--device", arguments.device)
    checks = []
    for entry in report["cases"]:
        if entry["sequences"] == 16 and entry["context"] == 4096:
            checks.append(check(f"attention, {entry['name']}: its reading, of copy bandwidth", entry["of_bandwidth"], at_least=LEAST_OF_ATTENTION))
            checks.append(check(f"attention, {entry['name']}: LibTorch's time over ours", entry["libtorch_over_ours"], at_least=LEAST_OVER_LIBTORCH))
    return {"checks": checks, "cases": report["cases"]}


def text(arguments: argparse.Namespace, _: dict) -> dict:
    requests = arguments.output / "requests.jsonl"
    # 64 questions three times are a multiple of every batch size.
    lines = [json.loads(line) for line in arguments.input.read_text().splitlines() if line.strip()]
    again = [line | {"id": f"{number}-{copy}"} for copy in range(3) for number, line in enumerate(lines)]
    requests.write_text("".join(json.dumps(line) + "\n" for line in again))
    report = report_of(arguments, "text", "clover-infer", "bench", "--target", arguments.target, "--heads", *arguments.heads, "--device",
                       arguments.device, "--input", requests, "--batch-sizes", ",".join(map(str, TABLE_SIZES)), "--draft", "off,clover,auto",
                       "--budgets", 4, "--rounds", arguments.rounds)
    differ = sum(entry["differs_from_off"] for entry in report["configurations"])
    given_up = sum(entry["graphs_given_up"] for entry in report["configurations"])
    return {"checks": [check("answers that differ from plain decoding's while speed is measured", differ, at_most=0),
                       check("settings with something that could not be recorded as a graph", given_up, at_most=0)],
            "machine": report["machine"], "configurations": report["configurations"]}


def peers(arguments: argparse.Namespace, _: dict) -> dict:
    """Beside Hugging Face transformers, whose steps are compiled for a static cache."""
    folder = arguments.output / "peers"
    command = [sys.executable, str(ROOT / "scripts" / "bench_peers.py"), "--device", arguments.device, "--target", str(arguments.target),
               "--input", str(arguments.input), "--batch-sizes", "1,16", "--rounds", str(arguments.rounds), "--output", str(folder)]
    command += ["--python", arguments.peers_python] if arguments.peers_python else []
    if code := subprocess.run(command, stdout=sys.stderr).returncode:
        raise Failed(f"bench_peers.py ended with {code}")
    rounds = json.loads((folder / "peers.json").read_text())["rounds"]
    checks = []
    for size in ("1", "16"):
        ratio = statistics.median(one["decode"]["Clover"][size] / one["decode"]["HF transformers"][size] for one in rounds)
        checks.append(check(f"plain decoding over transformers', batch {size}", ratio, at_least=LEAST_OVER_TRANSFORMERS if size == "1" else None))
    return {"checks": checks, "table": (folder / "peers.md").read_text()}


def steps(arguments: argparse.Namespace, parts: dict) -> dict:
    """Of a shape with random weights; where `text` was measured, its acceptance makes tokens/s of them."""
    assume = ["--assume-acceptance", arguments.output / "text.json"] if "text" in parts else []
    sizes = sorted({*arguments.batch_sizes, *(TABLE_SIZES if assume else ())})
    report = report_of(arguments, "steps", "clover-infer", "bench", "--random-weights", arguments.shape, "--device", arguments.device,
                       "--context", 512, "--rows", "1,5", "--batch-sizes", ",".join(map(str, sizes)), "--random-heads", "clover,medusa",
                       "--draft-vocab", "0,8192", "--rounds", arguments.rounds, *assume)
    aimed = arguments.shape.stem == AIMED_SHAPE
    passes = {(entry["batch_size"], entry["rows"]): entry for entry in report["configurations"] if "rows" in entry}
    plain = passes[1, 1]
    share = plain["bytes_read"] / report["read_bandwidth"] / plain["seconds"]
    checks = [check("a plain step of one sequence: its reading, of copy bandwidth", share, at_least=LEAST_OF_BANDWIDTH if aimed else None)]
    for size in sizes:
        cost = passes[size, 5]["seconds"] / passes[size, 1]["seconds"]
        checks.append(check(f"5 rows each over a plain step, batch {size}", cost, at_most=MOST_OF_PLAIN.get(size) if aimed else None))
    for entry in report["configurations"]:
        if entry["batch_size"] == 1 and entry.get("kind") == "clover":
            most = MOST_DRAFTING.get(entry["draft_vocab"], MOST_DRAFTING[None]) if aimed else None
            checks.append(check(f"drafting over a plain step, {entry['draft_vocab']} tokens", entry["seconds"] / plain["seconds"], at_most=most))
    idle, of_one, traced = traced_step(arguments, 1, 1)
    most = max(arguments.batch_sizes)
    if arguments.device != "cpu":
        checks.append(check("kernels that LibTorch's profiler saw in a plain step", len(of_one), at_least=1))
    if of_one:
        checks.append(check("a plain step of one sequence: no kernel running", idle, at_most=MOST_IDLE if aimed else None))
        checks.append(check("its time while the profiler looks on, over its time", traced / plain["seconds"]))
    kernels = {"a plain step of one sequence": of_one, f"a step of 5 rows each of {most} sequences": traced_step(arguments, most, 5)[1]}
    return {"checks": checks, "machine": report["machine"], "copy_bandwidth": report["read_bandwidth"], "kernels": kernels,
            "projection": report.get("projection", []), "shape": arguments.shape.stem}


def traced_step(arguments: argparse.Namespace, size: int, rows: int) -> tuple[float, list[tuple[str, float]], float]:
    """Of steps of `rows` rows for each of `size` sequences: the share of time in which a GPU had no kernel to run, each
    kernel's, and the seconds of a step that is looked at."""
    name = f"trace-{size}x{rows}"
    file = arguments.output / f"{name}.json"
    file.unlink(missing_ok=True)
    try:
        report_of(arguments, f"{name}-report", "clover-infer", "bench", "--random-weights", arguments.shape, "--device", arguments.device,
                  "--context", 512, "--batch-sizes", size, "--rows", rows, "--rounds", 1, "--trace", file, seconds=300)
    except Failed as failure:  # what was measured without the profiler stands
        say(f"not traced: {failure}")
        return 0, [], 0
    events = [event for event in json.loads(file.read_text())["traceEvents"] if event.get("cat") == "kernel"]
    if not events:
        return 0, [], 0  # a CPU, or a GPU that may not be looked at
    busy, end, shares = 0, 0, Counter()
    events.sort(key=lambda event: event["ts"])
    for event in events:  # kernels overlap: each begins while the last one ends, and waits until it has
        begin, end_of_this = event["ts"], event["ts"] + event["dur"]
        alone = max(0, end_of_this - max(begin, end))
        busy += alone
        shares[event["name"]] += alone
        end = max(end, end_of_this)
    whole = end - events[0]["ts"]
    return 1 - busy / whole, [(name, time / whole) for name, time in shares.most_common(12)], whole * 1e-6 / TRACED_STEPS


# ---- what is written


def markdown(parts: dict) -> str:
    machine = next((part["machine"] for part in parts.values() if "machine" in part), {})
    multiplies = {True: ", many rows by wgmma", False: ", many rows by mma.sync"}.get(machine.get("warpgroup_products"), "")
    lines = [(machine.get("gpu") or machine.get("cpu", "")) + multiplies, "", "| what | found | aim | |", "|---|---:|---|---|"]
    for part in parts.values():
        for one in part["checks"]:
            verdict = "" if not one["aim"] else "reached" if one["holds"] else "**missed**"
            lines.append(f"| {one['what']} | {one['found']:.3g} | {one['aim']} | {verdict} |")
    if "attention" in parts:
        lines += ["", "| attention of one layer | us | GB/s | of bandwidth | LibTorch's time over ours |", "|---|---:|---:|---:|---:|"]
        lines += [f"| {case['name']} | {case['microseconds']:.1f} | {case['gigabytes_per_second']:.0f} | {case['of_bandwidth']:.0%} | "
                  f"{case['libtorch_over_ours']:.2f} |" for case in parts["attention"]["cases"]]
    if "text" in parts:
        speeds = {}
        for entry in parts["text"]["configurations"]:
            method = entry["draft"] if entry["draft"] == "auto" else ""
            method = "plain" if entry["draft"] == "off" else ", ".join(filter(None, [entry["kind"], method]))
            speeds.setdefault(method, {}).setdefault(entry["batch_size"], entry["tokens_per_second"])
        lines += ["", "Tokens/s of real text:", "", *table(speeds)]
    if "peers" in parts:
        lines += ["", parts["peers"]["table"]]
    for step, kernels in parts.get("steps", {}).get("kernels", {}).items():
        lines += ["", f"| kernel of {step} | share of the time |", "|---|---:|"] if kernels else []
        lines += [f"| `{name[:100]}` | {share:.1%} |" for name, share in kernels]
    if parts.get("steps", {}).get("projection"):
        speeds = {}
        for entry in parts["steps"]["projection"]:
            method = "plain" if entry["kind"] is None else f"{entry['kind']}, vocabulary {entry['draft_vocab']}"
            speeds.setdefault(method, {})[entry["batch_size"]] = entry["tokens_per_second"]
        lines += ["", f"Tokens/s of {parts['steps']['shape']}, a projection: measured steps of random weights, acceptance of the heads above:", "",
                  *table(speeds)]
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
