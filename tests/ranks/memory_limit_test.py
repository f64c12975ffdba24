"""A model whose training state is larger than the memory trains with its state on disk."""

import json
import os
import pathlib
import re
import resource
import signal
import uuid

import pytest
from program import command, losses, run
from tiny_models import make_language_model, reviews, write_table

LIMIT = 1536 << 20  # bytes; 96 million parameters have 18 bytes of state each in bf16, and a program needs some, too
ADDRESSES = 2048 << 20  # of what `ulimit -v` limits, libraries take most of 700 MiB
GROUPS = pathlib.Path("/sys/fs/cgroup/memory")  # version 1
UNIFIED = pathlib.Path("/sys/fs/cgroup")  # version 2


@pytest.fixture
def limited():
    """Moves a starting process into a control group with LIMIT bytes of memory and no swap."""
    parent, limit = (GROUPS, "memory.limit_in_bytes") if GROUPS.is_dir() else (UNIFIED, "memory.max")
    group = parent / f"strake-test-{uuid.uuid4().hex}"
    try:
        group.mkdir()
        (group / limit).write_text(str(LIMIT))
        if (group / "memory.swap.max").exists():
            (group / "memory.swap.max").write_text("0")
    except OSError as error:
        if group.is_dir():
            group.rmdir()
        pytest.skip(f"no control group can be made: {error}")
    yield lambda: (group / "cgroup.procs").write_text(str(os.getpid()))
    group.rmdir()


def flags_of(folder, layers):
    make_language_model(folder / "gpt2")
    return {
        "task": "causal-lm",
        "model_type": "gpt2",
        "tokenizer_name": folder / "gpt2",
        "config_overrides": f"n_embd=768,n_head=4,n_layer={layers}",
        "train_file": write_table(folder / "train.txt", reviews(12)),
        "block_size": 32,
        "per_device_train_batch_size": 2,
        "max_steps": 2,
        "logging_steps": 1,
        "save_strategy": "no",
        "bf16": True,
    }


def on_disk_in(folder):
    nvme = {"device": "nvme", "nvme_path": str(folder)}
    zero = {"stage": 3, "offload_optimizer": nvme, "offload_param": nvme}
    return {"gradient_checkpointing": True, "deepspeed": json.dumps({"zero_optimization": zero})}


def test_gpt2_trains_in_two_gibibytes_of_addresses(tmp_path):
    flags = flags_of(tmp_path, layers=12)

    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))

    refused = run(command("train", **flags, output_dir=tmp_path / "memory"), timeout=300, preexec_fn=limit)
    assert refused.code == 2
    assert "more than 2.00 GiB (ulimit -v)" in refused.err
    assert re.search(
        r"nearest plan that fits takes [\d.]+ GiB and [\d.]+ GiB of disk: zero-\d with .*nvme", refused.err
    )
    line = command("train", **flags, **on_disk_in(tmp_path), output_dir=tmp_path / "disk")
    outcome = run(line, timeout=300, preexec_fn=limit)
    assert outcome.code == 0, outcome.err
    assert len(losses(tmp_path / "disk")) == 2


def test_a_limit_of_each_process_does_not_hide_the_machines_memory(tmp_path):
    flags = {"task": "causal-lm", "model_type": "gpt2", "ranks": 4096, "processes": True}
    flags |= {"gflops": 1, "memory_bandwidth": 1, "bandwidth": 1}

    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (64 << 30, 64 << 30))

    told = run(command("estimate", **flags), preexec_fn=limit)
    assert "limit: 64.00 GiB (ulimit -v)" in told.out
    assert not re.search(r" yes +[\d.]+$", told.out, re.MULTILINE), "no machine has terabytes for it"


def test_state_on_disk_trains_what_does_not_fit(tmp_path, limited):
    flags = flags_of(tmp_path, layers=8)
    on_disk = on_disk_in(tmp_path)
    line = command("train", **flags, **on_disk, output_dir=tmp_path / "disk")
    outcome = run(line, timeout=300, preexec_fn=limited)
    assert outcome.code == 0, outcome.err
    assert len(losses(tmp_path / "disk")) == 2
    outcome = run(command("train", **flags, output_dir=tmp_path / "memory"), timeout=300, preexec_fn=limited)
    assert outcome.code in (2, -signal.SIGKILL), "the limit was to be too low for the state in memory"
