#!/usr/bin/env python3
"""Record how Hugging Face transformers reads settings of rotary positions: the oracle of tests/model/target/rope_test.cc.

    scripts/goldens/make_rope_goldens.py tests/golden/rope.json

Needs torch and transformers (5.24.0 made the committed file; it is no dependency of the project).  A list of

    name, config     keys that are added to a tiny Llama's config.json
    refused          true where the configuration or the model cannot be made or cannot read 100 tokens; else:
    frequencies      inverse frequencies [8] at first
    long             the same after a text of 100 tokens, where they changed
    scale            of cosines and sines
"""
import json
import os
import sys
import tempfile
from pathlib import Path

os.environ["TRANSFORMERS_VERBOSITY"] = "critical"

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM

TINY = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 1, "intermediate_size": 96,
        "vocab_size": 130, "max_position_embeddings": 64}
LINEAR = {"type": "linear", "factor": 4.0}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
SHORT, LONG = [1 + 0.1 * i for i in range(8)], [3.0 + i for i in range(8)]
LONGROPE = {"type": "longrope", "short_factor": SHORT, "long_factor": LONG, "original_max_position_embeddings": 16}


def scaling(settings, **others):
    return {"rope_scaling": {key: value for key, value in {**settings, **others}.items() if value != "absent"}}


CASES = {
    "nothing": {},
    "theta": {"rope_theta": 500},
    "theta as text": {"rope_theta": "500"},
    "parameters": {"rope_parameters": {"rope_type": "default", "rope_theta": 50000.0}},
    "parameters before theta": {"rope_theta": 2000.0, "rope_parameters": {"rope_type": "default", "rope_theta": 50000.0}},
    "parameters without theta": {"rope_theta": 2000.0, "rope_parameters": {"rope_type": "linear", "factor": 2}},
    "parameters with theta as text": {"rope_parameters": {"rope_type": "default", "rope_theta": "500"}},
    "parameters of nothing": {"rope_theta": 2000.0, "rope_parameters": {}},
    "parameters null": {"rope_theta": 2000.0, "rope_parameters": None, **scaling(LINEAR)},
    "parameters of linear": {"rope_parameters": {**LINEAR, "rope_theta": 700.0}, "rope_scaling": None},
    "parameters of llama3": {"rope_theta": 5000.0, "rope_parameters": LLAMA3},
    "scaling beside parameters": {"rope_parameters": {"rope_type": "default", "rope_theta": 50000.0}, **scaling(LINEAR)},
    "scaling beside parameters and theta": {"rope_theta": 2000.0, **scaling(LINEAR),
                                            "rope_parameters": {"rope_type": "default", "rope_theta": 50000.0}},
    "scaling of nothing beside parameters": {"rope_scaling": {}, "rope_parameters": {**LINEAR, "rope_theta": 700.0}},
    "theta within scaling": {"rope_theta": 2000.0, **scaling(LINEAR, rope_theta=777.0)},
    "scaling false": {"rope_scaling": False},
    "scaling as text": {"rope_scaling": "linear"},
    "scaling as a list": {"rope_scaling": [4.0]},
    "linear": scaling(LINEAR),
    "linear by an integer": scaling(LINEAR, factor=4),
    "linear by text": scaling(LINEAR, factor="4"),
    "linear by nothing": scaling(LINEAR, factor="absent"),
    "linear by less than one": scaling(LINEAR, factor=0.5),
    "two types": scaling(LINEAR, type="yarn", rope_type="linear"),
    "two types, the second default": scaling(LINEAR, rope_type="default"),
    "no type": scaling({"factor": 4.0}),
    "an unknown type": scaling(LINEAR, type="ntk"),
    "a type in capitals": scaling(LINEAR, type="Linear"),
    "su": scaling(LONGROPE, type="su"),
    "mrope": scaling({"type": "mrope", "mrope_section": [2, 3, 3]}),
    "mrope that is default": scaling({"type": "mrope", "rope_type": "default", "mrope_section": [2, 3, 3]}),
    "axial": scaling({"rope_type": "axial"}),
    "dynamic": scaling(LINEAR, type="dynamic"),
    "dynamic by nothing": scaling({"type": "dynamic"}),
    "llama3": scaling(LLAMA3),
    "llama3 in integers": scaling(LLAMA3, factor=8, low_freq_factor=1, high_freq_factor=4),
    "llama3 under its older key": scaling(LLAMA3, rope_type="absent", type="llama3"),
    "llama3 without its context": scaling(LLAMA3, original_max_position_embeddings="absent"),
    "llama3 with its context outside": {"original_max_position_embeddings": 32, **scaling(LLAMA3)},
    "llama3 with its context as a float": scaling(LLAMA3, original_max_position_embeddings=16.0),
    "llama3 without its low factor": scaling(LLAMA3, low_freq_factor="absent"),
    "llama3 without its high factor": scaling(LLAMA3, high_freq_factor="absent"),
    "llama3 without a factor": scaling(LLAMA3, factor="absent"),
    "llama3 by less than one": scaling(LLAMA3, factor=0.5),
    "llama3 the wrong way round": scaling(LLAMA3, low_freq_factor=4.0, high_freq_factor=1.0),
    "yarn": scaling(YARN),
    "yarn without its context": scaling(YARN, original_max_position_embeddings="absent"),
    "yarn with its context outside": {"original_max_position_embeddings": 32, **scaling(YARN)},
    "yarn without a factor": scaling(YARN, factor="absent"),
    "yarn with a factor of null": scaling(YARN, factor=None),
    "yarn by less than one": scaling(YARN, factor=0.5),
    "yarn with an attention factor": scaling(YARN, attention_factor=1.25),
    "yarn with an attention factor of null": scaling(YARN, attention_factor=None),
    "yarn with mscale": scaling(YARN, mscale=0.7, mscale_all_dim=1.0),
    "yarn with mscale alone": scaling(YARN, mscale=0.7),
    "yarn with mscale zero": scaling(YARN, mscale=0, mscale_all_dim=1.0),
    "yarn with betas": scaling(YARN, original_max_position_embeddings=64, beta_fast=4, beta_slow=0.5),
    "yarn with a beta of zero": scaling(YARN, original_max_position_embeddings=64, beta_slow=0),
    "yarn that is not cut off": scaling(YARN, original_max_position_embeddings=64, beta_fast=4, truncate=False),
    "longrope": scaling(LONGROPE),
    "longrope with its context outside": {"original_max_position_embeddings": 32,
                                          **scaling(LONGROPE, original_max_position_embeddings="absent")},
    "longrope with a factor": scaling(LONGROPE, factor=8),
    "longrope with an attention factor": scaling(LONGROPE, attention_factor=1.5),
    "longrope with too few factors": scaling(LONGROPE, short_factor=SHORT[1:], long_factor=LONG[1:]),
    "longrope without long factors": scaling(LONGROPE, long_factor="absent"),
    "proportional": scaling({"rope_type": "proportional", "partial_rotary_factor": 0.5, "factor": 2.0}),
    "proportional of all": scaling({"rope_type": "proportional"}),
    "a share beside default": {"partial_rotary_factor": 0.5},
    "a share of one beside linear": {"partial_rotary_factor": 1.0, **scaling(LINEAR)},
    "a share beside linear": {"partial_rotary_factor": 0.5, **scaling(LINEAR)},
    "a share within llama3": scaling(LLAMA3, partial_rotary_factor=0.5),
}


def record(config):
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps({**TINY, **config}))
        try:
            model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder)).eval()
            rotary = model.model.rotary_emb
            first = rotary.inv_freq.tolist()
            with torch.no_grad():
                model(torch.arange(100)[None])
        except Exception:  # of whatever kind: the folder is of no use to transformers
            return {"refused": True}
        recorded = {"frequencies": first, "scale": float(rotary.attention_scaling)}
        if rotary.inv_freq.tolist() != first:
            recorded["long"] = rotary.inv_freq.tolist()
        return recorded


def main():
    cases = [{"name": name, "config": config, **record(config)} for name, config in CASES.items()]
    Path(sys.argv[1]).write_text(json.dumps({"transformers": transformers.__version__, "cases": cases}, indent=1) + "\n")


if __name__ == "__main__":
    main()
