"""Parquet files that Spark wrote, and what it finds in the outputs made from them."""

import datetime
import json

import pyarrow
import pyarrow.parquet as parquet
import pytest
from program import strake
from tiny_models import make_model, make_tagger

SCHEMA = "org.apache.spark.sql.parquet.row.metadata"
TEXT = {"name": "text", "type": "string", "nullable": True, "metadata": {"comment": "what they wrote"}}
WHEN = {"name": "when", "type": "timestamp", "nullable": True, "metadata": {}}
PREDICTION = {"name": "prediction", "type": "string", "nullable": True, "metadata": {}}
FLOATS = {"type": "array", "elementType": "float", "containsNull": True}
PROBABILITIES = {"name": "probabilities", "type": FLOATS, "nullable": True, "metadata": {}}
TIMES = [
    datetime.datetime(1500, 1, 1),
    datetime.datetime(2026, 1, 1, 12, 0, 0, 123456),
    datetime.datetime(9999, 12, 31),
]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("inputs") / "model", head=True)


def scored(model, folder, schema, **flags):
    """The schema and the rows of the output for a file with the metadata `schema`."""
    table = pyarrow.table({"text": ["good", "bad", "we love it"], "when": pyarrow.array([None] * 3, pyarrow.int64())})
    metadata = {SCHEMA: schema, "org.apache.spark.version": "4.0.0"}
    parquet.write_table(table.replace_schema_metadata(metadata), folder / "in.parquet")
    output = folder / "out.parquet"
    strake("predict", model_name_or_path=model, input=folder / "in.parquet", output=output, max_seq_length=32, **flags)
    return parquet.read_schema(output).metadata


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({}, [TEXT, WHEN, PREDICTION, PROBABILITIES]),
        ({"keep_columns": "text", "output_columns": "prediction"}, [TEXT, PREDICTION]),
        (
            {"keep_columns": "", "output_columns": ["label_id", "score"]},
            [PREDICTION | {"name": "label_id", "type": "integer"}, PREDICTION | {"name": "score", "type": "float"}],
        ),
    ],
)
def test_the_schema_for_spark_has_the_columns_of_the_output(model, tmp_path, flags, expected):
    found = scored(model, tmp_path, json.dumps({"type": "struct", "fields": [TEXT, WHEN]}), **flags)
    fields = json.loads(found[SCHEMA.encode()])["fields"]
    assert fields == expected
    assert found[b"org.apache.spark.version"] == b"4.0.0"


def test_entities_have_a_type_for_spark(tmp_path):
    found = scored(make_tagger(tmp_path / "tagger"), tmp_path, json.dumps({"type": "struct", "fields": [TEXT, WHEN]}))
    entities = json.loads(found[SCHEMA.encode()])["fields"][-1]
    assert entities["name"] == "entities"
    assert [(field["name"], field["type"]) for field in entities["type"]["elementType"]["fields"]] == [
        ("entity", "string"),
        ("score", "float"),
        ("start", "integer"),
        ("end", "integer"),
    ]


@pytest.mark.parametrize(
    "schema",
    [
        "{",
        "[]",
        "7",
        '{"fields": [{"name": 1}]}',
        json.dumps({"type": "struct", "fields": [TEXT]}),
    ],
)
def test_a_schema_that_says_too_little_does_no_harm(model, tmp_path, schema):
    found = scored(model, tmp_path, schema)
    fields = json.loads(found[SCHEMA.encode()])["fields"] if SCHEMA.encode() in found else None
    assert fields is None or [field["name"] for field in fields] == ["text", "when", "prediction", "probabilities"]


def test_timestamps_of_96_bits_keep_every_date(model, tmp_path):
    file, output = tmp_path / "in.parquet", tmp_path / "out.parquet"
    table = pyarrow.table({"text": ["good"] * 3, "when": pyarrow.array(TIMES, pyarrow.timestamp("us"))})
    parquet.write_table(table, file, use_deprecated_int96_timestamps=True, store_schema=False)
    assert parquet.ParquetFile(file).schema.column(1).physical_type == "INT96"
    strake("predict", model_name_or_path=model, input=file, output=output, max_seq_length=32)
    found = parquet.read_table(output).column("when")
    assert found.type == pyarrow.timestamp("us")
    assert found.to_pylist() == TIMES
