"""What measure_gpu.py measures: a function for each of its PARTS but those in training.py.  It returns {"checks": [...]} (see check) and what the tables
need, and raises Failed when it could not measure."""
import argparse
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from gpu.programs import ROOT, Failed, Programs

# Aims (docs/gpu.md) for an H100 or H200 and a 7B shape at context 512, in bf16.  Shares are of copy bandwidth or of the time of a
# plain step.
AIMED_SHAPE = "vicuna-7b"
MIN_STEP_BANDWIDTH = {1: 0.88, 4: 0.88, 16: 0.85, 48: 0.80}  # of copy bandwidth in a plain step, by batch size
MAX_STEP_COST = {1: 1.03, 4: 1.08, 16: 1.15, 48: 1.25}  # a step of 5 rows per sequence over a plain one, by batch size
MAX_IDLE_SHARE = 0.03  # share of a plain step of one sequence in which no kernel runs
MAX_DRAFT_COST = {8192: 0.07, None: 0.10}  # a draft over a plain step of one sequence, by draft vocabulary; None: the target's whole vocabulary
MIN_PRODUCT_BANDWIDTH = {16: 0.85, 20: 0.80, 80: 0.80, 240: 0.70}  # of copy bandwidth in the products of a layer, by rows
# The planned time of one layer's attention in microseconds, on a GPU that copies 3006 GB/s; 15 % more is allowed.
PLANNED_ATTENTION_US = {"7B: 16 sequences, 1 row, context 4096": 420, "7B: 16 sequences, 5 rows, context 4096": 425,
                     "7B: 48 sequences, 5 rows, context 512": 165, "8B: 16 sequences, 1 row, context 4096": 110,
                     "8B: 16 sequences, 5 rows, context 4096": 110, "8B: 1 sequence, 5 rows, context 32768": 60}
PLANNED_COPY_BANDWIDTH, MAX_OVER_PLAN = 3006e9, 1.15
PROMPT, MIN_PROMPT_SPEEDUP = "7B: a prompt of 2048 tokens", 0.8
MIN_SPEEDUP_OVER_TRANSFORMERS = 3  # plain decoding of one sequence, SmolLM2-135M
TEXT_SIZES, TEXT_QUESTIONS, TEXT_TOKENS = (1, 4, 8, 16, 24, 48), 48, 64
EQUAL_QUESTIONS = 64
TRACED_STEPS = 9  # bench --trace profiles eight steps, and the one that was queued before them
PEAK = {"H100": 989e12, "H200": 989e12, "A100": 312e12}  # floating-point operations a second on bf16, by the card's name
SANITIZER_FILTERS = {"memcheck": "-TopK.*:Vocabulary.*:LinearPlans.Long*", "racecheck": "Linear*-*Long*"}


@dataclass
class Session:
    """One run of measure_gpu.py: its options, programs and results so far."""

    arguments: argparse.Namespace
    programs: Programs
    parts: dict = field(default_factory=dict)  # measured so far
    deadline: float = 0  # of the current part, on the clock of time.monotonic()

    def left(self) -> float:
        return max(1.0, self.deadline - time.monotonic())

    def run(self, command: list, environment: dict | None = None, stdout=sys.stderr) -> tuple[int | None, str]:
        """Runs a command.  Returns its exit code (None when it ran out of time) and what it printed, if `stdout` is PIPE."""
        line = " ".join(map(str, command)).replace(str(ROOT) + "/", "")
        say(line if len(line) < 400 else line[:400] + " ..")
        # In a process group of its own, so that its child processes can be killed with it.
        with subprocess.Popen(list(map(str, command)), env=environment, stdout=stdout, stderr=subprocess.STDOUT if stdout == subprocess.PIPE else None,
                              text=True, errors="replace", start_new_session=True) as process:
            try:
                printed, _ = process.communicate(timeout=self.left())
                return process.returncode, printed or ""
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                return None, process.communicate()[0] or ""
            except BaseException:  # this script is stopped
                os.killpg(process.pid, signal.SIGKILL)
                raise

    def program(self, name: str, *options: object, allowed: tuple[int, ...] = (0,)) -> None:
        code, _ = self.run([self.programs.path(name), *options], self.programs.environment_of(name))
        if code is None:
            raise Failed(f"{name} was stopped: its time was up")
        if code not in allowed:
            raise Failed(f"{name} ended with {code}")

    def report(self, file_name: str, name: str, *options: object, allowed: tuple[int, ...] = (0,)) -> dict:
        """Runs one of our programs and returns its --json."""
        file = self.arguments.output / f"{file_name}.json"
        file.unlink(missing_ok=True)
        self.program(name, *options, "--json", file, allowed=allowed)
        if not file.exists():
            raise Failed(f"{name} left no {file.name}")
        return json.loads(file.read_text())

    def model(self) -> Path:
        if not (self.arguments.target / "config.json").exists():
            raise Failed(f"{self.arguments.target} holds no model (--target)")
        return self.arguments.target

    def peak(self) -> float | None:
        """Floating-point operations a second of the card's tensor cores; None where it is not known."""
        name = self.parts.get("steps", {}).get("machine", {}).get("gpu", "")
        return next((value for card, value in PEAK.items() if card in name), None)

    def questions(self, count: int) -> Path:
        """A file with the first `count` requests of --input; with four for --quick."""
        lines = [line for line in self.arguments.input.read_text().splitlines(keepends=True) if line.strip()]
        file = self.arguments.output / "requests.jsonl"
        file.write_text("".join(lines[: 4 if self.arguments.quick else count]))
        return file

    def heads(self) -> list[Path]:
        """The folders of --heads, or those that the part `heads` trained."""
        trained = [self.arguments.output / "heads" / f"heads-{kind}" for kind in ("clover", "medusa")]
        found = self.arguments.heads or [folder for folder in trained if (folder / "config.json").exists()]
        if not found:
            raise Failed("there are no heads: name them (--heads), or measure the part heads, which trains some")
        return found


def say(line: str) -> None:
    print(f"measure_gpu: {line}", file=sys.stderr, flush=True)


def check(what: str, found: float, at_least: float | None = None, at_most: float | None = None) -> dict:
    """One row of the result table: a figure and its aim.  A figure without an aim always holds."""
    holds = (at_least is None or found >= at_least) and (at_most is None or found <= at_most)
    aim = f"at least {at_least:.4g}" if at_least is not None else f"at most {at_most:.4g}" if at_most is not None else ""
    return {"what": what, "found": found, "aim": aim, "holds": holds}


# ---- tests


def tests_of(session: Session, name: str, command: list, what: str) -> dict:
    """Runs a test program and counts the tests that failed; when time runs out, also says which test was running."""
    environment = session.programs.environment_of(name) | {"CLOVER_NEEDS_GPU": "1"}
    code, printed = session.run(command, environment, stdout=subprocess.PIPE)
    (session.arguments.output / f"{what.replace(' ', '-')}.log").write_text(printed)
    failed = sorted(set(re.findall(r"^\[  FAILED  \] (\S+)(?: \(\d+ ms\)|, where.*)$", printed, re.M)))
    passed = len(re.findall(r"^\[       OK \]", printed, re.M))
    found = re.findall(r"^=========\s+(Invalid|Race|Error: Race|Uninitialized|Program hit).*", printed, re.M)
    if code is None:
        begun = re.findall(r"^\[ RUN      \] (\S+)", printed, re.M)
        say(f"{what}: {passed} tests passed when time was up, in {begun[-1] if begun else 'the beginning'}")
    elif code != 0 and not failed and not found:
        say(printed[-3000:])
        raise Failed(f"{what} ended with {code} behind {passed} tests")
    for test in failed:
        say(f"{what}: failed: {test}")
    if found:
        say(printed[:3000])
    cut = ", time was up" if code is None else ""
    return {"checks": [check(f"{what}: tests that failed ({passed} passed{cut})", len(failed) + len(found), at_most=0)],
            "failed": failed, "passed": passed, "finished": code is not None}


def test_program(name: str):
    return lambda session: tests_of(session, name, [session.programs.path(name)], name)


def sanitizer(tool: str):
    def part(session: Session) -> dict:
        found = shutil.which("compute-sanitizer")
        if not found:
            raise Failed("there is no compute-sanitizer here")
        # Without LibTorch's cache every tensor is an allocation of its own; with it, accesses beyond a tensor would go unnoticed.
        command = ["env", "PYTORCH_NO_CUDA_MEMORY_CACHING=1", found, "--report-api-errors", "no", "--error-exitcode", "1", "--tool", tool,
                   session.programs.path("cuda_test"), f"--gtest_filter={SANITIZER_FILTERS[tool]}"]
        return tests_of(session, "cuda_test", command, f"{tool} of cuda_test")
    return part


# ---- kernels and steps


def probe(session: Session) -> dict:
    """The memory's bandwidths that the kernels' plans assume.  The probe is compiled on this machine."""
    source, program = ROOT / "tests" / "bench" / "gpu_probe.cu", session.arguments.output / "gpu_probe"
    nvcc = shutil.which("nvcc")
    if not nvcc:
        raise Failed("there is no nvcc here")
    if session.run([nvcc, "-O3", "-std=c++17", "--generate-code=arch=compute_90a,code=[sm_90a]", "-o", program, source])[0] != 0:
        raise Failed("gpu_probe.cu could not be compiled")
    code, printed = session.run([program], stdout=subprocess.PIPE)
    if code != 0:
        raise Failed(f"gpu_probe ended with {code}: {printed.strip()}")
    figures = json.loads(printed)
    again = max(figures["read_again"].values())
    return {"checks": [check("read only, of copy bandwidth", figures["read"] / figures["copied"]),
                       check("read again out of the second-level cache, of copy bandwidth", again / figures["copied"])], "figures": figures}


def products(session: Session) -> dict:
    options = ["--small", "--rows", "1,20"] if session.arguments.quick else []
    report = session.report("products", "linear_bench", "--device", session.arguments.device, *options)
    checks = []
    for entry in report["products"]:
        if entry["product"] == "layer" and entry["rows"] in MIN_PRODUCT_BANDWIDTH:
            aim = MIN_PRODUCT_BANDWIDTH[entry["rows"]] if entry["shape"] == "7B" else None
            what = f"products of a layer, {entry['shape']}, {entry['rows']} rows: the weights' reading, of copy bandwidth"
            checks.append(check(what, entry["of_bandwidth"], at_least=aim))
    return {"checks": checks, "products": report["products"], "copy_bandwidth": report["copy_bandwidth"]}


def attention(session: Session) -> dict:
    report = session.report("attention", "attention_bench", "--device", session.arguments.device)
    checks = []
    for case in report["cases"]:
        if planned := PLANNED_ATTENTION_US.get(case["name"]):
            bandwidth = case["gigabytes_per_second"] * 1e9 / case["of_bandwidth"]
            checks.append(check(f"attention, {case['name']}: us", case["microseconds"], at_most=MAX_OVER_PLAN * planned * PLANNED_COPY_BANDWIDTH / bandwidth))
        if case["name"] == PROMPT:
            checks.append(check(f"attention, {case['name']}: LibTorch's time over ours", case["libtorch_over_ours"],
                                at_least=MIN_PROMPT_SPEEDUP))
    return {"checks": checks, "cases": report["cases"]}


def steps_of(session: Session, shape: Path, heads: list[str], vocabularies: str) -> dict:
    """Times decoding steps and drafts of a shape with random weights."""
    sizes = sorted({1, *session.arguments.batch_sizes})
    report = session.report(f"steps-{shape.stem}", "clover-infer", "bench", "--random-weights", shape, "--device", session.arguments.device,
                            "--context", session.arguments.context, "--rows", "1,5", "--batch-sizes", ",".join(map(str, sizes)), "--random-heads",
                            ",".join(heads), "--draft-vocab", vocabularies, "--rounds", session.arguments.rounds)
    aimed = shape.stem == AIMED_SHAPE
    passes = {(entry["batch_size"], entry["rows"]): entry for entry in report["configurations"] if "rows" in entry}
    checks = []
    for size in sizes:
        plain = passes[size, 1]
        share = plain["bytes_read"] / report["read_bandwidth"] / plain["seconds"]
        what = f"{shape.stem}: a plain step, batch {size}: its reading, of copy bandwidth"
        checks.append(check(what, share, at_least=MIN_STEP_BANDWIDTH.get(size) if aimed else None))
    for size in sizes:
        cost = passes[size, 5]["seconds"] / passes[size, 1]["seconds"]
        checks.append(check(f"{shape.stem}: 5 rows each over a plain step, batch {size}", cost, at_most=MAX_STEP_COST.get(size) if aimed else None))
    for entry in report["configurations"]:
        if entry["batch_size"] == 1 and "kind" in entry:
            clover = aimed and entry["kind"] == "clover"
            most = MAX_DRAFT_COST.get(entry["draft_vocab"], MAX_DRAFT_COST[None]) if clover else None
            what = f"{shape.stem}: drafting by {entry['kind']} over a plain step, {entry['draft_vocab']} tokens"
            checks.append(check(what, entry["seconds"] / passes[1, 1]["seconds"], at_most=most))
    return {"checks": checks, "machine": report["machine"], "copy_bandwidth": report["read_bandwidth"], "shape": shape.stem,
            "configurations": report["configurations"]}


def steps(session: Session) -> dict:
    return steps_of(session, session.arguments.shape, ["clover", "medusa"], "0,8192")


def other_steps(session: Session) -> dict:
    return steps_of(session, session.arguments.other_shape, ["clover"], "0,8192")


def trace(session: Session) -> dict:
    """The kernels that a step runs, and the time in which none runs."""
    most = max(session.arguments.batch_sizes)
    idle, of_one, traced = traced_step(session, 1, 1)
    _, of_many, _ = traced_step(session, most, 5)
    aimed = session.arguments.shape.stem == AIMED_SHAPE
    checks = [check("kernels that LibTorch's profiler saw in a plain step", len(of_one), at_least=1 if session.arguments.device != "cpu" else None)]
    if of_one:
        checks.append(check("a plain step of one sequence: no kernel running", idle, at_most=MAX_IDLE_SHARE if aimed else None))
        plain = [entry["seconds"] for entry in session.parts.get("steps", {}).get("configurations", []) if (entry["batch_size"], entry.get("rows")) == (1, 1)]
        if plain:
            checks.append(check("its time while the profiler looks on, over its time", traced / plain[0]))
    return {"checks": checks, "kernels": {"a plain step of one sequence": of_one, f"a step of 5 rows each of {most} sequences": of_many}}


def traced_step(session: Session, size: int, rows: int) -> tuple[float, list[tuple[str, float]], float]:
    """Profiles steps of `rows` rows for each of `size` sequences.  Returns the share of the time in which no kernel ran, the share
    of each kernel, and the seconds of a profiled step."""
    file = session.arguments.output / f"trace-{size}x{rows}.json"
    file.unlink(missing_ok=True)
    session.report(f"trace-{size}x{rows}-report", "clover-infer", "bench", "--random-weights", session.arguments.shape, "--device",
                   session.arguments.device, "--context", session.arguments.context, "--batch-sizes", size, "--rows", rows, "--rounds", 1,
                   "--trace", file)
    events = [event for event in json.loads(file.read_text())["traceEvents"] if event.get("cat") == "kernel"]
    if not events:
        return 0, [], 0  # a CPU, or a GPU that this user may not profile
    busy, end, shares = 0, 0, Counter()
    events.sort(key=lambda event: event["ts"])
    for event in events:  # a kernel may start while the one before it ends, so overlapping time is counted once
        begin, end_of_this = event["ts"], event["ts"] + event["dur"]
        alone = max(0, end_of_this - max(begin, end))
        busy += alone
        shares[event["name"]] += alone
        end = max(end, end_of_this)
    whole = end - events[0]["ts"]
    return 1 - busy / whole, [(name, time / whole) for name, time in shares.most_common(12)], whole * 1e-6 / TRACED_STEPS


# ---- the example model


def equal(session: Session) -> dict:
    checks, sizes = [], sorted({1, *session.arguments.batch_sizes})
    for temperature, graphs in ((0, []), (0.8, ["--no-graphs"]), (0.8, []), (0, ["--no-graphs"])):
        report = session.report("equal", "clover-infer", "verify-equal", "--target", session.model(), "--heads", session.heads()[0], "--device",
                                session.arguments.device, "--input", session.questions(EQUAL_QUESTIONS), "--batch-sizes", ",".join(map(str, sizes)),
                                "--temperature", temperature, "--seed", 1, *graphs, allowed=(0, 1))
        what = f"answers that differ: {report['requests']} requests, {report['configurations']} settings, temperature {temperature}"
        checks.append(check(what + (", no graphs" if graphs else ""), len(report["differences"]), at_most=0))
    return {"checks": checks}


def text(session: Session) -> dict:
    sizes = (1, 4) if session.arguments.quick else TEXT_SIZES
    report = session.report("text", "clover-infer", "bench", "--target", session.model(), "--heads", *session.heads(), "--device",
                            session.arguments.device, "--input", session.questions(TEXT_QUESTIONS), "--batch-sizes", ",".join(map(str, sizes)), "--draft", "off,clover,auto",
                            "--budgets", 4, "--max-tokens", TEXT_TOKENS, "--rounds", session.arguments.rounds)
    differ = sum(entry["differs_from_off"] for entry in report["configurations"])
    given_up = sum(entry["graphs_given_up"] for entry in report["configurations"])
    return {"checks": [check("answers that differ from plain decoding's while speed is measured", differ, at_most=0),
                       check("settings with something that could not be recorded as a graph", given_up, at_most=0)],
            "machine": report["machine"], "configurations": report["configurations"]}


def peers(session: Session) -> dict:
    """Plain decoding beside Hugging Face transformers, compiled and with a static cache."""
    folder = session.arguments.output / "peers"
    command = [sys.executable, ROOT / "scripts" / "bench_peers.py", "--device", session.arguments.device, "--target", session.model(), "--input",
               session.arguments.input, "--batch-sizes", "1,16", "--rounds", session.arguments.rounds, "--output", folder, "--infer",
               session.programs.path("clover-infer")]
    if python := session.arguments.peers_python or transformers_python(session.arguments.python):
        command += ["--python", python]
    command += ["--tokens", 128 if session.arguments.device != "cpu" else 16]
    code, _ = session.run(command, session.programs.environment_of("clover-infer"))
    if code != 0:
        raise Failed("bench_peers.py was stopped: its time was up" if code is None else f"bench_peers.py ended with {code}")
    rounds = json.loads((folder / "peers.json").read_text())["rounds"]
    checks = []
    for size in ("1", "16"):
        ratio = statistics.median(one["decode"]["Clover"][size] / one["decode"]["HF transformers"][size] for one in rounds)
        checks.append(check(f"plain decoding over transformers', batch {size}", ratio, at_least=MIN_SPEEDUP_OVER_TRANSFORMERS if size == "1" else None))
    return {"checks": checks, "table": (folder / "peers.md").read_text()}


def transformers_python(python: str) -> str | None:
    """`python`, if it has the packages that bench_peers.py needs; otherwise None, and bench_peers.py makes an environment."""
    script = "import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, ('torch', 'transformers', 'matplotlib'))))"
    return python if subprocess.run([python, "-c", script]).returncode == 0 else None
