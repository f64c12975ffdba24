"""Master weights, sums of gradients and optimizer state in bf16 too: the same bits in every layout, and checkpoints."""

import json
import re
import shutil

import numpy
import pytest
from program import command, losses, run, run_mpi
from refusals import USAGE
from safetensors.numpy import load_file
from tiny_models import training_inputs

STEPS = 6
MICRO_BATCHES = 4
PURE = {"enabled": True, "bf16_master_weights_and_grads": True, "bf16_optimizer_states": True}
OPTIMIZERS = {
    "adamw": {"weight_decay": 0.1},
    "lion": {"optim": "lion"},
    "adagrad": {"optim": "adagrad", "learning_rate": 1e-2},
    "momentum": {"optim": "sgd", "optim_args": "momentum=0.9", "learning_rate": 0.3},
    "lamb": {"optim": "lamb", "learning_rate": 1e-2, "weight_decay": 0.1},
    "frozen": {"freeze": "bert.embeddings.*,*.layer.0.*.weight"},
}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    return training_inputs(tmp_path_factory.mktemp("inputs"))


def train_command(inputs, output, num_ranks=1, zero=None, bf16=PURE, **flags):
    defaults = {
        "gradient_accumulation_steps": MICRO_BATCHES // num_ranks,
        "max_seq_length": 32,
        "per_device_train_batch_size": 3,
        "max_steps": STEPS,
        "learning_rate": 1e-3,
        "logging_steps": 1,
        "eval_strategy": "steps",
        "eval_steps": 3,
        "save_steps": 3,
        "deepspeed": json.dumps({"bf16": bf16, "zero_optimization": zero or {"stage": 0}}),
    }
    return command("train", output_dir=output, **(inputs | defaults | flags))


def train(inputs, output, num_ranks=1, zero=None, **flags):
    outcome = run(train_command(inputs, output, num_ranks, zero, ranks=num_ranks, **flags))
    assert outcome.code == 0, outcome.err
    return outcome


def assert_same_run(found, expected):
    assert len(losses(expected)) == STEPS
    assert losses(found) == losses(expected)
    assert (found / "model.safetensors").read_bytes() == (expected / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def alone(inputs, tmp_path_factory):
    """One rank's run with each optimizer, made once."""
    runs = {}

    def get(optimizer):
        if optimizer not in runs:
            runs[optimizer] = tmp_path_factory.mktemp(optimizer)
            train(inputs, runs[optimizer], **OPTIMIZERS[optimizer])
        return runs[optimizer]

    return get


def nearest_bf16(array):
    """Rounded to nearest even."""
    bits = array.view(numpy.uint32).astype(numpy.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(numpy.uint32).view(numpy.float32)


def nvme(folder, stage, *what):
    device = {"device": "nvme", "nvme_path": str(folder)}
    return {"stage": stage, "stage3_param_persistence_threshold": 0, **dict.fromkeys(what, device)}


def layout(name, folder):
    """Ranks and the section zero_optimization."""
    whole = {"stage3_param_persistence_threshold": 0}
    return {
        "zero1": (2, {"stage": 1}),
        "zero2": (4, {"stage": 2}),
        "zero3": (2, {"stage": 3} | whole),
        "zero3 on four": (4, {"stage": 3} | whole),
        "groups": (4, {"stage": 3, "mics_shard_size": 2} | whole),
        "states on disk": (2, nvme(folder, 2, "offload_optimizer")),
        "all on disk": (2, nvme(folder, 3, "offload_optimizer", "offload_param")),
        "groups on disk": (4, nvme(folder, 3, "offload_optimizer", "offload_param") | {"mics_shard_size": 2}),
    }[name]


LAYOUTS = ["zero1", "zero2", "zero3", "zero3 on four", "groups", "states on disk", "all on disk", "groups on disk"]


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_gives_the_same_bits(inputs, alone, tmp_path, name):
    ranks, zero = layout(name, tmp_path)
    for optimizer in OPTIMIZERS:
        train(inputs, tmp_path / optimizer, ranks, zero, **OPTIMIZERS[optimizer])
        assert_same_run(tmp_path / optimizer, alone(optimizer))


@pytest.mark.parametrize("name", ["zero1", "zero3", "groups", "all on disk"])
def test_processes_give_the_same_bits(inputs, alone, tmp_path, name):
    ranks, zero = layout(name, tmp_path)
    outcome = run_mpi(ranks, train_command(inputs, tmp_path / "out", ranks, zero, **OPTIMIZERS["adamw"]))
    assert outcome.code == 0, outcome.err
    assert_same_run(tmp_path / "out", alone("adamw"))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_run_goes_on_with_the_same_bits_elsewhere(inputs, alone, tmp_path, optimizer):
    folder = shutil.copytree(alone(optimizer), tmp_path / "0")
    for place, name in enumerate(["zero3", "all on disk"]):
        shutil.rmtree(folder / f"checkpoint-{STEPS}")
        ranks, zero = layout(name, tmp_path)
        train(inputs, folder, ranks, zero, resume_from_checkpoint="true", **OPTIMIZERS[optimizer])
        assert_same_run(folder, alone(optimizer))
        # The optimizer state that two ranks wrote is read by one.
        shutil.rmtree(folder / "checkpoint-3")
        train(inputs, tmp_path / f"half{place}", ranks, zero, **OPTIMIZERS[optimizer])
        shutil.rmtree(tmp_path / f"half{place}" / f"checkpoint-{STEPS}")
        folder = tmp_path / f"half{place}"
        train(inputs, folder, resume_from_checkpoint="true", **OPTIMIZERS[optimizer])
        assert_same_run(folder, alone(optimizer))


def test_checkpoints_hold_bf16(alone):
    checkpoint = alone("adamw") / "checkpoint-3"
    content = (checkpoint / "optimizer-00001-of-00001.safetensors").read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    assert {entry["dtype"] for name, entry in header.items() if name != "__metadata__"} == {"BF16"}
    assert numpy.any(numpy.frombuffer(content[8 + length :], numpy.uint16))
    weights = load_file(checkpoint / "model.safetensors")
    assert {array.dtype for array in weights.values()} == {numpy.dtype("float32")}, "as everything loads it"
    for name, array in weights.items():
        assert not numpy.any(array.view(numpy.uint32) & 0xFFFF), f"{name} is of bf16"


def test_it_is_another_run_than_with_fp32_masters(inputs, alone, tmp_path):
    """And learns as well here, where updates are large: losses differ by less than a tenth in six steps."""
    train(inputs, tmp_path / "masters", bf16={"enabled": True}, **OPTIMIZERS["adamw"])
    pure, masters = losses(alone("adamw")), losses(tmp_path / "masters")
    assert pure != masters
    assert [loss for _, loss, _ in pure] == pytest.approx([loss for _, loss, _ in masters], rel=0.1)
    checkpoint = tmp_path / "masters" / "checkpoint-3"
    line = train_command(inputs, tmp_path / "masters", resume_from_checkpoint=checkpoint, **OPTIMIZERS["adamw"])
    outcome = run(line)
    assert outcome.code == USAGE
    assert "the run was started with grad_accum_dtype = " in outcome.err


def test_small_updates_vanish(inputs, tmp_path):
    """A learning rate that is less than half a unit in the last place of nearly all weights changes none of these."""
    train(inputs, tmp_path / "still", learning_rate=1e-9, max_steps=1, save_steps=1)
    train(inputs, tmp_path / "moved", learning_rate=1e-3, max_steps=1, save_steps=1)
    name = "bert.encoder.layer.0.output.dense.weight"
    still, moved = (load_file(tmp_path / folder / "model.safetensors")[name] for folder in ("still", "moved"))
    loaded = load_file(inputs["model_name_or_path"] / "model.safetensors")[name]
    assert (still == nearest_bf16(loaded)).mean() > 0.999
    assert (moved == nearest_bf16(loaded)).mean() < 0.5


def test_the_plan_counts_it(inputs):
    def told(bf16):
        flags = {"model_name_or_path": inputs["model_name_or_path"], "max_seq_length": 32}
        outcome = run(command("estimate", deepspeed=json.dumps({"bf16": bf16}), **flags))
        assert outcome.code == 0, outcome.err
        return outcome.out

    def mebibytes(text, use):
        found = re.search(rf"^  {use} +([\d.]+)", text, re.MULTILINE)
        return float(found[1]) if found else 0

    pure, masters = told(PURE), told({"enabled": True})
    assert "bf16, also master weights and optimizer state; " in pure
    assert mebibytes(pure, "fp32 master weights") == 0 < mebibytes(masters, "fp32 master weights")
    assert mebibytes(pure, "parameters") == mebibytes(masters, "parameters")
    for use in ("gradients", "optimizer states"):
        assert mebibytes(pure, use) == pytest.approx(mebibytes(masters, use) / 2, abs=0.1)
