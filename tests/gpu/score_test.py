"""strake predict, evaluate and worker --device cuda: what the processor gives, and the same bits however it is run.

Skipped where there is no GPU; tools/gpu_check.sh score takes it to a machine that has one.
"""

import numpy
import pyarrow
import pyarrow.parquet as parquet
import pytest
from gpu_runs import DEVICE, NEEDS_GPU
from program import command, environment, run, scored_by_worker, strake, summary
from refusals import USAGE
from tiny_models import make_model, reviews, write_table

pytestmark = NEEDS_GPU

ROWS = 3000
COLUMNS = ["prediction", "logits"]


@pytest.fixture(scope="module", params=["bert", "roberta", "distilbert"])
def inputs(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    return {
        "model_name_or_path": make_model(folder / "model", request.param, head=True),
        "input": write_table(folder / "in.parquet", reviews(ROWS)),
        "max_seq_length": 32,
    }


def scores(inputs, output, device=DEVICE, **flags):
    columns = {"output_columns": COLUMNS, "keep_columns": ["number"]} | flags
    strake("predict", output=output, device=device, **(inputs | columns))
    return parquet.read_table(output)


def numbers(table, column="logits"):
    return numpy.array(table[column].to_pylist(), dtype=numpy.float32)


@pytest.fixture(scope="module")
def on_gpu(inputs, tmp_path_factory):
    return scores(inputs, tmp_path_factory.mktemp("scored") / "out.parquet")


def test_logits_are_those_of_the_processor(inputs, on_gpu, tmp_path):
    expected = scores(inputs, tmp_path / "out.parquet", "cpu")
    assert on_gpu["number"] == expected["number"]
    assert abs(numbers(on_gpu) - numbers(expected)).max() < 1e-5  # fp32 sums in another order
    assert on_gpu["prediction"] == expected["prediction"]


def test_bf16_chooses_the_same_classes(inputs, on_gpu, tmp_path):
    rounded = scores(inputs, tmp_path / "out.parquet", bf16=True)
    assert not numpy.array_equal(numbers(rounded), numbers(on_gpu)) or DEVICE == "cpu"
    same = numpy.mean(numpy.array(rounded["prediction"]) == numpy.array(on_gpu["prediction"]))
    assert same > 0.97  # logits of a model that was hardly trained are near each other


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_same_bits_in_chunks_shards_and_from_the_worker(inputs, tmp_path, precision):
    expected = scores(inputs, tmp_path / "out.parquet", precision=precision)
    small = scores(inputs, tmp_path / "small.parquet", precision=precision, max_tokens_per_batch=100)
    assert small == expected
    parts = [shard_of(inputs, tmp_path, precision, i) for i in range(3)]
    assert pyarrow.concat_tables(parts) == expected
    worked = scored_by_worker(inputs, device=DEVICE, precision=precision, output_columns=COLUMNS)
    assert worked.select(COLUMNS) == expected.select(COLUMNS)


def shard_of(inputs, folder, precision, i):
    flags = {"output_columns": COLUMNS, "keep_columns": ["number"], "precision": precision, "shard": f"{i}/3"}
    strake("predict", output=folder / "sharded.parquet", device=DEVICE, **(inputs | flags))
    return parquet.read_table(folder / f"sharded-{i:05}-of-00003.parquet")


def test_embeddings_are_those_of_the_processor(inputs, tmp_path):
    flags = {"task": "feature-extraction", "output_columns": None}
    found = scores(inputs, tmp_path / "gpu.parquet", **flags)
    expected = scores(inputs, tmp_path / "cpu.parquet", "cpu", **flags)
    assert abs(numbers(found, "embedding") - numbers(expected, "embedding")).max() < 1e-5


def test_metrics_are_those_of_the_processor(inputs, tmp_path):
    labelled = write_table(
        tmp_path / "in.parquet", [row | {"label": f"LABEL_{i % 3}"} for i, row in enumerate(reviews(500))]
    )
    flags = inputs | {"input": labelled}
    assert summary("evaluate", device=DEVICE, **flags)["accuracy"] == summary("evaluate", **flags)["accuracy"]


def test_auto_takes_bf16(inputs, tmp_path):
    if DEVICE == "cpu":
        pytest.skip("of GPUs")
    flags = inputs | {"output": tmp_path / "out.parquet", "device": DEVICE, "precision": "auto"}
    assert summary("predict", **flags)["precision"] == "bf16"


def test_a_gpu_that_is_not_there_is_refused(inputs, tmp_path):
    flags = inputs | {"output": tmp_path / "out.parquet", "device": "cuda:100"}
    outcome = run(command("predict", **flags), env=environment())
    assert outcome.code == USAGE
    assert "--device cuda:100" in outcome.err
