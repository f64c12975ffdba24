"""Labels that are integers which their file has names for, as Hugging Face's Datasets writes ClassLabel to Parquet."""

import json

import pyarrow
import pyarrow.parquet as parquet
import pytest
from program import command, run, strake, summary
from refusals import DATA
from tiny_models import make_model, read_config, reviews, tagged_reviews, write_table

NAMES = ["positive", "negative"]  # not in their order as text
TAGS = ["O", "B-GOOD", "I-GOOD", "B-BAD", "I-BAD"]


def class_label(names):
    return {"names": names, "_type": "ClassLabel"}


def write_classes(path, columns, **features):
    table = pyarrow.table(columns)
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    parquet.write_table(table.replace_schema_metadata(metadata), path)
    return path


def write_reviews(path, rows, names):
    columns = {"text": [row["text"] for row in rows], "label": [names.index(row["label"]) for row in rows]}
    return write_classes(path, columns, label=class_label(names))


def write_words(path, rows, tags):
    columns = {"words": [row["words"] for row in rows]}
    columns["tags"] = [[tags.index(tag) for tag in row["tags"]] for row in rows]
    return write_classes(path, columns, tags={"feature": class_label(tags), "_type": "List"})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    make_model(folder / "base")
    rows = reviews(60)
    write_table(folder / "texts.parquet", rows)
    write_reviews(folder / "classes.parquet", rows, NAMES)
    write_reviews(folder / "other_order.parquet", rows, NAMES[::-1])
    write_table(folder / "words.parquet", tagged_reviews(60))
    write_words(folder / "word_classes.parquet", tagged_reviews(60), TAGS)
    return folder


def trained(folder, output_dir, **changes):
    flags = {"model_name_or_path": folder / "base", "max_seq_length": 32, "max_steps": 20, "learning_rate": 5e-3}
    return strake("train", output_dir=output_dir, save_strategy="no", **(flags | changes))


def labels_of(model):
    return [name for _, name in sorted(read_config(model)["id2label"].items())]


def test_classes_are_trained_and_evaluated_by_their_names(folder, tmp_path):
    trained(folder, tmp_path / "model", train_file=folder / "classes.parquet")
    assert labels_of(tmp_path / "model") == NAMES
    flags = {"model_name_or_path": tmp_path / "model", "max_seq_length": 32}
    found = [summary("evaluate", input=folder / name, **flags) for name in ("texts.parquet", "classes.parquet")]
    both = [folder / "classes.parquet", folder / "other_order.parquet"]
    found += [
        summary("evaluate", input=folder / "other_order.parquet", **flags),
        summary("evaluate", input=both, **flags),
    ]
    assert found[0]["accuracy"] > 0.9
    assert len({(result["accuracy"], result["f1"]) for result in found}) == 1


@pytest.mark.parametrize("file", ["word_classes.parquet", "words.parquet"])
def test_classes_of_words_are_trained_and_evaluated_by_their_names(folder, tmp_path, file):
    words = {"task": "token-classification", "text_column": "words", "label_column": "tags"}
    trained(folder, tmp_path / "model", train_file=folder / file, **words)
    assert labels_of(tmp_path / "model") == (sorted(TAGS) if file == "words.parquet" else TAGS)
    flags = {"model_name_or_path": tmp_path / "model", "max_seq_length": 32, **words}
    found = [summary("evaluate", input=folder / name, **flags) for name in ("words.parquet", "word_classes.parquet")]
    assert found[0]["f1"] == found[1]["f1"] > 0.2
    assert found[0]["accuracy"] == found[1]["accuracy"]


def test_files_that_share_some_of_the_names_go_by_them(folder, tmp_path):
    rows, names = reviews(60), ["neutral", *NAMES[::-1]]
    write_reviews(tmp_path / "more.parquet", rows, names)
    trained(folder, tmp_path / "model", train_file=[folder / "classes.parquet", tmp_path / "more.parquet"])
    flags = {"model_name_or_path": tmp_path / "model", "max_seq_length": 32}
    found = [summary("evaluate", input=file, **flags) for file in (folder / "texts.parquet", tmp_path / "more.parquet")]
    assert found[0]["accuracy"] == found[1]["accuracy"] > 0.7
    path = write_reviews(tmp_path / "neutral.parquet", [{"text": "a film", "label": "neutral"}], names)
    outcome = run(command("evaluate", input=path, **flags))
    assert outcome.code == DATA
    assert f"{path}, row 0: label 'neutral' is none of the model's: 'positive', 'negative'" in outcome.err


def test_names_that_a_model_does_not_have_leave_its_numbers(folder, tmp_path):
    trained(folder, tmp_path / "model", train_file=folder / "classes.parquet")
    config = read_config(tmp_path / "model")
    config["id2label"], config["label2id"] = {"0": "GOOD", "1": "BAD"}, {"GOOD": 0, "BAD": 1}
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    flags = {"model_name_or_path": tmp_path / "model", "max_seq_length": 32}
    assert summary("evaluate", input=folder / "classes.parquet", **flags)["accuracy"] > 0.9


def accuracy_in_training(model):
    history = json.loads((model / "trainer_state.json").read_text())["log_history"]
    return [entry["eval_accuracy"] for entry in history if "eval_accuracy" in entry][-1]


def test_numbers_of_a_file_that_does_not_name_them_are_those_of_the_training_data(folder, tmp_path):
    rows = [{"text": row["text"], "label": NAMES.index(row["label"])} for row in reviews(60)]
    files = {"train_file": folder / "classes.parquet", "validation_file": write_table(tmp_path / "plain.csv", rows)}
    trained(folder, tmp_path / "model", eval_strategy="epoch", **files)
    assert accuracy_in_training(tmp_path / "model") > 0.9
    rows = [row | {"tags": [TAGS.index(tag) for tag in row["tags"]]} for row in tagged_reviews(60)]
    files = {
        "train_file": folder / "word_classes.parquet",
        "validation_file": write_table(tmp_path / "w.parquet", rows),
    }
    words = {"task": "token-classification", "text_column": "words", "label_column": "tags"}
    trained(folder, tmp_path / "tagger", eval_strategy="epoch", **words, **files)
    assert accuracy_in_training(tmp_path / "tagger") > 0.7


def test_numbers_in_token_files_are_those_of_the_model(folder, tmp_path):
    trained(folder, tmp_path / "model", train_file=folder / "classes.parquet")
    rows = [{"text": row["text"], "label": NAMES.index(row["label"])} for row in reviews(60)]
    text = write_table(tmp_path / "plain.csv", rows)
    tokens = tmp_path / "tokens.parquet"
    strake("prepare", input=text, output=tokens, tokenizer=tmp_path / "model", label_column="label", max_seq_length=32)
    for file in (text, tokens):
        more = {"model_name_or_path": tmp_path / "model", "train_file": file, "max_steps": 2}
        trained(folder, tmp_path / file.stem, **(more | ({} if file == text else {"max_seq_length": None})))
        assert labels_of(tmp_path / file.stem) == NAMES
    weights = [(tmp_path / stem / "model.safetensors").read_bytes() for stem in ("plain", "tokens")]
    assert weights[0] == weights[1]


def test_a_number_of_no_class_is_refused(folder, tmp_path):
    columns = {"text": ["a good film", "a bad film", "no label"], "label": [0, 1, -1]}  # as test data without labels
    path = write_classes(tmp_path / "classes.parquet", columns, label=class_label(NAMES))
    flags = {"model_name_or_path": folder / "base", "max_seq_length": 32, "max_steps": 1}
    outcome = run(command("train", train_file=path, output_dir=tmp_path / "model", **flags))
    assert outcome.code == DATA
    assert f"{path}, row 2: label -1 is no number of the 2 classes that the file's metadata names" in outcome.err
