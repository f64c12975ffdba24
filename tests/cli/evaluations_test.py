"""When a run evaluates and saves, and which model it ends with."""

import json
import re

import pytest
from program import losses, metrics, summary
from safetensors.numpy import load_file
from tiny_models import make_model, reviews, write_table
from verbs_test import evaluated, train


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("evaluations")
    make_model(folder / "base", dropout=0.1)
    write_table(folder / "train.parquet", reviews(120))
    write_table(folder / "check.parquet", reviews(60, seed=2))
    return folder


def checkpoints(output):
    return sorted(int(path.name.split("-")[1]) for path in output.glob("checkpoint-*"))


def test_save_total_limit_keeps_the_newest(folder, tmp_path):
    train(folder, tmp_path, save_strategy="steps", save_steps=5, save_total_limit=2)
    assert checkpoints(tmp_path) == [25, 30]


def test_steps_below_one_are_a_share_of_the_run(folder, tmp_path):
    train(folder, tmp_path, save_strategy="steps", save_steps=0.5, logging_steps=0.25)
    assert checkpoints(tmp_path) == [15, 30]
    assert [entry["step"] for entry in metrics(tmp_path) if "loss" in entry] == [8, 16, 24]
    assert json.loads((tmp_path / "trainer_state.json").read_text())["save_steps"] == 15


def test_warm_up_over_the_whole_run(folder, tmp_path):
    train(folder, tmp_path / "ratio", max_steps=4, num_train_epochs=None, warmup_ratio=1.0)
    train(folder, tmp_path / "steps", max_steps=4, num_train_epochs=None, warmup_steps=4)
    assert losses(tmp_path / "ratio") == losses(tmp_path / "steps")


def test_the_best_checkpoint_ends_in_the_output_folder(folder, tmp_path):
    # At this learning rate the loss on unseen rows rises and falls.
    flags = evaluated(folder) | {"save_strategy": "epoch", "load_best_model_at_end": True, "save_total_limit": 1}
    train(folder, tmp_path, num_train_epochs=5, learning_rate=3e-2, lr_scheduler_type="constant", **flags)
    evaluations = {entry["step"]: entry["eval_loss"] for entry in metrics(tmp_path) if "eval_loss" in entry}
    best = min(evaluations, key=evaluations.get)
    assert list(evaluations) == [15, 30, 45, 60, 75] and best != 75, "else nothing is shown"
    assert checkpoints(tmp_path) == [best, 75], "the best and the newest stay"
    state = json.loads((tmp_path / "trainer_state.json").read_text())
    assert state["best_global_step"] == best
    assert state["best_metric"] == evaluations[best]
    assert state["best_model_checkpoint"].endswith(f"checkpoint-{best}")
    final = load_file(tmp_path / "model.safetensors")
    kept = load_file(tmp_path / f"checkpoint-{best}" / "model.safetensors")
    assert final.keys() == kept.keys()
    assert all((final[name] == kept[name]).all() for name in final)


def test_the_best_model_is_one_that_was_saved(folder, tmp_path):
    flags = {"validation_file": folder / "check.parquet", "eval_strategy": "steps", "eval_steps": 5}
    flags |= {"save_strategy": "steps", "save_steps": 30, "load_best_model_at_end": True, "greater_is_better": "true"}
    outcome = train(folder, tmp_path, metric_for_best_model="loss", num_train_epochs=5, **flags)  # that is, the worst
    evaluations = {entry["step"]: entry["eval_loss"] for entry in metrics(tmp_path) if "eval_loss" in entry}
    kept = {step: evaluations[step] for step in (30, 60, 75)}
    best = max(kept, key=kept.get)
    assert max(evaluations.values()) > kept[best] and best != 75, "else nothing is shown"
    saved = (tmp_path / f"checkpoint-{best}" / "model.safetensors").read_bytes()
    assert (tmp_path / "model.safetensors").read_bytes() == saved
    state = json.loads((tmp_path / "trainer_state.json").read_text())
    assert state["best_metric"] == max(evaluations.values())
    assert state["best_model_checkpoint"] == str(tmp_path / f"checkpoint-{best}")
    assert re.search(rf"best_step *= *{best}\n", outcome.out)


def test_early_stopping(folder, tmp_path):
    flags = evaluated(folder) | {"save_strategy": "epoch", "load_best_model_at_end": True}
    flags |= {"early_stopping_patience": 2, "early_stopping_threshold": 10.0}
    train(folder, tmp_path, num_train_epochs=9, **flags)
    # The first evaluation is a gain over nothing; two without a gain of 10 follow.
    assert [entry["epoch"] for entry in metrics(tmp_path) if "eval_loss" in entry] == [1.0, 2.0, 3.0]
    assert len(losses(tmp_path)) == 45


def test_evaluation_by_steps_and_its_metric(folder, tmp_path):
    flags = {"validation_file": folder / "check.parquet", "eval_strategy": "steps", "eval_steps": 10}
    flags |= {"save_strategy": "steps", "save_steps": 10, "load_best_model_at_end": True}
    train(folder, tmp_path, metric_for_best_model="accuracy", **flags)
    entries = [entry for entry in metrics(tmp_path) if "eval_loss" in entry]
    assert [entry["step"] for entry in entries] == [10, 20, 30]
    result = summary("evaluate", model_name_or_path=tmp_path, input=folder / "check.parquet", max_seq_length=32)
    assert result["accuracy"] == max(entry["eval_accuracy"] for entry in entries)


def test_a_best_metric_is_named_only_where_one_was_asked_for(folder, tmp_path):
    flags = {"validation_file": folder / "check.parquet", "eval_strategy": "epoch", "per_device_eval_batch_size": 7}
    train(folder, tmp_path, **flags)
    state = json.loads((tmp_path / "trainer_state.json").read_text())
    assert state["best_metric"] is None and state["best_global_step"] is None
    evaluation = next(entry for entry in state["log_history"] if "eval_loss" in entry)
    rows = round(evaluation["eval_samples_per_second"] * evaluation["eval_runtime"])
    steps = evaluation["eval_steps_per_second"] * evaluation["eval_runtime"]
    assert steps == pytest.approx(-(-rows // 7))
    closing = state["log_history"][-1]
    assert closing["train_steps_per_second"] * closing["train_runtime"] == pytest.approx(state["global_step"])


def test_the_last_step_is_evaluated_and_saved(folder, tmp_path):
    """As by the Trainer of Transformers, whatever the steps between evaluations."""
    flags = {"validation_file": folder / "check.parquet", "eval_strategy": "steps", "save_strategy": "steps"}
    flags |= {"eval_steps": 4, "save_steps": 4, "max_steps": 10, "load_best_model_at_end": True}
    train(folder, tmp_path, **flags)
    assert [entry["step"] for entry in metrics(tmp_path) if "eval_loss" in entry] == [4, 8, 10]
    assert checkpoints(tmp_path) == [4, 8, 10]


@pytest.mark.parametrize(("strategy", "delay", "steps"), [("steps", 5, [0, 8, 10]), ("epoch", 1.5, [0, 10])])
def test_evaluations_begin_before_the_first_step_or_later(folder, tmp_path, strategy, delay, steps):
    flags = {"validation_file": folder / "check.parquet", "eval_strategy": strategy, "save_strategy": "no"}
    flags |= {"eval_on_start": True, "eval_delay": delay, "max_steps": 10}
    train(folder, tmp_path, **flags | ({"eval_steps": 4} if strategy == "steps" else {}))
    entries = [entry for entry in metrics(tmp_path) if "eval_loss" in entry]
    assert [entry["step"] for entry in entries] == steps
    model = summary("evaluate", model_name_or_path=tmp_path, input=folder / "check.parquet", max_seq_length=32)
    assert entries[-1]["eval_accuracy"] == model["accuracy"]
    assert entries[0]["eval_loss"] != entries[-1]["eval_loss"]


def test_losses_of_smoothed_labels_are_those_of_evaluations_too(folder, tmp_path):
    """Where all labels are as likely it changes nothing; later it keeps the model from being certain."""
    flags = evaluated(folder) | {"eval_on_start": True, "num_train_epochs": 6, "save_strategy": "no"}
    ends = {}
    for factor in (0, 0.5):
        train(folder, tmp_path / str(factor), label_smoothing_factor=factor, **flags)
        ends[factor] = [entry["eval_loss"] for entry in metrics(tmp_path / str(factor)) if "eval_loss" in entry]
    assert ends[0][0] == pytest.approx(ends[0.5][0], rel=0.1)
    assert ends[0][-1] < 0.2 < ends[0.5][-1]  # half of two labels: at least 0.562


def test_without_evaluations_there_is_none_at_the_start(folder, tmp_path):
    said = train(folder, tmp_path, eval_on_start=True, max_steps=2).err
    assert "--eval_on_start true has no effect" in said
    assert not any("eval_loss" in entry for entry in metrics(tmp_path))
