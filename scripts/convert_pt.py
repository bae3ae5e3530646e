#!/usr/bin/env python3
"""Turns heads that are published as a .pt or .bin file into safetensors, weights only.

PyTorch's pickles can run code when they are read.  This reads them with weights_only=True, which refuses everything but
tensors and containers of tensors, and writes the tensors under their names; `clover-train init --published` reads the
folder then.  Tensors that share their memory (Medusa's tied layers) are written once each.

usage: convert_pt.py FILE [--output FILE.safetensors] [--key NAME]

FILE           such as medusa_lm_head.pt or pytorch_model.bin
--output       default: FILE with the suffix .safetensors, beside it (pytorch_model.bin becomes model.safetensors)
--key NAME     take the dictionary of tensors from this entry of the file, where it is not the file's whole content
"""

import argparse
import pathlib
import pickle
import sys

import torch
from safetensors.torch import save_file


def refuse(message):
    sys.exit(f"convert_pt.py: {message}")


def read(file, key):
    try:
        content = torch.load(file, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, OSError) as error:
        refuse(f"{file}: expected a PyTorch file of tensors alone, found another: {str(error).splitlines()[0][:200]}")
    if key is not None:
        if not isinstance(content, dict) or key not in content:
            refuse(f"{file}: expected an entry {key!r}, found none")
        content = content[key]
    if not isinstance(content, dict) or not content:
        refuse(f"{file}: expected a dictionary of tensors, found {type(content).__name__}")
    for name, tensor in content.items():
        if not isinstance(name, str) or not isinstance(tensor, torch.Tensor):
            refuse(f"{file}: entry {str(name)[:80]!r} is a {type(tensor).__name__}, expected a tensor; "
                   "is the dictionary of tensors an entry of its own (--key)?")
    return content


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--output", type=pathlib.Path)
    parser.add_argument("--key")
    options = parser.parse_args()
    name = "model" if options.file.name == "pytorch_model.bin" else options.file.stem
    output = options.output or options.file.with_name(name + ".safetensors")
    if output.exists():
        refuse(f"{output} exists already; remove it, or give another --output")
    tensors = {name: tensor.contiguous().clone() for name, tensor in read(options.file, options.key).items()}
    save_file(tensors, output, metadata={"format": "pt"})
    print(f"{output}: {len(tensors)} tensors")


if __name__ == "__main__":
    main()
