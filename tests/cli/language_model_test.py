"""strake train --task causal-lm: what is trained on, what is said, what is refused."""

import json
import resource
import shutil

import pytest
from program import SANITIZE, command, losses, metrics, run, strake, summary
from task_runs import TaskRuns
from tiny_models import make_language_model, make_model, read_config, reviews, write_table

USAGE, DATA = 2, 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("language_model")
    make_language_model(folder / "gpt2", dropout=0.1)
    make_model(folder / "bert")
    write_table(folder / "train.txt", reviews(30))
    return folder


def flags_of(folder, output, **changes):
    flags = {
        "task": "causal-lm",
        "model_name_or_path": folder / "gpt2",
        "train_file": folder / "train.txt",
        "output_dir": output,
        "block_size": 32,
        "max_steps": 3,
        "logging_steps": 1,
        "save_strategy": "no",
    }
    return flags | changes


RUNS = TaskRuns(flags_of)
train, refused = RUNS.train, RUNS.refused


def test_perplexity_is_told(folder, tmp_path):
    output = train(folder, tmp_path / "out", validation_file=folder / "train.txt", eval_strategy="epoch").out
    assert "eval_perplexity" in output
    assert [e["step"] for e in metrics(tmp_path / "out") if "eval_perplexity" in e] == [3]


def test_documents_without_a_target_are_counted(folder, tmp_path):
    """An empty one and two of one token; 33 tokens are one more than a block."""
    texts = ["", "~", "the film was good", "~", "~" * 33]
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    told = train(folder, tmp_path / "out", train_file=tmp_path / "texts.jsonl").err
    assert "3 of 5 documents have fewer than two tokens" in told
    assert "of 1 cut documents the last token stands alone" in told
    assert "2 training sequences" in told


def test_data_without_any_target_is_refused(folder, tmp_path):
    (tmp_path / "texts.txt").write_text("a\na\n")
    message = refused(folder, tmp_path / "out", code=DATA, train_file=tmp_path / "texts.txt")
    assert "texts.txt has no document of two tokens or more" in message


def test_prepared_tokens_train_alike(folder, tmp_path):
    train(folder, tmp_path / "text")
    tokens = tmp_path / "tokens.parquet"
    strake("prepare", tokenizer=folder / "gpt2", input=folder / "train.txt", output=tokens, max_seq_length=10000)
    train(folder, tmp_path / "tokens", train_file=tokens)
    assert losses(tmp_path / "tokens") == losses(tmp_path / "text")


def test_documents_that_prepare_has_cut_are_told(folder, tmp_path):
    texts = ["~" * 40, "~" * 8, "~" * 7]
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    tokens = tmp_path / "tokens.parquet"
    prepare = {"tokenizer": folder / "gpt2", "input": tmp_path / "texts.jsonl", "output": tokens}
    assert summary("prepare", max_seq_length=8, **prepare)["rows_cut"] == 1
    told = train(folder, tmp_path / "out", train_file=tokens).err
    assert "2 of 3 documents have 8 tokens, where strake prepare cuts them (--max_seq_length)" in told
    strake("prepare", max_seq_length=100, **prepare)
    assert "where strake prepare cuts them" not in train(folder, tmp_path / "whole", train_file=tokens).err


def test_a_resumed_run_ends_with_the_same_bits(folder, tmp_path):
    RUNS.assert_resumes_with_the_same_bits(folder, tmp_path)


def test_a_run_is_not_resumed_with_another_configuration(folder, tmp_path):
    size = read_config(folder / "gpt2")["vocab_size"]
    scratch = {"model_name_or_path": None, "model_type": "gpt2", "tokenizer_name": folder / "gpt2"}
    overrides = f"vocab_size={size},n_layer=1,n_embd=8,n_positions=32,n_head="
    train(folder, tmp_path / "out", config_overrides=overrides + "2", save_strategy="steps", save_steps=2, **scratch)
    flags = flags_of(
        folder, tmp_path / "out", config_overrides=overrides + "1", resume_from_checkpoint="true", **scratch
    )
    outcome = run(command("train", **flags))
    assert outcome.code == USAGE
    assert "started with model_config.n_head = 2, now it is 1" in outcome.err


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"task": "masked-lm"}, "--block_size 32: with --task masked-lm it is --max_seq_length"),
        ({"block_size": 1}, "--block_size 1"),
        ({"block_size": 65}, "--block_size 65 is more than the model's 64 positions"),
        ({"max_seq_length": 64}, "--block_size"),
        ({"max_seq_length": 128}, "--block_size"),
        ({"metric_for_best_model": "accuracy"}, "none of the metrics of language models: loss, perplexity"),
        ({"text_pair_column": "b"}, "--text_pair_column b does not belong"),
        ({"problem_type": "regression"}, "--problem_type regression does not belong"),
        ({"model_type": "gpt2"}, "either --model_name_or_path"),
        ({"model_name_or_path": None}, "either --model_name_or_path"),
        ({"model_name_or_path": None, "model_type": "llama"}, "--task causal-lm has gpt2"),
        ({"model_name_or_path": None, "model_type": "gpt2"}, "--tokenizer_name"),
        ({"config_overrides": "n_layer=1"}, "--config_overrides n_layer=1 would contradict the weights"),
        ({"task": "sequence-classification"}, "--block_size 32 belongs to --task causal-lm"),
    ],
)
def test_flags_that_contradict_the_task_are_refused(folder, tmp_path, changes, named):
    assert named in refused(folder, tmp_path / "out", **changes)


def test_each_model_is_refused_where_it_does_not_belong(folder, tmp_path):
    assert "model_type 'bert' is not supported as a causal" in refused(
        folder, tmp_path / "out", model_name_or_path=folder / "bert"
    )
    line = command(
        "predict",
        task="feature-extraction",
        model_name_or_path=folder / "gpt2",
        input=folder / "train.txt",
        output=tmp_path / "scored.parquet",
    )
    outcome = run(line)
    assert outcome.code == USAGE
    assert "gpt2 is a causal language model, not an encoder" in outcome.err


def test_a_tokenizer_of_another_model_is_refused(folder, tmp_path):
    size = read_config(folder / "gpt2")["vocab_size"]
    message = refused(
        folder,
        tmp_path / "out",
        model_name_or_path=None,
        model_type="gpt2",
        tokenizer_name=folder / "gpt2",
        config_overrides=f"vocab_size={size - 200},n_layer=1,n_embd=8,n_head=1",
    )
    assert f"vocab_size {size - 200} is less than the {size} tokens of" in message


def test_a_model_of_fewer_tokens_than_its_tokenizer_is_told(folder, tmp_path):
    model = shutil.copytree(folder / "gpt2", tmp_path / "gpt2")
    size = read_config(model)["vocab_size"]
    tokenizer = json.loads((model / "tokenizer.json").read_text())
    tokenizer["added_tokens"].append(tokenizer["added_tokens"][0] | {"id": size, "content": "<more>"})
    (model / "tokenizer.json").write_text(json.dumps(tokenizer))
    outcome = train(folder, tmp_path / "out", model_name_or_path=model)
    assert f"has embeddings for {size} tokens, and its tokenizer {size + 1} different ones" in outcome.err


def test_what_generation_reads_is_taken_along(folder, tmp_path):
    model = shutil.copytree(folder / "gpt2", tmp_path / "gpt2")
    (model / "generation_config.json").write_text('{"max_new_tokens": 7}')
    train(folder, tmp_path / "out", model_name_or_path=model, save_strategy="steps")
    for output in (tmp_path / "out", tmp_path / "out" / "checkpoint-3"):
        assert (output / "generation_config.json").read_text() == '{"max_new_tokens": 7}'
    train(folder, tmp_path / "out", overwrite_output_dir=True)
    assert not (tmp_path / "out" / "generation_config.json").exists()


def test_flags_of_text_do_not_apply_to_tokens(folder, tmp_path):
    tokens = tmp_path / "tokens.parquet"
    strake("prepare", tokenizer=folder / "gpt2", input=folder / "train.txt", output=tokens, max_seq_length=64)
    message = refused(folder, tmp_path / "out", train_file=tokens, text_column="nonsense")
    assert "--text_column cannot apply" in message


@pytest.mark.skipif("address" in SANITIZE, reason="AddressSanitizer itself needs more than the limit")
def test_too_little_memory_is_told(folder, tmp_path):
    scratch = {"model_name_or_path": None, "model_type": "gpt2", "tokenizer_name": folder / "gpt2"}
    large = scratch | {"config_overrides": "n_embd=4096,n_head=4,n_layer=2"}
    flags = {name: value for name, value in flags_of(folder, tmp_path / "out", **large).items() if value is not None}

    def limit():
        resource.setrlimit(resource.RLIMIT_DATA, (2**30, 2**30))

    outcome = run(command("train", **flags), preexec_fn=limit)
    assert outcome.code == USAGE, outcome.err
    assert "ulimit -d" in outcome.err and "--gradient_checkpointing" in outcome.err
