"""Ranks on GPUs give the bits of one rank, at every stage: NCCL moves, strake adds.

Where there is one GPU, two processes share it, each on what NCCL takes for a host of its own (NCCL_HOSTID): it would
refuse two ranks of one host on one GPU, and goes through sockets between hosts.
"""

import json
import os
import pathlib
import tempfile

import pytest
from gpu_runs import DEVICE, NEEDS_GPU, OFFLOAD, train, weights
from program import MEMORY, command, losses, run, run_torchrun

pytestmark = NEEDS_GPU
RANKS = 2
GPUS = len(list(pathlib.Path("/dev").glob("nvidia[0-9]*")))
BATCHES = dict.fromkeys(("train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping"), "auto")
ON_DISK = {"device": "nvme", "nvme_path": tempfile.gettempdir()}
SETTINGS = {
    **{f"stage {stage}": {"zero_optimization": {"stage": stage}} for stage in range(4)},
    "offload": OFFLOAD,
    "recomputing": {"zero_optimization": {"stage": 3}},
    "bf16": {"zero_optimization": {"stage": 3}, "bf16": {"enabled": True}},
    "fp16": {"zero_optimization": {"stage": 2}, "fp16": {"enabled": True}},
    "lamb": {"zero_optimization": {"stage": 3}},
    "parameters offloaded alone": {"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}},
    "groups on disk": {
        "zero_optimization": {"stage": 3, "mics_shard_size": 1, "offload_optimizer": ON_DISK, "offload_param": ON_DISK}
    },
}


def flags_of(setting):
    """Of one rank's run, too."""
    flags = {name: True for name in ("bf16", "fp16") if name in SETTINGS[setting]}
    return flags | ({"optim": "lamb"} if setting == "lamb" else {})


def on_ranks(inputs, output, setting):
    shared = {"device": DEVICE, "output_dir": output, "deepspeed": json.dumps(SETTINGS[setting] | BATCHES)}
    more = {"gradient_checkpointing": True} if setting == "recomputing" else {}
    return command("train", **(inputs | flags_of(setting) | more | shared | {"gradient_accumulation_steps": 1}))


def host_of(rank):
    """Of processes that share a GPU, and so have nothing else in common either."""
    if GPUS >= RANKS or DEVICE == "cpu":
        return {}
    return {"NCCL_HOSTID": f"host-{rank}", "NCCL_IB_DISABLE": "1"} | MEMORY["apart"]


@pytest.fixture(scope="module")
def alone(inputs, tmp_path_factory):
    """One rank's run in each precision, made once."""
    runs = {}

    def get(setting):
        flags = flags_of(setting)
        key = "".join(flags)
        if key not in runs:
            runs[key] = train(inputs, tmp_path_factory.mktemp("alone"), **flags)
        return runs[key]

    return get


def assert_same_run(outcome, found, expected):
    assert outcome.code == 0, outcome.err
    assert len(losses(expected)) == 12
    assert losses(found) == losses(expected)
    assert weights(found) == weights(expected)


@pytest.mark.parametrize("setting", SETTINGS)
def test_processes(inputs, alone, tmp_path, setting):
    outcome = run_torchrun(RANKS, on_ranks(inputs, tmp_path, setting), host_of)
    assert_same_run(outcome, tmp_path, alone(setting))


@pytest.mark.skipif(
    DEVICE == "cuda" and GPUS < RANKS and os.environ.get("NCCL_MULTI_RANK_GPU_ENABLE") != "1",
    reason="skipped: one GPU, which threads share only with NCCL 2.30 and NCCL_MULTI_RANK_GPU_ENABLE=1",
)
@pytest.mark.parametrize("setting", SETTINGS)
def test_threads(inputs, alone, tmp_path, setting):
    outcome = run([*on_ranks(inputs, tmp_path, setting), "--ranks", str(RANKS)])
    assert_same_run(outcome, tmp_path, alone(setting))
