"""Folders and several files as input: all of their rows, or an error."""

import gzip
import json
import os
import shutil

import pyarrow.parquet as parquet
import pytest
from program import command, losses, run, strake
from refusals import DATA, FILE, USAGE
from tiny_models import make_model, reviews, write_table

ROWS = 40


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """A model with dropout, one table of reviews, and the same rows as two files in folders of several names."""
    folder = tmp_path_factory.mktemp("inputs")
    make_model(folder / "model", dropout=0.1, head=True)
    rows = reviews(ROWS)
    write_table(folder / "all.parquet", rows)
    for name in ["spark.parquet", "plain"]:
        (folder / name).mkdir()
        (folder / name / "_SUCCESS").touch()
        write_table(folder / name / "part-0.parquet", rows[:15])
        write_table(folder / name / "part-1.parquet", rows[15:]).rename(folder / name / "part-1.PARQUET")
    return folder


def prepare(inputs, source, output):
    strake("prepare", tokenizer=inputs / "model", input=source, label_column="label", max_seq_length=32, output=output)


def trained(inputs, path, *files):
    """The losses and the bytes of the model."""
    flags = {"model_name_or_path": inputs / "model", "max_seq_length": 32, "max_steps": 4, "logging_steps": 1}
    flags["ignore_mismatched_sizes"] = True
    strake("train", train_file=list(files), output_dir=path, save_strategy="no", **flags)
    return losses(path), (path / "model.safetensors").read_bytes()


@pytest.mark.parametrize("name", ["spark.parquet", "plain"])
def test_a_folder_is_trained_on_whatever_its_name(inputs, tmp_path, name):
    assert trained(inputs, tmp_path / "folder", inputs / name) == trained(
        inputs, tmp_path / "file", inputs / "all.parquet"
    )


@pytest.mark.parametrize("name", ["tokens.parquet", "tokens"])
def test_several_token_files_train_the_model_of_their_rows(inputs, tmp_path, name):
    """With dropout, whose masks are those of a sequence and not of a row that each file has."""
    (tmp_path / name).mkdir()
    for part in ["part-0.parquet", "part-1.PARQUET"]:
        prepare(inputs, inputs / "plain" / part, tmp_path / name / part)
    expected = trained(inputs, tmp_path / "text", inputs / "all.parquet")
    assert trained(inputs, tmp_path / "folder", tmp_path / name) == expected
    parts = sorted((tmp_path / name).iterdir())
    assert trained(inputs, tmp_path / "files", *parts) == expected


def test_cut_documents_are_told_of_each_token_file(inputs, tmp_path):
    model = make_model(tmp_path / "model")
    for name, length in [("long", 100), ("short", 5)]:
        source, output = inputs / "all.parquet", tmp_path / f"{name}.parquet"
        strake("prepare", tokenizer=model, input=source, max_seq_length=length, output=output)
    files = [tmp_path / "long.parquet", tmp_path / "short.parquet"]
    flags = {"task": "masked-lm", "model_name_or_path": model, "max_steps": 1, "output_dir": tmp_path / "out"}
    for order in [files, files[::-1]]:
        outcome = strake("train", train_file=order, overwrite_output_dir=True, **flags)
        assert f"of {2 * ROWS} documents have 5 tokens, where strake prepare cuts them" in outcome.err


def test_patterns_name_every_file_below(inputs, tmp_path):
    folder = tmp_path / "table"
    (folder / "y=1").mkdir(parents=True)
    (folder / "z=2" / "w=3").mkdir(parents=True)
    (folder / "a.csv").write_text("text\na\n")
    (folder / "y=1" / "b.csv").write_text("text\nb\n")
    (folder / "c.csv.gz").write_bytes(gzip.compress(b"text\nc\n"))
    (folder / "z=2" / "w=3" / "d.csv").write_text("text\nd\n")
    output = tmp_path / "out.parquet"
    flags = {"model_name_or_path": inputs / "model", "output": output}
    outcome = run(command("predict", input=folder, **flags))
    assert outcome.code == DATA and "subfolders y=1, z=2 hold data files" in outcome.err, outcome
    patterns = outcome.err.split("for the patterns ")[1].split()
    assert sorted(patterns) == [f"{folder}/*.csv", f"{folder}/*.csv.gz", f"{folder}/*/*.csv", f"{folder}/*/*/*.csv"]
    files = [path for pattern in patterns for path in sorted(folder.glob(os.path.relpath(pattern, folder)))]
    strake("predict", input=files, **flags)
    assert sorted(parquet.read_table(output)["text"].to_pylist()) == ["a", "b", "c", "d"]


def test_an_output_that_is_not_whole_is_no_input(inputs, tmp_path):
    flags = {"model_name_or_path": inputs / "model", "max_seq_length": 32}
    strake("predict", input=inputs / "all.parquet", output=f"{tmp_path}/scored/", shard="0/2", **flags)
    line = command(
        "predict", input=tmp_path / "scored", output=tmp_path / "again.parquet", keep_columns="text", **flags
    )
    refused = run(line)
    assert refused.code == DATA and "scored is an output of strake predict that is not whole yet" in refused.err
    strake("predict", input=inputs / "all.parquet", output=f"{tmp_path}/scored/", shard="1/2", **flags)
    assert run(line).code == 0
    assert parquet.read_metadata(tmp_path / "again.parquet").num_rows == ROWS
    (tmp_path / "scored" / ".job").mkdir()
    refused = run(command("train", model_name_or_path=inputs / "model", train_file=tmp_path / "scored", output_dir="o"))
    assert refused.code == DATA and "which its .job shows" in refused.err, refused


def test_a_file_that_is_named_twice_is_told(inputs, tmp_path):
    source = shutil.copytree(inputs / "plain", tmp_path / "plain")
    files = [source, source / "part-0.parquet"]
    flags = {"model_name_or_path": inputs / "model", "max_seq_length": 32, "output": tmp_path / "out.parquet"}
    outcome = strake("predict", input=files, **flags)
    assert "1 of the input's files is named twice, and its rows are read twice: " in outcome.err


def link_to(target, link, kind):
    if kind == "symbolic":
        link.symlink_to(target)
    else:
        os.link(target, link)


@pytest.mark.parametrize("kind", ["symbolic", "hard"])
def test_a_link_beside_its_file_is_told(inputs, tmp_path, kind):
    (tmp_path / "rows").mkdir()
    rows = tmp_path / "rows" / "a.csv"
    rows.write_text("text\ngood\n")
    link_to(rows, tmp_path / "rows" / "b.csv", kind)
    flags = {"model_name_or_path": inputs / "model", "max_seq_length": 32, "output": tmp_path / "out.parquet"}
    outcome = strake("predict", input=tmp_path / "rows", **flags)
    assert f"1 of the input's files is named twice, and its rows are read twice: {tmp_path}/rows/b.csv" in outcome.err
    alone = strake("predict", input=rows, overwrite_output=True, **flags)
    assert "named twice" not in alone.err


def test_a_file_without_a_name_is_refused(inputs, tmp_path):
    flags = {"model_name_or_path": inputs / "model", "train_file": "", "output_dir": tmp_path / "out"}
    outcome = run(command("train", **flags))
    assert outcome.code == USAGE and "the name of an input file is empty" in outcome.err, outcome


def test_a_manifest_does_not_replace_an_input(inputs, tmp_path):
    rows = tmp_path / "_out.parquet.manifest.json"
    rows.write_text('{"text": "good"}\n')
    flags = {"model_name_or_path": inputs / "model", "input": rows, "output": tmp_path / "out.parquet"}
    outcome = run(command("predict", **flags))
    assert outcome.code == USAGE and f"would replace the input {rows}" in outcome.err, outcome
    assert rows.read_text() == '{"text": "good"}\n'


def test_a_peak_of_memory_is_not_that_of_the_parent(inputs, tmp_path):
    """The kernel's ru_maxrss of a new program begins with its parent's."""
    held = bytes(1 << 30)
    bytearray(held)[::4096] = bytes(len(held) // 4096)
    flags = {"model_name_or_path": inputs / "model", "input": inputs / "all.parquet", "max_seq_length": 32}
    strake("predict", output=tmp_path / "out.parquet", **flags)
    manifest = json.loads((tmp_path / "_out.parquet.manifest.json").read_text())
    assert 1_000_000 < manifest["peak_resident_bytes"] < 1 << 30


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_says_why(inputs, tmp_path):
    secret = shutil.copy(inputs / "all.parquet", tmp_path / "secret.parquet")
    secret.chmod(0)
    outcome = run(
        command("predict", model_name_or_path=inputs / "model", input=secret, output=tmp_path / "out.parquet")
    )
    assert outcome.code == FILE and "Permission denied" in outcome.err, outcome
