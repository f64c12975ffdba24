"""strake train --device cuda on a machine with a GPU: the processor's losses, and the same bits however it is run.

Skipped where there is none; tools/gpu_check.sh train takes it to a machine that has one.
"""

import json
import shutil

import pyarrow
import pyarrow.parquet as parquet
import pytest
from gpu_runs import DEVICE, NEEDS_GPU, OFFLOAD, train, weights
from program import losses, metrics, strake, summary
from safetensors.numpy import load_file

pytestmark = NEEDS_GPU


@pytest.fixture(scope="module")
def on_gpu(inputs, tmp_path_factory):
    return train(inputs, tmp_path_factory.mktemp("gpu") / "out")


def test_losses_and_metrics_are_those_of_the_processor(inputs, on_gpu, tmp_path):
    train(inputs, tmp_path, "cpu")
    assert len(losses(on_gpu)) == inputs["max_steps"]
    for (step, loss, norm), (_, expected, expected_norm) in zip(losses(on_gpu), losses(tmp_path), strict=True):
        # fp32 sums in another order, of which AdamW makes more with every step.
        assert loss == pytest.approx(expected, rel=1e-3), step
        assert norm == pytest.approx(expected_norm, rel=1e-2), step
    evaluations = [entry["eval_loss"] for entry in metrics(on_gpu) if "eval_loss" in entry]
    expected = [entry["eval_loss"] for entry in metrics(tmp_path) if "eval_loss" in entry]
    assert len(evaluations) == 2 and evaluations == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("precision", [{}, {"bf16": True}, {"fp16": True}])
@pytest.mark.parametrize("how", ["again", "gradient_checkpointing", "async_save", "offload"])
def test_the_same_bits_however_it_is_run(inputs, tmp_path, precision, how):
    flags = {} if how in ("again", "offload") else {how: True}
    if how == "offload":
        batches = dict.fromkeys(("train_micro_batch_size_per_gpu", "gradient_accumulation_steps"), "auto")
        types = {name: {"enabled": True} for name in precision}
        flags = {"deepspeed": json.dumps(OFFLOAD | batches | types | {"gradient_clipping": "auto"})}
    first = train(inputs, tmp_path / "first", **precision)
    second = train(inputs, tmp_path / "second", **precision, **flags)
    assert losses(first) == losses(second)
    assert weights(first) == weights(second)


def test_a_resumed_run_has_the_bits_of_one_that_went_on(inputs, on_gpu, tmp_path):
    shutil.copytree(on_gpu / "checkpoint-6", tmp_path / "out" / "checkpoint-6")
    train(inputs, tmp_path / "out", resume_from_checkpoint=tmp_path / "out" / "checkpoint-6")
    assert losses(tmp_path / "out") == losses(on_gpu)[6:]
    assert weights(tmp_path / "out") == weights(on_gpu)


def test_the_processor_goes_on_with_what_a_gpu_trained(inputs, on_gpu, tmp_path):
    assert all(array.dtype == "float32" for array in load_file(on_gpu / "model.safetensors").values())
    if "task" in inputs:
        found = summary("evaluate", model_name_or_path=on_gpu, input=inputs["validation_file"])
        last = [entry for entry in metrics(on_gpu) if "eval_perplexity" in entry][-1]
        assert found["perplexity"] == pytest.approx(last["eval_perplexity"], rel=1e-3)
        again = summary("evaluate", model_name_or_path=on_gpu, input=inputs["validation_file"], device=DEVICE)
        # Of batches with other numbers of rows, for which cuBLAS has other kernels.
        assert again["perplexity"] == pytest.approx(last["eval_perplexity"], rel=1e-5)
        continued = train(inputs, tmp_path, "cpu", model_name_or_path=on_gpu, max_steps=1, save_strategy="no")
        assert losses(continued)[0][1] < losses(on_gpu)[0][1]
        return
    table = inputs["validation_file"]
    found = summary("evaluate", model_name_or_path=on_gpu, input=table, max_seq_length=32)
    last = [entry for entry in metrics(on_gpu) if "eval_accuracy" in entry][-1]
    assert found["accuracy"] == last["eval_accuracy"]


@pytest.mark.parametrize("precision", [{}, {"bf16": True}])
def test_a_text_has_its_loss_in_any_company(inputs, on_gpu, tmp_path, precision):
    if "task" not in inputs:
        pytest.skip("of language models")
    flags = {"model_name_or_path": on_gpu, "input": inputs["validation_file"], "output_columns": "loss"} | precision
    for part in range(3):
        strake("predict", output=f"{tmp_path}/parts/", shard=f"{part}/3", device=DEVICE, **flags)
    parts = [parquet.read_table(path) for path in sorted((tmp_path / "parts").glob("part-*.parquet"))]
    found = {}
    for device in (DEVICE, "cpu"):
        strake("predict", output=tmp_path / f"{device}.parquet", device=device, **flags)
        found[device] = parquet.read_table(tmp_path / f"{device}.parquet")
    assert pyarrow.concat_tables(parts).equals(found[DEVICE])
    # Sums in another order, in bf16 rounded to 8 bits in between.
    tolerance = 2e-2 if precision else 1e-4
    assert found[DEVICE]["loss"].to_pylist() == pytest.approx(found["cpu"]["loss"].to_pylist(), rel=tolerance)
