"""strake predict and strake worker of a language model: loss and perplexity of every text."""

import json
import math
import shutil
import subprocess

import numpy as np
import pyarrow
import pyarrow.parquet as parquet
import pytest
import transformers
from program import command, environment, full_disk, run, strake, summary
from refusals import DATA, FILE, NUMERIC, USAGE
from tiny_models import change_weights, make_language_model, make_model, reviews, write_table

BLOCK = 16
COLUMNS = ["perplexity", "loss", "predicted_tokens"]
ALONE, EMPTY = 7, 30  # rows whose text has one token, and none


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    make_language_model(folder / "tied", dropout=0.1)
    make_language_model(folder / "untied", tied=False)
    make_model(folder / "classifier", head=True)
    rows = reviews(60, longest=40)
    rows[ALONE]["text"] = "a"
    rows[EMPTY]["text"] = ""
    write_table(folder / "texts.parquet", rows)
    return folder


def flags_of(folder, **flags):
    flags = {"model_name_or_path": "tied", "input": "texts.parquet", "block_size": BLOCK} | flags
    return flags | {name: folder / flags[name] for name in ("model_name_or_path", "input")}


def scored(folder, output, **flags):
    flags = {"output_columns": COLUMNS} | flags
    strake("predict", output=output, **flags_of(folder, **flags))
    return parquet.read_table(output)


def token_counts(folder):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "tied")
    return [
        len(tokenizer(text)["input_ids"]) for text in parquet.read_table(folder / "texts.parquet")["text"].to_pylist()
    ]


@pytest.fixture(scope="module")
def expected(folder):
    return scored(folder, folder / "expected.parquet")


@pytest.mark.parametrize("model", ["tied", "untied"])
@pytest.mark.parametrize("precision", [{}, {"bf16": True}])
def test_a_text_has_the_numbers_of_an_evaluation_of_it_alone(folder, tmp_path, model, precision):
    rows = scored(folder, tmp_path / "out.parquet", model_name_or_path=model, **precision).to_pylist()
    for row in rows[:12]:
        if row["loss"] is None:
            continue
        write_table(tmp_path / "one.parquet", [{"text": row["text"]}])
        alone = summary(
            "evaluate", **flags_of(folder, model_name_or_path=model, input=tmp_path / "one.parquet", **precision)
        )
        assert row["loss"] == np.float32(alone["loss"])
        assert row["perplexity"] == pytest.approx(alone["perplexity"], rel=1e-6)  # of the loss in single precision


def test_all_texts_together_have_the_evaluation_of_the_table(folder, expected):
    rows = expected.to_pylist()
    predicted = sum(row["predicted_tokens"] for row in rows)
    mean = math.fsum((row["loss"] or 0) * row["predicted_tokens"] for row in rows) / predicted
    assert summary("evaluate", **flags_of(folder))["loss"] == pytest.approx(mean, rel=1e-6)  # losses are rounded


def test_a_text_that_predicts_nothing_has_no_loss(expected):
    for row in (ALONE, EMPTY):
        assert expected.slice(row, 1).select(COLUMNS).to_pylist() == [
            {"perplexity": None, "loss": None, "predicted_tokens": 0}
        ]
    assert expected["loss"].null_count == expected["perplexity"].null_count == 2


def test_the_usual_columns(folder, tmp_path):
    table = scored(folder, tmp_path / "out.parquet", output_columns=None, keep_columns="number")
    assert table.column_names == ["number", "perplexity", "loss"]
    assert [str(field.type) for field in table.schema] == ["int64", "float", "float"]


@pytest.mark.parametrize("flags", [{"max_tokens_per_batch": 1}, {"max_tokens_per_batch": 37}, {"task": "causal-lm"}])
def test_numbers_do_not_depend_on_how_they_are_computed(folder, tmp_path, expected, flags):
    assert scored(folder, tmp_path / "out.parquet", **flags).equals(expected)


def test_nor_on_threads_and_order(folder, tmp_path, expected):
    three = environment(STRAKE_NUM_THREADS="3")
    assert scored(folder, tmp_path / "out.parquet", env=three).equals(expected)
    parquet.write_table(
        parquet.read_table(folder / "texts.parquet").take(list(range(59, -1, -1))), tmp_path / "turned.parquet"
    )
    turned = scored(folder, tmp_path / "out.parquet", input=tmp_path / "turned.parquet")
    assert turned.take(list(range(59, -1, -1))).equals(expected)


def test_shards_and_smaller_blocks(folder, tmp_path, expected):
    parts = []
    for index in range(3):
        strake("predict", output=f"{tmp_path}/parts/", shard=f"{index}/3", output_columns=COLUMNS, **flags_of(folder))
    parts = [parquet.read_table(path) for path in sorted((tmp_path / "parts").glob("part-*.parquet"))]
    assert pyarrow.concat_tables(parts).equals(expected)
    whole = scored(folder, tmp_path / "whole.parquet", block_size=64)
    assert whole["predicted_tokens"].to_pylist() >= expected["predicted_tokens"].to_pylist()
    assert not whole.equals(expected)


def test_pieces_may_see_the_end_of_the_one_before(folder, tmp_path, expected):
    for stride in (1, 5, 15):
        shared = scored(folder, tmp_path / "out.parquet", doc_stride=stride)
        lengths = [max(0, count - 1) for count in token_counts(folder)]
        assert shared["predicted_tokens"].to_pylist() == lengths, "every token but the first of a text"
        for row, (alone, found) in enumerate(
            zip(expected["loss"].to_pylist(), shared["loss"].to_pylist(), strict=True)
        ):
            assert (alone == found) == (lengths[row] < BLOCK), "only of texts that are cut"
    assert scored(folder, tmp_path / "out.parquet", doc_stride=0).equals(expected)


def test_a_start_token_lets_the_first_one_be_predicted(folder, tmp_path, expected):
    started = scored(folder, tmp_path / "out.parquet", add_start_token="true", block_size=64, doc_stride=1)
    assert started["predicted_tokens"].to_pylist() == token_counts(folder)
    assert started["loss"].null_count == 1, "of the text without tokens"
    assert scored(folder, tmp_path / "out.parquet", add_start_token="false").equals(expected)


def test_a_start_token_must_be_there_and_be_alone(folder, tmp_path):
    without = shutil.copytree(folder / "tied", tmp_path / "without")
    (without / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    started = {"add_start_token": "true"}
    line = command("predict", output=tmp_path / "o.parquet", **flags_of(folder, model_name_or_path=without, **started))
    outcome = run(line)
    assert outcome.code == USAGE
    assert "the tokenizer has no bos_token, which --add_start_token puts before a text" in outcome.err
    adds = shutil.copytree(folder / "tied", tmp_path / "adds")
    tokenizer = json.loads((adds / "tokenizer.json").read_text())
    tokenizer["post_processor"] = {
        "type": "RobertaProcessing",
        "sep": ["</s>", 2],
        "cls": ["<|endoftext|>", 0],
        "trim_offsets": True,
        "add_prefix_space": False,
    }
    (adds / "tokenizer.json").write_text(json.dumps(tokenizer))
    outcome = run(
        command("predict", output=tmp_path / "o.parquet", **flags_of(folder, model_name_or_path=adds, **started))
    )
    assert outcome.code == USAGE
    assert "the tokenizer adds special tokens to every text: leave out --add_start_token" in outcome.err


def test_the_manifest_and_the_file_say_what_was_computed(folder, tmp_path):
    scored(folder, tmp_path / "fp32.parquet")
    exact = json.loads((tmp_path / "_fp32.parquet.manifest.json").read_text())
    scored(folder, tmp_path / "out.parquet", bf16=True)
    manifest = json.loads((tmp_path / "_out.parquet.manifest.json").read_text())
    assert manifest["precision"] == "bf16"
    assert manifest["job"]["task"] == "causal-lm"
    assert manifest["job"]["block_size"] == BLOCK and "max_seq_length" not in manifest["job"]
    assert 0 < manifest["rows_cut"] < 60
    assert manifest["memory_bytes"]["weights"] == exact["memory_bytes"]["weights"] / 2 > 0
    assert 0 < manifest["memory_bytes"]["activations"] < exact["memory_bytes"]["activations"]
    assert parquet.read_metadata(tmp_path / "out.parquet").metadata[b"strake.block_size"] == b"16"


def test_a_full_disk_keeps_what_was_scored(folder, tmp_path):
    write_table(tmp_path / "many.parquet", reviews(3000))
    flags = {"input": tmp_path / "many.parquet", "max_tokens_per_batch": 64, "output_columns": COLUMNS}
    output = tmp_path / "out.parquet"
    outcome = run(command("predict", output=output, **flags_of(folder, **flags)), **full_disk(12_000))
    assert outcome.code == FILE
    assert "rows are scored and kept" in outcome.err
    again = summary("predict", output=output, **flags_of(folder, **flags))
    assert again["resumes"] == 1 and 0 < again["rows_scored"] < 3000
    strake("predict", output=tmp_path / "once.parquet", **flags_of(folder, **flags))
    assert output.read_bytes() == (tmp_path / "once.parquet").read_bytes()


def test_going_on_with_another_block_size_is_refused(folder, tmp_path):
    write_table(tmp_path / "many.parquet", reviews(3000))
    flags = flags_of(folder, input=tmp_path / "many.parquet", max_tokens_per_batch=64)
    line = command("predict", output=tmp_path / "out.parquet", **flags)
    assert run(line, **full_disk(12_000)).code == FILE
    outcome = run(command("predict", output=tmp_path / "out.parquet", **(flags | {"block_size": 32})))
    assert outcome.code == USAGE
    assert "had block_size = 16, now it is 32" in outcome.err


def test_a_worker_gives_the_same(folder, expected):
    batches = parquet.read_table(folder / "texts.parquet").to_batches(max_chunksize=13)
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    line = command("worker", model_name_or_path=folder / "tied", block_size=BLOCK, output_columns=COLUMNS)
    worker = subprocess.run(line, input=sink.getvalue().to_pybytes(), capture_output=True, env=environment())
    assert worker.returncode == 0, worker.stderr.decode()
    found = pyarrow.ipc.open_stream(worker.stdout).read_all()
    assert found.equals(expected.replace_schema_metadata(found.schema.metadata))


@pytest.mark.parametrize(
    ("flags", "code", "named"),
    [
        ({"block_size": 65}, USAGE, "--block_size 65 is more than the model's 64 positions"),
        ({"block_size": 1}, USAGE, "--block_size 1 is not at least 2"),
        ({"doc_stride": 16}, USAGE, "--doc_stride 16 must be less than --block_size 16"),
        ({"doc_stride": -1}, USAGE, "--doc_stride -1 is negative"),
        (
            {"model_name_or_path": "classifier", "block_size": None, "add_start_token": "false"},
            USAGE,
            "--add_start_token is of --task causal-lm, and the task is text-classification",
        ),
        ({"max_seq_length": 32}, USAGE, "--max_seq_length: texts of a language model are"),
        ({"precision": "int8"}, USAGE, "--precision int8: language models compute in fp32 or bf16"),
        ({"text_pair_column": "label"}, USAGE, "--text_pair_column label: causal-lm looks at single texts"),
        ({"top_k": 2}, USAGE, "--top_k is of --task question-answering, and the task is causal-lm"),
        ({"aggregation_strategy": "max"}, USAGE, "--aggregation_strategy is of --task token-classification"),
        ({"output_columns": "logits"}, USAGE, "the task is causal-lm, which has perplexity, loss, predicted_tokens"),
        ({"output_columns": "perplexty"}, USAGE, "did you mean 'perplexity'?"),
        ({"task": "feature-extraction", "block_size": None}, USAGE, "gpt2 is a causal language model, not an encoder"),
        ({"model_name_or_path": "classifier"}, USAGE, "--block_size is of --task causal-lm, and the task is text"),
        (
            {"model_name_or_path": "classifier", "block_size": None, "output_columns": "loss"},
            USAGE,
            "the task is text-classification, which has prediction",
        ),
        ({"text_column": "number"}, DATA, "'number'"),
    ],
)
def test_what_does_not_belong_is_refused(folder, tmp_path, flags, code, named):
    outcome = run(command("predict", output=tmp_path / "out.parquet", **flags_of(folder, **flags)))
    assert outcome.code == code, outcome.err
    assert named in outcome.err
    assert list(tmp_path.iterdir()) == []


def test_a_column_of_the_input_with_that_name_is_refused(folder, tmp_path):
    write_table(tmp_path / "taken.parquet", [{"text": "a good film", "loss": 1.5}])
    outcome = run(
        command("predict", output=tmp_path / "o.parquet", **flags_of(folder, input=tmp_path / "taken.parquet"))
    )
    assert outcome.code == DATA
    assert "the column 'loss' that would be added already exists" in outcome.err


def test_weights_that_are_missing_or_broken_are_refused(folder, tmp_path):
    lacking = shutil.copytree(folder / "untied", tmp_path / "lacking")
    change_weights(lacking, lambda name, array: None if name == "lm_head.weight" else array)
    outcome = run(command("predict", output=tmp_path / "o.parquet", **flags_of(folder, model_name_or_path=lacking)))
    assert outcome.code == USAGE
    assert "has no lm_head.weight: these weights were never trained" in outcome.err
    broken = shutil.copytree(folder / "tied", tmp_path / "broken")
    change_weights(broken, lambda name, array: array * float("nan") if name.endswith("ln_f.bias") else array)
    outcome = run(command("predict", output=tmp_path / "o.parquet", **flags_of(folder, model_name_or_path=broken)))
    assert outcome.code == NUMERIC
    assert "texts.parquet, row 0" in outcome.err and "the loss is nan, not a finite number" in outcome.err
