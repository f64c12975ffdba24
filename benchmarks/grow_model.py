"""Grows a BERT model to twice its width and number of layers: a model of base size to fine-tune that has learned
something, where no pretrained one of that size is at hand.

Run:  python benchmarks/grow_model.py MODEL OUT

Every number of the hidden state, of a head and of the feed-forward layer is there twice and counts half where it is
read, so that a layer computes what it did (Net2Net, arXiv:1511.05641; bert2BERT, arXiv:2110.07143); then all layers are
stacked once more on top (arXiv:1904.09545, "progressive stacking"), which fine-tuning has to heal.
"""

import json
import math
import pathlib
import re
import shutil
import sys

from safetensors.numpy import load_file, save_file

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")


def twice(array, axis, block):
    """Every `block` numbers of an axis two times in a row."""
    size = array.shape[axis]
    assert size % block == 0
    shape = array.shape[:axis] + (size // block, 1, block) + array.shape[axis + 1 :]
    return array.reshape(shape).repeat(2, axis + 1).reshape(array.shape[:axis] + (2 * size,) + array.shape[axis + 1 :])


def wider(name, array, config):
    """Of one tensor. Numbers of a head stay together: attention splits its inputs into heads."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    head = hidden // config["num_attention_heads"]
    is_head = ".self." in name
    outputs = head if is_head else inner if ".intermediate." in name else hidden
    inputs = head if "attention.output.dense" in name else inner if re.search(r"\d\.output\.dense", name) else hidden
    if "embeddings" in name and array.ndim == 2:
        return twice(array, 1, hidden)
    array = twice(array, 0, outputs)
    if array.ndim == 2:
        array = twice(array, 1, inputs) / 2
    # A product of queries and keys is twice what it was, its divisor only sqrt(2) times.
    return array / math.sqrt(2) if ".self.query." in name else array


def grow(model, out):
    config = json.loads((model / "config.json").read_text())
    layers = config["num_hidden_layers"]
    grown = {}
    for name, array in load_file(model / "model.safetensors").items():
        if array.dtype.kind != "f":
            continue
        tensor = wider(name, array, config).astype("float32")
        grown[name] = tensor
        if found := re.fullmatch(r"(encoder\.layer\.)(\d+)(\..*)", name):
            grown[f"{found[1]}{int(found[2]) + layers}{found[3]}"] = tensor.copy()
    for key in ("hidden_size", "intermediate_size", "num_hidden_layers"):
        config[key] *= 2
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.json").write_text(json.dumps(config, indent=2))
    save_file(grown, out / "model.safetensors", {"format": "pt"})
    for name in TOKENIZER_FILES:
        if (model / name).exists():
            shutil.copy(model / name, out / name)


if __name__ == "__main__":
    grow(*map(pathlib.Path, sys.argv[1:3]))
