"""Training and evaluating classifiers that give a text any number of labels, from columns of lists."""

import random

import numpy
import pytest
from program import command, metrics, predict, run, strake, summary
from refusals import DATA, USAGE
from safetensors.numpy import load_file
from tiny_models import BAD, GOOD, PLAIN, change_config, make_model, read_config, write_table

TOPICS = {"bad": BAD, "film": ["film"], "good": GOOD}
REST = [word for word in PLAIN if word != "film"]
TRAINING = {
    "eval_strategy": "epoch",
    "max_seq_length": 32,
    "learning_rate": 5e-3,
    "num_train_epochs": 8,
    "gradient_accumulation_steps": 2,
    "save_strategy": "no",
}


def texts(count, seed):
    """Each topic is one of a text's labels if the text has two of the topic's words."""
    source = random.Random(seed)
    rows = []
    for _ in range(count):
        topics = [topic for topic in TOPICS if source.random() < 0.4]
        words = source.choices(REST, k=6) + [word for topic in topics for word in source.choices(TOPICS[topic], k=2)]
        source.shuffle(words)
        rows.append({"text": " ".join(words), "label": source.sample(topics, len(topics))})
    return rows


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    return {
        "model_name_or_path": make_model(folder / "model"),
        "train_file": write_table(folder / "train.parquet", texts(240, 1)),
        "validation_file": write_table(folder / "validation.parquet", texts(60, 2)),
    }


@pytest.fixture(scope="module")
def trained(inputs, tmp_path_factory):
    out = tmp_path_factory.mktemp("trained") / "out"
    strake("train", **inputs, **TRAINING, output_dir=out)
    return out


def weights(folder):
    return load_file(folder / "model.safetensors")


def assert_same_weights(folder, other):
    for name, values in weights(folder).items():
        numpy.testing.assert_array_equal(values, weights(other)[name], err_msg=name)


def refused(code, *told, verb="train", **flags):
    outcome = run(command(verb, **flags))
    assert outcome.code == code, outcome.err
    for text in told:
        assert text in outcome.err


def test_a_model_learns_which_labels_a_text_has(inputs, trained):
    config = read_config(trained)
    assert config["problem_type"] == "multi_label_classification"
    assert config["id2label"] == {"0": "bad", "1": "film", "2": "good"}
    scored = predict(trained, inputs["validation_file"], trained / "out.parquet", max_seq_length=32)
    pairs = [(set(said), set(meant)) for said, meant in zip(scored["prediction"], scored["label"], strict=True)]
    right = numpy.mean([predicted == actual for predicted, actual in pairs])
    assert right > 0.9
    found = summary("evaluate", model_name_or_path=trained, input=inputs["validation_file"], max_seq_length=32)
    both = sum(len(predicted & actual) for predicted, actual in pairs)
    said = sum(len(predicted) for predicted, _ in pairs)
    meant = sum(len(actual) for _, actual in pairs)
    assert found["accuracy"] == pytest.approx(right)
    assert found["precision"] == pytest.approx(both / said)
    assert found["recall"] == pytest.approx(both / meant)
    assert found["f1"] == pytest.approx(2 * both / (said + meant))
    last = [entry for entry in metrics(trained) if "eval_f1" in entry][-1]
    assert last["eval_f1"] == pytest.approx(found["f1"])
    assert last["eval_loss"] < 0.3


def test_other_files_of_the_same_labels_train_the_same_model(inputs, trained, tmp_path):
    rows = texts(240, 1)
    lines = inputs | {"train_file": write_table(tmp_path / "train.jsonl", rows)}
    strake("train", **lines, **TRAINING, output_dir=tmp_path / "lines")
    assert_same_weights(trained, tmp_path / "lines")
    tokens = {}
    for name in ("train_file", "validation_file"):
        tokens[name] = tmp_path / f"{name}.tokens.parquet"
        strake(
            "prepare",
            input=inputs[name],
            output=tokens[name],
            tokenizer=inputs["model_name_or_path"],
            label_column="label",
            max_seq_length=32,
        )
    prepared = {"model_name_or_path": inputs["model_name_or_path"], **tokens}
    strake("train", **prepared, **TRAINING, output_dir=tmp_path / "prepared")
    assert_same_weights(trained, tmp_path / "prepared")


def test_numbers_are_labels_too_and_ranks_do_not_change_a_bit(inputs, trained, tmp_path):
    numbers = {topic: i for i, topic in enumerate(TOPICS)}
    rows = [row | {"label": [numbers[topic] for topic in row["label"]]} for row in texts(240, 1)]
    flags = inputs | TRAINING | {"validation_file": None, "eval_strategy": "no", "gradient_accumulation_steps": 1}
    flags["train_file"] = write_table(tmp_path / "train.parquet", rows)
    strake("train", **flags, output_dir=tmp_path / "out", ranks=2, fsdp="full_shard")
    assert read_config(tmp_path / "out")["id2label"] == {"0": "0", "1": "1", "2": "2"}
    assert_same_weights(trained, tmp_path / "out")


def test_a_trained_head_keeps_its_labels(inputs, trained, tmp_path):
    rows = [row | {"label": [topic for topic in row["label"] if topic != "film"]} for row in texts(40, 5)]
    flags = {"train_file": write_table(tmp_path / "more.parquet", rows), "max_seq_length": 32, "max_steps": 2}
    strake("train", model_name_or_path=trained, **flags, output_dir=tmp_path / "out")
    assert read_config(tmp_path / "out")["id2label"] == read_config(trained)["id2label"]


def test_precisions_are_compared_by_the_labels_of_rows(inputs, trained):
    found = summary(
        "evaluate", model_name_or_path=trained, input=inputs["validation_file"], max_seq_length=32, calibrate=True
    )
    assert found["f1"] > 0.9
    assert found["bf16_agreement"] > 0.9


def with_label(label, count=20):
    return [{"text": "the film was good", "label": ["good"]}] * count + [{"text": "the book", "label": label}]


def test_what_are_no_lists_of_known_labels_is_refused(inputs, trained, tmp_path):
    flags = inputs | TRAINING | {"output_dir": tmp_path / "out"}
    lines = tmp_path / "lines.jsonl"
    for label, told in [(None, "has null"), ("good", 'has "good"'), ([0.5], "has [0.5]"), ([["good"]], "has [[")]:
        write_table(lines, with_label(label))
        refused(DATA, "lines.jsonl, row 20, line 21: column 'label'", told, **flags | {"train_file": lines})
    indicators = write_table(
        tmp_path / "hot.jsonl", [{"text": "a", "label": [1, 0, 1]}, {"text": "b", "label": [0, 0, 1]}]
    )
    refused(DATA, "hot.jsonl: column 'label' says in lists of one length", **flags | {"train_file": indicators})
    for decisions in ([[1, 0], [0, 1]], [[True, True], [True, False]], [[0, 0]]):
        rows = [{"text": "a", "label": decision} for decision in decisions]
        two = write_table(tmp_path / "two.parquet", rows)
        refused(DATA, "two.parquet: column 'label' says in lists of one length", **flags | {"train_file": two})
    ignored = write_table(
        tmp_path / "ignored.parquet", [{"text": "a", "label": [1, 0]}, {"text": "b", "label": [-100]}]
    )
    refused(DATA, "ignored.parquet, row 1: label -100", **flags | {"train_file": ignored})
    empty = write_table(tmp_path / "empty.jsonl", [{"text": "a", "label": []}] * 3)
    refused(DATA, "empty.jsonl has no labels: all lists are empty", **flags | {"train_file": empty})
    unknown = write_table(tmp_path / "unknown.parquet", with_label(["good", "war"]))
    told = "unknown.parquet, row 20: label 'war' is none of {}: 'bad', 'film', 'good'"
    refused(DATA, told.format("those of the training data"), **flags | {"validation_file": unknown})
    refused(DATA, told.format("the model's"), verb="evaluate", model_name_or_path=trained, input=unknown)
    assert not (tmp_path / "out").exists()


def test_a_contradicting_problem_type_is_refused(inputs, tmp_path):
    flags = inputs | TRAINING | {"output_dir": tmp_path / "out"}
    refused(
        DATA,
        "holds lists where a single_label_classification needs one label per row",
        **flags | {"problem_type": "single_label_classification"},
    )
    single = write_table(tmp_path / "single.csv", [{"text": "a", "label": "good"}, {"text": "b", "label": "bad"}])
    several = {"train_file": single, "problem_type": "multi_label_classification"}
    refused(DATA, "holds one value per row", "needs lists of labels", **flags | several)
    refused(
        USAGE,
        "--metric_for_best_model matthews_correlation",
        "f1",
        **flags | {"metric_for_best_model": "matthews_correlation"},
    )
    one_label = make_model(tmp_path / "head", head=True)
    refused(DATA, "holds lists where a single_label_classification", **flags | {"model_name_or_path": one_label})
    change_config(one_label, problem_type="multi_label_classification")
    refused(DATA, "needs lists of labels", **flags | {"model_name_or_path": one_label, "train_file": single})
