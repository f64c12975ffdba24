"""TensorBoard's event files and DeepSpeed's CSV files of a training run, read back with TensorBoard."""

import json
import os
import re

import pyarrow.parquet as parquet
import pytest
from program import command, metrics, run, strake
from refusals import FILE, USAGE
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tiny_models import training_inputs

TRAINING = {
    "per_device_train_batch_size": 4,
    "max_seq_length": 32,
    "max_steps": 6,
    "save_steps": 3,
    "logging_steps": 2,
    "eval_strategy": "steps",
    "eval_steps": 3,
}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    return training_inputs(tmp_path_factory.mktemp("inputs")) | TRAINING


def scalars(folder):
    """Of all event files of a folder, as TensorBoard shows them: tag to pairs of step and value."""
    events = EventAccumulator(str(folder))
    events.Reload()
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_names_of_trackers_are_a_list(inputs, tmp_path):
    line = command("train", **inputs, output_dir=tmp_path / "out", report_to=["tensorboard", "wandb"])
    outcome = run(line)
    assert outcome.code == USAGE and "--report_to wandb: none, tensorboard and all are there" in outcome.err
    strake("train", **inputs, output_dir=tmp_path / "out", report_to=["none", "tensorboard"])
    assert list((tmp_path / "out" / "runs").iterdir())


def logged(folder, name):
    return [(entry["step"], pytest.approx(entry[name])) for entry in metrics(folder) if name in entry]


def test_tensorboard_has_what_is_logged_by_the_tags_of_the_trainer(inputs, tmp_path):
    out = tmp_path / "out"
    strake("train", **inputs, output_dir=out, report_to="tensorboard")
    (folder,) = (out / "runs").iterdir()
    found = scalars(folder)
    assert found["train/loss"] == logged(out, "loss") and len(found["train/loss"]) == 3
    assert found["train/learning_rate"] == logged(out, "learning_rate")
    assert found["eval/accuracy"] == logged(out, "eval_accuracy") and len(found["eval/accuracy"]) == 2
    assert "train/train_runtime" in found and "train/step" not in found


def test_a_resumed_run_takes_the_place_of_what_it_repeats(inputs, tmp_path):
    flags = inputs | {"report_to": "all", "logging_dir": tmp_path / "runs", "logging_steps": 1}
    strake("train", **flags, output_dir=tmp_path / "out")
    whole = scalars(tmp_path / "runs")
    # Event files of one second are read in the order of their names.
    for file in (tmp_path / "runs").iterdir():
        file.rename(file.with_name("events.out.tfevents.0000000000.before"))
    strake("train", **flags, output_dir=tmp_path / "out", resume_from_checkpoint=tmp_path / "out" / "checkpoint-3")
    assert len(list((tmp_path / "runs").iterdir())) == 2
    assert scalars(tmp_path / "runs")["train/loss"] == whole["train/loss"]


def test_a_run_that_is_whole_already_begins_no_other_curve(inputs, tmp_path):
    flags = inputs | {"report_to": "tensorboard", "logging_dir": tmp_path / "runs", "output_dir": tmp_path / "out"}
    strake("train", **flags)
    files = list((tmp_path / "runs").iterdir())
    strake("train", **flags, resume_from_checkpoint="true")
    assert list((tmp_path / "runs").iterdir()) == files


def test_the_variable_of_transformers_names_the_folder(inputs, tmp_path):
    line = command("train", **inputs, output_dir=tmp_path / "out", report_to="tensorboard")
    assert run(line, env=os.environ | {"TENSORBOARD_LOGGING_DIR": str(tmp_path / "named")}).code == 0
    assert scalars(tmp_path / "named")["train/loss"]
    assert not (tmp_path / "out" / "runs").exists()


def test_without_a_tracker_nothing_is_written(inputs, tmp_path):
    strake("train", **inputs, output_dir=tmp_path / "out")
    assert not (tmp_path / "out" / "runs").exists()


@pytest.mark.parametrize("ranks", [1, 2])
def test_monitors_of_deepspeed_plot_over_samples(inputs, tmp_path, ranks):
    config = {
        "fp16": {"enabled": True, "loss_scale": 128},
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": 2,
        "tensorboard": {"enabled": True, "output_path": "logs", "job_name": "job"},
        "csv_monitor": {"enabled": True, "output_path": str(tmp_path / "csv")},
    }
    out = tmp_path / "out"
    line = command("train", **inputs, output_dir=out, ranks=ranks, deepspeed=json.dumps(config))
    outcome = run(line + ["--logging_steps", "1"], cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    found = scalars(tmp_path / "logs" / "job")
    samples = 4 * 2 * ranks
    assert set(found) == {f"Train/Samples/{name}" for name in ("train_loss", "lr", "loss_scale", "eval_loss")}
    evaluated = [(step * samples, loss) for step, loss in logged(out, "eval_loss")]
    assert found["Train/Samples/eval_loss"] == evaluated and len(evaluated) == 2
    assert found["Train/Samples/train_loss"] == [(step * samples, loss) for step, loss in logged(out, "loss")]
    assert found["Train/Samples/loss_scale"] == [(step * samples, 128) for step in range(1, 7)]
    rows = (tmp_path / "csv" / "DeepSpeedJobName" / "Train_Samples_lr.csv").read_text().splitlines()
    rates = [(step * samples, rate) for step, rate in logged(out, "learning_rate")]
    assert rows[0] == "step,lr" and len(rows) == 7
    assert [(int(step), float(rate)) for step, rate in (row.split(",") for row in rows[1:])] == rates


def test_batches_of_tokens_count_the_sequences_that_they_had(inputs, tmp_path):
    config = {"csv_monitor": {"enabled": True, "output_path": str(tmp_path / "csv"), "job_name": "job"}}
    flags = {name: value for name, value in inputs.items() if name != "per_device_train_batch_size"}
    flags |= {"max_tokens_per_batch": 100, "logging_steps": 1, "ranks": 2, "deepspeed": json.dumps(config)}
    strake("train", **flags, output_dir=tmp_path / "out")
    rows = parquet.read_table(inputs["train_file"]).num_rows
    expected = [round(entry["epoch"] * rows) for entry in metrics(tmp_path / "out") if "loss" in entry]
    assert len(set(expected)) == len(expected) == 6
    file = tmp_path / "csv" / "job" / "Train_Samples_train_loss.csv"
    samples = [int(row.split(",")[0]) for row in file.read_text().splitlines()[1:]]
    assert samples == expected
    line = {"resume_from_checkpoint": tmp_path / "out" / "checkpoint-3", "output_dir": tmp_path / "out"}
    strake("train", **flags, **line)
    again = [int(row.split(",")[0]) for row in file.read_text().splitlines()[1:]]
    assert again == expected + expected[3:]


def number(text):
    """1.23 M"""
    value, _, prefix = text.partition(" ")
    return float(value) * 1000 ** ["", "k", "M", "G", "T"].index(prefix)


def test_the_flops_profile_is_of_its_step(inputs, tmp_path):
    profiler = {"enabled": True, "profile_step": 2, "top_modules": 2}
    flags = inputs | {"eval_strategy": "no", "validation_file": None, "save_steps": 1, "max_steps": 3}
    config = json.dumps({"flops_profiler": profiler, "train_micro_batch_size_per_gpu": "auto"})
    out = tmp_path / "out"
    profile = strake("train", **flags, output_dir=out, deepspeed=config).out
    assert profile.count("flops profile") == 1 and "flops profile of step 2" in profile
    values = dict(re.findall(r"^  (\S+) +=  *(.+)$", profile, re.MULTILINE))
    states = [json.loads((out / f"checkpoint-{step}/trainer_state.json").read_text()) for step in (1, 2)]
    flops = states[1]["total_flos"] - states[0]["total_flos"]
    assert number(values["forward_flops"]) + number(values["backward_flops"]) == pytest.approx(flops, rel=0.01)
    blocks = re.findall(r"^  (\S+) +[\d.]+ \S* +[\d.]+.* +([\d.]+) %$", profile, re.MULTILINE)
    assert sum(float(share) for _, share in blocks) == pytest.approx(100, abs=0.5)
    largest = sorted(blocks, key=lambda block: -float(block[1]))[:2]
    assert values["most_flops"].split(", ") == [name for name, _ in largest]


def test_a_folder_that_cannot_be_is_an_error_before_the_first_step(inputs, tmp_path):
    (tmp_path / "file").write_text("")
    line = command(
        "train", **inputs, output_dir=tmp_path / "out", report_to="tensorboard", logging_dir=tmp_path / "file" / "runs"
    )
    outcome = run(line)
    assert outcome.code == FILE
    assert str(tmp_path / "file" / "runs") in outcome.err
    assert not (tmp_path / "out" / "model.safetensors").exists()
