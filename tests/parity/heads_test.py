"""Heads other than sequence classification give what Transformers and sentence-transformers give.

tests/fixtures/heads is made by tools/make_head_fixtures.py and tools/make_answer_fixtures.py.
"""

import json

import numpy
import pytest
from program import predict
from tiny_models import FIXTURES, make_model, make_reader, make_tagger, write_table

# Two layers in fp32, whose sums two programs take in different orders.
TOLERANCE = 1e-5


def expectations(name):
    return json.loads((FIXTURES / "heads" / name).read_text())


EMBEDDINGS = expectations("embeddings.json")
ENTITIES = expectations("entities.json")
ANSWERS = expectations("answers.json")


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


@pytest.mark.parametrize("case", ENTITIES["cases"], ids=lambda case: f"{case['family']}-{case['aggregation_strategy']}")
def test_entities_are_those_of_the_pipeline(case, tmp_path):
    model = make_tagger(tmp_path / "model", case["family"])
    table = table_of(tmp_path, ENTITIES["texts"])
    strategy = {"aggregation_strategy": case["aggregation_strategy"]}
    found = predict(model, table, tmp_path / "out.parquet", 60, **strategy)["entities"]
    assert any(len({entity[0] for entity in row}) > 1 for row in case["entities"])
    for row, expected in zip(found, case["entities"], strict=True):
        assert [[entity["entity"], entity["start"], entity["end"]] for entity in row] == [
            [label, start, end] for label, _, start, end in expected
        ]
        scores = [entity["score"] for entity in row]
        numpy.testing.assert_allclose(scores, [score for _, score, _, _ in expected], rtol=0, atol=TOLERANCE)


def name_of_answers(case):
    return "-".join([case["family"], *(f"{name}-{value}" for name, value in case["flags"].items())])


@pytest.mark.parametrize("case", ANSWERS["cases"], ids=name_of_answers)
def test_answers_are_those_of_the_pipeline(case, tmp_path):
    model = make_reader(tmp_path / "model", case["family"])
    rows = [{"question": question, "context": context} for question, context in ANSWERS["questions"]]
    table = write_table(tmp_path / "questions.parquet", rows)
    flags = {name: str(value).lower() for name, value in case["flags"].items() if name != "max_seq_length"}
    longest = case["flags"]["max_seq_length"]
    found = predict(model, table, tmp_path / "out.parquet", longest, output_columns="answers", **flags)["answers"]
    for row, expected in zip(found, case["answers"], strict=True):
        assert [[answer["answer"], answer["start"], answer["end"]] for answer in row] == [
            [text, start, end] for text, _, start, end in expected
        ]
        scores = [answer["score"] for answer in row]
        numpy.testing.assert_allclose(scores, [score for _, score, _, _ in expected], rtol=0, atol=TOLERANCE)
