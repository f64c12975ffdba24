"""Every verb does its work on every kind of input, and the verbs agree with each other."""

import json

import pyarrow.parquet as parquet
import pytest
from program import losses, predict, run, strake, summary, command
from tiny_models import make_model, reviews, write_table

LENGTH = dict(max_seq_length=32)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with base model, data and a classifier that has learned the task."""
    folder = tmp_path_factory.mktemp("trained")
    make_model(folder / "base")
    data = write_table(folder / "train.parquet", reviews(200))
    strake(
        "train",
        model_name_or_path=folder / "base",
        train_file=data,
        validation_file=data,
        eval_strategy="epoch",
        output_dir=folder / "out",
        num_train_epochs=4,
        learning_rate=5e-3,
        per_device_train_batch_size=16,
        save_strategy="no",
        **LENGTH,
    )
    return folder


def test_predict_keeps_columns_order_and_types_and_evaluate_agrees(trained, tmp_path):
    rows = reviews(300, seed=2)
    data = write_table(tmp_path / "test.parquet", rows)
    scored = predict(trained / "out", data, tmp_path / "scored.parquet")
    assert scored["number"] == list(range(300))
    assert [scored[name] for name in rows[0]] == [[row[name] for row in rows] for name in rows[0]]
    schema, given = parquet.read_schema(tmp_path / "scored.parquet"), parquet.read_schema(data)
    assert [schema.field(name).type for name in given.names] == given.types
    assert all(abs(sum(p) - 1) < 1e-6 for p in scored["probabilities"])  # fp32 rounding
    right = sum(p == row["label"] for p, row in zip(scored["prediction"], rows, strict=True))
    assert right > 270  # the task is learnt
    assert summary("evaluate", model_name_or_path=trained / "out", input=data, **LENGTH)["accuracy"] == right / 300


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "txt"])
def test_every_kind_of_file_gives_the_same_predictions(trained, tmp_path, kind):
    rows = reviews(50, seed=3)
    expected = predict(
        trained / "out", write_table(tmp_path / "t.parquet", rows), tmp_path / "expected.parquet"
    )
    scored = predict(trained / "out", write_table(tmp_path / f"t.{kind}", rows), tmp_path / "scored.parquet")
    assert scored["prediction"] == expected["prediction"]
    assert scored["probabilities"] == expected["probabilities"]


def test_training_on_prepared_tokens_is_training_on_text(trained, tmp_path):
    prepared = summary(
        "prepare",
        tokenizer=trained / "base",
        input=trained / "train.parquet",
        output=tmp_path / "tokens.parquet",
        label_column="label",
        **LENGTH,
    )
    assert prepared["rows"] == 200
    flags = dict(model_name_or_path=trained / "base", max_steps=5, logging_steps=1, save_strategy="no", **LENGTH)
    strake("train", train_file=trained / "train.parquet", output_dir=tmp_path / "text", **flags)
    strake("train", train_file=tmp_path / "tokens.parquet", output_dir=tmp_path / "tokens", **flags)
    assert len(losses(tmp_path / "text")) == 5
    assert losses(tmp_path / "text") == losses(tmp_path / "tokens")


def test_regression_learns_and_predicts_numbers(trained, tmp_path):
    data = write_table(tmp_path / "train.parquet", reviews(200))
    strake(
        "train",
        model_name_or_path=trained / "base",
        train_file=data,
        label_column="score",
        output_dir=tmp_path / "out",
        num_train_epochs=4,
        learning_rate=5e-3,
        per_device_train_batch_size=16,
        save_strategy="no",
        **LENGTH,
    )
    result = summary("evaluate", model_name_or_path=tmp_path / "out", input=data, label_column="score", **LENGTH)
    assert result["mse"] < 0.1 and result["pearson"] > 0.8
    scored = predict(tmp_path / "out", data, tmp_path / "scored.parquet")
    assert all(isinstance(value, float) for value in scored["prediction"]) and "probabilities" not in scored


def test_best_model_is_kept_and_loaded(trained, tmp_path):
    data = write_table(tmp_path / "train.parquet", reviews(100))
    strake(
        "train",
        model_name_or_path=trained / "base",
        train_file=data,
        validation_file=data,
        output_dir=tmp_path / "out",
        num_train_epochs=3,
        learning_rate=3e-3,
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=1,
        load_best_model_at_end=True,
        metric_for_best_model="accuracy",
        **LENGTH,
    )
    state = json.loads((tmp_path / "out/trainer_state.json").read_text())
    best = state["best_model_checkpoint"]
    saved = (tmp_path / "out/model.safetensors").read_bytes()
    assert saved == open(f"{best}/model.safetensors", "rb").read()
    accuracies = [entry["eval_accuracy"] for entry in state["log_history"] if "eval_accuracy" in entry]
    assert len(accuracies) == 3 and state["best_metric"] == max(accuracies)


def test_config_file_means_the_same_as_flags(tmp_path):
    (tmp_path / "run.toml").write_text('learning_rate = 1e-3\nbf16 = true\ntrain_file = ["a.csv"]\n')
    common = dict(model_name_or_path="m", output_dir="o", print_config=True)
    by_file = strake("train", config=tmp_path / "run.toml", **common).out
    by_flag = strake("train", learning_rate="1e-3", bf16=True, train_file="a.csv", **common).out
    assert json.loads(by_file) == json.loads(by_flag)
    assert json.loads(by_file)["bf16"] is True


def test_tokenize_round_trip(trained, tmp_path):
    write_table(tmp_path / "texts.jsonl", [{"text": "the film was good"}])
    encoded = json.loads(strake("tokenize", tokenizer=trained / "base", input=tmp_path / "texts.jsonl").out)
    assert set(encoded) == {"input_ids", "token_type_ids", "attention_mask", "offsets", "tokens"}
    assert encoded["tokens"] == ["[CLS]", "the", "film", "was", "good", "[SEP]"]
    (tmp_path / "ids.jsonl").write_text(json.dumps(encoded) + "\n")
    decoded = strake(
        "tokenize", tokenizer=trained / "base", input=tmp_path / "ids.jsonl", decode=True, skip_special_tokens=True
    )
    assert json.loads(decoded.out) == {"text": "the film was good"}


@pytest.mark.parametrize("verb", ["train", "predict", "evaluate", "prepare", "tokenize"])
def test_help_has_an_example(verb):
    outcome = run(command(verb, help=True))
    assert outcome.code == 0 and f"strake {verb}" in outcome.out and "Example" in outcome.out


def test_redirected_progress_has_no_control_characters(trained, tmp_path):
    outcome = strake(
        "train",
        model_name_or_path=trained / "base",
        train_file=trained / "train.parquet",
        output_dir=tmp_path / "out",
        max_steps=3,
        save_strategy="no",
        **LENGTH,
    )
    assert "3/3 steps" in outcome.err
    assert not any(ord(c) < 32 and c != "\n" for c in outcome.err + outcome.out)
