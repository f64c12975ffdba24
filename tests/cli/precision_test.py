"""Scoring in fp32, bf16 and int8: what flags choose, what is measured, and what is believed of it."""

import json
import pathlib
import shutil

import numpy
import pytest
from program import command, environment, predict, run, strake, summary
from refusals import FILE, USAGE
from tiny_models import change_weights, make_model, reviews, word_piece_vocabulary, write_table

RECORD = "strake_precision.json"
ROWS = 500  # the fewest that auto relies on


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("precision")
    make_model(folder / "base", dropout=0.1)
    write_table(folder / "train.parquet", reviews(200))
    write_table(folder / "check.parquet", reviews(ROWS, seed=2))
    for label, output in (("label", "classifier"), ("score", "regressor")):
        strake(
            "train",
            model_name_or_path=folder / "base",
            train_file=folder / "train.parquet",
            label_column=label,
            max_seq_length=32,
            learning_rate=2e-3,
            num_train_epochs=6,
            save_strategy="no",
            output_dir=folder / output,
        )
    return folder


@pytest.fixture
def model(folder, tmp_path):
    """A copy that a test may change."""
    return shutil.copytree(folder / "classifier", tmp_path / "model")


def calibrate(model, folder, **flags):
    table = folder / "check.parquet"
    return summary("evaluate", model_name_or_path=model, input=table, max_seq_length=32, calibrate=True, **flags)


def attempt(verb, model, folder, **flags):
    table = folder / "check.parquet"
    return run(command(verb, model_name_or_path=model, input=table, max_seq_length=32, **flags))


def probabilities(model, folder, output, **flags):
    return numpy.array(predict(model, folder / "check.parquet", output, **flags)["probabilities"])


def test_each_precision_is_near_and_its_own(folder, model, tmp_path):
    exact, bf16, int8 = (
        probabilities(model, folder, tmp_path / f"{precision}.parquet", precision=precision)
        for precision in ("fp32", "bf16", "int8")
    )
    assert 0 < numpy.abs(bf16 - exact).max() < 0.1  # 8 bits of significand over two layers
    assert 0 < numpy.abs(int8 - exact).max() < 0.2
    assert numpy.abs(int8 - bf16).max() > 0
    assert (probabilities(model, folder, tmp_path / "plain.parquet") == exact).all()
    assert (probabilities(model, folder, tmp_path / "short.parquet", bf16=True) == bf16).all()


@pytest.mark.parametrize("tokens", [1, 100, 100_000])
def test_batch_size_does_not_change_scores_in_int8(folder, model, tmp_path, tokens):
    expected = probabilities(model, folder, tmp_path / "expected.parquet", precision="int8")
    scored = probabilities(model, folder, tmp_path / "b.parquet", precision="int8", max_tokens_per_batch=tokens)
    assert (scored == expected).all()


def test_calibration_is_what_evaluate_says_of_each_precision(folder, model):
    result = calibrate(model, folder)
    record = json.loads((model / RECORD).read_text())
    assert record["rows"] == result["rows"] == ROWS
    for precision in ("bf16", "int8"):
        alone = summary(
            "evaluate",
            model_name_or_path=model,
            input=folder / "check.parquet",
            max_seq_length=32,
            precision=precision,
        )
        assert alone["accuracy"] == result[f"{precision}_accuracy"] == record[precision]["metric"]
        assert result[f"{precision}_agreement"] == record[precision]["agreement"] >= 0.99
        assert 0 < record[precision]["mean_logit_difference"] < record[precision]["max_logit_difference"] < 1
    assert result["accuracy"] == record["fp32"]["metric"]


def test_the_files_of_a_checkpoint_are_compared_with_its_sums_once(folder, tmp_path):
    strake(
        "train",
        model_name_or_path=folder / "base",
        train_file=folder / "train.parquet",
        max_seq_length=32,
        max_steps=2,
        save_steps=2,
        output_dir=tmp_path,
    )
    told = attempt("evaluate", tmp_path / "checkpoint-2", folder, calibrate=True)
    assert told.code == 0
    assert told.err.count("checkpoint-2: its files have the checksums of manifest.json") == 1
    with (tmp_path / "checkpoint-2/vocab.txt").open("a") as file:
        file.write("more\n")
    told = attempt("evaluate", tmp_path / "checkpoint-2", folder, calibrate=True)
    assert told.code == FILE and "vocab.txt has" in told.err


def test_auto_takes_int8_once_it_is_known_to_be_near(folder, model):
    before = attempt("evaluate", model, folder, precision="auto")
    assert "--precision auto: int8" not in before.err and RECORD in before.err
    calibrate(model, folder)
    after = attempt("evaluate", model, folder, precision="auto")
    assert after.code == 0
    assert "--precision auto: int8, because of" in after.err and f"of {ROWS} rows have fp32's class" in after.err


def test_a_model_that_cannot_be_written_is_measured_into_another_file(folder, model, tmp_path):
    elsewhere = tmp_path / "measured.json"
    before = sorted(model.iterdir())
    calibrate(model, folder, precision_file=elsewhere)
    assert sorted(model.iterdir()) == before
    assert json.loads(elsewhere.read_text())["rows"] == ROWS
    taken = attempt("evaluate", model, folder, precision="auto", precision_file=elsewhere)
    assert "--precision auto: int8, because of measured.json" in taken.err
    missed = attempt("evaluate", model, folder, precision="auto")
    assert f"there is no {RECORD}" in missed.err


def test_each_run_writes_what_is_known_of_its_accuracy(folder, model, tmp_path):
    def accuracy(precision):
        probabilities(model, folder, tmp_path / f"{precision}.parquet", precision=precision, overwrite_output=True)
        return json.loads((tmp_path / f"_{precision}.parquet.manifest.json").read_text())["accuracy"]

    assert accuracy("int8") == {"measured": False}
    found = calibrate(model, folder)
    assert accuracy("fp32") is None
    known = accuracy("int8")
    assert known["measured"] and known["keeps_promise"] and known["rows"] == ROWS
    assert known["agreement"] == found["int8_agreement"]
    assert known["metric_name"] == "accuracy" and known["metric"] == found["int8_accuracy"]
    assert known["fp32_metric"] == found["accuracy"]


def test_arithmetic_and_the_metric_called_precision_are_two_things(folder, model):
    table = folder / "check.parquet"
    found = summary("evaluate", model_name_or_path=model, input=table, max_seq_length=32, precision="int8")
    assert found["arithmetic"] == "int8"
    assert 0 <= found["precision"] <= 1
    shown = attempt("evaluate", model, folder, precision="int8").out
    assert [line.split()[0] for line in shown.splitlines() if line.split()].count("precision") == 1


def test_int8_without_a_calibration_says_that_it_promises_nothing(folder, model):
    outcome = attempt("evaluate", model, folder, precision="int8")
    assert outcome.code == 0
    assert "nothing is known about its accuracy in int8" in outcome.err and "--calibrate" in outcome.err


def is_not_trusted(model, folder, why):
    outcome = attempt("evaluate", model, folder, precision="int8")
    assert outcome.code == 2 and why in outcome.err and "measure again with strake evaluate --calibrate" in outcome.err
    outcome = attempt("evaluate", model, folder, precision="auto")
    assert outcome.code == 0 and why in outcome.err and "--precision auto: int8" not in outcome.err
    found = summary(
        "evaluate", model_name_or_path=model, input=folder / "check.parquet", max_seq_length=32, precision="bf16"
    )
    assert not found["accuracy_of_arithmetic"]["measured"] and why in found["accuracy_of_arithmetic"]["why"]


def test_a_calibration_of_other_weights_is_not_trusted(folder, model):
    calibrate(model, folder)
    change_weights(model, lambda name, array: array * 1.0001)
    is_not_trusted(model, folder, "was measured for other weights")


def test_a_calibration_with_another_tokenizer_is_not_trusted(folder, model):
    calibrate(model, folder)
    words = word_piece_vocabulary()
    (model / "vocab.txt").write_text("\n".join([*words[:-1], "?!"]) + "\n")
    is_not_trusted(model, folder, "was measured with another tokenizer")
    calibrate(model, folder)
    assert "--precision auto: int8" in attempt("evaluate", model, folder, precision="auto").err


def test_other_conditions_than_those_of_the_calibration_are_told(folder, model, tmp_path):
    calibrate(model, folder)

    def notices(max_seq_length, isa=None):
        flags = {"model_name_or_path": model, "input": folder / "check.parquet", "max_seq_length": max_seq_length}
        line = command("predict", precision="int8", output=tmp_path / "out.parquet", **flags)
        outcome = run(line, env=environment(STRAKE_ISA=isa) if isa else None)
        assert outcome.code == 0
        accuracy = json.loads((tmp_path / "_out.parquet.manifest.json").read_text())["accuracy"]
        assert accuracy["measured"] and accuracy["max_seq_length"] == 32
        told = accuracy.get("notices", [])
        assert all(notice in outcome.err for notice in told)
        return told

    assert notices(32) == []
    (longer,) = notices(48)
    assert "measured with --max_seq_length 32, and this run has 48: nothing is known of longer texts" in longer
    kernels = json.loads((model / RECORD).read_text())["measured_with"]["kernels"]
    if kernels == "reference":
        pytest.skip("this processor has only the reference kernels")
    (other,) = notices(32, isa="reference")
    assert f"measured with the kernels {kernels}, and this run has reference" in other


def test_auto_does_not_rely_on_a_calibration_of_few_rows(folder, model, tmp_path):
    write_table(tmp_path / "check.parquet", reviews(ROWS - 1, seed=2))
    told = attempt("evaluate", model, tmp_path, calibrate=True)
    assert told.code == 0
    assert f"--precision auto relies on a calibration of {ROWS} or more" in told.err
    outcome = attempt("evaluate", model, folder, precision="auto")
    assert "--precision auto: int8" not in outcome.err
    assert f"because int8 was measured on {ROWS - 1} rows, and {ROWS} are needed to rely on it" in outcome.err
    output = tmp_path / "out.parquet"
    outcome = attempt("predict", model, folder, precision="int8", output=output)
    assert outcome.code == 0 and f"int8 was measured on {ROWS - 1} rows, which are too few" in outcome.err
    accuracy = json.loads((tmp_path / "_out.parquet.manifest.json").read_text())["accuracy"]
    assert accuracy["measured"] and not accuracy["enough_rows"] and not accuracy["keeps_promise"]
    told = attempt("evaluate", model, folder, calibrate=True)
    assert "too few" not in told.err and "--precision auto relies" not in told.err


def test_linears_that_the_file_names_stay_in_bf16(folder, model, tmp_path):
    calibrate(model, folder)
    record = json.loads((model / RECORD).read_text())
    names = ["attention.qkv", "attention.output", "feed_forward.in", "feed_forward.out"]
    record["int8"]["bf16_linears"] = [{"layer": layer, "linear": name} for layer in (0, 1) for name in names]
    (model / RECORD).write_text(json.dumps(record))
    int8 = probabilities(model, folder, tmp_path / "int8.parquet", precision="int8")
    assert (int8 == probabilities(model, folder, tmp_path / "bf16.parquet", precision="bf16")).all()


def test_calibration_keeps_the_harmful_linears_in_bf16(folder, model):
    """One input of some linear layers is much larger than the others, which have no steps left between 0 and 1."""

    def spoil(name, array):
        array = array.copy()
        if name.endswith(("intermediate.dense.bias", "value.bias")):
            array[5] = 2000
        if name.endswith("output.dense.weight"):
            array[:, 5] = 0  # and is not used at all
        return array

    change_weights(model, spoil)
    result = calibrate(model, folder)
    kept = json.loads((model / RECORD).read_text())["int8"]["bf16_linears"]
    spoilt = [{"layer": layer, "linear": name} for layer in (0, 1) for name in ("attention.output", "feed_forward.out")]
    assert kept and all(linear in spoilt for linear in kept)
    assert result["int8_linears_in_bf16"] == len(kept)
    assert result["int8_agreement"] >= 0.99
    assert attempt("evaluate", model, folder, precision="auto").err.count("linear layers in bf16")
    (model / RECORD).unlink()
    alone = summary(
        "evaluate", model_name_or_path=model, input=folder / "check.parquet", max_seq_length=32, precision="int8"
    )
    assert alone["accuracy"] < result["int8_accuracy"] - 0.005, "else there was nothing to mend"


def test_regression_is_calibrated_by_its_correlation(folder, tmp_path):
    model = shutil.copytree(folder / "regressor", tmp_path / "model")
    result = calibrate(model, folder, label_column="score")
    record = json.loads((model / RECORD).read_text())
    assert record["metric"] == "pearson" and "agreement" not in record["int8"]
    assert abs(result["int8_pearson"] - result["pearson"]) <= 0.005
    outcome = attempt("evaluate", model, folder, label_column="score", precision="auto")
    assert "--precision auto: int8" in outcome.err


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ({"precision": "int4"}, "--precision int4 is none of fp32, bf16, int8, auto"),
        ({"precision": "int8", "bf16": True}, "--bf16 contradicts --precision int8"),
        ({"precision": "fp32", "bf16": True}, "--bf16 contradicts --precision fp32"),
        ({"precision": "int8", "calibrate": True}, "leave out --precision"),
        ({"bf16": True, "calibrate": True}, "leave out --precision"),
        ({"precision_file": "m.json"}, "--precision_file m.json is of --precision auto, int8 and bf16"),
    ],
)
def test_contradictions_are_refused(folder, model, flags, text):
    outcome = attempt("evaluate", model, folder, **flags)
    assert outcome.code == 2
    assert text in outcome.err


def test_activations_that_overflow_are_refused_with_their_layer(folder, model):
    huge = "layer.1.intermediate.dense.weight"
    change_weights(model, lambda name, array: numpy.sign(array) * numpy.float32(3e38) if name.endswith(huge) else array)
    outcome = attempt("evaluate", model, folder, precision="int8")
    assert outcome.code == 6
    assert "the input of layer 1 feed_forward.out holds infinity or NaN" in outcome.err
    assert f"({folder}/check.parquet, row 0)" in outcome.err
    outcome = attempt("evaluate", model, folder, precision="bf16")
    assert outcome.code == 6 and "try --precision fp32" in outcome.err


def test_the_row_is_named_whose_activations_overflow(model, tmp_path):
    rows = reviews(3000, seed=4)
    rows[2345]["text"] += " 7"
    write_table(tmp_path / "check.parquet", rows)
    seven = word_piece_vocabulary().index("7")

    def spoil(name, array):
        if name.endswith("word_embeddings.weight"):
            array[seven] = numpy.inf
        return array

    change_weights(model, spoil)
    outcome = attempt("predict", model, tmp_path, output=tmp_path / "out.parquet", precision="int8")
    assert outcome.code == 6
    assert f"({tmp_path}/check.parquet, row 2345)" in outcome.err
    assert not (tmp_path / "out.parquet").exists()


@pytest.mark.skipif(pathlib.Path("/dev/nvidiactl").exists(), reason="skipped: there is a GPU")
@pytest.mark.parametrize("verb", ["predict", "evaluate"])
def test_a_gpu_that_is_asked_for_and_not_there_ends_the_run(folder, model, tmp_path, verb):
    flags = {"output": tmp_path / "out.parquet"} if verb == "predict" else {}
    outcome = attempt(verb, model, folder, device="cuda", **flags)
    assert outcome.code == USAGE
    assert "no GPU" in outcome.err or "no tensors on GPUs" in outcome.err
    assert "(--device cuda)" in outcome.err
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
