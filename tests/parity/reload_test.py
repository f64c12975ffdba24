"""Folders that strake saves load in Transformers and give the same scores there, and the other way round."""

import numpy
import pytest
import torch
import transformers
from program import predict, strake
from tiny_models import make_model, read_config, reviews, write_table
from whole_models import load_whole

FAMILIES = ["bert", "roberta", "distilbert"]
LONGEST = 32
# Two layers in fp32, whose sums two programs take in different orders.
TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    train = write_table(folder / "train.parquet", reviews(60))
    hard = [
        {"text": text} for text in ("", "good", "Caf\u00e9 was FINE!", "unknown \u6f22\u5b57 \U0001f600", "film " * 200)
    ]
    return train, write_table(folder / "check.parquet", [{"text": row["text"]} for row in reviews(20, seed=3)] + hard)


@pytest.fixture(scope="module", params=FAMILIES)
def trained(request, tables, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    base = make_model(folder / "base", request.param, dropout=0.1)
    output = folder / "trained"
    flags = {"max_seq_length": LONGEST, "learning_rate": 1e-3, "max_steps": 6, "save_steps": 3}
    strake("train", model_name_or_path=base, train_file=tables[0], output_dir=output, **flags)
    return output


def load(folder):
    return load_whole(transformers.AutoModelForSequenceClassification, folder)


def logits_of(model, tokenizer, texts):
    """One text at a time: no padding."""
    with torch.no_grad():
        encoded = [tokenizer(text, truncation=True, max_length=LONGEST, return_tensors="pt") for text in texts]
        return torch.cat([model(**inputs).logits for inputs in encoded])


def probabilities(folder, texts):
    logits = logits_of(load(folder), transformers.AutoTokenizer.from_pretrained(folder), texts)
    return torch.softmax(logits, 1).numpy()


def test_transformers_gives_the_same_scores(trained, tables, tmp_path):
    scored = predict(trained, tables[1], tmp_path / "scored.parquet", max_seq_length=LONGEST)
    found = numpy.array(scored["probabilities"])
    assert found.std() > 0.01, "the model tells texts apart"
    assert numpy.abs(found - probabilities(trained, scored["text"])).max() < TOLERANCE
    names = read_config(trained)["id2label"]
    assert names == {"0": "negative", "1": "positive"}
    assert scored["prediction"] == [names[str(i)] for i in found.argmax(1)]


def test_checkpoints_load_as_well(trained, tables, tmp_path):
    scored = predict(trained / "checkpoint-3", tables[1], tmp_path / "scored.parquet", max_seq_length=LONGEST)
    expected = probabilities(trained / "checkpoint-3", scored["text"])
    assert numpy.abs(numpy.array(scored["probabilities"]) - expected).max() < TOLERANCE


def test_labels_and_kind_of_problem_are_kept(trained):
    config = transformers.AutoConfig.from_pretrained(trained)
    assert config.id2label == {0: "negative", 1: "positive"}
    assert config.label2id == {"negative": 0, "positive": 1}
    assert config.problem_type == "single_label_classification"
    assert load(trained).dtype == torch.float32


def test_strake_gives_the_same_bits_after_transformers_saved_again(trained, tables, tmp_path):
    """In several files with an index, as large models are saved."""
    again = tmp_path / "again"
    load(trained).save_pretrained(again, max_shard_size="40KB")
    transformers.AutoTokenizer.from_pretrained(trained).save_pretrained(again)
    assert (again / "model.safetensors.index.json").exists()
    expected = predict(trained, tables[1], tmp_path / "expected.parquet", max_seq_length=LONGEST)
    scored = predict(again, tables[1], tmp_path / "scored.parquet", max_seq_length=LONGEST)
    assert scored["probabilities"] == expected["probabilities"]


def test_half_precision_weights_are_read(trained, tables, tmp_path):
    half = tmp_path / "half"
    load(trained).to(torch.bfloat16).save_pretrained(half)
    transformers.AutoTokenizer.from_pretrained(trained).save_pretrained(half)
    scored = predict(half, tables[1], tmp_path / "scored.parquet", max_seq_length=LONGEST)
    model = load(half).to(torch.float32)
    logits = logits_of(model, transformers.AutoTokenizer.from_pretrained(half), scored["text"])
    assert numpy.abs(numpy.array(scored["probabilities"]) - torch.softmax(logits, 1).numpy()).max() < TOLERANCE


def test_regression_gives_the_same_numbers(tables, tmp_path):
    base = make_model(tmp_path / "base", dropout=0.1)
    flags = {"label_column": "score", "max_seq_length": LONGEST, "max_steps": 6, "save_strategy": "no"}
    trained = tmp_path / "trained"
    strake("train", model_name_or_path=base, train_file=tables[0], output_dir=trained, **flags)
    scored = predict(trained, tables[1], tmp_path / "scored.parquet", max_seq_length=LONGEST)
    model = load(trained)
    assert model.config.problem_type == "regression" and model.config.num_labels == 1
    logits = logits_of(model, transformers.AutoTokenizer.from_pretrained(trained), scored["text"])
    assert numpy.abs(numpy.array(scored["prediction"]) - logits.squeeze(1).numpy()).max() < TOLERANCE
