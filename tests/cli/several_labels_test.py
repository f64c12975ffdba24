"""Classifiers that give a text any number of labels (multi_label_classification), seen from outside."""

import numpy
import pyarrow.parquet as parquet
import pytest
from program import command, run, scored_by_worker, strake
from refusals import USAGE
from tiny_models import change_config, make_model, reviews, write_table

LABELS = ["toxic", "rude", "funny"]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    model = make_model(folder / "model", head=True)
    change_config(model, id2label=dict(enumerate(LABELS)), problem_type="multi_label_classification")
    table = write_table(folder / "in.parquet", reviews(200))
    return {"model_name_or_path": model, "input": table, "max_seq_length": 32}


def test_each_label_has_its_own_probability(inputs, tmp_path):
    out = tmp_path / "out.parquet"
    strake("predict", **inputs, output=out, output_columns=["prediction", "probabilities", "logits"])
    table = parquet.read_table(out)
    logits, probabilities = (numpy.array(table[name].to_pylist()) for name in ("logits", "probabilities"))
    numpy.testing.assert_allclose(probabilities, 1 / (1 + numpy.exp(-logits)), rtol=1e-6)
    given = [[label for label, logit in zip(LABELS, row, strict=True) if logit > 0] for row in logits]
    assert table["prediction"].to_pylist() == given
    assert len({len(labels) for labels in given}) > 1
    strake("predict", **inputs, output=tmp_path / "default.parquet")
    columns = parquet.read_table(tmp_path / "default.parquet").column_names
    assert columns[-2:] == ["prediction", "probabilities"]


def test_the_worker_gives_the_labels_of_predict(inputs, tmp_path):
    strake("predict", **inputs, output=tmp_path / "out.parquet")
    assert scored_by_worker(inputs).to_pylist() == parquet.read_table(tmp_path / "out.parquet").to_pylist()


@pytest.mark.parametrize("column", ["label_id", "score"])
def test_columns_of_one_label_are_refused(inputs, tmp_path, column):
    outcome = run(command("predict", **inputs, output=tmp_path / "out.parquet", output_columns=column))
    assert outcome.code == USAGE
    assert f"--output_columns {column}: the model gives a text any number of labels" in outcome.err
