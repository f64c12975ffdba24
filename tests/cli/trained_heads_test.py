"""Training on labels: what they are taken for, and heads that were trained on others."""

import json
import shutil

import numpy
import pytest
from program import command, run, strake
from refusals import DATA, USAGE
from safetensors.numpy import load_file
from tiny_models import change_config, make_model, read_config, reviews, write_table

NAMES = {"good": "POSITIVE", "bad": "NEGATIVE", "plain": "NEUTRAL"}


@pytest.fixture(scope="module")
def rows():
    return reviews(60)


def line(model, rows, folder, **flags):
    table = write_table(folder / "train.csv", rows)
    defaults = {"max_seq_length": 32, "max_steps": 1, "save_strategy": "no", "learning_rate": 1e-3}
    return command("train", model_name_or_path=model, train_file=table, output_dir=folder / "out", **(defaults | flags))


def trained(model, rows, folder, **flags):
    outcome = run(line(model, rows, folder, **flags))
    assert outcome.code == 0, outcome.err
    return outcome.err, read_config(folder / "out")


def refused(code, text, *arguments, **flags):
    outcome = run(line(*arguments, **flags))
    assert outcome.code == code, outcome.err
    assert text in outcome.err


def with_labels(rows, values):
    return [{"text": row["text"], "label": value} for row, value in zip(rows, values, strict=True)]


def decimals(rows):
    return [f"{i}.{i % 7}" for i in range(len(rows))]


@pytest.mark.parametrize("form", [" {}", "+{}", "{} "], ids=["blank", "plus", "blank_behind"])
def test_decimal_numbers_of_csv_are_read_as_pandas_does(rows, tmp_path, form):
    values = [form.format(value) for value in decimals(rows)]
    _, config = trained(make_model(tmp_path / "model"), with_labels(rows, values), tmp_path)
    assert config["problem_type"] == "regression"


@pytest.mark.parametrize("odd", ["N/A", "nan"])
def test_one_label_among_numbers_does_not_make_a_class_of_each(rows, tmp_path, odd):
    model = make_model(tmp_path / "model")
    table = with_labels(rows, [odd, *decimals(rows)[1:]])
    refused(DATA, f"holds decimal numbers, but also '{odd}'", model, table, tmp_path)
    flags = {"problem_type": "single_label_classification"}
    _, config = trained(model, table, tmp_path, **flags)
    assert len(config["id2label"]) == len(rows)


def named_model(folder):
    model = make_model(folder, head=True)
    change_config(
        model, id2label=dict(enumerate(NAMES.values())), label2id={n: i for i, n in enumerate(NAMES.values())}
    )
    return model


def test_numbers_are_the_ids_of_a_heads_names(rows, tmp_path):
    values = [i % 3 for i in range(len(rows))]
    _, config = trained(named_model(tmp_path / "model"), with_labels(rows, values), tmp_path)
    assert list(config["id2label"].values()) == list(NAMES.values())
    table = with_labels(rows, [3, *values[1:]])
    refused(DATA, "label '3' is none of the model's", named_model(tmp_path / "other"), table, tmp_path, max_steps=2)


def head_of(folder):
    return load_file(folder / "model.safetensors")["classifier.weight"]


def test_a_head_of_other_labels_is_given_up_on_demand(rows, tmp_path):
    model = named_model(tmp_path / "model")
    two = with_labels(rows, [["yes", "no"][i % 2] for i in range(len(rows))])
    refused(DATA, "--ignore_mismatched_sizes", model, two, tmp_path)
    log, config = trained(model, two, tmp_path, ignore_mismatched_sizes=True)
    assert "new, to be trained: classifier.weight, classifier.bias" in log
    assert list(config["id2label"].values()) == ["no", "yes"]
    assert head_of(tmp_path / "out").shape[0] == 2
    regression = {"ignore_mismatched_sizes": True, "problem_type": "regression"}
    numbers = with_labels(rows, decimals(rows))
    _, config = trained(model, numbers, tmp_path, overwrite_output_dir=True, **regression)
    assert config["problem_type"] == "regression"


def test_a_head_of_as_many_labels_is_kept_and_of_the_same_ones_with_their_order(rows, tmp_path):
    model = named_model(tmp_path / "model")
    flags = {"ignore_mismatched_sizes": True, "learning_rate": 1e-30}
    for names, expected in [
        ({name: name for name in NAMES}, sorted(NAMES)),
        (NAMES, list(NAMES.values())),
    ]:
        table = with_labels(rows, [names[sorted(NAMES)[i % 3]] for i in range(len(rows))])
        _, config = trained(model, table, tmp_path, overwrite_output_dir=True, **flags)
        assert list(config["id2label"].values()) == expected
        numpy.testing.assert_array_equal(head_of(tmp_path / "out"), head_of(model))


def test_texts_that_were_cut_are_told(rows, tmp_path):
    log, _ = trained(make_model(tmp_path / "model"), rows, tmp_path, max_seq_length=4)
    assert "rows had more than --max_seq_length 4 tokens" in log


def test_the_folder_of_the_model_is_not_replaced_without_a_word(rows, tmp_path):
    model = make_model(tmp_path / "out")
    before = (model / "model.safetensors").read_bytes()
    refused(USAGE, "is the folder of --model_name_or_path", model, rows, tmp_path)
    assert (model / "model.safetensors").read_bytes() == before
    trained(model, rows, tmp_path, overwrite_output_dir=True)
    assert (model / "model.safetensors").read_bytes() != before


@pytest.mark.parametrize("by", ["load_best_model_at_end", "metric_for_best_model"])
def test_the_best_checkpoint_outlives_the_limit(rows, tmp_path, by):
    model = make_model(tmp_path / "model")
    flags = {by: "loss" if by == "metric_for_best_model" else True, "greater_is_better": "true"}
    flags |= {
        "eval_strategy": "steps",
        "save_strategy": "steps",
        "eval_steps": 1,
        "save_steps": 1,
        "save_total_limit": 2,
    }
    table = write_table(tmp_path / "check.csv", reviews(20, seed=2))
    # The highest loss is the first one.
    log, _ = trained(model, rows, tmp_path, validation_file=table, max_steps=6, learning_rate=1e-2, **flags)
    folders = sorted(path.name for path in (tmp_path / "out").glob("checkpoint-*"))
    state = json.loads((tmp_path / "out/trainer_state.json").read_text())
    best = state["best_model_checkpoint"].rsplit("/", 1)[1]
    assert state["best_global_step"] < 6
    assert best == f"checkpoint-{state['best_global_step']}"
    assert folders == sorted([best, "checkpoint-6"])
    shutil.rmtree(tmp_path / "out" / best)
    again = line(model, rows, tmp_path, validation_file=table, max_steps=7, resume_from_checkpoint="true", **flags)
    outcome = run(again)
    assert outcome.code == 0, outcome.err
    assert ("cannot be loaded" in outcome.err) == (by == "load_best_model_at_end")


def test_the_closing_table_is_of_the_model_that_is_written(rows, tmp_path):
    model = make_model(tmp_path / "model")
    flags = {"load_best_model_at_end": True, "greater_is_better": "true", "max_steps": 4, "learning_rate": 1e-2}
    flags |= {"eval_strategy": "steps", "save_strategy": "steps", "eval_steps": 1, "save_steps": 1}
    table = write_table(tmp_path / "train.csv", rows)
    out = strake(
        "train", model_name_or_path=model, train_file=table, validation_file=table, output_dir=tmp_path / "out", **flags
    )
    shown = {words[0]: words[-1] for words in map(str.split, out.out.splitlines()) if words}
    assert shown["best_step"] != "4"
    assert shown["eval_loss"] == shown["best_eval_loss"]
