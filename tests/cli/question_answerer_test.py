"""strake train --task question-answering: what is learned of which rows, what evaluations choose, what is refused."""

import json

import pytest
import transformers
from program import command, losses, metrics, predict, run
from refusals import DATA, USAGE
from task_runs import TaskRuns
from tiny_models import asked_reviews, make_language_model, make_model, make_reader, read_config, write_table


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    make_model(folder / "encoder", dropout=0.1)
    make_reader(folder / "reader")
    make_language_model(folder / "gpt2")
    write_table(folder / "train.parquet", asked_reviews(30))
    write_table(folder / "check.jsonl", asked_reviews(12, seed=2))
    return folder


def flags_of(folder, output, **changes):
    flags = {"task": "question-answering", "model_name_or_path": folder / "encoder", "output_dir": output}
    flags |= {"train_file": folder / "train.parquet", "max_seq_length": 32, "doc_stride": 8}
    flags |= {"max_steps": 3, "logging_steps": 1, "save_strategy": "no"}
    return {name: value for name, value in (flags | changes).items() if value is not None}


RUNS = TaskRuns(flags_of)
train, refused = RUNS.train, RUNS.refused


def table(folder, *answers, context="the film was good today"):
    rows = [{"question": "how was it?", "context": context, "answers": answer} for answer in answers]
    return write_table(folder / "rows.jsonl", rows)


def answer(text, start):
    return {"text": [text], "answer_start": [start]}


def test_metrics_of_answers_choose_the_best_model(folder, tmp_path):
    flags = {"validation_file": folder / "check.jsonl", "eval_strategy": "steps", "eval_steps": 1}
    flags |= {"save_strategy": "steps", "save_steps": 1, "load_best_model_at_end": True, "metric_for_best_model": "f1"}
    train(folder, tmp_path / "out", **flags)
    entries = [entry for entry in metrics(tmp_path / "out") if "eval_f1" in entry]
    assert {"eval_loss", "eval_exact_match", "eval_f1"} <= set(entries[0])
    best = max(entries, key=lambda entry: entry["eval_f1"])
    state = json.loads((tmp_path / "out" / "trainer_state.json").read_text())
    assert state["best_metric"] == best["eval_f1"]
    model = transformers.AutoModelForQuestionAnswering.from_pretrained(tmp_path / "out")
    assert type(model).__name__ == "BertForQuestionAnswering"
    config = read_config(tmp_path / "out")
    assert config["architectures"] == ["BertForQuestionAnswering"]
    found = predict(tmp_path / "out", folder / "check.jsonl", tmp_path / "found.parquet", max_seq_length=32)
    assert all(x in row for x, row in zip(found["answer"], found["context"], strict=True))


def test_what_is_learned_is_found(folder, tmp_path):
    places = [answer("good", 13), answer("film was good", 4)]
    rows = table(tmp_path, places[0])
    flags = {"train_file": rows, "learning_rate": 1e-2, "max_steps": 60, "lr_scheduler_type": "constant"}
    for place in places:
        table(tmp_path, place)
        train(folder, tmp_path / "out", overwrite_output_dir=True, **flags)
        found = predict(tmp_path / "out", rows, tmp_path / "found.parquet", max_seq_length=32)
        assert found["answer"] == place["text"]


def test_rows_without_an_answer_learn_that_there_is_none(folder, tmp_path):
    nothing = {"text": [], "answer_start": []}
    runs = [None, nothing, answer("", 7)]
    for i, row in enumerate(runs):
        train(folder, tmp_path / str(i), train_file=table(tmp_path, row, nothing))
        assert losses(tmp_path / str(i)) == losses(tmp_path / "0")
    train(folder, tmp_path / "good", train_file=table(tmp_path, answer("good", 13), answer("good", 13)))
    assert losses(tmp_path / "good") != losses(tmp_path / "0")
    rows = table(tmp_path, nothing)
    flags = {"train_file": rows, "validation_file": rows, "eval_strategy": "steps", "learning_rate": 1e-2}
    flags |= {"max_steps": 40, "version_2_with_negative": True, "eval_steps": 40}
    train(folder, tmp_path / "out", **flags)
    (evaluation,) = [entry for entry in metrics(tmp_path / "out") if "eval_exact_match" in entry]
    assert evaluation["eval_exact_match"] == 100


def test_rows_without_an_answer_are_counted(folder, tmp_path):
    rows = table(tmp_path, None, answer("good", 13), answer("", 7), {"text": [], "answer_start": []})
    lines = rows.read_text().splitlines()
    lines.append(lines[1].replace('"answers"', '"answer"'))
    rows.write_text("\n".join(lines) + "\n")
    assert "rows.jsonl: 4 of 5 rows have no answer" in train(folder, tmp_path / "out", train_file=rows).err
    rows = table(tmp_path, answer("good", 13))
    assert "no answer" not in train(folder, tmp_path / "all", train_file=rows).err


def test_places_count_code_points(folder, tmp_path):
    context = "\N{SNOWMAN}\U0001f600 the film was good"
    rows = table(tmp_path, answer("good", context.index("good")), context=context)
    assert "another text" not in train(folder, tmp_path / "out", train_file=rows).err
    rows = table(tmp_path, answer("good", 1), answer("good", 2), context=context)
    told = train(folder, tmp_path / "out", train_file=rows, overwrite_output_dir=True).err
    assert "2 of 2 rows have another text than the answer's in the answer's place" in told
    assert "rows.jsonl, row 0" in told


def test_a_trained_head_is_kept(folder, tmp_path):
    told = train(folder, tmp_path / "out", model_name_or_path=folder / "reader").err
    assert "qa_outputs" not in told
    assert "new, to be trained: qa_outputs.weight" in train(folder, tmp_path / "new").err


def test_long_contexts_become_windows(folder, tmp_path):
    context = " ".join(["film"] * 100)
    rows = table(tmp_path, answer("film", 495), context=context)
    told = train(folder, tmp_path / "out", train_file=rows).err
    # 6 tokens of the question and 3 special ones leave 23 of 32, of which 8 are those of the window before.
    assert "1 row as 7 windows of at most 32 tokens" in told
    assert "7 training sequences" in told


def test_max_train_samples_counts_rows(folder, tmp_path):
    rows = table(tmp_path, *[answer("film", 0)] * 3, context=" ".join(["film"] * 100))
    told = train(folder, tmp_path / "out", train_file=rows, max_train_samples=2).err
    assert "14 training sequences" in told


def test_a_resumed_run_ends_with_the_same_bits(folder, tmp_path):
    RUNS.assert_resumes_with_the_same_bits(folder, tmp_path)
    other = write_table(tmp_path / "other.jsonl", asked_reviews(29))
    line = command("train", **flags_of(folder, tmp_path / "halves", train_file=other, resume_from_checkpoint="true"))
    assert run(line).code == USAGE


@pytest.mark.parametrize(
    ("row", "named"),
    [
        (answer("good", 21), "the answer_start 21 of an answer of 4 characters in a text of 23"),
        (answer("good", 2**40), "the answer_start 1099511627776"),
        (answer("good", 2**63 - 1), "the answer_start 9223372036854775807"),
        (answer("good", -1), "the answer_start -1"),
        ({"text": ["good", "film"], "answer_start": [13]}, "2 of 'text' and 1 of 'answer_start'"),
        (
            {"text": [None, "good"], "answer_start": [13, None]},
            "column 'answers' has a list with null, expected one 'answer_start'",
        ),
        ("good", "expected an object with members 'text' and 'answer_start'"),
        ({"text": ["good"]}, "expected an object with members 'text' and 'answer_start'"),
    ],
)
def test_a_row_that_does_not_fit_is_named(folder, tmp_path, row, named):
    rows = table(tmp_path, answer("film", 4), row)
    message = refused(folder, tmp_path / "out", code=DATA, train_file=rows)
    assert named in message
    assert "rows.jsonl, row 1" in message
    flags = {"validation_file": rows, "eval_strategy": "epoch"}
    assert named in refused(folder, tmp_path / "out", code=DATA, **flags)


def test_questions_and_contexts_that_do_not_fit_are_named(folder, tmp_path):
    for question, context in (("why? " * 40, "good"), ("", "good"), ("why?", ""), (None, "good"), ("why?", None)):
        rows = [{"question": "why?", "context": "good", "answers": answer("good", 0)}] * 2
        rows.append({"question": question, "context": context, "answers": {"text": [], "answer_start": []}})
        message = refused(folder, tmp_path / "out", code=DATA, train_file=write_table(tmp_path / "rows.jsonl", rows))
        assert "rows.jsonl, row 2" in message, (question, context)


@pytest.mark.parametrize(
    ("changes", "code", "named"),
    [
        ({"answers_column": "truth"}, DATA, "'truth'"),
        ({"question_column": "asked"}, DATA, "'asked'"),
        ({"context_column": "question"}, USAGE, "--question_column and --context_column are both 'question'"),
        ({"context_column": ""}, USAGE, "--context_column is empty"),
        ({"answers_column": "context"}, USAGE, "--context_column and --answers_column are both 'context'"),
        ({"text_column": "context"}, USAGE, "--text_column does not belong to --task question-answering"),
        ({"label_column": "context"}, USAGE, "--label_column does not belong"),
        ({"label_smoothing_factor": 0.1}, USAGE, "--label_smoothing_factor does not belong"),
        ({"doc_stride": 32}, USAGE, "--doc_stride 32 must be less than --max_seq_length 32"),
        ({"doc_stride": -1}, USAGE, "--doc_stride -1 is negative"),
        ({"max_answer_length": 0}, USAGE, "--max_answer_length 0 must be positive"),
        ({"max_seq_length": 65}, USAGE, "--max_seq_length 65 is more than the model's 64 positions"),
        ({"block_size": 8}, USAGE, "--block_size 8 belongs to --task causal-lm"),
        ({"metric_for_best_model": "accuracy"}, USAGE, "none of the metrics of question answering: loss, exact_match"),
        ({"task": "token-classification", "doc_stride": 4}, USAGE, "--doc_stride belongs to --task question-answering"),
        (
            {"task": None, "version_2_with_negative": True, "doc_stride": None},
            USAGE,
            "--version_2_with_negative belongs",
        ),
    ],
)
def test_flags_and_columns_that_do_not_fit_are_refused(folder, tmp_path, changes, code, named):
    assert named in refused(folder, tmp_path / "out", code=code, **changes)


def test_token_files_are_refused(folder, tmp_path):
    tokens = tmp_path / "tokens.parquet"
    flags = {"tokenizer": folder / "encoder", "input": folder / "train.parquet", "text_column": "context"}
    assert run(command("prepare", output=tokens, **flags)).code == 0
    assert "tokens.parquet was made by strake prepare" in refused(folder, tmp_path / "out", train_file=tokens)


def test_flags_without_an_evaluation_are_told(folder, tmp_path):
    told = train(folder, tmp_path / "out", max_answer_length=5, version_2_with_negative=True).err
    assert "--max_answer_length 5 has no effect" in told
    assert "--version_2_with_negative true has no effect" in told


def test_estimate_knows_it(folder):
    outcome = run(command("estimate", task="question-answering", model_name_or_path=folder / "reader"))
    assert outcome.code == 0, outcome.err
    assert "bert with" in outcome.out
