"""Master weights and sums of gradients in fp16, optimizer state in fp32: the same bits in every layout, checkpoints."""

import json
import re
import shutil

import numpy
import pytest
from program import command, losses, metrics, run, run_mpi
from refusals import USAGE
from safetensors.numpy import load_file
from tiny_models import training_inputs

STEPS = 12
MICRO_BATCHES = 4
# Starts too high, doubles every third step without an overflow: overflows in a short run.
RESTLESS = {"enabled": True, "initial_scale_power": 22, "loss_scale_window": 3, "hysteresis": 1}
MASTERS = RESTLESS | {"fp16_master_weights_and_grads": True}
COUPLED = {"type": "Adam", "params": {"lr": 1e-3, "weight_decay": 0.1, "adam_w_mode": False}}
LARGEST = {"type": "AdamW", "params": {"lr": 1e-3, "betas": [0.9, 0.9], "amsgrad": True}}
CHOICES = {
    "adamw": {"learning_rate": 1e-3, "weight_decay": 0.1},
    "adam": {"config": {"optimizer": COUPLED}},
    "amsgrad": {"config": {"optimizer": LARGEST}},
    "frozen": {"learning_rate": 1e-3, "freeze": "bert.embeddings.*,*.layer.0.*.weight"},
}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    return training_inputs(tmp_path_factory.mktemp("inputs"))


def train_command(inputs, output, num_ranks=1, zero=None, config=None, **flags):
    defaults = {
        "gradient_accumulation_steps": MICRO_BATCHES // num_ranks,
        "max_seq_length": 32,
        "per_device_train_batch_size": 3,
        "max_steps": STEPS,
        "logging_steps": 1,
        "eval_strategy": "steps",
        "eval_steps": STEPS // 2,
        "save_steps": STEPS // 2,
        "deepspeed": json.dumps({"fp16": MASTERS, "zero_optimization": zero or {"stage": 0}} | (config or {})),
    }
    return command("train", output_dir=output, **(inputs | defaults | flags))


def train(inputs, output, num_ranks=1, zero=None, **flags):
    outcome = run(train_command(inputs, output, num_ranks, zero, ranks=num_ranks, **flags))
    assert outcome.code == 0, outcome.err
    return outcome


def scales(folder):
    return [(entry["loss_scale"], entry["skipped_steps"]) for entry in metrics(folder) if "loss" in entry]


def assert_same_run(found, expected):
    assert len(losses(expected)) == STEPS
    assert losses(found) == losses(expected)
    assert scales(found) == scales(expected)
    assert (found / "model.safetensors").read_bytes() == (expected / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def alone(inputs, tmp_path_factory):
    """One rank's run of each choice, made once."""
    runs = {}

    def get(choice):
        if choice not in runs:
            runs[choice] = tmp_path_factory.mktemp(choice)
            train(inputs, runs[choice], **CHOICES[choice])
        return runs[choice]

    return get


def nvme(folder, stage, *what, **more):
    device = {"device": "nvme", "nvme_path": str(folder)}
    return {"stage": stage, "stage3_param_persistence_threshold": 0, **dict.fromkeys(what, device)} | more


def layout(name, folder):
    """Ranks and the section zero_optimization."""
    whole = {"stage3_param_persistence_threshold": 0}
    everything = ("offload_optimizer", "offload_param")
    return {
        "zero0": (2, {"stage": 0}),
        "zero1": (2, {"stage": 1, "offload_optimizer": {"device": "cpu"}}),
        "zero2": (4, {"stage": 2}),
        "zero3": (2, {"stage": 3} | whole),
        "groups": (4, {"stage": 3, "mics_shard_size": 2} | whole),
        "states on disk": (2, nvme(folder, 2, "offload_optimizer")),
        "all on disk": (2, nvme(folder, 3, *everything)),
        "groups on disk": (4, nvme(folder, 3, *everything, mics_shard_size=2)),
    }[name]


LAYOUTS = ["zero0", "zero1", "zero2", "zero3", "groups", "states on disk", "all on disk", "groups on disk"]


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_gives_the_same_bits(inputs, alone, tmp_path, name):
    ranks, zero = layout(name, tmp_path)
    for choice in CHOICES:
        train(inputs, tmp_path / choice, ranks, zero, **CHOICES[choice])
        assert_same_run(tmp_path / choice, alone(choice))


@pytest.mark.parametrize("name", ["zero0", "zero3", "groups on disk"])
def test_processes_give_the_same_bits(inputs, alone, tmp_path, name):
    ranks, zero = layout(name, tmp_path)
    outcome = run_mpi(ranks, train_command(inputs, tmp_path / "out", ranks, zero, **CHOICES["adamw"]))
    assert outcome.code == 0, outcome.err
    assert_same_run(tmp_path / "out", alone("adamw"))


def test_overflows_are_skipped_and_the_run_learns(alone):
    entries = [entry for entry in metrics(alone("adamw")) if "loss" in entry]
    skipped = entries[-1]["skipped_steps"]
    assert 1 <= skipped <= STEPS // 2
    assert sum("grad_norm" in entry for entry in entries) == STEPS - skipped


@pytest.mark.parametrize("choice", CHOICES)
def test_a_run_goes_on_with_the_same_bits_elsewhere(inputs, alone, tmp_path, choice):
    folder = shutil.copytree(alone(choice), tmp_path / "out")
    for name in ("zero3", "groups on disk"):
        shutil.rmtree(folder / f"checkpoint-{STEPS}")
        ranks, zero = layout(name, tmp_path)
        train(inputs, folder, ranks, zero, resume_from_checkpoint="true", **CHOICES[choice])
        assert_same_run(folder, alone(choice))
    # The optimizer state that four ranks wrote is read by one.
    train(inputs, tmp_path / "half", ranks, zero, **CHOICES[choice])
    shutil.rmtree(tmp_path / "half" / f"checkpoint-{STEPS}")
    train(inputs, tmp_path / "half", resume_from_checkpoint="true", **CHOICES[choice])
    assert_same_run(tmp_path / "half", alone(choice))


def test_checkpoints_hold_fp32_state_and_weights_of_fp16(alone):
    checkpoint = alone("adamw") / f"checkpoint-{STEPS // 2}"
    states = load_file(checkpoint / "optimizer-00001-of-00001.safetensors")
    assert {array.dtype for array in states.values()} == {numpy.dtype("float32")}
    assert any(numpy.any(array.astype(numpy.float16) != array) for array in states.values())
    weights = load_file(checkpoint / "model.safetensors")
    for name, array in weights.items():
        assert array.dtype == numpy.float32, "as everything loads it"
        assert numpy.array_equal(array.astype(numpy.float16), array), f"{name} is of fp16"


def test_it_is_another_run_than_with_fp32_masters(inputs, tmp_path):
    """And learns as well here: without overflows, losses differ by less than a tenth."""
    calm = {"initial_scale_power": 8, "loss_scale_window": 1000}
    train(inputs, tmp_path / "pure", config={"fp16": MASTERS | calm}, **CHOICES["adamw"])
    train(inputs, tmp_path / "masters", config={"fp16": RESTLESS | calm}, **CHOICES["adamw"])
    assert scales(tmp_path / "pure")[-1] == scales(tmp_path / "masters")[-1] == (256, 0)
    pure, masters = losses(tmp_path / "pure"), losses(tmp_path / "masters")
    assert pure != masters
    assert [loss for _, loss, _ in pure] == pytest.approx([loss for _, loss, _ in masters], rel=0.1)
    checkpoint = tmp_path / "masters" / f"checkpoint-{STEPS // 2}"
    line = train_command(inputs, tmp_path / "masters", resume_from_checkpoint=checkpoint, **CHOICES["adamw"])
    outcome = run(line)
    assert outcome.code == USAGE
    assert "the run was started with grad_accum_dtype = " in outcome.err


def test_the_plan_counts_it(inputs):
    def told(fp16):
        flags = {"model_name_or_path": inputs["model_name_or_path"], "max_seq_length": 32}
        outcome = run(command("estimate", deepspeed=json.dumps({"fp16": fp16}), **flags))
        assert outcome.code == 0, outcome.err
        return outcome.out

    def mebibytes(text, use):
        found = re.search(rf"^  {use} +([\d.]+)", text, re.MULTILINE)
        return float(found[1]) if found else 0

    pure, masters = told(MASTERS), told(RESTLESS)
    assert "fp16, also master weights; optimizer state in fp32; " in pure
    assert mebibytes(pure, "fp32 master weights") == 0 < mebibytes(masters, "fp32 master weights")
    for use in ("parameters", "optimizer states"):
        assert mebibytes(pure, use) == mebibytes(masters, use)
    assert mebibytes(pure, "gradients") == pytest.approx(mebibytes(masters, "gradients") / 2, abs=0.1)
