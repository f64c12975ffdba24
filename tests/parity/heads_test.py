"""Heads other than sequence classification give what Transformers and sentence-transformers give.

tests/fixtures/heads is made by tools/make_head_fixtures.py.
"""

import json

import numpy
import pytest
from program import predict
from tiny_models import FIXTURES, make_model, write_table

# Two layers in fp32, whose sums two programs take in different orders.
TOLERANCE = 1e-5


def expectations(name):
    return json.loads((FIXTURES / "heads" / name).read_text())


EMBEDDINGS = expectations("embeddings.json")


def table_of(folder, texts):
    return write_table(folder / "texts.parquet", [{"text": text} for text in texts])


def name_of(case):
    return f"{case['family']}-{case['pooling']}{'-normalized' if case['normalize'] else ''}"


@pytest.fixture(params=EMBEDDINGS["cases"], ids=name_of)
def case(request):
    return request.param


def check_embeddings(case, model, tmp_path, **flags):
    found = predict(model, table_of(tmp_path, EMBEDDINGS["texts"]), tmp_path / "out.parquet", 60, **flags)
    assert list(found) == ["text", "embedding"]
    numpy.testing.assert_allclose(found["embedding"], case["embeddings"], rtol=0, atol=TOLERANCE)


def test_embeddings_agree_when_flags_say_how_to_pool(case, tmp_path):
    model = make_model(tmp_path / "model", case["family"], head=True)
    flags = {"pooling": case["pooling"], "normalize": str(case["normalize"]).lower()}
    check_embeddings(case, model, tmp_path, task="feature-extraction", **flags)


def test_embeddings_agree_when_the_folder_of_sentence_transformers_says_how_to_pool(case, tmp_path):
    model = make_model(tmp_path / "model", case["family"])
    for name, text in case["files"].items():
        path = model / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    check_embeddings(case, model, tmp_path)
