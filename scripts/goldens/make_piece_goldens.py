#!/usr/bin/env python3
"""Makes tests/golden/tokenizers/pieces.json: what `tokenizers` makes of tokenizer.json files of SentencePiece kind.

Two of them, byte-pair encoding and Unigram, are what transformers saves for the golden tokenizer.model files; each variant
changes parts of one. Recorded are the ids of texts, with special tokens parsed and not, the text decoded from the former, and
count and hash of ids and text of a megabyte that is put together from `parts` by a linear congruential generator.

    pip install transformers tokenizers sentencepiece protobuf
    scripts/goldens/make_piece_goldens.py
"""

import json
import os
import shutil
import tempfile
from pathlib import Path

os.environ["TRANSFORMERS_VERBOSITY"] = "error"
import tokenizers
import transformers
from tokenizers import Tokenizer
from transformers import AutoTokenizer

GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "golden" / "tokenizers"
MARK = "\u2581"
MEGABYTE = 1 << 20

METASPACE = {"type": "Metaspace", "replacement": MARK, "split": False}
REPLACE_SPACE = {"type": "Replace", "pattern": {"String": " "}, "content": MARK}
PREPEND = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": MARK}, REPLACE_SPACE]}
TRIM = {"type": "Replace", "pattern": {"Regex": r"\A +| +\z"}, "content": ""}
SQUEEZE = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
UNSTRIPPED = [{"type": "Replace", "pattern": {"String": MARK}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]


def scheme(name, **more):
    return {"/normalizer": None, "/pre_tokenizer": METASPACE | {"prepend_scheme": name} | more}


# Name: base, and what it changes.
VARIANTS = {
    "as saved": ("bpe", {}),
    "prepend and replace": ("bpe", {"/normalizer": PREPEND, "/pre_tokenizer": None}),
    "metaspace first": ("bpe", scheme("first")),
    "metaspace always": ("bpe", scheme("always")),
    "metaspace never": ("bpe", scheme("never") | {"/decoder": {"type": "Sequence", "decoders": UNSTRIPPED}}),
    "metaspace of before schemes": ("bpe", {"/normalizer": None, "/pre_tokenizer": {"type": "Metaspace", "replacement": MARK, "add_prefix_space": True}}),
    "split, whole pieces first": ("bpe", scheme("first", split=True) | {"/model/ignore_merges": True}),
    "no bytes": ("bpe", scheme("first") | {"/model/byte_fallback": False}),
    "no bytes, unknown apart": ("bpe", scheme("first") | {"/model/byte_fallback": False, "/model/fuse_unk": False}),
    "no bytes, no unknown": ("bpe", scheme("always") | {"/model/byte_fallback": False, "/model/unk_token": None}),
    "spaces trimmed and squeezed": ("bpe", {"/normalizer": {"type": "Sequence", "normalizers": [TRIM, SQUEEZE, REPLACE_SPACE]}}),
    "NFC first": ("bpe", {"/normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, REPLACE_SPACE]}}),
    "cut at spaces that are gone": ("bpe", {"/normalizer": REPLACE_SPACE, "/pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}}),
    "metaspace decodes": ("bpe", scheme("always") | {"/decoder": METASPACE | {"prepend_scheme": "always"}}),
    "no decoder": ("bpe", scheme("first") | {"/decoder": None}),
    "strips every token": ("bpe", scheme("first") | {"/decoder": {"type": "Sequence", "decoders": [UNSTRIPPED[0], {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}}),
    "unigram as saved": ("unigram", {}),
    "unigram split": ("unigram", scheme("always", split=True) | {"/decoder": METASPACE | {"prepend_scheme": "always"}}),
    "unigram, no bytes": ("unigram", scheme("first") | {"/model/byte_fallback": False}),
}

TEXTS = [
    "", " ", "  ", MARK, "Hello, world!", "  leading and  trailing  ", MARK + " the " + MARK * 3 + "x",
    "The quick brown fox; don't, it's 12345 and 3.14.\n\tdef f(x):\n        return x\r\n",
    "\u00e9t\u00e9 e\u0301 \u65e5\u672c\u8a9e\u306e \ud55c\uad6d \u0420\u0443\u0441 \u0645\u0631 \u0939\u093f\u0928\u094d\u0926\u0940",
    "\U0001f600\U0001f468\u200d\U0001f469 x\U0001f600\u2603\u2603\u2603 y \x00\x01\x1b[0m\x7f\u0085\u2028\ufeff",
    "<s> hi</s><s>  again </s>\n<unk> <0x41> <0x0A>",
    "a<|raw|> b <|raw|>c  <|left|> d <|right|>  e", "<|raw|>the<|right|> the<|left|>the",
    "a norm b  norm  normal norm", "norm", "anormx" + MARK + "norm",
]  # fmt: skip
ADDED = [
    ("<|raw|>", {"special": True}),
    ("<|left|>", {"special": True, "lstrip": True}),
    ("<|right|>", {"special": True, "rstrip": True}),
    ("norm", {"normalized": True, "single_word": True}),
]
PARTS = [text for text in TEXTS if text] + [
    " ", " ", "\n", "a", "the ", " and", "x" * 40, " " * 30, "7" * 20, "\u4e00" * 10, "\u2603", MARK * 9, "Natalia sold clips to 48 of her friends. ",
    "Le chat est assis \u00e0 c\u00f4t\u00e9. ", "\u8fd9\u662f\u4e00\u4e2a\u7b80\u5355\u7684\u4f8b\u5b50\u3002", "word", "<|raw", "|>", "\u0301", "\u05e2\u05d1\u05e8\u05d9\u05ea ",
]  # fmt: skip


def saved_by_transformers(base, place):
    """The golden tokenizer.model as transformers saves it, with tokens of every flag added."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    shutil.copy(GOLDEN / f"sentencepiece-{base}" / "tokenizer.model", place)
    (place / "config.json").write_text('{"model_type": "mistral"}')
    (place / "tokenizer_config.json").write_text('{"add_bos_token": true}')
    AutoTokenizer.from_pretrained(place).save_pretrained(place / "saved")
    description = json.loads((place / "saved" / "tokenizer.json").read_text())
    vocab = description["model"]["vocab"]
    for i, (content, flags) in enumerate(ADDED):
        plain = {"id": len(vocab) + i, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
        description["added_tokens"].append(plain | flags)
    return description


def changed(description, changes):
    description = json.loads(json.dumps(description))
    for pointer, value in changes.items():
        *way, key = pointer.split("/")[1:]
        place = description
        for step in way:
            place = place[step]
        place[key] = value
    return description


def megabyte():
    state, text, size = 1, [], 0
    while size < MEGABYTE:
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        part = PARTS[(state >> 33) % len(PARTS)]
        text.append(part)
        size += len(part.encode())
    return "".join(text)


def fnv1a(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return f"{value:016x}"


def record(name, description, long_text):
    tokenizer = Tokenizer.from_str(json.dumps(description))
    encode = lambda text: tokenizer.encode(text, add_special_tokens=False).ids
    ids = [encode(text) for text in TEXTS]
    long_ids = encode(long_text)
    long_decoded = tokenizer.decode(long_ids, skip_special_tokens=False)
    recorded = {
        "ids": ids,
        "decoded": [tokenizer.decode(line, skip_special_tokens=False) for line in ids],
        "plain": [tokenizer.decode(line) for line in ids],
        "megabyte": {"tokens": len(long_ids), "ids": fnv1a("".join(f"{i}," for i in long_ids).encode()), "decoded": fnv1a(long_decoded.encode())},
    }
    tokenizer.encode_special_tokens = True
    return recorded | {"unparsed": [encode(text) for text in TEXTS]}


def main():
    long_text = megabyte()
    variants = []
    with tempfile.TemporaryDirectory() as place:
        bases = {base: saved_by_transformers(base, Path(place) / base) for base in ("bpe", "unigram")}
    for base, description in bases.items():
        folder = GOLDEN / f"pieces-{base}"
        folder.mkdir(exist_ok=True)
        (folder / "tokenizer.json").write_text(json.dumps(description, ensure_ascii=False, separators=(",", ":")) + "\n")
    for name, (base, changes) in VARIANTS.items():
        recorded = record(name, changed(bases[base], changes), long_text)
        variants.append({"name": name, "base": f"pieces-{base}", "changes": changes} | recorded)
    versions = {"transformers": transformers.__version__, "tokenizers": tokenizers.__version__}
    golden = versions | {"parts": PARTS, "texts": TEXTS, "variants": variants}
    (GOLDEN / "pieces.json").write_text(json.dumps(golden, separators=(",", ":")).replace('{"name"', '\n{"name"') + "\n")


if __name__ == "__main__":
    main()
