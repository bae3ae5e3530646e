#!/usr/bin/env python3
"""Makes tests/golden/tokenizers/added_tokens.json: what transformers makes of every source of added tokens.

Each case is a folder: a tokenizer of tests/golden/tokenizers/ and files that state added tokens beside it. Recorded are the
ids of texts around them, with special tokens parsed and not, and the text decoded from the former with and without them.

    pip install transformers sentencepiece protobuf
    scripts/goldens/make_added_token_goldens.py
"""

import json
import os
import shutil
import tempfile
from pathlib import Path

os.environ["TRANSFORMERS_VERBOSITY"] = "error"
import transformers
from transformers import AutoTokenizer

GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "golden" / "tokenizers"
A, B, C = "<|new_a|>", "<|new_b|>", "<|new_c|>"
TEXTS = [
    f"x{A}y {B} z\n {C} w",
    f"{A}{A} {B}the{C}the {A}",
    f"a  {A}  b  {B}  c  {C}  d",
    f"word{A}word {B}word {C} word<|im_end|> end",
    "no added token in this text",
]


def token(content, **flags):
    return {"content": content, "lstrip": False, "rstrip": False, "normalized": False, "single_word": False, "special": True} | flags


def named(content, **flags):
    """As special_tokens_map.json writes one."""
    return {key: value for key, value in token(content, **flags).items() if key != "special"}


def marked(content, **flags):
    """As tokenizer_config.json writes one in a role."""
    return token(content, **flags) | {"__type": "AddedToken"}


def decoder(first, *tokens):
    return {"added_tokens_decoder": {str(first + i): entry for i, entry in enumerate(tokens)}}


def listed(first, *tokens):
    return [entry | {"id": first + i} for i, entry in enumerate(tokens)]


def common_cases(n):
    """Cases for a vocabulary whose next id is n, by name: files beside it and what tokenizer.json lists more."""
    flags = {"lstrip": True, "rstrip": True, "single_word": True}
    return {
        "added_tokens.json alone": {"added_tokens.json": {A: n, B: n + 1}},
        "added_tokens.json, a role": {"added_tokens.json": {A: n, B: n + 1}, "tokenizer_config.json": {"eos_token": A}},
        "added_tokens.json, a role of the map": {"added_tokens.json": {A: n, B: n + 1}, "special_tokens_map.json": {"pad_token": named(B)}},
        "decoder alone": {"tokenizer_config.json": decoder(n, token(A), token(B, special=False))},
        "decoder with flags": {"tokenizer_config.json": decoder(n, token(A, lstrip=True), token(B, rstrip=True), token(C, single_word=True))},
        "decoder without some flags": {"tokenizer_config.json": decoder(n, {"content": A}, {"content": B, "special": True}, {"content": C, "lstrip": True})},
        "decoder out of order": {"tokenizer_config.json": {"added_tokens_decoder": {str(n + 2): token(A), str(n): token(B)}}},
        "decoder with other ids": {"tokenizer_config.json": decoder(n + 7, token(A), token(B))},
        "decoder, role not special": {"tokenizer_config.json": decoder(n, token(A, special=False)) | {"eos_token": A}},
        "decoder, the map is not read": {"tokenizer_config.json": decoder(n, token(A)) | {"eos_token": A}, "special_tokens_map.json": {"eos_token": B}},
        "roles as texts": {"tokenizer_config.json": {"eos_token": A, "pad_token": B, "bos_token": C}},
        "roles as objects": {"tokenizer_config.json": {"eos_token": marked(A, lstrip=True), "pad_token": marked(B, rstrip=True)}},
        "a role twice": {"tokenizer_config.json": {"eos_token": A, "pad_token": A}},
        "roles of the map": {"special_tokens_map.json": {"eos_token": A, "pad_token": named(B, rstrip=True)}},
        "the map wins": {"tokenizer_config.json": {"eos_token": A}, "special_tokens_map.json": {"eos_token": B}},
        "a role of its own": {"tokenizer_config.json": {"image_token": A, "audio_token": B}},
        "additional as list": {"tokenizer_config.json": {"additional_special_tokens": [A, B]}},
        "additional as objects": {"tokenizer_config.json": {"additional_special_tokens": [marked(A, lstrip=True), marked(B, special=False)]}},
        "additional of the map": {"special_tokens_map.json": {"additional_special_tokens": [A, B]}},
        "additional beside empty extra": {"tokenizer_config.json": {"additional_special_tokens": [A], "extra_special_tokens": []}},
        "extra as list": {"tokenizer_config.json": {"extra_special_tokens": [B, A]}},
        "extra as object": {"tokenizer_config.json": {"extra_special_tokens": {"b_token": B, "a_token": A}}},
        "extra beside additional": {"tokenizer_config.json": {"extra_special_tokens": [B], "additional_special_tokens": [A]}},
        "extra as object beside additional": {"tokenizer_config.json": {"extra_special_tokens": {"b_token": B}, "additional_special_tokens": [A]}},
        "all flags": {"tokenizer_config.json": decoder(n, token(A, **flags), token(B, **flags), token(C, **flags))},
    }


def listed_cases(n):
    """Cases of tokenizer.json that lists tokens itself."""
    both = listed(n, token(A), token(B))
    return {
        "listed alone": {"added_tokens": both},
        "listed with other ids": {"added_tokens": listed(n + 5, token(A), token(B))},
        "listed out of order": {"added_tokens": [token(A) | {"id": n + 1}, token(B) | {"id": n}]},
        "listed, not in the decoder": {"added_tokens": both, "tokenizer_config.json": decoder(n, token(A))},
        "listed, more in the decoder": {"added_tokens": both, "tokenizer_config.json": decoder(n, token(A), token(B), token(C))},
        "listed, other flags in the decoder": {"added_tokens": both, "tokenizer_config.json": decoder(n, token(A, lstrip=True), token(B, rstrip=True))},
        "listed as not special, in a role": {"added_tokens": listed(n, token(A, special=False), token(B, special=False)), "tokenizer_config.json": {"eos_token": A}},
        "listed as special, not in the decoder": {"added_tokens": both, "tokenizer_config.json": decoder(n, token(A, special=False))},
        "listed, more in added_tokens.json": {"added_tokens": both, "added_tokens.json": {A: n, B: n + 1, C: n + 2}},
        "listed, another in the place of one": {"added_tokens": both, "tokenizer_config.json": decoder(n, token(C))},
        "listed after normalisation": {"added_tokens": listed(n, token(A, normalized=True), token(B, normalized=True, special=False))},
    }


def folder_of(base, case, place):
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    (place / "config.json").write_text('{"model_type": "llama"}')
    if (GOLDEN / base / "tokenizer.model").exists():
        shutil.copy(GOLDEN / base / "tokenizer.model", place)
    else:
        description = json.loads((GOLDEN / base / "tokenizer.json").read_text())
        description["added_tokens"] += case.get("added_tokens", [])
        (place / "tokenizer.json").write_text(json.dumps(description))
    for name, content in case.items():
        if name != "added_tokens":
            (place / name).write_text(json.dumps(content))
    return place


def record(base, name, case, place):
    tokenizer = AutoTokenizer.from_pretrained(folder_of(base, case, place))._tokenizer
    ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in TEXTS]
    decoded = [[tokenizer.decode(line, skip_special_tokens=skip) for line in ids] for skip in (False, True)]
    tokenizer.encode_special_tokens = True
    unparsed = [tokenizer.encode(text, add_special_tokens=False).ids for text in TEXTS]
    # As texts: readers of this file may not keep the order of keys, which ids follow.
    files = {name: content if name == "added_tokens" else json.dumps(content) for name, content in case.items()}
    return {"base": base, "name": name, "files": files, "ids": ids, "unparsed": unparsed, "decoded": decoded[0], "plain": decoded[1]}


def next_id(base):
    description = json.loads((GOLDEN / base / "tokenizer.json").read_text())
    vocab = description["model"]["vocab"]
    known = len(vocab)
    return max([known - 1] + [entry["id"] for entry in description["added_tokens"]]) + 1


def main():
    cases = []
    with tempfile.TemporaryDirectory() as place:
        place = Path(place) / "folder"
        for base in ("gpt2", "pieces-bpe"):
            n = next_id(base)
            for name, case in (common_cases(n) | listed_cases(n)).items():
                cases.append(record(base, name, case, place))
        for prefix in (True, False):
            case = {"tokenizer_config.json": decoder(640, token(A)) | {"tokenizer_class": "LlamaTokenizer", "legacy": False, "add_prefix_space": prefix}}
            cases.append(record("sentencepiece-bpe", f"a class, add_prefix_space {prefix}", case, place))
        for name, case in common_cases(640).items():
            # Without a class and `legacy`, transformers puts a space before the text behind every added token.
            case["tokenizer_config.json"] = {"legacy": False} | case.get("tokenizer_config.json", {})
            cases.append(record("sentencepiece-bpe", name, case, place))
    recorded = {"transformers": transformers.__version__, "texts": TEXTS, "cases": cases}
    (GOLDEN / "added_tokens.json").write_text(json.dumps(recorded, indent=None, separators=(",", ":")).replace('{"base"', '\n{"base"') + "\n")


if __name__ == "__main__":
    main()
