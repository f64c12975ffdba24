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
GPUS = len(list(pathlib.Path("/dev").glob("nvidia[0-9]*")))
if "CUDA_VISIBLE_DEVICES" in os.environ:
    GPUS = len(os.environ["CUDA_VISIBLE_DEVICES"].split(","))
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
    "groups of two": {"zero_optimization": {"stage": 3, "mics_shard_size": 2}},
}


def ranks_of(setting):
    return 4 if setting == "groups of two" else 2


def flags_of(setting):
    """Of one rank's run, too."""
    flags = {name: True for name in ("bf16", "fp16") if name in SETTINGS[setting]}
    return flags | ({"optim": "lamb"} if setting == "lamb" else {})


def on_ranks(inputs, output, setting):
    shared = {"device": DEVICE, "output_dir": output, "deepspeed": json.dumps(SETTINGS[setting] | BATCHES)}
    more = {"gradient_checkpointing": True} if setting == "recomputing" else {}
    return command("train", **(inputs | flags_of(setting) | more | shared | {"gradient_accumulation_steps": 1}))


def host_of(rank, ranks):
    """Of processes that share a GPU, and so have nothing else in common either."""
    if ranks <= GPUS or DEVICE == "cpu":
        return {}
    return {"NCCL_HOSTID": f"host-{rank}", "NCCL_IB_DISABLE": "1"} | MEMORY["apart"]


@pytest.fixture(scope="module")
def alone(inputs, tmp_path_factory):
    """One rank's run in each precision, made once."""
    runs = {}

    def get(setting):
        flags = flags_of(setting)
        flags["gradient_accumulation_steps"] = ranks_of(setting)
        key = tuple(flags.items())
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
    ranks = ranks_of(setting)
    outcome = run_torchrun(ranks, on_ranks(inputs, tmp_path, setting), lambda rank: host_of(rank, ranks))
    assert_same_run(outcome, tmp_path, alone(setting))


@pytest.mark.parametrize("setting", SETTINGS)
def test_threads(inputs, alone, tmp_path, setting):
    ranks = ranks_of(setting)
    if DEVICE == "cuda" and ranks > GPUS and os.environ.get("NCCL_MULTI_RANK_GPU_ENABLE") != "1":
        pytest.skip(f"{GPUS} GPUs, which {ranks} threads share only with NCCL 2.30 and NCCL_MULTI_RANK_GPU_ENABLE=1")
    outcome = run([*on_ranks(inputs, tmp_path, setting), "--ranks", str(ranks)])
    assert_same_run(outcome, tmp_path, alone(setting))
