#!/usr/bin/env python3
"""Compares the speed of Hugging Face transformers, llama.cpp and Clover on the same prompts.

    scripts/bench_peers.py [--heads DIR] [--batch-sizes 1,4,8,16,32] [--rounds 3] [--output build/peers]
    scripts/bench_peers.py --device cuda [--python /an/environment/bin/python] ...

All decode greedily, with bf16 weights, the same number of threads and the same number of new tokens (end tokens are
ignored). They take turns within a round; ratios are medians over the rounds. The first run makes a virtual environment in
build/peers/ (llama.cpp is compiled, which takes about 15 minutes on 2 cores), unless --python names an interpreter that
has torch, transformers, numpy and matplotlib. On a GPU the only peer is transformers, whose generate() compiles its steps
for a static cache. Writes peers.json, peers.md and peers.png.
"""
import argparse
import atexit
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ["torch==2.11.0", "transformers==5.23.0", "gguf", "safetensors", "numpy", "matplotlib"]
PACKAGES_ON_CPU = ["llama-cpp-python==0.3.36"]
PROMPTS = [(32, 48), (1, 512), (1, 1200)]  # (number of prompts, tokens of each), for the speed of prefill


def main() -> None:
    arguments = parse_arguments()
    if arguments.worker:
        return serve(arguments)
    arguments.output.mkdir(parents=True, exist_ok=True)
    python = shutil.which(arguments.python) if arguments.python else environment(arguments)
    if python is None:
        sys.exit(f"bench_peers: --python: there is no program {arguments.python}")
    if not os.environ.get("BENCH_PEERS_ENVIRONMENT"):
        os.execve(python, [str(python), __file__, *sys.argv[1:]], os.environ | {"BENCH_PEERS_ENVIRONMENT": str(python)})
    questions = arguments.input.read_text().splitlines()
    programs = {"HF transformers": Worker("hf", arguments)}
    if arguments.device == "cpu":
        write_gguf(arguments.target, arguments.output / "bf16.gguf")
        programs["llama.cpp"] = Worker("llama", arguments)
    programs["Clover"] = Clover(arguments, "off")
    if arguments.heads:
        programs["Clover with heads"] = Clover(arguments, "auto")
    figures = measure(programs, questions, arguments)
    write_results(figures, arguments)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=Path, default=ROOT / "models" / "SmolLM2-135M-Instruct")
    parser.add_argument("--heads", type=Path, help="also measure Clover with these heads and --draft auto")
    parser.add_argument("--input", type=Path, default=ROOT / "scripts" / "demo_data" / "eval_questions.jsonl")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "peers")
    parser.add_argument("--batch-sizes", default="1,4,8,16,32")
    parser.add_argument("--tokens", type=int, help="new tokens for each prompt (default: 96, on a GPU 512)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
    parser.add_argument("--python", type=Path, help="interpreter of the environment to use, in place of one made in --output")
    parser.add_argument("--infer", type=Path, default=ROOT / "build" / "bin" / "clover-infer", help="the program, default build/bin/clover-infer")
    parser.add_argument("--worker", choices=["hf", "llama"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.tokens = arguments.tokens or (96 if arguments.device == "cpu" else 512)
    return arguments


def say(text: str) -> None:
    print(f"bench_peers: {text}", file=sys.stderr, flush=True)


def environment(arguments: argparse.Namespace) -> Path:
    """Makes a virtual environment with the packages that the peers need; returns its interpreter."""
    folder, packages = arguments.output, PACKAGES + (PACKAGES_ON_CPU if arguments.device == "cpu" else [])
    python = folder.resolve() / ".venv" / "bin" / "python"
    done = folder / ".venv" / "installed.json"
    if not done.exists() or not set(packages) <= set(json.loads(done.read_text())):
        say("installing " + ", ".join(packages))
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder / ".venv")], check=True)
        lean = os.environ | {"CMAKE_ARGS": "-DLLAVA_BUILD=OFF"}  # llama.cpp without its image models
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *packages], check=True, env=lean)
        done.write_text(json.dumps(packages))
    return python


# ---- the peers.  Each runs in a process of its own (serve), which reads {"prompts": token ids, "tokens": number of new tokens}
# from a line of stdin and prints {"prefill": seconds, "decode": seconds, "ids": new token ids}.


class HuggingFace:
    """On the CPU a plain loop over the model's forward pass, which is faster than generate(); on a GPU generate() with a static
    cache, for which it compiles its steps."""

    def __init__(self, arguments: argparse.Namespace):
        import torch
        import transformers

        torch.set_num_threads(arguments.threads)
        self.torch, self.transformers, self.device, self.caches = torch, transformers, arguments.device, {}
        self.model = transformers.AutoModelForCausalLM.from_pretrained(arguments.target, dtype=torch.bfloat16).eval().to(self.device)
        self.model.generation_config.eos_token_id = None  # so that answers have their full length

    def decode(self, prompts: list[list[int]], tokens: int) -> dict:
        torch, longest = self.torch, max(map(len, prompts))
        ids = torch.tensor([[0] * (longest - len(prompt)) + prompt for prompt in prompts], device=self.device)
        mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts], device=self.device)
        if self.device == "cpu":
            return self.loop(ids, mask, tokens)
        # One cache for each shape: steps are compiled once per shape, and attention reads no more of the cache than it needs.
        shape = (*ids.shape, tokens)
        if shape not in self.caches:
            self.caches[shape] = self.transformers.StaticCache(config=self.model.config, max_cache_len=ids.shape[1] + tokens)
            self.generate(ids, mask, tokens, self.caches[shape])
        return self.generate(ids, mask, tokens, self.caches[shape])

    def loop(self, ids, mask, tokens: int) -> dict:
        torch, positions = self.torch, (mask.cumsum(1) - 1).clamp(min=0)
        cache, chosen, started, read = self.transformers.DynamicCache(), [], time.perf_counter(), 0.0
        with torch.inference_mode():
            for _ in range(tokens):
                output = self.model(input_ids=ids, attention_mask=mask, position_ids=positions, past_key_values=cache,
                                    use_cache=True, logits_to_keep=1)
                ids = output.logits[:, -1].argmax(-1, keepdim=True)
                chosen.append(ids)
                read = read or time.perf_counter()
                mask = torch.cat([mask, torch.ones_like(ids)], 1)
                positions = positions[:, -1:] + 1
        ended = time.perf_counter()
        return {"prefill": read - started, "decode": ended - read, "ids": torch.cat(chosen, 1).tolist()}

    def generate(self, ids, mask, tokens: int, cache) -> dict:
        torch, now = self.torch, self.now

        class FirstToken(self.transformers.StoppingCriteria):
            """Never stops; records the time at which prefill ends."""

            read = 0.0

            def __call__(self, all_ids, _scores, **_):
                self.read = self.read or now()
                return torch.zeros(len(all_ids), dtype=torch.bool, device=all_ids.device)

        settings = self.transformers.GenerationConfig(max_new_tokens=tokens, do_sample=False, pad_token_id=0,
                                                      compile_config=self.transformers.CompileConfig(dynamic=False))
        with torch.inference_mode():
            cache.reset()
            first, started = FirstToken(), now()
            output = self.model.generate(input_ids=ids, attention_mask=mask, generation_config=settings, past_key_values=cache,
                                         stopping_criteria=[first])
        ended = now()
        return {"prefill": first.read - started, "decode": ended - first.read, "ids": output[:, ids.shape[1] :].tolist()}

    def now(self) -> float:
        if self.device != "cpu":
            self.torch.cuda.synchronize(self.device)
        return time.perf_counter()


class LlamaCpp:
    """llama_decode with batches of token ids; numpy takes the arg-max of the logits."""

    def __init__(self, arguments: argparse.Namespace):
        import llama_cpp
        import numpy

        self.api, self.numpy, self.threads = llama_cpp, numpy, arguments.threads
        llama_cpp.llama_backend_init()
        quiet = llama_cpp.llama_log_callback(lambda *_: None)
        self.quiet = quiet  # llama.cpp keeps a pointer to it
        llama_cpp.llama_log_set(quiet, None)
        path = str(arguments.output / "bf16.gguf").encode()
        self.model = llama_cpp.llama_model_load_from_file(path, llama_cpp.llama_model_default_params())
        if not self.model:
            sys.exit(f"bench_peers: llama.cpp cannot read {path.decode()}")
        self.vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))

    def decode(self, prompts: list[list[int]], tokens: int) -> dict:
        api = self.api
        parameters = api.llama_context_default_params()
        room = (max(map(len, prompts)) + tokens + 255) // 256 * 256
        parameters.n_ctx, parameters.n_seq_max = room * len(prompts), len(prompts)
        parameters.n_batch = parameters.n_ubatch = 512
        parameters.n_threads = parameters.n_threads_batch = self.threads
        context = api.llama_init_from_model(self.model, parameters)
        batch = api.llama_batch_init(512, 0, 1)
        started = time.perf_counter()
        last = self.read(context, batch, prompts)
        read = time.perf_counter()
        answers = [[token] for token in last]
        for step in range(tokens - 1):
            rows = [(answers[i][-1], len(prompt) + step, i, True) for i, prompt in enumerate(prompts)]
            for answer, token in zip(answers, self.run(context, batch, rows)):
                answer.append(token)
        ended = time.perf_counter()
        api.llama_batch_free(batch)
        api.llama_free(context)
        return {"prefill": read - started, "decode": ended - read, "ids": answers}

    def read(self, context, batch, prompts: list[list[int]]) -> list[int]:
        """Prefills all prompts, several in a pass; returns the first token of each answer."""
        rows = [(token, i, sequence, i + 1 == len(prompt)) for sequence, prompt in enumerate(prompts) for i, token in enumerate(prompt)]
        passes = [rows[begin : begin + 512] for begin in range(0, len(rows), 512)]
        return [token for part in passes for token in self.run(context, batch, part)]

    def run(self, context, batch, rows: list[tuple]) -> list[int]:
        """One pass over rows (token, position, sequence, whether its next token is wanted); returns the wanted tokens."""
        batch.n_tokens = len(rows)
        for i, (token, position, sequence, wanted) in enumerate(rows):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, position, 1, wanted
            batch.seq_id[i][0] = sequence
        if self.api.llama_decode(context, batch) != 0:
            sys.exit("bench_peers: llama_decode failed")
        logits = [self.api.llama_get_logits_ith(context, i) for i, row in enumerate(rows) if row[3]]
        return [int(self.numpy.ctypeslib.as_array(pointer, (self.vocab,)).argmax()) for pointer in logits]


def serve(arguments: argparse.Namespace) -> None:
    """Runs one peer in this process until stdin ends."""
    peer = {"hf": HuggingFace, "llama": LlamaCpp}[arguments.worker](arguments)
    for line in sys.stdin:
        print(json.dumps(peer.decode(**json.loads(line))), flush=True)


class Worker:
    """A peer in a process of its own, which is stopped (SIGSTOP) while others have their turn."""

    def __init__(self, name: str, arguments: argparse.Namespace):
        command = [sys.executable, __file__, "--worker", name, "--target", str(arguments.target), "--output", str(arguments.output),
                   "--threads", str(arguments.threads), "--device", arguments.device]
        quiet = os.environ | {"TRANSFORMERS_VERBOSITY": "error"}
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=quiet)
        self.process.send_signal(signal.SIGSTOP)
        atexit.register(self.process.kill)

    def decode(self, prompts: list[dict], tokens: int) -> dict:
        # A peer's idle threads spin, which would take cores from the others.  With OMP_WAIT_POLICY=passive they would sleep, but
        # then decode at a third of their speed.
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.write(json.dumps({"prompts": [prompt["ids"] for prompt in prompts], "tokens": tokens}) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit("bench_peers: a peer stopped; its message stands above")
        self.process.send_signal(signal.SIGSTOP)
        return json.loads(answer)


class Clover:
    """clover-infer batch, as a user runs it, on a copy of the model's folder without end tokens."""

    def __init__(self, arguments: argparse.Namespace, draft: str):
        self.work, self.infer = arguments.output.resolve() / "clover", str(arguments.infer)
        self.target = without_end_tokens(arguments.target.resolve(), self.work / "target")
        self.common = ["--target", str(self.target), "--threads", str(arguments.threads), "--device", arguments.device]
        self.options = ["--draft", draft] + (["--heads", str(arguments.heads)] if draft != "off" else [])

    def tokenize(self, texts: list[str]) -> list[dict]:
        write_lines(self.work / "texts.jsonl", [{"prompt": text} for text in texts])
        command = [self.infer, "tokenize", "--target", str(self.target), "--input", str(self.work / "texts.jsonl")]
        lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
        return [{"text": text, "ids": json.loads(line)["token_ids"]} for text, line in zip(texts, lines)]

    def decode(self, prompts: list[dict], tokens: int) -> dict:
        answers, report = self.work / "answers.jsonl", self.work / "report.json"
        for old in (answers, Path(f"{answers}.run.json")):
            old.unlink(missing_ok=True)
        write_lines(self.work / "prompts.jsonl", [{"prompt": prompt["text"]} for prompt in prompts])
        command = [self.infer, "batch", *self.common, *self.options, "--input", str(self.work / "prompts.jsonl"), "--output", str(answers),
                   "--json", str(report), "--max-batch", str(len(prompts)), "--max-tokens", str(tokens)]
        if (done := subprocess.run(command, stderr=subprocess.PIPE, text=True)).returncode:
            sys.exit(f"bench_peers: clover-infer ended with {done.returncode}:\n{done.stderr}")
        run = json.loads(report.read_text())["configurations"][0]
        lines = sorted((json.loads(line) for line in answers.read_text().splitlines()), key=lambda line: line["line"])
        return {"prefill": run["prefill_seconds"], "decode": run["decode_seconds"], "ids": [line["token_ids"] for line in lines]}


def write_lines(file: Path, records: list[dict]) -> None:
    file.write_text("".join(json.dumps(record) + "\n" for record in records))


def without_end_tokens(model: Path, folder: Path) -> Path:
    """Makes `folder` a copy of the model's folder (links to its files) whose config names no end token."""
    folder.mkdir(parents=True, exist_ok=True)
    for source in model.iterdir():
        place = folder / source.name
        place.unlink(missing_ok=True)
        if source.name in ("config.json", "generation_config.json"):
            place.write_text(json.dumps(json.loads(source.read_text()) | {"eos_token_id": None}))
        else:
            place.symlink_to(source)
    return folder


def write_gguf(model: Path, file: Path) -> None:
    """Writes the model's bf16 weights as a GGUF file, without a vocabulary, because prompts are given as token ids."""
    if file.exists():
        return
    import gguf
    import numpy
    import torch
    from safetensors.torch import load_file

    config = json.loads((model / "config.json").read_text())
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    unfinished = file.with_name(file.name + ".new")
    writer = gguf.GGUFWriter(unfinished, "llama")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_dimension_count(config["hidden_size"] // heads)
    writer.add_rope_freq_base((config.get("rope_parameters") or config).get("rope_theta", 10000.0))
    writer.add_vocab_size(config["vocab_size"])
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    writer.add_tokenizer_model("no_vocab")
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config["num_hidden_layers"])
    for name, tensor in load_file(model / "model.safetensors").items():
        values = tensor.to(torch.float32).numpy()
        for part, count in (("q_proj", heads), ("k_proj", kv_heads)):
            if part in name:  # rotary embedding: llama.cpp rotates neighbouring pairs, Hugging Face halves
                values = values.reshape(count, 2, -1, values.shape[1]).swapaxes(1, 2).reshape(values.shape)
        place = names.get_name(name, try_suffixes=(".weight",))
        if values.ndim == 1:
            writer.add_tensor(place, numpy.ascontiguousarray(values))
        else:
            kind = gguf.GGMLQuantizationType.BF16
            writer.add_tensor(place, gguf.quants.quantize(numpy.ascontiguousarray(values), kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    unfinished.rename(file)


# ---- measuring


def measure(programs: dict, questions: list[str], arguments: argparse.Namespace) -> dict:
    """Measures decoding at every batch size and prefill of every shape of PROMPTS, in every round."""
    clover = programs["Clover"]
    chats = [f"<|im_start|>user\n{question(line)}<|im_end|>\n<|im_start|>assistant\n" for line in questions]
    prompts = clover.tokenize(chats)
    words = " ".join(question(line) for line in questions).split()
    to_read = {f"{count} x {tokens}": texts_of(clover, words, count, tokens) for count, tokens in PROMPTS}
    sizes = [int(size) for size in arguments.batch_sizes.split(",")]
    figures = {"sizes": sizes, "rounds": [], "agreement": {}, "prompts": list(to_read)}
    for number in range(1, arguments.rounds + 1):
        decode = {name: {} for name in programs}
        for size in sizes:
            chosen = (prompts * (size // len(prompts) + 1))[:size]
            answers = {name: program.decode(chosen, arguments.tokens) for name, program in programs.items()}
            for name, answer in answers.items():
                decode[name][size] = size * (arguments.tokens - 1) / answer["decode"]
                figures["agreement"].setdefault(name, []).append(agreement(answers["Clover"]["ids"], answer["ids"]))
            say(f"round {number}, batch {size}: " + ", ".join(f"{name} {decode[name][size]:.1f}" for name in programs) + " tokens/s")
        read = {name: {} for name in programs}
        for label, texts in to_read.items():
            for name, program in programs.items():
                read[name][label] = sum(len(text["ids"]) for text in texts) / program.decode(texts, 2)["prefill"]
            say(f"round {number}, reading {label}: " + ", ".join(f"{name} {read[name][label]:.0f}" for name in programs) + " tokens/s")
        figures["rounds"].append({"decode": decode, "read": read})
    return figures


def texts_of(clover: Clover, words: list[str], count: int, tokens: int) -> list[dict]:
    """`count` different texts of about `tokens` tokens each, cut between words."""
    texts = []
    for i in range(count):
        begin = i * len(words) // (2 * count)
        lengths = range(tokens // 3, min(tokens, len(words) - begin) + 1)
        cuts = clover.tokenize([" ".join(words[begin : begin + length]) for length in lengths])
        texts.append(min(cuts, key=lambda cut: abs(len(cut["ids"]) - tokens)))
    return texts


def question(line: str) -> str:
    return json.loads(line)["messages"][0]["content"]


def agreement(one: list[list[int]], other: list[list[int]]) -> float:
    """The mean share of an answer before its first difference.  Rounding makes equal models differ sooner or later."""
    shares = []
    for left, right in zip(one, other):
        same = next((i for i, (a, b) in enumerate(zip(left, right)) if a != b), len(left))
        shares.append(same / len(left))
    return statistics.mean(shares)


# ---- results


def median(figures: dict, pick) -> float:
    return statistics.median(pick(entry) for entry in figures["rounds"])


def write_results(figures: dict, arguments: argparse.Namespace) -> None:
    machine = json.loads((arguments.output / "clover" / "report.json").read_text())["machine"]
    figures["machine"], figures["date"] = machine, time.strftime("%Y-%m-%d")
    (arguments.output / "peers.json").write_text(json.dumps(figures, indent=1) + "\n")
    table = markdown(figures, arguments.tokens)
    (arguments.output / "peers.md").write_text(table)
    plot(figures, arguments.output / "peers.png")
    print(table)


def markdown(figures: dict, tokens: int) -> str:
    machine, sizes = figures["machine"], figures["sizes"]
    lines = [f"{where(machine)}, {figures['date']}; bf16, greedy, {tokens} new tokens a "
             f"prompt, medians of {len(figures['rounds'])} rounds.", "",
             "| tokens/s | " + " | ".join([f"batch {size}" for size in sizes] + [f"reading {label}" for label in figures["prompts"]]) + " |",
             "|---|" + "---:|" * (len(sizes) + len(figures["prompts"]))]
    for name in figures["rounds"][0]["decode"]:
        cells = [f"{median(figures, lambda entry: entry['decode'][name][size]):.0f}" for size in sizes]
        cells += [f"{median(figures, lambda entry: entry['read'][name][label]):.0f}" for label in figures["prompts"]]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    for peer in figures["rounds"][0]["decode"]:
        if peer.startswith("Clover"):
            continue
        cells = [f"{median(figures, lambda entry: entry['decode']['Clover'][size] / entry['decode'][peer][size]):.2f}" for size in sizes]
        cells += [f"{median(figures, lambda entry: entry['read']['Clover'][label] / entry['read'][peer][label]):.2f}" for label in figures["prompts"]]
        lines.append(f"| Clover / {peer} | " + " | ".join(cells) + " |")
    shares = ", ".join(f"{name} {statistics.mean(values):.0%}" for name, values in figures["agreement"].items())
    return "\n".join(lines) + f"\n\nShare of the answers equal to Clover's up to the first difference: {shares}.\n"


def where(machine: dict) -> str:
    return machine.get("gpu") or f"{machine['cpu']}, {machine['threads']} threads, {machine['kernels']} kernels"


def plot(figures: dict, file: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4))
    for name in figures["rounds"][0]["decode"]:
        speeds = [median(figures, lambda entry: entry["decode"][name][size]) for size in figures["sizes"]]
        axes.plot(figures["sizes"], speeds, marker="o", label=name)
    axes.set_xscale("log", base=2)
    axes.set_xticks(figures["sizes"], [str(size) for size in figures["sizes"]])
    axes.set(xlabel="sequences at once", ylabel="tokens/s", title=f"Decoding on {where(figures['machine'])}")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(file, dpi=120)


if __name__ == "__main__":
    main()
