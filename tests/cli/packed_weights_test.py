"""Packed weights that are kept beside the model: later starts map them, and no score changes by it."""

import os
import re
import shutil
import subprocess

import pyarrow
import pyarrow.parquet as parquet
import pytest
from program import command, environment, full_disk, run, strake
from refusals import FILE, USAGE
from tiny_models import change_config, change_weights, make_model, reviews, write_table
from worker_test import Worker

MAPPED = "weights mapped from"
KEPT = "packed weights kept in"


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    write_table(folder / "in.parquet", reviews(300))
    return {"model": make_model(folder / "model", head=True), "table": folder / "in.parquet"}


@pytest.fixture
def model(inputs, tmp_path):
    return shutil.copytree(inputs["model"], tmp_path / "model")


def predict_line(model, inputs, output, **flags):
    return command(
        "predict", model_name_or_path=model, input=inputs["table"], output=output, max_seq_length=32, **flags
    )


def score(model, inputs, output, env=None, options=None, **flags):
    """What was said and the output's bytes."""
    outcome = run(predict_line(model, inputs, output, **flags), env=env, **(options or {}))
    assert outcome.code == 0, outcome.err
    return outcome.err, output.read_bytes()


def packed(model):
    return sorted(path.name for path in (model / "strake_packed").glob("*.packed"))


@pytest.fixture
def expected(model, inputs, tmp_path):
    said, scored = score(model, inputs, tmp_path / "expected.parquet", packed_weights="off")
    assert not (model / "strake_packed").exists()
    assert MAPPED not in said and KEPT not in said
    return scored


def test_the_first_start_keeps_them_and_the_second_maps_them(model, inputs, expected, tmp_path):
    said, scored = score(model, inputs, tmp_path / "first.parquet")
    assert KEPT in said and scored == expected
    said, scored = score(model, inputs, tmp_path / "second.parquet")
    assert MAPPED in said and KEPT not in said and scored == expected


@pytest.mark.parametrize("precision", ["bf16", "int8"])
def test_each_precision_has_its_own(model, inputs, tmp_path, precision):
    flags = {"precision": precision}
    _, expected = score(model, inputs, tmp_path / "off.parquet", packed_weights="off", **flags)
    score(model, inputs, tmp_path / "fp32.parquet")
    for name in ("first", "second"):
        said, scored = score(model, inputs, tmp_path / f"{name}.parquet", **flags)
        assert MAPPED in said and scored == expected
    assert [re.sub("-.*", "", name) for name in packed(model)] == sorted(["fp32", precision])


def test_those_of_another_processor_are_not_trusted(model, inputs, tmp_path):
    other = environment(STRAKE_ISA="reference")
    _, expected = score(model, inputs, tmp_path / "off.parquet", packed_weights="off", precision="int8")
    score(model, inputs, tmp_path / "mine.parquet", precision="int8")
    (mine,) = packed(model)
    score(model, inputs, tmp_path / "other.parquet", env=other, precision="int8")
    if len(packed(model)) == 1:
        pytest.skip("this processor has one kind of kernels")
    (theirs,) = set(packed(model)) - {mine}
    shutil.move(model / "strake_packed" / theirs, model / "strake_packed" / mine)
    said, scored = score(model, inputs, tmp_path / "again.parquet", precision="int8")
    assert "is for another processor or model" in said and KEPT in said
    assert scored == expected


def test_those_of_other_weights_are_not_trusted(model, inputs, tmp_path):
    score(model, inputs, tmp_path / "before.parquet")
    change_weights(model, lambda name, array: array * 2 if name == "classifier.bias" else array)
    _, expected = score(model, inputs, tmp_path / "off.parquet", packed_weights="off")
    said, scored = score(model, inputs, tmp_path / "after.parquet")
    assert "is of other weights than the model's" in said and KEPT in said
    assert scored == expected


def test_damaged_ones_are_not_trusted(model, inputs, expected, tmp_path):
    score(model, inputs, tmp_path / "first.parquet")
    path = model / "strake_packed" / packed(model)[0]
    content = bytearray(path.read_bytes())
    content[len(content) * 2 // 3] ^= 1
    path.write_bytes(content)
    said, scored = score(model, inputs, tmp_path / "second.parquet")
    assert "is damaged" in said and KEPT in said and scored == expected
    path.write_bytes(content[: len(content) // 2])
    said, scored = score(model, inputs, tmp_path / "third.parquet")
    assert "packed weights are not used" in said and KEPT in said and scored == expected


def test_processes_that_start_together_share_one_file(model, inputs, expected, tmp_path):
    outputs = [tmp_path / f"{i}.parquet" for i in range(4)]
    processes = [
        subprocess.Popen(predict_line(model, inputs, output), env=environment(), stderr=subprocess.PIPE)
        for output in outputs
    ]
    said = [process.communicate(timeout=60)[1].decode() for process in processes]
    assert [process.returncode for process in processes] == [0] * 4, said
    assert all(output.read_bytes() == expected for output in outputs)
    assert sum(KEPT in text for text in said) == 1
    assert all(MAPPED in text for text in said)
    assert sorted(path.name for path in (model / "strake_packed").iterdir()) == [*packed(model), "lock"]


def test_a_folder_that_cannot_be_written_is_said_once(model, inputs, expected, tmp_path):
    (model / "strake_packed").symlink_to("/proc")  # nobody makes files there, not even root
    said, scored = score(model, inputs, tmp_path / "scored.parquet")
    assert said.count("packed weights are not kept in") == 1 and scored == expected


def test_a_full_disk_is_said_once(model, inputs, expected, tmp_path):
    said, scored = score(model, inputs, tmp_path / "scored.parquet", options=full_disk(40_000))
    assert said.count("packed weights are not kept") == 1 and "File too large" in said and scored == expected
    assert packed(model) == []


def test_a_limit_of_file_sizes_does_not_end_the_process(model, inputs, expected, tmp_path):
    """Its signal is not ignored by whoever started it."""
    line = predict_line(model, inputs, tmp_path / "scored.parquet")
    outcome = run(["bash", "-c", 'ulimit -f 40 && exec "$@"', "limited", *line])
    assert outcome.code == 0, outcome.err
    assert (tmp_path / "scored.parquet").read_bytes() == expected


def test_evaluate_and_worker_take_the_flag(model, inputs, tmp_path):
    change_config(model, id2label={"0": "negative", "1": "positive", "2": "neutral"})
    flags = {"model_name_or_path": model, "input": inputs["table"], "max_seq_length": 32, "label_column": "label"}
    strake("evaluate", **flags, packed_weights="off")
    assert not (model / "strake_packed").exists()
    assert KEPT in strake("evaluate", **flags).err
    for verb in ("predict", "evaluate", "worker"):
        assert "--packed_weights" in strake(verb, "--help").out


def test_a_worker_does_not_go_on_with_weights_that_are_written_over(model, inputs, tmp_path):
    other = shutil.copytree(inputs["model"], tmp_path / "other")
    change_weights(other, lambda name, array: array * 2)
    for folder in (model, other):
        score(folder, inputs, tmp_path / "scored.parquet", overwrite_output=True)
    [name] = packed(model)
    outcomes = [
        (
            lambda file: shutil.copyfile(other / "strake_packed" / name, file),
            "were written over while they were in use",
        ),
        (lambda file: os.truncate(file, 4096), f"{name} was cut short"),
    ]
    batch = parquet.read_table(inputs["table"]).to_batches()[0]
    for change, message in outcomes:
        with Worker(model) as worker:
            stream = pyarrow.ipc.new_stream(worker.process.stdin, batch.schema)
            stream.write_batch(batch)
            worker.process.stdin.flush()
            pyarrow.ipc.open_stream(worker.process.stdout).read_next_batch()
            change(model / "strake_packed" / name)
            stream.write_batch(batch)
            worker.process.stdin.flush()
            code, said = worker.end()
        assert code == FILE and message in said, said
        assert str(model) in said
        score(model, inputs, tmp_path / "scored.parquet", overwrite_output=True)


def test_other_values_are_refused(model, inputs, tmp_path):
    outcome = run(predict_line(model, inputs, tmp_path / "scored.parquet", packed_weights="on"))
    assert outcome.code == USAGE
    assert "--packed_weights on is neither auto nor off" in outcome.err
