#!/usr/bin/env python3
"""Record what Hugging Face transformers computes for target models: the oracle of tests/model.

    scripts/goldens/make_target_goldens.py --model models/SmolLM2-135M-Instruct --output tests/golden/targets

Needs torch, numpy, safetensors and transformers (5.23.0 made the committed files, 5.24.0 yarn-rope and dynamic-rope; it is no dependency of the project).

OUTPUT/NAME/             tiny folders with random weights (seeded), one per thing that varies between real ones
OUTPUT/NAME/golden.safetensors
    ids        i64 [40]       the text
    logits     f32 [40, V]    fp32 arithmetic over the stored weights
    pre_norm   f32 [40, H]    the residual stream after the last layer
    post_norm  f32 [40, H]    the same through the final norm
OUTPUT/smollm2.safetensors    the example model; "_bf16" ran in bf16, all else in fp32
    ids [200], top_ids [200, 16], top_logits [200, 16], log_sum_exp [200], top_1_bf16 [200], rows [4], row_logits [4, V]
    prompt_N [..], continuation_N [64], margin_N [64] (top-1 minus top-2 logit), continuation_N_bf16 [64], N = 0..2
"""
import argparse
import json
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

LLAMA3_SCALING = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                  "original_max_position_embeddings": 32}
TINY = {
    # grouped queries, tied head, bf16: the shape of SmolLM2
    "tied-bf16": ({"num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": True}, torch.bfloat16, 1),
    # as many KV heads as heads, a width that is no multiple of 32, fp32
    "untied-fp32": ({"hidden_size": 48, "num_attention_heads": 3, "num_key_value_heads": 3, "intermediate_size": 80,
                     "rms_norm_eps": 1e-6}, torch.float32, 1),
    # one KV head, Llama 3.1 frequencies that reach all three of their cases, several end tokens, fp16
    "llama3-rope-fp16": ({"num_attention_heads": 4, "num_key_value_heads": 1, "num_hidden_layers": 3,
                          "rope_theta": 5000.0, "rope_scaling": LLAMA3_SCALING, "eos_token_id": [2, 5],
                          "tie_word_embeddings": True}, torch.float16, 1),
    # heads wider than hidden / heads, linear scaling under its old key, three shards
    "sharded-linear-rope": ({"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
                             "rope_scaling": {"type": "linear", "factor": 4.0}}, torch.bfloat16, 3),
    # the keys that transformers 5 writes: dtype, rope_parameters
    "rope-parameters": ({"hidden_size": 32, "num_attention_heads": 2, "num_key_value_heads": 1,
                         "intermediate_size": 64, "tie_word_embeddings": True, "dtype": "bfloat16",
                         "rope_parameters": {"rope_theta": 20000.0, **LLAMA3_SCALING}}, torch.bfloat16, 1),
    # biases of queries, keys and values; a window that is not used
    "qwen2": ({"model_type": "qwen2", "num_attention_heads": 4, "num_key_value_heads": 2, "use_sliding_window": False,
               "sliding_window": 16, "tie_word_embeddings": True, "rms_norm_eps": 1e-6}, torch.bfloat16, 1),
    # a norm for each head of queries and keys
    "qwen3": ({"model_type": "qwen3", "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 24,
               "rope_theta": 1000000.0, "rms_norm_eps": 1e-3}, torch.bfloat16, 1),
    # a window as long as the text
    "mistral": ({"model_type": "mistral", "num_attention_heads": 4, "num_key_value_heads": 1,
                 "sliding_window": 40}, torch.bfloat16, 1),
    # cosines and sines with a factor
    "yarn-rope": ({"hidden_size": 32, "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 64,
                   "tie_word_embeddings": True, "max_position_embeddings": 16,
                   "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "beta_fast": 2}}, torch.bfloat16, 1),
    # a text that is longer than the pre-training was
    "dynamic-rope": ({"hidden_size": 32, "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 64,
                      "tie_word_embeddings": True, "max_position_embeddings": 16,
                      "rope_scaling": {"type": "dynamic", "factor": 4.0}}, torch.bfloat16, 1),
}
ARCHITECTURES = {"llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM", "qwen2": "Qwen2ForCausalLM",
                 "qwen3": "Qwen3ForCausalLM"}
TEXT = """<|im_start|>system
You are a careful tutor.<|im_end|>
<|im_start|>user
A farm has 128 hens. Each hen lays 5 eggs a week, and 1 egg in 16 breaks. How many whole eggs are left after 3 weeks?
<|im_end|>
<|im_start|>assistant
Every week the hens lay 128 * 5 = 640 eggs. Of these, 640 / 16 = 40 break, so 600 whole eggs are left. After 3 weeks \
there are 3 * 600 = 1800 whole eggs.<|im_end|>
<|im_start|>user
Write it as a Python function, s'il vous plaît.<|im_end|>
<|im_start|>assistant
```python
def whole_eggs(hens: int, eggs: int, weeks: int) -> int:
    laid = hens * eggs * weeks
    return laid - laid // 16
```
The two slashes divide and round down.<|im_end|>
"""
PROMPTS = ["Explain in three sentences why the sky is blue.",
           "Tom has 23 apples. He buys 19 more and gives 7 to each of his 3 friends. How many are left?",
           "Write a short story about a lighthouse keeper who finds a bottle on the beach."]


def main():
    parser = argparse.ArgumentParser(description="Record what transformers computes for target models.")
    parser.add_argument("--model", type=Path, help="the example model's folder; without it only tiny ones are made")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    torch.use_deterministic_algorithms(True)
    for seed, (name, (changes, dtype, shards)) in enumerate(TINY.items()):
        make_tiny(arguments.output / name, changes, dtype, shards, seed)
    if arguments.model:
        record_example(arguments.model, arguments.output / "smollm2.safetensors")


def make_tiny(folder, changes, dtype, shards, seed):
    folder.mkdir(parents=True, exist_ok=True)
    family = changes.get("model_type", "llama")
    config = {"architectures": [ARCHITECTURES[family]], "model_type": family, "hidden_act": "silu", "hidden_size": 64,
              "num_hidden_layers": 2, "intermediate_size": 96, "vocab_size": 130, "max_position_embeddings": 256,
              "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "attention_bias": False, "mlp_bias": False,
              "bos_token_id": 1, "eos_token_id": 2, "use_cache": True, **changes}
    if "rope_parameters" not in config:
        config = {"rope_theta": 10000.0, "rope_scaling": None, "torch_dtype": str(dtype).removeprefix("torch."), **config}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (folder / "generation_config.json").write_text(
        json.dumps({key: config[key] for key in ("bos_token_id", "eos_token_id")}, indent=2) + "\n")
    generator = torch.Generator().manual_seed(seed)
    weights = {name: weight.to(dtype) for name, weight in random_weights(config, generator).items()}
    write_shards(folder, weights, shards)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    ids = torch.randint(0, config["vocab_size"], (40,), generator=generator)
    save_file(record(model, ids), folder / "golden.safetensors", metadata={"transformers": transformers.__version__})


def random_weights(config, generator):
    """Weights large enough that logits spread over several units: small ones would hide mistakes."""
    hidden, inner, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    head_dim = config.get("head_dim", hidden // config["num_attention_heads"])
    query, key = head_dim * config["num_attention_heads"], head_dim * config["num_key_value_heads"]

    def matrix(rows, columns):
        return torch.randn(rows, columns, generator=generator) / columns**0.5

    def norm(width=hidden):
        return 1 + 0.2 * torch.randn(width, generator=generator)

    weights = {"model.embed_tokens.weight": torch.randn(vocab, hidden, generator=generator) * 0.5}
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        weights |= {prefix + "input_layernorm.weight": norm(),
                    # Sharp attention: without it the keys and their rotation would hardly matter.
                    prefix + "self_attn.q_proj.weight": 2 * matrix(query, hidden),
                    prefix + "self_attn.k_proj.weight": 2 * matrix(key, hidden),
                    prefix + "self_attn.v_proj.weight": matrix(key, hidden),
                    prefix + "self_attn.o_proj.weight": matrix(hidden, query),
                    prefix + "post_attention_layernorm.weight": norm(),
                    prefix + "mlp.gate_proj.weight": matrix(inner, hidden),
                    prefix + "mlp.up_proj.weight": matrix(inner, hidden),
                    prefix + "mlp.down_proj.weight": matrix(hidden, inner)}
        if config["model_type"] == "qwen2":
            weights |= {prefix + f"self_attn.{name}_proj.bias": torch.randn(width, generator=generator)
                        for name, width in (("q", query), ("k", key), ("v", key))}
        if config["model_type"] == "qwen3":
            weights |= {prefix + f"self_attn.{name}_norm.weight": norm(head_dim) for name in "qk"}
    weights["model.norm.weight"] = norm()
    if not config["tie_word_embeddings"]:
        weights["lm_head.weight"] = 3 * matrix(vocab, hidden)
    return weights


def write_shards(folder, weights, shards):
    if shards == 1:
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        return
    names = list(weights)
    weight_map = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        part = names[shard::shards]  # neighbours in different files
        save_file({name: weights[name] for name in part}, folder / file, metadata={"format": "pt"})
        weight_map |= {name: file for name in part}
    total = sum(weight.numel() * weight.element_size() for weight in weights.values())
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}, indent=2) + "\n")


@torch.no_grad()
def record(model, ids):
    captured = {}
    hook = model.model.norm.register_forward_hook(
        lambda module, inputs, output: captured.update(pre_norm=inputs[0][0].clone(), post_norm=output[0].clone()))
    logits = model(ids[None]).logits[0].float()
    hook.remove()
    return {"ids": ids, "logits": logits.contiguous(), **captured}


@torch.no_grad()
def record_example(folder, path):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    models = {dtype: AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()
              for dtype in (torch.float32, torch.bfloat16)}
    ids = torch.tensor(tokenizer(TEXT)["input_ids"])[:200]
    if len(ids) != 200:
        raise SystemExit(f"the text has {len(ids)} tokens, expected at least 200")
    logits = models[torch.float32](ids[None]).logits[0]
    top = logits.topk(16)
    rows = torch.tensor([0, 63, 128, 199])
    tensors = {"ids": ids, "top_ids": top.indices, "top_logits": top.values, "log_sum_exp": logits.logsumexp(-1),
               "top_1_bf16": models[torch.bfloat16](ids[None]).logits[0].argmax(-1),
               "rows": rows, "row_logits": logits[rows]}
    for number, prompt in enumerate(PROMPTS):
        text = tokenizer.apply_chat_template([{"role": "user", "content": prompt}], tokenize=False,
                                             add_generation_prompt=True)
        prompt_ids = torch.tensor(tokenizer(text)["input_ids"])
        tensors[f"prompt_{number}"] = prompt_ids
        tensors[f"continuation_{number}"], tensors[f"margin_{number}"] = greedy(models[torch.float32], prompt_ids)
        tensors[f"continuation_{number}_bf16"], _ = greedy(models[torch.bfloat16], prompt_ids)
    metadata = {"transformers": transformers.__version__, "text": TEXT, "prompts": json.dumps(PROMPTS)}
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path, metadata=metadata)


def greedy(model, prompt_ids, steps=64):
    """64 tokens whether or not an end token is among them, with the lead of each over the second best."""
    output = model(prompt_ids[None], use_cache=True)
    chosen, margins = [], []
    for _ in range(steps):
        best = output.logits[0, -1].float().topk(2)
        chosen.append(best.indices[0])
        margins.append(best.values[0] - best.values[1])
        output = model(chosen[-1].view(1, 1), past_key_values=output.past_key_values, use_cache=True)
    return torch.stack(chosen), torch.stack(margins)


if __name__ == "__main__":
    main()
