"""strake estimate and the plan that strake train makes: what is told, what is refused, and what runs really take."""

import re

import pytest
from program import command, run, strake
from tiny_models import make_model, reviews, write_table

USAGE = 2
MIB = 2**20


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("estimate")
    make_model(folder / "bert")
    write_table(folder / "train.parquet", reviews(96))
    return folder


def number(text, name):
    return float(re.search(rf"^ *{name} +([\d.,]+)", text, re.MULTILINE)[1].replace(",", ""))


def test_the_stages_are_told_and_one_is_recommended():
    flags = {"task": "causal-lm", "model_type": "gpt2", "ranks": 4, "processes": True, "memory_limit": 256}
    told = strake("estimate", **flags).out
    totals = {match[1]: float(match[2]) for match in re.finditer(r"^ +(zero-\d) +no +([\d.]+)", told, re.MULTILINE)}
    assert list(totals) == ["zero-0", "zero-1", "zero-2", "zero-3"]
    assert totals["zero-3"] < totals["zero-2"] <= totals["zero-1"] < totals["zero-0"]
    assert "recommended: zero-0\n" in told
    assert "seconds" not in told, "the time is not known without --gflops"
    assert "seconds" in strake("estimate", **flags, gflops=100).out


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_the_parts_add_up(folder, precision):
    told = strake("estimate", model_name_or_path=folder / "bert", max_seq_length=32, **{precision: True}).out
    assert f"parameters, {precision}; " in told
    parts = ["parameters", "fp32 master weights", "gradients", "optimizer states", "activations"]
    assert sum(number(told, part) for part in parts) == pytest.approx(number(told, "total of a rank"), abs=0.5)


def test_a_plan_that_does_not_fit_names_one_that_does(folder):
    flags = {"model_name_or_path": folder / "bert", "max_seq_length": 64, "per_device_train_batch_size": 512}
    told = strake("estimate", **flags).out
    limit = 0.5 * number(told, "total of a machine") / 1024
    outcome = run(command("estimate", **flags, memory_limit=limit))
    assert outcome.code == USAGE
    assert "(--memory_limit)" in outcome.err
    advice = re.search(r"nearest plan that fits takes [\d.]+ GiB: (.*)", outcome.err)[1]
    assert advice in outcome.out, "it is what is recommended"
    hopeless = run(command("estimate", **flags, memory_limit=1e-6))
    assert hopeless.code == USAGE
    assert "not even micro-batches of one sequence" in hopeless.err


@pytest.mark.parametrize(
    "changes, told",
    [
        ({"model_name_or_path": None}, "say which model"),
        ({"model_type": "gpt2"}, "say which model"),
        ({"config_overrides": "n_layer=1"}, "belong to --task causal-lm"),
        ({"max_seq_length": 65}, "more than the model's 64 positions"),
        ({"mean_length": 33}, "--mean_length 33"),
        ({"ranks_per_machine": 1}, "needs --processes"),
        ({"per_device_train_batch_size": 2**40}, "too large"),
    ],
)
def test_flags_that_make_no_sense_are_refused(folder, changes, told):
    flags = {"model_name_or_path": folder / "bert", "max_seq_length": 32} | changes
    outcome = run(command("estimate", **flags))
    assert outcome.code == USAGE
    assert told in outcome.err


def test_a_dry_run_tells_the_plan_and_the_run_its_peak(folder, tmp_path):
    flags = {
        "model_name_or_path": folder / "bert",
        "train_file": folder / "train.parquet",
        "output_dir": tmp_path / "out",
        "max_seq_length": 64,
        "per_device_train_batch_size": 96,
        "max_steps": 2,
        "save_strategy": "no",
    }
    told = strake("train", **flags, dry_run=True).out
    assert not (tmp_path / "out").exists()
    planned = number(told, "total of a machine") * MIB
    done = strake("train", **flags)
    measured = number(done.out, "peak_tracked_bytes +=")
    assert "(1 rank)" in done.out
    # Tensors of a few dozen bytes, which a model as small as this one has relatively many of, are not planned.
    assert planned == pytest.approx(measured, rel=0.05)
