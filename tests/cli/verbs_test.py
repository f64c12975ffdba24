"""What each verb gives: tables in all formats in, the same rows with predictions out, and runs that end as asked."""

import json
import os
import re
import shutil

import numpy
import pyarrow
import pyarrow.parquet as parquet
import pytest
from program import BINARY, command, environment, losses, metrics, predict, run, strake, summary
from safetensors.numpy import load_file, save_file
from tiny_models import change_config, change_weights, make_model, read_config, reviews, write_table

KINDS = ["parquet", "csv", "tsv", "jsonl"]
ROWS = reviews(120)
CHECK = reviews(60, seed=2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("verbs")
    make_model(folder / "base", dropout=0.1)
    for kind in KINDS:
        write_table(folder / f"train.{kind}", ROWS)
        write_table(folder / f"check.{kind}", CHECK)
    write_table(folder / "check.txt", CHECK)
    return folder


def train(folder, output, **flags):
    defaults = {
        "model_name_or_path": folder / "base",
        "train_file": folder / "train.parquet",
        "max_seq_length": 32,
        "learning_rate": 2e-3,
        "num_train_epochs": 2,
        "logging_steps": 1,
        "save_strategy": "no",
    }
    return strake("train", output_dir=output, **(defaults | flags))


def evaluated(folder):
    return {"validation_file": folder / "check.parquet", "eval_strategy": "epoch"}


@pytest.fixture(scope="module")
def classifier(folder):
    train(folder, folder / "classifier", num_train_epochs=8)
    return folder / "classifier"


# Formats


@pytest.mark.parametrize("kind", KINDS[1:])
def test_training_is_the_same_from_every_format(folder, tmp_path, kind):
    train(folder, tmp_path / "parquet")
    train(folder, tmp_path / kind, train_file=folder / f"train.{kind}")
    assert losses(tmp_path / kind) == losses(tmp_path / "parquet")


@pytest.mark.parametrize("kind", KINDS)
def test_predict_keeps_all_rows_and_columns(folder, classifier, tmp_path, kind):
    scored = predict(classifier, folder / f"check.{kind}", tmp_path / "scored.parquet")
    texts_only = kind in ("csv", "tsv")
    for column in ("text", "label", "number", "score"):
        expected = [str(row[column]) if texts_only else row[column] for row in CHECK]
        assert scored[column] == expected
    assert list(scored) == ["text", "label", "number", "score", "prediction", "probabilities"]


def test_predict_keeps_types(folder, classifier, tmp_path):
    rows = pyarrow.table(
        {
            "id": pyarrow.array([3, None, 1], pyarrow.int16()),
            "text": pyarrow.array(["good film", "", "bad book"], pyarrow.large_string()),
            "when": pyarrow.array([1, 2, 3], pyarrow.timestamp("ms", "UTC")),
            "price": pyarrow.array(["1.50", "2.25", None]).cast(pyarrow.decimal128(6, 2)),
            "kind": pyarrow.array(["a", "b", "a"]).dictionary_encode(),
            "tags": pyarrow.array([["x"], [], None], pyarrow.list_(pyarrow.string())),
            "place": pyarrow.array([{"lat": 1.0}, None, {"lat": 2.0}]),
            "raw": pyarrow.array([b"\x00\xff", b"", None], pyarrow.binary()),
        }
    )
    parquet.write_table(rows, tmp_path / "typed.parquet")
    predict(classifier, tmp_path / "typed.parquet", tmp_path / "scored.parquet")
    scored = parquet.read_table(tmp_path / "scored.parquet")
    assert scored.select(rows.column_names).cast(rows.schema).equals(rows)
    assert scored.schema.field("when").type == rows.schema.field("when").type
    assert scored.schema.field("prediction").type == pyarrow.string()
    assert scored.schema.field("probabilities").type == pyarrow.list_(pyarrow.float32())


def test_predict_keeps_nested_values_of_json_lines_as_their_text(folder, classifier, tmp_path):
    values = [
        {"b": [1, -2.5, True, None, 'x"y'], "a": {"k": [], "e": {}}, "\u00fc": "\x1f{["},
        [[1], [2, {"z": 0}]],
        {},
        7,
    ]
    lines = [json.dumps({"text": "a film", "deep": value}, ensure_ascii=False) for value in values]
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    scored = predict(classifier, tmp_path / "in.jsonl", tmp_path / "out.parquet")
    compact = [json.dumps(value, separators=(",", ":"), ensure_ascii=False) for value in values]
    assert scored["deep"] == compact


def test_predict_reads_folders_and_several_files_in_order(folder, classifier, tmp_path):
    parts = tmp_path / "parts"
    parts.mkdir()
    files = [write_table(parts / f"part-{i}.parquet", CHECK[i * 20 : i * 20 + 20]) for i in range(3)]
    (parts / "_SUCCESS").write_text("")
    whole = predict(classifier, folder / "check.parquet", tmp_path / "whole.parquet")
    assert predict(classifier, parts, tmp_path / "folder.parquet") == whole
    assert predict(classifier, files, tmp_path / "files.parquet") == whole


def test_plain_text_lines(folder, classifier, tmp_path):
    scored = predict(classifier, folder / "check.txt", tmp_path / "scored.parquet")
    assert scored["text"] == [row["text"] for row in CHECK]
    whole = predict(classifier, folder / "check.parquet", tmp_path / "whole.parquet")
    assert scored["probabilities"] == whole["probabilities"]


# Scores


def test_probabilities_are_those_of_the_prediction(folder, classifier, tmp_path):
    scored = predict(classifier, folder / "check.parquet", tmp_path / "scored.parquet")
    probabilities = numpy.array(scored["probabilities"])
    assert probabilities.shape == (60, 2)
    assert numpy.abs(probabilities.sum(1) - 1).max() < 1e-6  # fp32 softmax
    assert scored["prediction"] == [["negative", "positive"][i] for i in probabilities.argmax(1)]


def test_evaluate_agrees_with_predict(folder, classifier, tmp_path):
    scored = predict(classifier, folder / "check.parquet", tmp_path / "scored.parquet")
    result = summary("evaluate", model_name_or_path=classifier, input=folder / "check.parquet", max_seq_length=32)
    hits = [found == expected for found, expected in zip(scored["prediction"], scored["label"], strict=True)]
    assert result["accuracy"] == sum(hits) / 60
    assert result["accuracy"] > 0.8, "the model has learnt"
    assert result["rows"] == 60


@pytest.mark.parametrize("tokens", [1, 100, 100_000])
def test_batch_size_does_not_change_scores(folder, classifier, tmp_path, tokens):
    table, output = folder / "check.parquet", tmp_path / "scored.parquet"
    expected = predict(classifier, table, tmp_path / "expected.parquet")
    scored = predict(classifier, table, output, max_tokens_per_batch=tokens)
    assert scored["probabilities"] == expected["probabilities"]


def test_bf16_scores_are_near(folder, classifier, tmp_path):
    table = folder / "check.parquet"
    exact = predict(classifier, table, tmp_path / "fp32.parquet")
    near = predict(classifier, table, tmp_path / "bf16.parquet", bf16=True)
    difference = numpy.abs(numpy.array(exact["probabilities"]) - numpy.array(near["probabilities"])).max()
    assert 0 < difference < 0.1  # 8 bits of significand over two layers


def test_regression(folder, tmp_path):
    train(folder, tmp_path / "out", label_column="score", num_train_epochs=10)
    config = read_config(tmp_path / "out")
    assert config["problem_type"] == "regression" and len(config["id2label"]) == 1
    scored = predict(tmp_path / "out", folder / "check.parquet", tmp_path / "scored.parquet")
    assert "probabilities" not in scored
    error = numpy.array(scored["prediction"]) - numpy.array(scored["score"])
    result = summary(
        "evaluate",
        model_name_or_path=tmp_path / "out",
        input=folder / "check.parquet",
        label_column="score",
        max_seq_length=32,
    )
    assert result["mse"] == pytest.approx((error**2).mean(), rel=1e-5)
    assert result["mse"] < 0.2, "the model has learnt: the variance of the scores is 0.25"


@pytest.mark.parametrize("kind", ["csv", "tsv"])
def test_decimal_labels_mean_regression_also_as_text(folder, tmp_path, kind):
    outcome = train(folder, tmp_path / kind, train_file=folder / f"train.{kind}", label_column="score")
    train(folder, tmp_path / "parquet", label_column="score")
    assert losses(tmp_path / kind) == losses(tmp_path / "parquet")
    assert f"train.{kind}: column 'score' holds decimal numbers: regression" in outcome.err
    tokens = tmp_path / "tokens.parquet"
    flags = {"label_column": "score", "max_seq_length": 32}
    strake("prepare", tokenizer=folder / "base", input=folder / f"train.{kind}", output=tokens, **flags)
    train(folder, tmp_path / "tokens", train_file=tokens)
    assert losses(tmp_path / "tokens") == losses(tmp_path / "parquet")


def test_decimal_labels_as_classes(folder, tmp_path):
    flags = {"label_column": "score", "problem_type": "single_label_classification"}
    train(folder, tmp_path, train_file=folder / "train.csv", **flags)
    assert read_config(tmp_path)["id2label"] == {"0": "-0.25", "1": "0.75"}


def test_integer_labels_in_csv_stay_classes(folder, tmp_path):
    rows = [row | {"stars": 10 if row["label"] == "positive" else 2} for row in ROWS]
    train(folder, tmp_path / "out", train_file=write_table(tmp_path / "stars.csv", rows), label_column="stars")
    assert read_config(tmp_path / "out")["id2label"] == {"0": "2", "1": "10"}


def test_pairs_of_texts(folder, tmp_path):
    rows = [row | {"second": ROWS[-1 - i]["text"]} for i, row in enumerate(ROWS)]
    table = write_table(tmp_path / "pairs.parquet", rows)
    flags = {"train_file": table, "text_pair_column": "second"}
    train(folder, tmp_path / "pairs", **flags)
    train(folder, tmp_path / "single", train_file=table)
    assert losses(tmp_path / "pairs") != losses(tmp_path / "single")
    both = predict(tmp_path / "pairs", table, tmp_path / "both.parquet", text_pair_column="second")
    first = predict(tmp_path / "pairs", table, tmp_path / "first.parquet")
    assert both["probabilities"] != first["probabilities"]
    tokens = tmp_path / "tokens.parquet"
    strake(
        "prepare",
        tokenizer=folder / "base",
        input=table,
        output=tokens,
        label_column="label",
        text_pair_column="second",
        max_seq_length=32,
    )
    train(folder, tmp_path / "prepared", train_file=tokens)
    assert losses(tmp_path / "prepared") == losses(tmp_path / "pairs")


# prepare and tokenize


def test_prepared_tokens_train_like_the_text(folder, tmp_path):
    tokens = tmp_path / "tokens.parquet"
    flags = {"tokenizer": folder / "base", "label_column": "label", "max_seq_length": 32}
    result = summary("prepare", input=folder / "train.parquet", output=tokens, **flags)
    assert result["rows"] == 120
    assert result["tokens"] == sum(len(ids) for ids in parquet.read_table(tokens)["input_ids"].to_pylist())
    check = tmp_path / "check.parquet"
    summary("prepare", input=folder / "check.parquet", output=check, **flags)
    train(folder, tmp_path / "text", **evaluated(folder))
    train(folder, tmp_path / "tokens", train_file=tokens, validation_file=check, eval_strategy="epoch")
    # Columns are those of the file that is still text; the length is what tokens were cut to, so it may be left out.
    mixed = evaluated(folder) | {"text_column": "text", "label_column": "label"}
    train(folder, tmp_path / "mixed", train_file=tokens, **mixed)
    train(folder, tmp_path / "unsaid", train_file=tokens, max_seq_length=None)
    assert losses(tmp_path / "mixed") == losses(tmp_path / "unsaid") == losses(tmp_path / "text")
    assert losses(tmp_path / "tokens") == losses(tmp_path / "text")
    same = (tmp_path / "tokens" / "model.safetensors").read_bytes()
    assert same == (tmp_path / "text" / "model.safetensors").read_bytes()
    assert read_config(tmp_path / "tokens")["id2label"] == {"0": "negative", "1": "positive"}


def test_tokenize_there_and_back(folder, tmp_path):
    texts = ["good film", "", "the book was bad", "a caf\u00e9"]
    source, ids, back = tmp_path / "texts.jsonl", tmp_path / "ids.jsonl", tmp_path / "back.jsonl"
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    strake("tokenize", tokenizer=folder / "base", input=source, output=ids)
    encoded = [json.loads(line) for line in ids.read_text().splitlines()]
    assert [line["tokens"] for line in encoded[:2]] == [["[CLS]", "good", "film", "[SEP]"], ["[CLS]", "[SEP]"]]
    assert encoded[0]["offsets"] == [[0, 0], [0, 4], [5, 9], [0, 0]]
    strake("tokenize", tokenizer=folder / "base", input=ids, output=back, decode=True, skip_special_tokens=True)
    decoded = [json.loads(line)["text"] for line in back.read_text().splitlines()]
    assert decoded == ["good film", "", "the book was bad", "a cafe"]
    printed = strake("tokenize", tokenizer=folder / "base", input=source).out
    assert printed == ids.read_text()


def test_a_trained_model_keeps_its_tokenizer(folder, classifier, tmp_path):
    source = tmp_path / "texts.jsonl"
    source.write_text("".join(json.dumps(row["text"]) + "\n" for row in CHECK))
    trained = strake("tokenize", tokenizer=classifier, input=source).out
    assert trained == strake("tokenize", tokenizer=folder / "base", input=source).out


# Configuration


def test_a_configuration_file_is_the_same_as_flags(folder, tmp_path):
    train(folder, tmp_path / "flags", bf16=True, weight_decay=0.01, seed=7)
    (tmp_path / "run.toml").write_text(
        f"""
        model_name_or_path = "{folder / "base"}"
        train_file = ["{folder / "train.parquet"}"]
        output_dir = "{tmp_path / "file"}"
        max_seq_length = 32
        learning_rate = 2e-3  # a comment
        num_train_epochs = 2
        logging_steps = 1
        save_strategy = "no"
        bf16 = true
        weight_decay = 0.01
        seed = 11
        """
    )
    strake("train", config=tmp_path / "run.toml", seed=7)  # flags win over the file
    assert losses(tmp_path / "file") == losses(tmp_path / "flags")


def test_print_config_shows_what_would_run(folder, tmp_path):
    shown = json.loads(train(folder, tmp_path / "out", print_config=True).out)
    assert shown["learning_rate"] == 2e-3 and shown["per_device_train_batch_size"] == 8 and shown["seed"] == 42
    assert not (tmp_path / "out").exists()


def test_dry_run_checks_and_leaves_nothing(folder, tmp_path):
    outcome = train(folder, tmp_path / "out", dry_run=True)
    assert "120 training sequences" in outcome.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("dry_run", [True, None])
def test_an_output_folder_that_cannot_be_made_is_refused_before_training(folder, tmp_path, dry_run):
    (tmp_path / "file").write_text("not a folder")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for place in ("file", "file/below", "link"):
        flags = {"model_name_or_path": folder / "base", "train_file": folder / "train.parquet", "max_seq_length": 32}
        outcome = run(command("train", output_dir=tmp_path / place, dry_run=dry_run, **flags))
        assert outcome.code == 4
        assert f"--output_dir {tmp_path / place}: {tmp_path / place.split('/')[0]} is no folder" in outcome.err
    assert (tmp_path / "file").read_text() == "not a folder"


@pytest.mark.parametrize("verb", ["train", "predict", "evaluate", "prepare", "tokenize"])
def test_help_of_each_verb(verb):
    outcome = strake(verb, "--help")
    assert outcome.out.count("--") > 6
    assert f"strake {verb}" in outcome.out
    assert "--config" in outcome.out
    assert outcome.err == ""


def test_help_lists_verbs_and_exit_codes():
    outcome = run([BINARY, "--help"])
    assert outcome.code == 0
    assert "tokenize" in outcome.out and "Exit codes" in outcome.out


# Runs


@pytest.mark.parametrize("seed", [2, 5, 6])
def test_epochs_of_batches_of_tokens_are_whole(folder, tmp_path, seed):
    """They have more batches or fewer, as the order has it."""
    flags = {"max_tokens_per_batch": 40, "num_train_epochs": 3, "seed": seed, "save_strategy": "no"}
    train(folder, tmp_path, **(evaluated(folder) | flags))
    assert [entry["epoch"] for entry in metrics(tmp_path) if "eval_loss" in entry] == [1.0, 2.0, 3.0]


def test_prepared_tokens_of_fewer_classes_validate(folder, tmp_path):
    """Their classes have other numbers than the model's."""
    positive = write_table(tmp_path / "positive.parquet", [row for row in CHECK if row["label"] == "positive"])
    tokens = tmp_path / "tokens.parquet"
    flags = {"tokenizer": folder / "base", "label_column": "label", "max_seq_length": 32}
    strake("prepare", input=positive, output=tokens, **flags)
    for name, file in (("text", positive), ("tokens", tokens)):
        train(folder, tmp_path / name, validation_file=file, eval_strategy="epoch")
    told = [
        [(entry["eval_loss"], entry["eval_accuracy"]) for entry in metrics(tmp_path / name) if "eval_loss" in entry]
        for name in ("text", "tokens")
    ]
    assert told[0] == told[1] and told[0][0][1] > 0


def test_trained_head_is_kept_and_its_labels(folder, classifier, tmp_path):
    table = write_table(tmp_path / "positive.parquet", [row for row in ROWS if row["label"] == "positive"])
    train(folder, tmp_path / "more", model_name_or_path=classifier, train_file=table, max_steps=1)
    assert read_config(tmp_path / "more")["id2label"] == {"0": "negative", "1": "positive"}
    result = summary(
        "evaluate", model_name_or_path=tmp_path / "more", input=folder / "check.parquet", max_seq_length=32
    )
    assert result["accuracy"] > 0.7


def test_a_tokenizer_from_elsewhere(folder, tmp_path):
    model = shutil.copytree(folder / "base", tmp_path / "model")
    tokenizer = tmp_path / "tokenizer"
    tokenizer.mkdir()
    for name in ("vocab.txt", "tokenizer_config.json"):
        (model / name).rename(tokenizer / name)
    train(folder, tmp_path / "out", model_name_or_path=model, tokenizer_name=tokenizer)
    train(folder, tmp_path / "expected")
    assert losses(tmp_path / "out") == losses(tmp_path / "expected")
    predict(tmp_path / "out", folder / "check.parquet", tmp_path / "scored.parquet")


def test_trainer_state_is_what_transformers_reads(folder, tmp_path):
    transformers = pytest.importorskip("transformers")
    flags = evaluated(folder) | {"save_strategy": "epoch", "load_best_model_at_end": True, "logging_steps": 5}
    train(folder, tmp_path, **flags)
    for path in (tmp_path / "trainer_state.json", tmp_path / "checkpoint-30" / "trainer_state.json"):
        state = transformers.TrainerState.load_from_json(str(path))
        assert (state.global_step, state.max_steps, state.epoch) == (30, 30, 2.0)
        assert (state.logging_steps, state.train_batch_size, state.num_train_epochs) == (5, 8, 2)
        steps = [entry["step"] for entry in state.log_history if "loss" in entry]
        assert steps == [5, 10, 15, 20, 25, 30]
    assert state.best_model_checkpoint.startswith(str(tmp_path))


def test_output_for_files_has_no_control_characters(folder, classifier, tmp_path):
    outcomes = [
        train(folder, tmp_path / "out", **evaluated(folder)),
        strake(
            "predict",
            model_name_or_path=classifier,
            input=folder / "check.csv",
            output=tmp_path / "s",
            max_seq_length=32,
        ),
        strake("evaluate", model_name_or_path=classifier, input=folder / "check.csv", max_seq_length=32),
        strake("prepare", tokenizer=classifier, input=folder / "check.csv", output=tmp_path / "t.parquet"),
    ]
    for outcome in outcomes:
        assert outcome.out != ""
        assert re.search(r"[^\n\x20-\x7e]", outcome.out + outcome.err) is None


def test_log_entries_are_those_of_the_run(folder, tmp_path):
    train(folder, tmp_path, **evaluated(folder))
    entries = metrics(tmp_path)
    assert [entry["step"] for entry in entries if "loss" in entry] == list(range(1, 31))
    assert entries[0].keys() >= {"loss", "grad_norm", "learning_rate", "epoch", "step"}
    assert sum(entry["sequences"] for entry in entries if "loss" in entry) == 240
    assert entries[-1]["train_loss"] == pytest.approx(numpy.mean([loss for _, loss, _ in losses(tmp_path)]))
    state = json.loads((tmp_path / "trainer_state.json").read_text())
    assert state["log_history"] == entries


def test_only_the_head_is_new(folder, tmp_path):
    """Weights that the checkpoint has are used: one tiny step leaves them almost as they were."""
    train(folder, tmp_path / "out", max_steps=1, learning_rate=1e-9)
    before, after = load_file(folder / "base" / "model.safetensors"), load_file(tmp_path / "out" / "model.safetensors")
    assert set(after) - set(before) == {"classifier.weight", "classifier.bias"}
    assert all(numpy.allclose(before[name], after[name], atol=1e-7) for name in before if name in after)


def test_a_checkpoint_of_old_names_is_understood(folder, tmp_path):
    old = shutil.copytree(folder / "base", tmp_path / "old")
    weights = load_file(old / "model.safetensors")
    spelt = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").removeprefix("bert."): weights[name] for name in weights
    }
    save_file(spelt, old / "model.safetensors", {"format": "pt"})
    train(folder, tmp_path / "out", model_name_or_path=old)
    train(folder, tmp_path / "expected")
    assert losses(tmp_path / "out") == losses(tmp_path / "expected")


# What a folder says of itself


def test_a_model_of_one_label_gives_its_number_and_what_cross_encoders_make_of_it(folder, tmp_path):
    model = make_model(tmp_path / "model", head=True)
    change_config(model, id2label={"0": "LABEL_0"}, label2id={"LABEL_0": 0})
    change_weights(model, lambda name, array: array[:1] if name.startswith("classifier") else array)
    flags = {"output_columns": ["prediction", "score"], "keep_columns": "text"}
    predict(model, folder / "check.parquet", tmp_path / "out.parquet", **flags)
    table = parquet.read_table(tmp_path / "out.parquet")
    numbers, scores = (table[name].to_numpy() for name in ("prediction", "score"))
    numpy.testing.assert_allclose(scores, 1 / (1 + numpy.exp(-numbers)), rtol=1e-6)
    flags_of_all = {"model_name_or_path": model, "input": folder / "check.parquet"}
    told = strake("predict", **flags_of_all, output=tmp_path / "again.parquet").err
    assert told.count("one label and no problem_type") == 1
    change_config(model, problem_type="regression")
    with pytest.raises(AssertionError, match="--output_columns score: the model is a regression"):
        predict(model, folder / "check.parquet", tmp_path / "out.parquet", **flags)


def test_texts_are_no_longer_than_the_model_unless_a_flag_says_so(folder, tmp_path):
    model = make_model(tmp_path / "model", head=True)
    assert read_config(model)["max_position_embeddings"] == 64
    flags = {"model_name_or_path": model, "input": folder / "check.parquet", "output": tmp_path / "out.parquet"}
    strake("predict", **flags)
    metadata = parquet.read_metadata(tmp_path / "out.parquet").metadata
    assert metadata[b"strake.max_seq_length"] == b"64"
    train(folder, tmp_path / "trained", max_seq_length=None, max_steps=1)
    assert run(command("predict", max_seq_length=65, **flags)).code == 2


# Threads


def threads_of_run(classifier, folder, output, prefix=(), **variables):
    flags = {"model_name_or_path": classifier, "input": folder / "check.parquet", "output": output / "scored.parquet"}
    flags["max_seq_length"] = 32
    line = [*prefix, *command("predict", overwrite_output=True, **flags)]
    outcome = run(line, env=environment(STRAKE_NUM_THREADS="", **variables))
    assert outcome.code == 0, outcome.err
    return json.loads((output / "_scored.parquet.manifest.json").read_text())["threads"]


def test_threads_are_as_many_as_cores_whatever_openmp_is_told(folder, classifier, tmp_path):
    cores = threads_of_run(classifier, folder, tmp_path)
    assert 1 <= cores <= len(os.sched_getaffinity(0))
    for variables in [{"OMP_NUM_THREADS": "1"}, {"OMP_PROC_BIND": "true"}, {"GOMP_CPU_AFFINITY": "0"}]:
        assert threads_of_run(classifier, folder, tmp_path, **variables) == cores
    one = str(min(os.sched_getaffinity(0)))
    assert threads_of_run(classifier, folder, tmp_path, prefix=["taskset", "-c", one]) == 1
