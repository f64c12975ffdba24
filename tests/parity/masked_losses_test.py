"""Masked language models: masks as documented, and the losses of Transformers for them, before and in training."""

import math

import pytest
import torch
import transformers
from adamw import losses_of_steps
from program import losses, metrics, strake
from tiny_models import make_masked_model, read_config, reviews, write_table
from whole_models import load_whole

FAMILIES = ["bert", "roberta", "distilbert"]
LENGTH = 14  # of a piece: some texts are cut
ROWS = 24
SEED = 7
# Two layers in fp32, whose sums two programs take in different orders; and what that becomes in some steps.
TOLERANCE = 1e-5
TRAINED_TOLERANCE = 1e-4


def mix64(x):
    mask = (1 << 64) - 1
    x = (x + 0x9E3779B97F4A7C15) & mask
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
    return x ^ (x >> 31)


def philox_key(seed, stream):
    return mix64(mix64(seed) ^ stream)


def philox(key, counter):
    k0, k1 = key & 0xFFFFFFFF, key >> 32
    c = list(counter)
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k0, b & 0xFFFFFFFF, (a >> 32) ^ c[3] ^ k1, a & 0xFFFFFFFF]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c


class Masks:
    """The masks of a run, from what its documentation says."""

    def __init__(self, tokenizer, words, probability=0.15):
        self.mask, self.words, self.probability = tokenizer.mask_token_id, words, probability

    def apply(self, ids, row, key):
        """A piece's ids with some replaced, and labels of these."""
        key = philox_key(key, 0x6D61736B)
        random = {place: philox(key, (row, 0, place, 0)) for place in range(1, len(ids) - 1)}
        count = max(1, math.floor(self.probability * (len(ids) - 2) + 0.5))
        ids, labels = list(ids), [-100] * len(ids)
        for place in sorted(random, key=lambda place: (random[place][0], place))[:count]:
            labels[place] = ids[place]
            fate = ((random[place][1] >> 8) + 0.5) / (1 << 24)
            if fate < 0.8:
                ids[place] = self.mask
            elif fate < 0.9:
                ids[place] = random[place][2] * self.words >> 32
        return torch.tensor([ids]), torch.tensor([labels])


def pieces_of(tokenizer):
    """All texts in pieces, with the special tokens around each."""
    pieces = []
    for row in reviews(ROWS):
        first, *ids, last = tokenizer(row["text"])["input_ids"]
        for begin in range(0, len(ids), LENGTH - 2):
            pieces.append([first, *ids[begin : begin + LENGTH - 2], last])
    return pieces


def unused_bias(model):
    """Without tied weights Transformers has a bias that it does not use."""
    return set() if model.config.tie_word_embeddings else {"cls.predictions.bias", "lm_head.bias"}


def load(folder):
    return load_whole(transformers.AutoModelForMaskedLM, folder, unused_bias)


def sums_of_losses(model, tokenizer, masks, key):
    """Of each piece on its own, and its number of masked tokens."""
    for row, ids in enumerate(pieces_of(tokenizer)):
        inputs, labels = masks.apply(ids, row, key)
        count = (labels != -100).sum().item()
        yield model(inputs, labels=labels).loss * count, count


def mean_loss(model, tokenizer, masks, key=0):
    with torch.no_grad():
        sums, counts = zip(*sums_of_losses(model, tokenizer, masks, key), strict=True)
    return sum(sums).item() / sum(counts)


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    return write_table(tmp_path_factory.mktemp("texts") / "texts.jsonl", reviews(ROWS))


def train(texts, output, **flags):
    defaults = {"max_seq_length": LENGTH, "learning_rate": 1e-3, "lr_scheduler_type": "constant", "seed": SEED}
    defaults |= {"per_device_train_batch_size": 100, "logging_steps": 1, "save_strategy": "no", "max_steps": 6}
    inputs = {"train_file": texts, "validation_file": texts, "eval_strategy": "epoch"}
    strake("train", task="masked-lm", output_dir=output, **(defaults | inputs | flags))
    evaluations = [entry for entry in metrics(output) if "eval_loss" in entry]
    assert evaluations[-1]["eval_perplexity"] == pytest.approx(math.exp(evaluations[-1]["eval_loss"]))
    return [entry["eval_loss"] for entry in evaluations]


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_transformers_gives_the_same_losses(texts, tmp_path, family, tied):
    base = make_masked_model(tmp_path / "base", family, tied=tied)
    tokenizer = transformers.AutoTokenizer.from_pretrained(base)
    masks = Masks(tokenizer, min(len(tokenizer), read_config(base)["vocab_size"]))
    evaluated = train(texts, tmp_path / "trained", model_name_or_path=base, eval_on_start=True)
    model = load(base)
    assert mean_loss(model, tokenizer, masks) == pytest.approx(evaluated[0], abs=TOLERANCE)

    expected = losses_of_steps(model, 6, lambda step: sums_of_losses(model, tokenizer, masks, philox_key(SEED, step)))
    assert [loss for _, loss, _ in losses(tmp_path / "trained")] == pytest.approx(expected, abs=TRAINED_TOLERANCE)

    trained = load(tmp_path / "trained")
    assert type(trained).__name__.endswith("ForMaskedLM")
    assert trained.config.tie_word_embeddings == tied
    assert mean_loss(trained, tokenizer, masks) == pytest.approx(evaluated[-1], abs=TOLERANCE)
    assert mean_loss(trained, tokenizer, masks) < evaluated[0] - 0.05
