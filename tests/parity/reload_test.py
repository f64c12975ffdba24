"""What strake saves loads in Transformers, without missing or unexpected tensors, and gives the same probabilities.

Needs torch and Transformers in Python: tools/setup.sh test, and LD_LIBRARY_PATH with the stand-ins on a machine without
a GPU (ctest sets it).
"""

import pytest
from program import predict, strake
from tiny_models import make_model, reviews, write_table

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert"])
def test_saved_model_gives_the_same_probabilities_in_transformers(tmp_path, family):
    rows = reviews(60)
    data = write_table(tmp_path / "train.parquet", rows)
    strake(
        "train",
        model_name_or_path=make_model(tmp_path / "base", family),
        train_file=data,
        output_dir=tmp_path / "out",
        max_seq_length=32,
        max_steps=6,
        learning_rate=1e-3,
    )
    ours = predict(tmp_path / "out", data, tmp_path / "scored.parquet")
    model, loading = transformers.AutoModelForSequenceClassification.from_pretrained(
        tmp_path / "out", output_loading_info=True
    )
    assert not loading["missing_keys"] and not loading["unexpected_keys"]
    assert model.config.id2label == {0: "negative", 1: "positive"}
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    model.eval()
    for row, expected, name in zip(rows, ours["probabilities"], ours["prediction"], strict=True):
        inputs = tokenizer(row["text"], truncation=True, max_length=32, return_tensors="pt")
        with torch.no_grad():
            theirs = model(**inputs).logits.softmax(1)[0]
        # fp32 rounding in another order of summation
        assert torch.allclose(theirs, torch.tensor(expected), atol=1e-5)
        assert model.config.id2label[int(theirs.argmax())] == name
