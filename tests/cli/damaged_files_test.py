"""Files with a change that nobody made on purpose, or somebody did: each is used, or refused by name with nothing left
behind. What has a checksum is never used.

STRAKE_DAMAGES says how many changes of every kind of file are tried (40), STRAKE_DAMAGE_SEED which."""

import bz2
import gzip
import json
import os
import random
import shutil

import pyarrow
import pyarrow.parquet as parquet
import pytest
from damage import damaged
from program import SANITIZE, command, files_in, run, strake
from refusals import DATA, FILE, NUMERIC, USAGE
from tiny_models import make_language_model, make_reader, make_tagger, reviews

DAMAGES = int(os.environ.get("STRAKE_DAMAGES", "16" if SANITIZE else "40"))
SEED = int(os.environ.get("STRAKE_DAMAGE_SEED", "1"))
DS_CONFIG = {
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 2,
    "gradient_clipping": 1.0,
    "fp16": {"enabled": False, "loss_scale": 0, "initial_scale_power": 8, "hysteresis": 2},
    "zero_optimization": {
        "stage": 3,
        "offload_optimizer": {"device": "cpu", "pin_memory": True, "ratio": 0.5},
        "offload_param": {"device": "cpu", "buffer_count": 5, "max_in_cpu": 1e9},
        "reduce_bucket_size": "auto",
        "sub_group_size": 1e9,
    },
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "betas": [0.9, 0.999], "eps": 1e-8}},
    "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_num_steps": 1, "total_num_steps": 2}},
    "activation_checkpointing": {"cpu_checkpointing": True, "number_checkpoints": None},
    "aio": {"block_size": 1048576, "queue_depth": 8},
}
FSDP_CONFIG = {"fsdp_version": 2, "limit_all_gathers": True, "transformer_layer_cls_to_wrap": ["BertLayer"]}


def model_files(folder):
    return [path for path in sorted(folder.iterdir()) if path.suffix in (".json", ".txt", ".safetensors")]


def changes(kind, files):
    """Yields each file while it has a change; afterwards it is as before."""
    source = random.Random(f"{SEED} {kind}")
    for _ in range(DAMAGES):
        file = source.choice(files)
        before = file.read_bytes()
        after = damaged(before, source)
        if after != before:
            file.write_bytes(after)
            yield file
            file.write_bytes(before)


def tried(place, line, kind, files, check=lambda: None):
    """Of each change whether `line` was done with it. Refused, it is the user's mistake and nothing is written."""
    done = []
    for file in changes(kind, files):
        shutil.rmtree(place.path / "new", ignore_errors=True)
        (place.path / "new").mkdir()
        outcome = run(line)
        done.append(outcome.code == 0)
        if outcome.code == 0:
            check()
            continue
        assert outcome.code in (USAGE, DATA, FILE, NUMERIC) and "strake: " in outcome.err, outcome.err
        assert outcome.code != DATA or str(file) in outcome.err, outcome.err
        assert outcome.code == NUMERIC or files_in(place.path / "new") == {}, outcome.err
    return done


def same_as_of_whole(place, line, name):
    """A check that `line` has made of a changed file what it makes of the whole one."""
    (place.path / "new").mkdir()
    assert run(line).code == 0
    output = place.path / "new" / name
    whole = output.read_bytes()

    def check():
        assert output.read_bytes() == whole

    return check


def predict_line(place, model, table, **flags):
    flags |= {"model_name_or_path": model, "input": table, "max_seq_length": 32}
    return command("predict", output=place.path / "new" / "scored.parquet", **flags)


def train_line(place, **flags):
    return place.train(output_dir=place.path / "new", save_strategy="no", **flags)


@pytest.mark.parametrize("kind", ["classifier", "tagger", "reader"])
def test_models_that_score(place, kind):
    if kind == "classifier":
        model = place.model("classifier")
    else:
        model = {"tagger": make_tagger, "reader": make_reader}[kind](place.path / kind, "roberta")
    table = pyarrow.Table.from_pylist([{"text": row["text"], "question": "a good film"} for row in reviews(20)])
    parquet.write_table(table.append_column("context", table["text"]), place.path / "in.parquet")
    line = predict_line(place, model, place.path / "in.parquet")
    done = tried(place, line, kind, model_files(model))
    assert True in done and False in done


@pytest.mark.parametrize("name", ["in.parquet", "in.csv", "in.jsonl"])
def test_tables_that_are_scored(place, name):
    table = place.table(name, reviews(60))
    line = predict_line(place, place.shared / "classifier", table)
    assert False in tried(place, line, name, [table])


@pytest.mark.parametrize(("name", "library"), [("in.csv.gz", gzip), ("in.jsonl.bz2", bz2)])
def test_compressed_tables(place, name, library):
    text = place.table(name.rpartition(".")[0], reviews(60)).read_bytes()
    table = place.file(name, library.compress(text))
    line = predict_line(place, place.shared / "classifier", table)
    # gzip and bzip2 have checksums of all but their headers.
    assert False in tried(place, line, name, [table], same_as_of_whole(place, line, "scored.parquet"))


def test_tables_that_are_trained_on(place):
    tokens = place.file("tokens.parquet", (place.shared / "tokens.parquet").read_bytes())
    line = train_line(place, train_file=tokens)
    # Pages have checksums.
    assert False in tried(place, line, "tokens", [tokens], same_as_of_whole(place, line, "model.safetensors"))


def test_language_models(place):
    model = make_language_model(place.path / "model")
    texts = place.table("in.txt", reviews(60))
    flags = {"task": "causal-lm", "model_name_or_path": model, "train_file": texts, "block_size": 32}
    line = train_line(place, max_seq_length=None, **flags)
    done = tried(place, line, "language model", model_files(model))
    assert True in done and False in done


@pytest.mark.parametrize("kind", ["deepspeed", "fsdp_config"])
def test_configurations_of_sharding(place, kind):
    file = place.file("settings.json", json.dumps(DS_CONFIG if kind == "deepspeed" else FSDP_CONFIG))
    line = train_line(place, **{kind: file}, fsdp="full_shard" if kind == "fsdp_config" else None)
    done = tried(place, line, kind, [file])
    assert True in done and False in done


def test_checkpoints_are_used_as_they_were_written_or_not(place):
    run_of = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2, "ranks": 2, "fsdp": "full_shard"}
    assert run(place.train(output_dir=place.path / "run", **run_of)).code == 0
    expected = (place.path / "run" / "model.safetensors").read_bytes()
    saved = place.path / "run" / "checkpoint-2"
    for file in changes("checkpoint", sorted(saved.iterdir())):
        shutil.rmtree(place.path / "new", ignore_errors=True)
        outcome = run(place.train(output_dir=place.path / "new", resume_from_checkpoint=saved, **run_of))
        if outcome.code == 0:  # JSON that says the same in other words
            assert file.name == "manifest.json"
            assert (place.path / "new" / "model.safetensors").read_bytes() == expected
        else:
            assert outcome.code == FILE and str(saved) in outcome.err, outcome.err


def test_packed_weights_are_rebuilt(place):
    model = place.model("classifier")
    flags = {"model_name_or_path": model, "input": place.shared / "train.parquet", "precision": "bf16"}
    strake("predict", output=place.path / "first.parquet", max_seq_length=32, **flags)
    (packed,) = (model / "strake_packed").glob("bf16*.packed")
    for _ in changes("packed", [packed]):
        strake("predict", output=place.path / "again.parquet", max_seq_length=32, **flags)
        assert (place.path / "again.parquet").read_bytes() == (place.path / "first.parquet").read_bytes()
        (place.path / "again.parquet").unlink()
