"""The parts of measure_gpu.py that train heads."""
import json
import shutil
import struct
import subprocess
from pathlib import Path

from gpu.parts import Session, check
from gpu.programs import ROOT, Failed

FIT_QUESTIONS, FIT_BATCH = 1600, 128


def heads(session: Session) -> dict:
    """Trains heads as scripts/demo does, from answers to its questions, and measures the speed of training."""
    work, device, model = session.arguments.output / "heads", session.arguments.device, session.model()
    work.mkdir(exist_ok=True)
    questions = (ROOT / "scripts" / "demo_data" / "train_questions.jsonl").read_text().splitlines(keepends=True)
    count = 32 if session.arguments.quick else FIT_QUESTIONS
    (work / "questions.jsonl").write_text("".join(questions[:count]))
    session.program("clover-infer", "batch", "--target", model, "--device", device, "--input", work / "questions.jsonl", "--output",
                    work / "answers.jsonl", "--draft", "off", "--max-batch", FIT_BATCH, "--max-tokens", 32 if session.arguments.quick else 256,
                    allowed=(0, 3))  # 3: some lines could not be answered
    if not (work / "store" / "store.json").exists():
        session.program("clover-train", "prepare", "--target", model, "--input", work / "answers.jsonl", "--output", work / "store", "--holdout", "0.02")
    checks = []
    for kind in ("clover", "medusa"):
        run, quick = work / f"run-{kind}", ["--steps", 2, "--eval-prompts", 2] if session.arguments.quick else []
        if not (work / f"heads-{kind}" / "config.json").exists():
            resume = ["--resume", "auto"] if run.exists() else []
            session.program("clover-train", "fit", "--config", ROOT / "configs" / f"demo-{kind}.toml", "--target", model, "--data", work / "store",
                            "--output", run, "--device", device, "--feature-file", work / "features.safetensors", *quick, *resume)
            shutil.copytree(run / "best", work / f"heads-{kind}", dirs_exist_ok=True)
        checks += fit_checks(session, kind, run, work / f"heads-{kind}")
    return {"checks": checks}


def fit_checks(session: Session, kind: str, run: Path, folder: Path) -> list[dict]:
    """The speed of the second half of the steps, when the target's features are already cached."""
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    steps_made = [line for line in lines if "rows" in line]
    late = steps_made[len(steps_made) // 2 :]
    seconds = sum(line["seconds"] for line in late)
    tokens = sum(line["answer_tokens"] for line in late)
    checks = [check(f"fit, {kind}: answer tokens a second", tokens / seconds)]
    config = json.loads((session.model() / "config.json").read_text())
    labels = sum(head["labels"] for line in late for head in line["heads"])
    vocabulary = json.loads((folder / "config.json").read_text()).get("draft_vocab") or config["vocab_size"]
    # Floating-point operations: a trained product costs one forward and two backward passes, one with the frozen vocabulary matrix one
    # forward and one backward pass, at 2 operations for each number and row.
    work = 6 * parameters(folder) * sum(line["rows"] for line in late) + 4 * labels * vocabulary * config["hidden_size"]
    if peak := session.peak():
        checks.append(check(f"fit, {kind}: share of the tensor cores' peak", work / seconds / peak))
    return checks


def fit_shape(session: Session) -> dict:
    """The speed of training heads for the larger shape, with random weights, on the store that the part `heads` prepared."""
    store, shape, checks = session.arguments.output / "heads" / "store", session.arguments.other_shape, []
    if not (store / "store.json").exists():
        raise Failed("there is no training data: measure the part heads first, which prepares some")
    for kind in ("clover", "medusa"):
        command = [session.programs.path("clover-train"), "fit", "--dry-run", "--config", ROOT / "configs" / f"{kind}.toml", "--random-weights", shape,
                   "--device", session.arguments.device, "--data", store, "--output", session.arguments.output / "none"]
        code, printed = session.run(command, session.programs.environment_of("clover-train"), stdout=subprocess.PIPE)
        if code is None:
            raise Failed("clover-train was stopped: its time was up")
        estimate = "".join(line[2:] for line in printed.partition("# estimate")[2].splitlines() if line.startswith("# "))
        if code != 0 or not estimate:
            raise Failed(f"clover-train fit --dry-run ended with {code}: {printed[-500:]}")
        figures = json.loads(estimate)
        checks.append(check(f"fit, {kind}, {shape.stem}: answer tokens a second, all epochs, estimated", figures["answer_tokens_per_second"]))
        if peak := session.peak():
            checks.append(check(f"fit, {kind}, {shape.stem}: share of the tensor cores' peak", figures["step"]["operations_per_second"] / peak))
    return {"checks": checks}


def parameters(folder: Path) -> int:
    """The number of floating-point parameters in a folder's model.safetensors."""
    with (folder / "model.safetensors").open("rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    count = 0
    for name, tensor in header.items():
        if name != "__metadata__" and tensor["dtype"] in ("BF16", "F16", "F32"):
            numbers = 1
            for extent in tensor["shape"]:
                numbers *= extent
            count += numbers
    return count
