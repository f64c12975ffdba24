"""strake train --task token-classification: which words are learned, which labels there are, what is refused."""

import json

import pytest
import transformers
from program import command, losses, metrics, run
from refusals import DATA, USAGE
from task_runs import TaskRuns
from tiny_models import make_language_model, make_model, make_tagger, read_config, tagged_reviews, write_table


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    make_model(folder / "encoder", dropout=0.1)
    make_language_model(folder / "gpt2")
    make_tagger(folder / "tagger")
    write_table(folder / "train.parquet", tagged_reviews(30))
    write_table(folder / "check.jsonl", tagged_reviews(12, seed=2))
    return folder


def flags_of(folder, output, **changes):
    flags = {"task": "token-classification", "model_name_or_path": folder / "encoder", "output_dir": output}
    flags |= {"train_file": folder / "train.parquet", "text_column": "words", "label_column": "tags"}
    flags |= {"max_seq_length": 24, "max_steps": 3, "logging_steps": 1, "save_strategy": "no"}
    return {name: value for name, value in (flags | changes).items() if value is not None}


RUNS = TaskRuns(flags_of)
train, refused = RUNS.train, RUNS.refused


def table(folder, *rows):
    names = ("words", "tags")
    return write_table(folder / "rows.jsonl", [dict(zip(names, row, strict=True)) for row in rows])


def labels_of(folder):
    return list(read_config(folder)["id2label"].values())


def test_metrics_of_entities_choose_the_best_model(folder, tmp_path):
    flags = {"validation_file": folder / "check.jsonl", "eval_strategy": "steps", "eval_steps": 1}
    flags |= {"save_strategy": "steps", "save_steps": 1, "load_best_model_at_end": True, "metric_for_best_model": "f1"}
    train(folder, tmp_path / "out", **flags)
    (first, *_) = [entry for entry in metrics(tmp_path / "out") if "eval_f1" in entry]
    assert {"eval_loss", "eval_precision", "eval_recall", "eval_f1", "eval_accuracy"} <= set(first)
    assert type(transformers.AutoModelForTokenClassification.from_pretrained(tmp_path / "out")).__name__ == (
        "BertForTokenClassification"
    )
    config = read_config(tmp_path / "out")
    assert config["architectures"] == ["BertForTokenClassification"]
    assert "problem_type" not in config


def test_rows_without_a_labelled_token_are_left_out_and_long_ones_cut(folder, tmp_path):
    rows = table(tmp_path, ([], []), (["the", "film"], ["O", "B"]), ([" "], ["B"]), (["a"] * 30, ["O"] * 30))
    told = train(folder, tmp_path / "out", train_file=rows).err
    assert "2 of 4 rows have no labelled token: left out" in told
    assert "1 row had more than --max_seq_length 24 tokens" in told
    assert "2 training sequences, 28 tokens" in told


def test_numbers_are_classes_in_their_order(folder, tmp_path):
    rows = table(tmp_path, (["the", "film", "was"], [10, 2, 0]), (["a"], [2]))
    train(folder, tmp_path / "out", train_file=rows)
    assert labels_of(tmp_path / "out") == ["0", "2", "10"]


def test_a_trained_head_keeps_its_labels_and_takes_their_numbers(folder, tmp_path):
    names = labels_of(folder / "tagger")
    rows = table(tmp_path, (["the", "film"], [0, 3]), (["a"], [4]))
    numbers = train(folder, tmp_path / "numbers", model_name_or_path=folder / "tagger", train_file=rows)
    assert labels_of(tmp_path / "numbers") == names
    assert "classifier" not in numbers.err
    rows = table(tmp_path, (["the", "film"], [names[0], names[3]]), (["a"], [names[4]]))
    train(folder, tmp_path / "named", model_name_or_path=folder / "tagger", train_file=rows)
    assert losses(tmp_path / "named") == losses(tmp_path / "numbers")
    message = refused(folder, tmp_path / "out", code=DATA, model_name_or_path=folder / "tagger")
    assert "rows.jsonl" not in message
    assert "is none of the model's" in message
    other = train(folder, tmp_path / "other", model_name_or_path=folder / "tagger", ignore_mismatched_sizes=True)
    assert labels_of(tmp_path / "other") == ["B-BAD", "B-GOOD", "I-BAD", "I-GOOD", "O"], other.err


def test_a_head_of_another_task_is_given_up_by_its_flag(folder, tmp_path):
    classifier = make_model(tmp_path / "classifier", head=True)
    message = refused(folder, tmp_path / "out", model_name_or_path=classifier)
    assert (
        "'classifier.weight' has shape [3, 32], and the head that config.json's id2label or num_labels ask for [5, 32]"
        in message
    )
    assert "--ignore_mismatched_sizes" in message
    train(folder, tmp_path / "out", model_name_or_path=classifier, ignore_mismatched_sizes=True)


def test_a_resumed_run_ends_with_the_same_bits(folder, tmp_path):
    RUNS.assert_resumes_with_the_same_bits(folder, tmp_path)
    other = write_table(tmp_path / "other.jsonl", tagged_reviews(29))
    line = command("train", **flags_of(folder, tmp_path / "halves", train_file=other, resume_from_checkpoint="true"))
    assert run(line).code == USAGE


@pytest.mark.parametrize(
    ("row", "named"),
    [
        ((["the", "film"], ["O"]), "2 words in column 'words' and 1 labels in column 'tags'"),
        ((["the", None], ["O", "O"]), "column 'words' has"),
        ((["the", "film"], ["O", None]), "column 'tags' has"),
        ((None, ["O"]), "column 'words' has null"),
    ],
)
def test_a_row_that_does_not_fit_is_named(folder, tmp_path, row, named):
    message = refused(folder, tmp_path / "out", code=DATA, train_file=table(tmp_path, (["a"], ["O"]), row))
    assert named in message
    assert "rows.jsonl" in message
    assert "2" in message


@pytest.mark.parametrize(
    ("changes", "code", "named"),
    [
        ({"text_column": "word"}, DATA, "'word'"),
        ({"text_pair_column": "b"}, USAGE, "--text_pair_column b does not belong to --task token-classification"),
        ({"problem_type": "regression"}, USAGE, "--problem_type regression does not belong"),
        ({"max_seq_length": 2}, USAGE, "it is at least 3"),
        ({"max_seq_length": 65}, USAGE, "--max_seq_length 65 is more than the model's 64 positions"),
        ({"block_size": 8}, USAGE, "--block_size 8 belongs to --task causal-lm"),
        ({"metric_for_best_model": "matthews_correlation"}, USAGE, "none of the metrics of token classification"),
        ({"task": "masked-lm", "label_column": None, "label_all_tokens": True}, USAGE, "--label_all_tokens"),
    ],
)
def test_flags_and_columns_that_do_not_fit_are_refused(folder, tmp_path, changes, code, named):
    assert named in refused(folder, tmp_path / "out", code=code, **changes)


def test_columns_of_text_and_token_files_are_refused(folder, tmp_path):
    texts = write_table(tmp_path / "texts.parquet", [{"words": "the film", "tags": "O"}])
    assert "column 'words' holds no lists" in refused(folder, tmp_path / "out", code=DATA, train_file=texts)
    tokens = tmp_path / "tokens.parquet"
    line = command("prepare", tokenizer=folder / "encoder", input=texts, text_column="words", output=tokens)
    assert run(line).code == 0
    message = refused(folder, tmp_path / "out", train_file=tokens, text_column=None, label_column=None)
    assert "tokens.parquet was made by strake prepare" in message


def test_estimate_knows_it(folder):
    outcome = run(command("estimate", task="token-classification", model_name_or_path=folder / "tagger"))
    assert outcome.code == 0, outcome.err
    assert json.dumps("bert with")[1:-1] in outcome.out
