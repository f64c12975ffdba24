"""Command lines that are drawn at random end, and end as done or as the user's mistake.

STRAKE_FLAG_DRAWS says how many are drawn of every verb (150), STRAKE_FLAG_SEED which."""

import os
import random
import re
import shutil
import subprocess

import pyarrow
import pytest
from program import SANITIZE, Outcome, command, environment, run, strake
from refusals import DATA, FILE, NUMERIC, USAGE
from tiny_models import (
    asked_reviews,
    make_language_model,
    make_masked_model,
    make_tagger,
    reviews,
    tagged_reviews,
    write_table,
)

DRAWS = int(os.environ.get("STRAKE_FLAG_DRAWS", "4" if SANITIZE else "150"))
SEED = int(os.environ.get("STRAKE_FLAG_SEED", "1"))
SWITCHES = [True, "", "true", "false", "no", "0", "1", "auto", "none", "null"]
NUMBERS = ["2", "3", "7", "-1", "0.5", "1.5", "-0.0", "nan", "inf", "1e999", "1e-400", "1e3", "0x10", " 1", "1 ", "+1"]
NUMBERS += ["99999999999999999999", "-9223372036854775808", "1/2", "2/1", "0/0", "1/99999999999"]
NAMES = ["steps", "epoch", "bf16", "int8", "cosine", "lion", "full_shard", "full_shard auto_wrap offload", "mean"]
NAMES += ["cls", "text", "label", "score", "text,label", "text text", "LABEL_0", "BertLayer", "cpu", "cuda:99", "train"]
NAMES += ["latin-1"]
TEXTS = ["{}", '{"x": 1}', "[]", "a" * 5000, "\u00e9\u2028", "\x01\x02", "%s%n", ".*", "(", "[", "(a+)+$"]
PATHS = [".", "..", "../x", "new", "base", "classifier", "train.parquet", "texts.txt", "base/config.json"]
ENDLESS = ["/dev/zero", "/proc/self/mem"]  # to be read
WRITTEN = ("output", "output_dir", "logging_dir")
CLASSIFIER = {"model_name_or_path": "classifier", "input": "train.parquet", "max_seq_length": "32"}
LANGUAGE_MODEL = {"task": "causal-lm", "model_name_or_path": "gpt2", "block_size": "32"}
MASKED = {"task": "masked-lm", "model_name_or_path": "masked", "max_seq_length": "32"}
WORDS = {"task": "token-classification", "text_column": "words", "label_column": "tags", "max_seq_length": "32"}
ASKED = {"task": "question-answering", "max_seq_length": "32", "doc_stride": "8"}
TRAIN = {"model_name_or_path": "base", "train_file": "train.parquet", "max_seq_length": "32", "max_steps": "2"}
LINES = {
    "train": [
        TRAIN | {"output_dir": "new"},
        LANGUAGE_MODEL | {"train_file": "texts.txt", "max_steps": "2", "output_dir": "new"},
        MASKED | {"train_file": "texts.txt", "max_steps": "2", "output_dir": "new"},
        WORDS | {"model_name_or_path": "base", "train_file": "words.jsonl", "max_steps": "2", "output_dir": "new"},
        ASKED | {"model_name_or_path": "base", "train_file": "asked.jsonl", "max_steps": "2", "output_dir": "new"},
    ],
    "predict": [
        CLASSIFIER | {"output": "new.parquet"},
        LANGUAGE_MODEL | {"input": "texts.txt", "output": "new.parquet"},
    ],
    "evaluate": [
        CLASSIFIER,
        LANGUAGE_MODEL | {"input": "texts.txt"},
        WORDS | {"model_name_or_path": "tagger", "input": "words.jsonl"},
        MASKED | {"input": "texts.txt"},
    ],
    "estimate": [{"model_name_or_path": "base", "max_seq_length": "32"}, LANGUAGE_MODEL, MASKED],
    "prepare": [{"tokenizer": "base", "input": "train.parquet", "output": "new.parquet"}],
    "tokenize": [{"tokenizer": "base", "input": "texts.jsonl"}],
    "worker": [{"model_name_or_path": "classifier", "max_seq_length": "32"}],
}


@pytest.fixture(scope="module")
def inputs(shared, tmp_path_factory):
    inputs = tmp_path_factory.mktemp("inputs")
    for name in ("base", "classifier"):
        shutil.copytree(shared / name, inputs / name)
    shutil.copy(shared / "train.parquet", inputs)
    make_language_model(inputs / "gpt2")
    make_masked_model(inputs / "masked")
    make_tagger(inputs / "tagger", labels=("O", "B-GOOD", "I-GOOD", "B-BAD", "I-BAD"))
    write_table(inputs / "texts.txt", reviews(60))
    write_table(inputs / "texts.jsonl", [{"text": row["text"]} for row in reviews(20)])
    with pyarrow.ipc.new_stream(inputs / "texts.arrows", pyarrow.schema({"text": pyarrow.string()})) as stream:
        stream.write_table(pyarrow.table({"text": [row["text"] for row in reviews(20)]}))
    write_table(inputs / "words.jsonl", tagged_reviews(30))
    write_table(inputs / "asked.jsonl", asked_reviews(30))
    return inputs


def value_of(source, flag):
    endless = [] if flag in WRITTEN else ENDLESS
    return source.choice(source.choice([SWITCHES, NUMBERS, NAMES, TEXTS, PATHS + endless]))


def run_worker(line, folder):
    with (folder / "texts.arrows").open("rb") as stream:
        pipes = {"stdin": stream, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        done = subprocess.run(line, cwd=folder, env=environment(), timeout=60, check=False, **pipes)
    return Outcome(done.returncode, "", done.stderr.decode())


@pytest.mark.parametrize("verb", LINES)
def test_any_flags(inputs, tmp_path, verb):
    flags = sorted(set(re.findall(r"--([a-z_0-9]+)", strake(verb, "--help").out)))
    assert len(flags) >= 8
    source = random.Random(f"{SEED} {verb}")
    codes = []
    for _ in range(DRAWS // 3 if verb == "worker" else DRAWS):  # whose starts are not forked
        # One more above it, for what is written into `..`; whatever the last one overwrote is whole again.
        shutil.rmtree(tmp_path / "above", ignore_errors=True)
        folder = shutil.copytree(inputs, tmp_path / "above" / "here")
        drawn = {flag: value_of(source, flag) for flag in source.sample(flags, source.choice([1, 1, 2, 3]))}
        line = command(verb, **(source.choice(LINES[verb]) | drawn))
        outcome = run_worker(line, folder) if verb == "worker" else run(line, cwd=folder)
        codes.append(outcome.code)
        assert outcome.code in (0, USAGE, DATA, FILE, NUMERIC), f"{line}\n{outcome.err}"
        assert outcome.code == 0 or "strake: " in outcome.err, f"{line}\n{outcome.err}"
    assert DRAWS < 50 or {0, USAGE} <= set(codes)
