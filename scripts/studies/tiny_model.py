"""A random model of two small layers with the tokenizer of another one, for `scripts/study --quick`."""

import json
import shutil
from pathlib import Path


def make(source: Path, folder: Path) -> None:
    """Writes it to `folder`, unless it is there.  Biases and norms of heads are those of Qwen2 and Qwen3."""
    if (folder / "config.json").exists():
        return
    import torch
    from safetensors.torch import save_file

    config = json.loads((source / "config.json").read_text())
    hidden, inner, heads, kv_heads, layers = 64, 128, 2, 1, 2
    config |= {"hidden_size": hidden, "intermediate_size": inner, "num_attention_heads": heads, "num_key_value_heads": kv_heads,
               "num_hidden_layers": layers, "head_dim": hidden // heads, "tie_word_embeddings": True}
    generator = torch.Generator().manual_seed(7)

    def random(*shape: int) -> torch.Tensor:
        return (torch.randn(shape, generator=generator) * 0.3).to(torch.bfloat16)

    ones = torch.ones(hidden, dtype=torch.bfloat16)
    tensors = {"model.embed_tokens.weight": random(config["vocab_size"], hidden), "model.norm.weight": ones}
    for layer in range(layers):
        name, kv = f"model.layers.{layer}.", hidden * kv_heads // heads
        tensors |= {name + "input_layernorm.weight": ones.clone(), name + "post_attention_layernorm.weight": ones.clone(),
                    name + "self_attn.q_proj.weight": random(hidden, hidden), name + "self_attn.k_proj.weight": random(kv, hidden),
                    name + "self_attn.v_proj.weight": random(kv, hidden), name + "self_attn.o_proj.weight": random(hidden, hidden),
                    name + "mlp.gate_proj.weight": random(inner, hidden), name + "mlp.up_proj.weight": random(inner, hidden),
                    name + "mlp.down_proj.weight": random(hidden, inner)}
        if config.get("model_type") == "qwen2" or config.get("attention_bias"):
            tensors |= {name + f"self_attn.{part}_proj.bias": random(width) for part, width in (("q", hidden), ("k", kv), ("v", kv))}
        if config.get("model_type") == "qwen3":
            tensors |= {name + f"self_attn.{part}_norm.weight": ones[:hidden // heads].clone() for part in "qk"}
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "model.safetensors")
    for file in ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json", "generation_config.json",
                 "chat_template.jinja"):
        if (source / file).exists():
            shutil.copy2(source / file, folder / file)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")  # last: it says that the others are there
