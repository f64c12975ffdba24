"""strake evaluate of a language model: the numbers of a training run's evaluations, and what is refused."""

import json
import math
import shutil

import pyarrow.parquet as parquet
import pytest
from program import command, environment, metrics, run, strake, summary
from refusals import DATA, FILE, NUMERIC, USAGE
from tiny_models import change_weights, make_language_model, make_model, reviews, write_table

BLOCK = 16


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    make_language_model(folder / "tied", dropout=0.1)
    make_language_model(folder / "untied", dropout=0.1, tied=False)
    make_model(folder / "classifier", head=True)
    write_table(folder / "texts.parquet", reviews(60))
    return folder


def evaluated(folder, model="tied", **flags):
    flags = {"model_name_or_path": folder / model, "input": folder / "texts.parquet", "block_size": BLOCK} | flags
    return summary("evaluate", **flags)


def numbers(found):
    return {name: found[name] for name in ("loss", "perplexity", "rows", "rows_cut", "tokens")}


@pytest.mark.parametrize("model", ["tied", "untied"])
@pytest.mark.parametrize("precision", [{}, {"bf16": True}])
def test_the_numbers_are_those_of_training(folder, tmp_path, model, precision):
    strake(
        "train",
        task="causal-lm",
        model_name_or_path=folder / model,
        train_file=folder / "texts.parquet",
        validation_file=folder / "texts.parquet",
        block_size=BLOCK,
        max_steps=1,
        eval_strategy="epoch",
        eval_on_start=True,
        output_dir=tmp_path / "out",
        **precision,
    )
    before, after = [entry for entry in metrics(tmp_path / "out") if "eval_loss" in entry]
    for place, expected in ((folder / model, before), (tmp_path / "out", after)):
        found = evaluated(folder, place, **precision)
        assert found["loss"] == expected["eval_loss"]
        assert found["perplexity"] == expected["eval_perplexity"]
        assert found["arithmetic"] == ("bf16" if precision else "fp32")
    assert before["eval_loss"] != after["eval_loss"]


@pytest.mark.parametrize("flags", [{"max_tokens_per_batch": 1}, {"max_tokens_per_batch": 50}, {"task": "causal-lm"}])
def test_numbers_do_not_depend_on_how_they_are_computed(folder, flags):
    assert numbers(evaluated(folder, **flags)) == numbers(evaluated(folder))


def test_nor_on_threads_and_prepared_tokens(folder, tmp_path):
    tokens = tmp_path / "tokens.parquet"
    strake("prepare", tokenizer=folder / "tied", input=folder / "texts.parquet", output=tokens, max_seq_length=10_000)
    expected = numbers(evaluated(folder))
    assert numbers(evaluated(folder, input=tokens)) == expected
    line = command("evaluate", model_name_or_path=folder / "tied", input=tokens, block_size=BLOCK, summary_json=True)
    three = run(line, env=environment(STRAKE_NUM_THREADS="3"))
    assert f'"perplexity":{expected["perplexity"]!r}' in three.out, three.err


@pytest.mark.parametrize(
    "flags", [{"doc_stride": 5}, {"add_start_token": "true"}, {"add_start_token": "true", "doc_stride": 1}]
)
def test_with_more_context_they_are_the_mean_of_what_predict_says(folder, tmp_path, flags):
    output = tmp_path / "out.parquet"
    columns = {"output_columns": ["loss", "predicted_tokens"], "block_size": BLOCK}
    strake(
        "predict", model_name_or_path=folder / "tied", input=folder / "texts.parquet", output=output, **columns, **flags
    )
    rows = parquet.read_table(output).select(columns["output_columns"]).to_pylist()
    counted = [(row["loss"], row["predicted_tokens"]) for row in rows if row["predicted_tokens"]]
    loss = sum(loss * count for loss, count in counted) / sum(count for _, count in counted)
    found, plain = evaluated(folder, **flags), evaluated(folder)
    assert found["loss"] == pytest.approx(loss, rel=1e-12)
    assert found["perplexity"] == pytest.approx(math.exp(loss), rel=1e-12)
    assert found["rows"] == plain["rows"]
    assert found["rows_cut"] >= plain["rows_cut"], "a start token takes a place, too"
    assert found["loss"] != plain["loss"]
    assert evaluated(folder, doc_stride=0, add_start_token="false")["loss"] == plain["loss"]


def test_prepared_tokens_have_no_more_context(folder, tmp_path):
    strake("prepare", tokenizer=folder / "tied", input=folder / "texts.parquet", output=tmp_path / "tokens.parquet")
    line = command("evaluate", model_name_or_path=folder / "tied", input=tmp_path / "tokens.parquet", doc_stride=4)
    outcome = run(line)
    assert outcome.code == USAGE
    assert "tokens.parquet was made by strake prepare, and --doc_stride is of texts" in outcome.err


def test_longer_documents_are_counted(folder):
    found = evaluated(folder)
    assert found["rows"] == 60 and 0 < found["rows_cut"] < 60
    assert evaluated(folder, block_size=64)["rows_cut"] < found["rows_cut"]
    assert evaluated(folder, block_size=None) | {"seconds": 0, "load_seconds": 0} == evaluated(
        folder, block_size=64
    ) | {
        "seconds": 0,
        "load_seconds": 0,
    }


@pytest.mark.parametrize(
    ("flags", "code", "named"),
    [
        ({"block_size": 65}, USAGE, "--block_size 65 is more than the model's 64 positions"),
        ({"block_size": 1}, USAGE, "--block_size 1 is not at least 2"),
        ({"max_seq_length": 32}, USAGE, "--max_seq_length: texts of a language model are"),
        ({"precision": "int8"}, USAGE, "--precision int8: language models compute in fp32 or bf16"),
        ({"device": "cuda", "max_tokens_per_batch": 64}, USAGE, "--max_tokens_per_batch 64 is not of a language model"),
        ({"precision": "auto"}, USAGE, "--precision auto: language models compute in fp32 or bf16"),
        ({"precision": "fp32", "bf16": True}, USAGE, "--bf16 contradicts --precision fp32"),
        ({"doc_stride": 16}, USAGE, "--doc_stride 16 must be less than --block_size 16"),
        (
            {"add_start_token": "true", "model_name_or_path": "classifier", "block_size": None},
            USAGE,
            "--add_start_token is",
        ),
        ({"calibrate": True}, USAGE, "--calibrate is not of --task causal-lm"),
        ({"precision_file": "m.json"}, USAGE, "--precision_file is not of"),
        ({"label_column": "label"}, USAGE, "--label_column is not of --task causal-lm"),
        ({"pooling": "mean"}, USAGE, "--pooling and --normalize are of --task feature-extraction"),
        ({"text_column": "txt"}, DATA, "there is no column 'txt'"),
        ({"task": "text-classification", "block_size": None}, USAGE, "gpt2 is a causal language model, not an encoder"),
        ({"model_name_or_path": "classifier"}, USAGE, "--block_size is of --task causal-lm, and the task is text"),
        ({"model_name_or_path": "classifier", "task": "causal-lm"}, USAGE, "model_type 'bert' is not supported as a"),
        ({"model_name_or_path": "nowhere"}, FILE, "nowhere/config.json"),
    ],
)
def test_what_does_not_belong_is_refused(folder, flags, code, named):
    flags = {"model_name_or_path": "tied", "input": folder / "texts.parquet", "block_size": BLOCK} | flags
    outcome = run(command("evaluate", **(flags | {"model_name_or_path": folder / flags["model_name_or_path"]})))
    assert outcome.code == code, outcome.err
    assert named in outcome.err
    assert outcome.out == ""


def test_text_flags_of_prepared_tokens_are_refused(folder, tmp_path):
    tokens = tmp_path / "tokens.parquet"
    strake("prepare", tokenizer=folder / "tied", input=folder / "texts.parquet", output=tokens)
    outcome = run(command("evaluate", model_name_or_path=folder / "tied", input=tokens, text_column="text"))
    assert outcome.code == USAGE
    assert "leave out --text_column and --encoding" in outcome.err


def test_documents_without_a_target_are_refused(folder, tmp_path):
    (tmp_path / "texts.txt").write_text("a\na\n")
    outcome = run(command("evaluate", model_name_or_path=folder / "tied", input=tmp_path / "texts.txt"))
    assert outcome.code == DATA
    assert "texts.txt has no document of two tokens or more" in outcome.err


def test_weights_that_are_missing_or_broken_are_refused(folder, tmp_path):
    lacking = shutil.copytree(folder / "untied", tmp_path / "lacking")
    change_weights(lacking, lambda name, array: None if name == "lm_head.weight" else array)
    outcome = run(command("evaluate", model_name_or_path=lacking, input=folder / "texts.parquet"))
    assert outcome.code == USAGE
    assert "has no lm_head.weight: these weights were never trained" in outcome.err
    broken = shutil.copytree(folder / "tied", tmp_path / "broken")
    change_weights(broken, lambda name, array: array * float("nan") if name.endswith("ln_f.bias") else array)
    outcome = run(command("evaluate", model_name_or_path=broken, input=folder / "texts.parquet"))
    assert outcome.code == NUMERIC
    assert "the loss is nan, not a finite number" in outcome.err


@pytest.mark.parametrize("verb", ["evaluate", "predict"])
def test_a_classifier_on_gpt2_is_not_taken_for_a_language_model(folder, tmp_path, verb):
    model = shutil.copytree(folder / "tied", tmp_path / "model")
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"architectures": ["GPT2ForSequenceClassification"]}))
    flags = {"model_name_or_path": model, "input": folder / "texts.parquet", "block_size": BLOCK}
    if verb == "predict":
        flags["output"] = tmp_path / "out.parquet"
    outcome = run(command(verb, **flags))
    assert outcome.code == USAGE and "config.json: GPT2ForSequenceClassification is not supported" in outcome.err
    strake(verb, task="causal-lm", **flags)
