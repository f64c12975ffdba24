"""What wall_clock_breakdown and comms_logger of a ds_config.json tell of a training run."""

import json
import re

import pytest
from program import metrics, strake
from tiny_models import training_inputs

TRAINING = {
    "per_device_train_batch_size": 4,
    "max_seq_length": 32,
    "max_steps": 4,
    "save_strategy": "no",
    "logging_steps": 2,
    "ranks": 2,
    "validation_file": None,
}
PARTS = ["forward_seconds", "backward_seconds", "reduction_seconds", "update_seconds"]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    return training_inputs(tmp_path_factory.mktemp("inputs")) | TRAINING


def train(inputs, out, config):
    config = {"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 3}} | config
    return strake("train", **inputs, output_dir=out, deepspeed=json.dumps(config))


def rows(table):
    """Of the comms log: name to count by size of the message."""
    found = {}
    for line in table.splitlines():
        words = re.fullmatch(r"  (\w+) +2 +([\d.]+ [kM]?B) +(\d+)( +[\d.]+){4}", line)
        if words:
            found.setdefault(words[1], {})[words[2]] = int(words[3])
    return found


def test_the_parts_of_a_step_are_logged_and_plotted(inputs, tmp_path):
    monitor = {"enabled": True, "output_path": str(tmp_path), "job_name": "job"}
    done = train(inputs, tmp_path / "out", {"wall_clock_breakdown": True, "csv_monitor": monitor})
    entries = [entry for entry in metrics(tmp_path / "out") if "loss" in entry]
    assert len(entries) == 2
    for entry in entries:
        assert all(entry[part] >= 0 for part in PARTS)
        assert 0 < sum(entry[part] for part in PARTS) <= entry["step_seconds"]
    names = ["fwd", "bwd", "bwd_inner", "bwd_allreduce", "step"]
    line = " ".join([r"time \(ms\)", *(rf"\| {name}: \d+\.\d\d" for name in names)])
    assert len(re.findall(line, done.err)) == 2
    for name in ["forward", "backward", "backward_inner", "backward_allreduce", "step"]:
        lines = (tmp_path / "job" / f"Train_Samples_elapsed_time_ms_{name}.csv").read_text().splitlines()
        assert len(lines) == 1 + TRAINING["max_steps"]


def test_collectives_are_counted_and_change_nothing(inputs, tmp_path):
    plain = train(inputs, tmp_path / "plain", {})
    assert "comms log" not in plain.out and "fwd:" not in plain.err
    done = train(inputs, tmp_path / "logged", {"comms_logger": {"enabled": True}})
    found = rows(done.out.split("comms log of rank 0")[1])
    assert {"all_reduce", "reduce_scatter"} <= found.keys()
    # Each block's gradient, once a step.
    assert all(count % TRAINING["max_steps"] == 0 for count in found["reduce_scatter"].values())
    assert "comm op:" not in done.err
    name = "model.safetensors"
    assert (tmp_path / "logged" / name).read_bytes() == (tmp_path / "plain" / name).read_bytes()


def test_verbose_logs_the_operations_that_are_named(inputs, tmp_path):
    logger = {"enabled": True, "verbose": True, "prof_all": False, "prof_ops": ["reduce_scatter_tensor"]}
    done = train(inputs, tmp_path / "out", {"comms_logger": logger})
    assert rows(done.out).keys() == {"reduce_scatter"}
    lines = re.findall(r"comm op: (\w+) \| time \(ms\): [\d.]+ \| msg size: [\d.]+ [kM]?B \|", done.err)
    assert set(lines) == {"reduce_scatter"}
    assert len(lines) == sum(rows(done.out)["reduce_scatter"].values())


def test_a_profile_of_a_step_that_does_not_come_is_told(inputs, tmp_path):
    behind = TRAINING["max_steps"] + 1
    done = train(inputs, tmp_path / "out", {"flops_profiler": {"enabled": True, "profile_step": behind}})
    assert f"flops_profiler.profile_step {behind} has no effect" in done.err and "flops profile" not in done.out
