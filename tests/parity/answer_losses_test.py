"""Models that find answers: windows and spans of Transformers' run_qa.py, its losses, and a folder that it loads."""

import numpy
import pytest
import torch
import transformers
from adamw import losses_of_steps
from program import losses, metrics, strake, summary
from tiny_models import asked_reviews, make_model, make_reader, read_config, write_table
from whole_models import load_whole

FAMILIES = ["bert", "roberta", "distilbert"]
LENGTH = 24  # some contexts are cut
STRIDE = 6
ROWS = 24
# Two layers in fp32, whose sums two programs take in different orders; and what that becomes in some steps.
TOLERANCE = 1e-5
TRAINED_TOLERANCE = 1e-4


def training_rows():
    rows = asked_reviews(ROWS)
    for row in rows[::3]:  # run_qa.py takes this away, or some questions would leave no room
        row["question"] = " " * 12 + row["question"]
    return rows


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    train = write_table(folder / "train.parquet", training_rows())
    return train, write_table(folder / "check.jsonl", asked_reviews(15, seed=2))


def train(tables, output, **flags):
    defaults = {"max_seq_length": LENGTH, "doc_stride": STRIDE, "lr_scheduler_type": "constant", "max_steps": 6}
    defaults |= {"per_device_train_batch_size": 1000, "logging_steps": 1, "save_strategy": "no", "learning_rate": 1e-3}
    inputs = {"train_file": tables[0], "validation_file": tables[1], "eval_strategy": "epoch"}
    strake("train", task="question-answering", output_dir=output, **(inputs | defaults | flags))
    return [entry for entry in metrics(output) if "eval_loss" in entry]


def load(folder):
    return load_whole(transformers.AutoModelForQuestionAnswering, folder)


def span_of_run_qa(offsets, inside, begin, behind):
    return max(t for t in inside if offsets[t][0] <= begin), min(t for t in inside if offsets[t][1] >= behind)


def span_in_order(*place):
    return sorted(span_of_run_qa(*place))


def features(tokenizer, rows, span_of=span_of_run_qa):
    """prepare_train_features() of run_qa.py, without padding; each has the number of its row."""
    encoded = tokenizer(
        [row["question"].lstrip() for row in rows],
        [row["context"] for row in rows],
        truncation="only_second",
        max_length=LENGTH,
        stride=STRIDE,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )
    for i, offsets in enumerate(encoded["offset_mapping"]):
        row = encoded["overflow_to_sample_mapping"][i]
        answers = rows[row]["answers"]
        inside = [t for t, text in enumerate(encoded.sequence_ids(i)) if text == 1]
        start = end = 0
        if answers["answer_start"]:
            begin = answers["answer_start"][0]
            behind = begin + len(answers["text"][0])
            if offsets[inside[0]][0] <= begin and offsets[inside[-1]][1] >= behind:
                start, end = span_of(offsets, inside, begin, behind)
        types = encoded.get("token_type_ids")
        inputs = {"input_ids": torch.tensor([encoded["input_ids"][i]])}
        if types is not None:
            inputs["token_type_ids"] = torch.tensor([types[i]])
        yield row, inputs, {"start_positions": torch.tensor([start]), "end_positions": torch.tensor([end])}


@pytest.mark.parametrize("family", FAMILIES)
def test_transformers_gives_the_same_losses(tables, tmp_path, family):
    base = make_model(tmp_path / "base", family)
    start, *_ = train(tables, tmp_path / "start", model_name_or_path=base, learning_rate=1e-30, max_steps=1)
    evaluated = train(tables, tmp_path / "trained", model_name_or_path=tmp_path / "start")
    tokenizer = transformers.AutoTokenizer.from_pretrained(base)
    windows = list(features(tokenizer, training_rows()))
    spans = [(labels["start_positions"].item(), labels["end_positions"].item()) for _, _, labels in windows]
    assert len(windows) > ROWS
    assert (0, 0) in spans
    assert any(0 < first < last for first, last in spans)

    model = load(tmp_path / "start")
    expected = losses_of_steps(model, 6, lambda _: [(model(**i, **labels).loss, 1) for _, i, labels in windows])
    assert [loss for _, loss, _ in losses(tmp_path / "trained")] == pytest.approx(expected, abs=TRAINED_TOLERANCE)
    assert evaluated[-1]["eval_loss"] < start["eval_loss"]

    model = load(tmp_path / "trained")
    with torch.no_grad():
        checked = [model(**i, **labels).loss.item() for _, i, labels in features(tokenizer, asked_reviews(15, seed=2))]
    assert evaluated[-1]["eval_loss"] == pytest.approx(numpy.mean(checked), abs=TOLERANCE)
    config = read_config(tmp_path / "trained")
    assert "problem_type" not in config


def spelled_model(folder, family):
    """To whose tokenizer a syllable of Hangul is its three letters, and, if it is of bytes, an emoji four."""
    make_model(folder, family)
    if family == "bert":
        words = (folder / "vocab.txt").read_text()
        for word, letter in zip("789", ("\u1112", "##\u1161", "##\u11ab"), strict=True):
            words = words.replace(f"\n{word}\n", f"\n{letter}\n")
        (folder / "vocab.txt").write_text(words)
    return folder


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_an_answer_of_one_character_is_its_tokens_in_order(tmp_path, family):
    """Where run_qa.py learns a span that ends before it begins."""
    base = spelled_model(tmp_path / "base", family)
    context = "a film \U0001f600 was \ud55c good"
    rows = []
    for text in ("\U0001f600", "\ud55c", "\U0001f600 was", "was \ud55c", "film \U0001f600 was", "good"):
        answers = {"text": [text], "answer_start": [context.index(text)]}
        rows.append({"question": "a?", "context": context, "answers": answers})
    table = write_table(tmp_path / "rows.jsonl", rows)
    inputs = {"learning_rate": 1e-30, "max_steps": 1}
    (evaluated,) = train((table, table), tmp_path / "out", model_name_or_path=base, **inputs)
    tokenizer = transformers.AutoTokenizer.from_pretrained(base)
    spans = [labels for _, _, labels in features(tokenizer, rows)]
    assert sum(labels["start_positions"] > labels["end_positions"] for labels in spans) > 0
    model = load(tmp_path / "out")
    with torch.no_grad():
        windows = [model(**i, **labels).loss.item() for _, i, labels in features(tokenizer, rows, span_in_order)]
    assert evaluated["eval_loss"] == pytest.approx(numpy.mean(windows), abs=TOLERANCE)


@pytest.mark.parametrize("version_2", [False, True])
def test_evaluations_are_those_of_strake_evaluate(tables, tmp_path, version_2):
    """Which is compared with SQuAD's scripts and Transformers' pipeline elsewhere."""
    flags = {"version_2_with_negative": version_2, "learning_rate": 1e-2, "max_steps": 25}
    evaluated = train(tables, tmp_path / "out", model_name_or_path=make_model(tmp_path / "base"), **flags)
    flags = {"max_seq_length": LENGTH, "doc_stride": STRIDE, "max_answer_len": 30, "align_to_words": "false"}
    flags |= {"handle_impossible_answer": str(version_2).lower()}
    found = summary("evaluate", model_name_or_path=tmp_path / "out", input=tables[1], **flags)
    assert 0 < evaluated[-1]["eval_exact_match"] <= evaluated[-1]["eval_f1"] < 100
    for name in ("exact_match", "f1"):
        assert evaluated[-1][f"eval_{name}"] == pytest.approx(found[name], abs=1e-9)


def test_strake_evaluate_strips_questions_as_training_does(tmp_path):
    """Spaces are tokens of their own to RoBERTa, with which another answer would be found."""
    rows = asked_reviews(40, seed=2)
    table = write_table(tmp_path / "plain.parquet", rows)
    spaced = [row | {"question": "     " + row["question"]} for row in rows]
    spaced_table = write_table(tmp_path / "spaced.parquet", spaced)
    lengths = {"max_seq_length": 60, "doc_stride": 8}
    flags = {"model_name_or_path": make_reader(tmp_path / "base", "roberta"), "learning_rate": 1e-30, "max_steps": 1}
    (evaluated,) = train((table, spaced_table), tmp_path / "out", **lengths, **flags)
    flags = lengths | {"max_answer_len": 30, "align_to_words": "false"}
    for questions in (table, spaced_table):
        found = summary("evaluate", model_name_or_path=tmp_path / "out", input=questions, **flags)
        assert evaluated["eval_f1"] == pytest.approx(found["f1"], abs=1e-9)
        assert evaluated["eval_exact_match"] == pytest.approx(found["exact_match"], abs=1e-9)
