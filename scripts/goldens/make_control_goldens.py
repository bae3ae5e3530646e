#!/usr/bin/env python3
"""Record what transformers' generate answers, greedily, under processors of logits: an oracle of tests/infer.

    scripts/goldens/make_control_goldens.py --targets tests/golden/targets --output tests/golden/controls.json

Needs torch and transformers (5.24.0 made the committed file; it is no dependency of the project). The tiny targets run in
fp32; a case is left out where two tokens are so near each other somewhere that rounding may choose between them.
"""
import argparse
import json
from pathlib import Path

import torch
import transformers
from transformers import AutoModelForCausalLM, GenerationConfig

TARGETS = ["tied-bf16", "untied-fp32", "qwen3"]
PROMPTS = [[3, 17, 41, 5, 5, 90, 64, 12], [77] * 6 + [8, 9, 77, 8], [120, 1]]
CONTROLS = [
    {},
    {"repetition_penalty": 1.1},
    {"repetition_penalty": 1.8},
    {"repetition_penalty": 0.7},
    {"no_repeat_ngram_size": 1},
    {"no_repeat_ngram_size": 2},
    {"no_repeat_ngram_size": 3},
    {"min_new_tokens": 20},
    {"min_length": 24},
    {"min_length": 24, "min_new_tokens": 3},
    {"bad_words_ids": [[2], [64]] + [[first, (first * 7 + 3) % 130] for first in range(0, 130, 2)]},
    {"bad_words_ids": [[first, second] for first in range(130) for second in range(first % 5, 130, 5)]},
    {"suppress_tokens": list(range(0, 130, 3))},
    {"begin_suppress_tokens": list(range(1, 130, 2))},
    {"repetition_penalty": 1.3, "no_repeat_ngram_size": 2, "min_new_tokens": 12, "suppress_tokens": [5, 9, 77],
     "begin_suppress_tokens": [3, 4], "bad_words_ids": [[8, 9], [17]]},
]
NEW_TOKENS, LEAST_MARGIN = 40, 1e-3


def main():
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description="Record what transformers answers under processors of logits.")
    parser.add_argument("--targets", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    cases = [case for name in TARGETS for case in cases_of(arguments.targets / name)]
    text = {"transformers": transformers.__version__, "controls": CONTROLS, "cases": cases}
    arguments.output.write_text(json.dumps(text, separators=(",", ":")).replace('{"target"', '\n{"target"') + "\n")
    print(f"{len(cases)} cases")


def cases_of(folder):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    plain = {}
    for number, prompt in enumerate(PROMPTS + prompts_soon_answered(model)):
        for index, controls in enumerate(CONTROLS):
            ids, margin = answer(model, prompt, controls)
            plain.setdefault(number, ids)
            if margin < LEAST_MARGIN or (controls and ids == plain[number]):
                continue
            yield {"target": folder.name, "prompt": prompt, "controls": index,
                   "max_new_tokens": NEW_TOKENS, "ids": ids}


def prompts_soon_answered(model):
    """A few whose plain answers come to an end token."""
    generator = torch.Generator().manual_seed(1)
    found = []
    while len(found) < 2:
        prompt = torch.randint(3, model.config.vocab_size, (4,), generator=generator).tolist()
        ids, _ = answer(model, prompt, {})
        if 2 <= len(ids) < 20:
            found.append(prompt)
    return found


def answer(model, prompt, controls):
    """The ids, and the smallest distance between the two best scores on the way."""
    settings = GenerationConfig(max_new_tokens=NEW_TOKENS, do_sample=False, eos_token_id=model.config.eos_token_id,
                                pad_token_id=0, return_dict_in_generate=True, output_scores=True, **controls)
    with torch.no_grad():
        ids = torch.tensor([prompt])
        output = model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=settings)
    best = [scores[0].topk(2).values for scores in output.scores]
    return output.sequences[0, len(prompt):].tolist(), min(float(two[0] - two[1]) for two in best)


if __name__ == "__main__":
    main()
