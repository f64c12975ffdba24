"""Classifiers of words: the losses of Transformers in training, seqeval's metrics, and a folder that it loads."""

import pytest
import torch
import transformers
from adamw import losses_of_steps
from program import losses, metrics, predict, strake, summary
from tiny_models import make_model, read_config, tagged_reviews, write_table
from whole_models import load_whole

FAMILIES = ["bert", "roberta", "distilbert"]
LENGTH = 24  # some rows are cut
ROWS = 24
# Two layers in fp32, whose sums two programs take in different orders; and what that becomes in some steps.
TOLERANCE = 1e-5
TRAINED_TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    train = write_table(folder / "train.parquet", tagged_reviews(ROWS))
    return train, write_table(folder / "check.jsonl", tagged_reviews(15, seed=2))


def train(tables, output, **flags):
    defaults = {"max_seq_length": LENGTH, "learning_rate": 1e-3, "lr_scheduler_type": "constant", "max_steps": 6}
    defaults |= {"per_device_train_batch_size": 100, "logging_steps": 1, "save_strategy": "no"}
    defaults |= {"text_column": "words", "label_column": "tags", "eval_strategy": "epoch"}
    inputs = {"train_file": tables[0], "validation_file": tables[1]}
    strake("train", task="token-classification", output_dir=output, **(inputs | defaults | flags))
    return [entry for entry in metrics(output) if "eval_loss" in entry]


def evaluate(table, model, **flags):
    flags |= {"max_seq_length": LENGTH, "text_column": "words", "label_column": "tags"}
    found = summary("evaluate", model_name_or_path=model, input=table, **flags)
    assert found["rows"] == len(tagged_reviews(15, seed=2))
    return {name: found[name] for name in ("precision", "recall", "f1", "accuracy")}


def load(folder):
    return load_whole(transformers.AutoModelForTokenClassification, folder)


def encoded(tokenizer, rows, ids, label_all=False):
    """As run_ner.py does: of a word the first token has its label, others are ignored, or go on with the entity."""
    for row in rows:
        inputs = tokenizer(row["words"], is_split_into_words=True, truncation=True, max_length=LENGTH)
        labels, before = [], None
        for word in inputs.word_ids():
            tag = row["tags"][word] if word is not None and (label_all or word != before) else None
            if word == before and tag and tag.startswith("B-"):
                tag = f"I-{tag[2:]}"
            labels.append(-100 if tag is None else ids[tag])
            before = word
        yield torch.tensor([inputs["input_ids"]]), torch.tensor([labels])


def tokenizer_of(folder):
    """As a trained folder has it, with a space before words where the tokenizer tells them by spaces."""
    return transformers.AutoTokenizer.from_pretrained(folder)


def sums_of_losses(model, pieces):
    for inputs, labels in pieces:
        count = (labels != -100).sum().item()
        yield model(inputs, labels=labels).loss * count, count


def entities(tags):
    """seqeval's get_entities."""
    found, before, begin = [], ("O", ""), 0
    for i, name in enumerate([*tags, "O"]):
        tag, kind = name[0], name[1:].split("-", maxsplit=1)[-1] or "_"
        other = kind != before[1]
        if before[0] in "BI" and (tag in "BO" or other):
            found.append((before[1], begin, i - 1))
        if tag == "B" or (tag == "I" and (before[0] == "O" or other)):
            begin = i
        before = tag, kind
    return found


def seqeval(predicted, actual):
    found = [{(n, *e) for n, tags in enumerate(texts) for e in entities(tags)} for texts in (predicted, actual)]
    right = len(found[0] & found[1])
    precision, recall = (right / len(x) if x else 0 for x in found)
    pairs = [pair for texts in zip(predicted, actual, strict=True) for pair in zip(*texts, strict=True)]
    return {
        "precision": precision,
        "recall": recall,
        "f1": 2 * precision * recall / (precision + recall) if right else 0,
        "accuracy": sum(a == b for a, b in pairs) / len(pairs),
    }


@pytest.mark.parametrize(("family", "label_all"), [*((family, False) for family in FAMILIES), ("bert", True)])
def test_transformers_gives_the_same_losses_and_seqeval_the_same_metrics(tables, tmp_path, family, label_all):
    base = make_model(tmp_path / "base", family)
    start, *_ = train(tables, tmp_path / "start", model_name_or_path=base, learning_rate=1e-30, max_steps=1)
    flags = {"label_all_tokens": True} if label_all else {}
    evaluated = train(tables, tmp_path / "trained", model_name_or_path=tmp_path / "start", **flags)
    names = read_config(tmp_path / "trained")["id2label"]
    assert list(names.values()) == ["B-BAD", "B-GOOD", "I-BAD", "I-GOOD", "O"]
    ids = {name: int(i) for i, name in names.items()}

    model = load(tmp_path / "start")
    tokenizer = tokenizer_of(tmp_path / "trained")
    assert getattr(tokenizer, "add_prefix_space", False) == (family == "roberta")
    pieces = list(encoded(tokenizer, tagged_reviews(ROWS), ids, label_all))
    expected = losses_of_steps(model, 6, lambda _: sums_of_losses(model, pieces))
    assert [loss for _, loss, _ in losses(tmp_path / "trained")] == pytest.approx(expected, abs=TRAINED_TOLERANCE)
    assert evaluated[-1]["eval_loss"] < start["eval_loss"]

    model = load(tmp_path / "trained")
    pieces = list(encoded(tokenizer, tagged_reviews(15, seed=2), ids, label_all))
    with torch.no_grad():
        sums, counts = zip(*sums_of_losses(model, pieces), strict=True)
        logits = [model(inputs).logits[0] for inputs, _ in pieces]
    assert evaluated[-1]["eval_loss"] == pytest.approx(sum(sums).item() / sum(counts), abs=TOLERANCE)
    predicted, actual = [], []
    for (_, labels), of_text in zip(pieces, logits, strict=True):
        places = [i for i, label in enumerate(labels[0].tolist()) if label != -100]
        predicted.append([names[str(of_text[i].argmax().item())] for i in places])
        actual.append([names[str(labels[0][i].item())] for i in places])
    for name, value in seqeval(predicted, actual).items():
        assert evaluated[-1][f"eval_{name}"] == pytest.approx(value, abs=1e-12), name
    assert evaluate(tables[1], tmp_path / "trained", **flags) == {
        name: evaluated[-1][f"eval_{name}"] for name in ("precision", "recall", "f1", "accuracy")
    }


def test_what_it_learned_is_found_in_texts(tables, tmp_path):
    base = make_model(tmp_path / "base")
    many = write_table(tmp_path / "many.parquet", tagged_reviews(150, seed=3))
    flags = {"max_steps": 120, "learning_rate": 5e-3, "per_device_train_batch_size": 16}
    (*_, last) = train(tables, tmp_path / "out", model_name_or_path=base, train_file=many, **flags)
    assert last["eval_f1"] > 0.8
    text = "the film was good and the book was awful"
    texts = write_table(tmp_path / "texts.jsonl", [{"text": text}])
    (found,) = predict(tmp_path / "out", texts, tmp_path / "scored.parquet")["entities"]
    words = [(text[entity["start"] : entity["end"]], entity["entity"]) for entity in found]
    assert words == [("good", "GOOD"), ("awful", "BAD")]
