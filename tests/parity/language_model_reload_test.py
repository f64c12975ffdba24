"""Language models that strake saves load in Transformers with the same loss, and the other way round."""

import math

import pyarrow.parquet as parquet
import pytest
import torch
import transformers
from program import metrics, strake
from tiny_models import make_language_model, read_config, reviews, write_table
from whole_models import load_whole

BLOCK = 16
# Two layers in fp32, whose sums two programs take in different orders.
TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    return write_table(tmp_path_factory.mktemp("texts") / "texts.jsonl", reviews(24))


def train(texts, output, **flags):
    """Trains, and returns the loss on the same texts of the weights that were saved."""
    defaults = {"learning_rate": 1e-3, "max_steps": 6, "eval_steps": 6, "save_strategy": "no", "block_size": BLOCK}
    inputs = {"train_file": texts, "validation_file": texts, "eval_strategy": "steps"}
    strake("train", task="causal-lm", output_dir=output, **(inputs | defaults | flags))
    evaluations = [entry for entry in metrics(output) if "eval_loss" in entry]
    assert evaluations[-1]["eval_perplexity"] == pytest.approx(math.exp(evaluations[-1]["eval_loss"]))
    return evaluations[-1]["eval_loss"]


def load(folder):
    return load_whole(transformers.AutoModelForCausalLM, folder)


def pieces_of(ids, stride):
    """Pieces of BLOCK tokens, the next one with `stride` tokens of the one before, and labels for what is new in it."""
    begin = seen = 0
    while seen < len(ids):
        piece = torch.tensor(ids[begin : begin + BLOCK])
        labels = piece.clone()
        labels[: seen - begin] = -100
        yield piece, labels
        seen, begin = begin + len(piece), begin + len(piece) - stride


def losses_in_transformers(model, folder, stride=0, start=False):
    """Of every document on its own, in pieces, the sum over its predicted tokens and their number."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    first = [tokenizer.bos_token_id] if start else []
    for row in reviews(24):
        total, count = 0.0, 0
        for piece, labels in pieces_of(first + tokenizer(row["text"])["input_ids"], stride):
            targets = (labels[1:] != -100).sum().item()
            if targets > 0:
                with torch.no_grad():
                    total += model(piece[None], labels=labels[None]).loss.item() * targets
                count += targets
        yield total, count


def loss_in_transformers(model, folder):
    totals, counts = zip(*losses_in_transformers(model, folder), strict=True)
    return sum(totals) / sum(counts)


@pytest.mark.parametrize("tied", [True, False])
def test_transformers_gives_the_same_loss(texts, tmp_path, tied):
    base = make_language_model(tmp_path / "base", dropout=0.1, tied=tied)
    start = loss_in_transformers(load(base), base)
    loss = train(texts, tmp_path / "trained", model_name_or_path=base)
    assert loss < start - 0.1
    model = load(tmp_path / "trained")
    assert type(model).__name__ == "GPT2LMHeadModel"
    assert model.dtype == torch.float32
    assert loss_in_transformers(model, tmp_path / "trained") == pytest.approx(loss, abs=TOLERANCE)
    assert model.config.tie_word_embeddings == tied


@pytest.mark.parametrize("start", [False, True])
@pytest.mark.parametrize("stride", [0, 1, 7])
def test_the_loss_of_every_text_is_that_of_transformers(texts, tmp_path, stride, start):
    base = make_language_model(tmp_path / "base")
    scored = tmp_path / "scored.parquet"
    columns = ["loss", "perplexity", "predicted_tokens"]
    cut = {"block_size": BLOCK, "doc_stride": stride, "add_start_token": str(start).lower(), "output_columns": columns}
    strake("predict", model_name_or_path=base, input=texts, output=scored, **cut)
    rows = parquet.read_table(scored).to_pylist()
    for row, (total, count) in zip(rows, losses_in_transformers(load(base), base, stride, start), strict=True):
        assert row["predicted_tokens"] == count
        assert row["loss"] == pytest.approx(total / count, abs=TOLERANCE)
        assert row["perplexity"] == pytest.approx(math.exp(total / count), rel=2 * TOLERANCE)


def test_strake_goes_on_from_a_base_model_of_transformers(texts, tmp_path):
    """Without head and prefix, in several files with an index."""
    whole = make_language_model(tmp_path / "whole")
    model = load(whole)
    model.transformer.save_pretrained(tmp_path / "base", max_shard_size="40KB")
    transformers.AutoTokenizer.from_pretrained(whole).save_pretrained(tmp_path / "base")
    loss = train(texts, tmp_path / "out", model_name_or_path=tmp_path / "base", learning_rate=1e-30)
    assert loss_in_transformers(model, whole) == pytest.approx(loss, abs=TOLERANCE)


def test_a_model_from_scratch_is_a_model_of_transformers(texts, tmp_path):
    size = read_config(make_language_model(tmp_path / "tokenizer"))["vocab_size"]
    overrides = f"vocab_size={size},n_layer=2,n_embd=32,n_head=4,n_positions=64,n_inner=48"
    loss = train(
        texts,
        tmp_path / "out",
        model_type="gpt2",
        config_overrides=overrides,
        tokenizer_name=tmp_path / "tokenizer",
        max_steps=40,
        eval_steps=40,
    )
    model = load(tmp_path / "out")
    assert loss < math.log(size) - 0.5, "better than guessing"
    assert loss_in_transformers(model, tmp_path / "out") == pytest.approx(loss, abs=TOLERANCE)
    assert (model.config.n_layer, model.config.n_inner) == (2, 48)
