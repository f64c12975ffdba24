"""Masked language models from scratch and from checkpoints; what becomes of their weights, and of flags and data."""

import json

import pytest
import transformers
from estimate_test import ELSEWHERE
from program import command, losses, metrics, run, strake, summary
from refusals import DATA, FILE, NUMERIC, USAGE
from task_runs import TaskRuns
from tiny_models import (
    change_weights,
    make_language_model,
    make_masked_model,
    make_model,
    reviews,
    write_table,
    write_tokenizer,
)

FAMILIES = ["bert", "roberta", "distilbert"]
SIZES = {
    "bert": "hidden_size=16,num_hidden_layers=2,num_attention_heads=2,intermediate_size=24",
    "distilbert": "dim=16,n_layers=2,n_heads=2,hidden_dim=24",
}
SIZES["roberta"] = SIZES["bert"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    make_masked_model(folder / "masked", dropout=0.1)
    make_language_model(folder / "gpt2")
    make_model(folder / "encoder")
    write_table(folder / "train.txt", reviews(12))
    write_table(folder / "train.parquet", reviews(40))
    return folder


def flags_of(folder, output, **changes):
    flags = {"task": "masked-lm", "model_name_or_path": folder / "masked", "train_file": folder / "train.txt"}
    flags |= {"output_dir": output, "max_seq_length": 16, "max_steps": 3, "per_device_train_batch_size": 4}
    flags |= {"logging_steps": 1, "save_strategy": "no"}
    return {name: value for name, value in (flags | changes).items() if value is not None}


RUNS = TaskRuns(flags_of)
train, refused = RUNS.train, RUNS.refused


def from_scratch(folder, family):
    (folder / family).mkdir()
    write_tokenizer(folder / family, family)
    size = len(transformers.AutoTokenizer.from_pretrained(folder / family))
    overrides = f"{SIZES[family]},vocab_size={size},max_position_embeddings=40"
    return {
        "model_name_or_path": None,
        "model_type": family,
        "tokenizer_name": folder / family,
        "config_overrides": overrides,
    }


@pytest.mark.parametrize("family", FAMILIES)
def test_from_scratch_it_learns_and_is_then_a_model_to_fine_tune(folder, tmp_path, family):
    train(
        folder,
        tmp_path / "out",
        max_steps=60,
        learning_rate=1e-2,
        validation_file=folder / "train.txt",
        eval_strategy="steps",
        eval_steps=30,
        eval_on_start=True,
        **from_scratch(tmp_path, family),
    )
    evaluated = [entry["eval_loss"] for entry in metrics(tmp_path / "out") if "eval_loss" in entry]
    assert evaluated[-1] < evaluated[0] - 0.3
    model = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "out")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert model.config.architectures[0].endswith("ForMaskedLM")
    assert model.config.pad_token_id == tokenizer.pad_token_id
    outcome = run(
        command(
            "train",
            model_name_or_path=tmp_path / "out",
            train_file=folder / "train.parquet",
            output_dir=tmp_path / "tuned",
            max_steps=2,
        )
    )
    assert outcome.code == 0, outcome.err
    assert "not used from the checkpoint" in outcome.err


def test_an_encoder_without_a_head_gets_a_new_one(folder, tmp_path):
    told = train(folder, tmp_path / "out", model_name_or_path=folder / "encoder").err
    assert "cls.predictions.bias" in told
    assert "cls.predictions.decoder" not in told
    transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "out")


def test_documents_are_cut_and_those_without_a_token_left_out(folder, tmp_path):
    texts = ["", "the film", " ", "a " * 29]
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    told = train(folder, tmp_path / "out", train_file=tmp_path / "texts.jsonl").err
    assert "2 of 4 documents have no token, so that there is nothing to predict" in told
    assert "4 training sequences, 39 tokens" in told  # 2 + 29 and the ends of four pieces
    assert "pieces of 16 tokens at most, of which 15 % are predicted" in told


def test_data_without_any_token_is_refused(folder, tmp_path):
    (tmp_path / "texts.txt").write_text("\n\n")
    message = refused(folder, tmp_path / "out", code=DATA, train_file=tmp_path / "texts.txt")
    assert "texts.txt has no document of any token" in message


def test_prepared_tokens_train_alike(folder, tmp_path):
    train(folder, tmp_path / "text")
    tokens = tmp_path / "tokens.parquet"
    strake("prepare", tokenizer=folder / "masked", input=folder / "train.txt", output=tokens, max_seq_length=10000)
    train(folder, tmp_path / "tokens", train_file=tokens)
    assert losses(tmp_path / "tokens") == losses(tmp_path / "text")


def test_masks_change_from_epoch_to_epoch_and_with_the_seed(folder, tmp_path):
    """With a learning rate that changes nothing and all texts in a batch, losses differ by their masks alone."""
    still = {"learning_rate": 1e-30, "per_device_train_batch_size": 100, "model_name_or_path": tmp_path / "calm"}
    make_masked_model(tmp_path / "calm")
    train(folder, tmp_path / "one", **still)
    train(folder, tmp_path / "two", seed=5, data_seed=42, **still)
    found = [loss for run in ("one", "two") for _, loss, _ in losses(tmp_path / run)]
    assert len(set(found)) == 6


def test_a_resumed_run_ends_with_the_same_bits(folder, tmp_path):
    RUNS.assert_resumes_with_the_same_bits(folder, tmp_path)
    outcome = run(
        command("train", **flags_of(folder, tmp_path / "halves", resume_from_checkpoint="true", mlm_probability=0.3))
    )
    assert outcome.code == USAGE
    assert "mlm_probability" in outcome.err


def test_a_tokenizer_without_mask_token_or_special_tokens_is_refused(folder, tmp_path):
    tokenizer = folder / "gpt2"
    message = refused(folder, tmp_path / "out", tokenizer_name=tokenizer)
    assert "the tokenizer has no mask token" in message


def test_a_new_model_needs_room_for_the_tokenizer(folder, tmp_path):
    flags = from_scratch(tmp_path, "bert")
    flags["config_overrides"] = SIZES["bert"] + ",vocab_size=20"
    message = refused(folder, tmp_path / "out", **flags)
    assert "the new model's vocab_size 20 is less than the" in message


def test_a_configuration_whose_name_is_too_long_is_told_so(folder, tmp_path):
    flags = from_scratch(tmp_path, "bert") | {"model_type": None, "config_overrides": None}
    message = refused(folder, tmp_path / "out", code=FILE, config_name="n" * 5000, **flags)
    assert "--config_name nnn" in message and "File name too long" in message


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"vocab_size": "many"}, "vocab_size"),
        ({"vocab_size": 2**40}, "vocab_size"),
        ({"pad_token_id": -1}, "vocab_size"),
        ({"model_type": "gpt2", "vocab_size": 90}, "gpt2 is a causal language model"),
        ({"model_type": 5}, "model_type"),
        ({"model_type": "distilbert", "sinusoidal_pos_embds": True}, "sinusoidal_pos_embds"),
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused(folder, tmp_path, config, named):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"} | config))
    flags = from_scratch(tmp_path, "bert") | {"model_type": None, "config_overrides": None}
    message = refused(folder, tmp_path / "out", config_name=tmp_path / "config.json", **flags)
    assert named in message


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"mlm_probability": 0}, "--mlm_probability 0 is not in (0, 1]"),
        ({"mlm_probability": 1.5}, "--mlm_probability 1.5 is not in (0, 1]"),
        ({"block_size": 32}, "--block_size 32: with --task masked-lm it is --max_seq_length"),
        ({"max_seq_length": 2}, "--max_seq_length 2: with --task masked-lm a piece has at least 3 tokens"),
        ({"max_seq_length": 65}, "--max_seq_length 65 is more than the model's 64 positions"),
        ({"metric_for_best_model": "accuracy"}, "none of the metrics of language models: loss, perplexity"),
        ({"text_pair_column": "b"}, "--text_pair_column b does not belong to --task masked-lm"),
        ({"label_column": "b"}, "--label_column b does not belong to --task masked-lm"),
        ({"model_name_or_path": None}, "--task masked-lm needs either --model_name_or_path"),
        ({"model_name_or_path": None, "model_type": "gpt2"}, "--task masked-lm has bert, roberta, distilbert"),
        ({"model_name_or_path": None, "model_type": "robert"}, "did you mean"),
        ({"task": "causal-lm", "max_seq_length": None, "mlm_probability": 0.2}, "belongs to --task masked-lm"),
        ({"task": "sequence-classification", "mlm_probability": 0.15}, "belongs to --task masked-lm"),
        ({"task": "fill-mask"}, "--task fill-mask is none of"),
    ],
)
def test_flags_that_contradict_the_task_are_refused(folder, tmp_path, changes, named):
    assert named in refused(folder, tmp_path / "out", **changes)


def test_a_decoder_is_refused(folder, tmp_path):
    message = refused(folder, tmp_path / "out", model_name_or_path=folder / "gpt2")
    assert "gpt2 is a causal language model, not an encoder" in message


def test_it_is_not_scored_as_a_classifier(folder, tmp_path):
    scored = tmp_path / "scored.parquet"
    outcome = run(command("predict", model_name_or_path=folder / "masked", input=folder / "train.txt", output=scored))
    assert outcome.code != 0
    assert "is not fine-tuned for classification" in outcome.err


def test_estimate_knows_it(folder):
    told = [
        run(command("estimate", task="masked-lm", model_type="bert", mlm_probability=share, **ELSEWHERE)).out
        for share in (0.15, 0.5)
    ]
    assert "bert with 109,514,298 parameters" in told[0]
    assert told[0] != told[1]
    outcome = run(command("estimate", task="causal-lm", model_type="gpt2", mlm_probability=0.5))
    assert outcome.code == USAGE
    assert "--mlm_probability 0.5 belongs to --task masked-lm" in outcome.err


# strake evaluate


def evaluated(folder, model, **flags):
    defaults = {"task": "masked-lm", "input": folder / "train.parquet", "max_seq_length": 16}
    return summary("evaluate", model_name_or_path=model, **(defaults | flags))


def numbers(found):
    return {name: found[name] for name in ("loss", "perplexity", "rows", "rows_cut", "tokens")}


@pytest.mark.parametrize(
    ("family", "flags"),
    [*((family, {}) for family in FAMILIES), ("roberta", {"bf16": True}), ("distilbert", {"mlm_probability": 0.4})],
)
def test_evaluate_gives_the_numbers_of_training(folder, tmp_path, family, flags):
    base = make_masked_model(tmp_path / "base", family, tied=family != "roberta")
    inputs = {"train_file": folder / "train.parquet", "validation_file": folder / "train.parquet"}
    train(
        folder, tmp_path / "out", model_name_or_path=base, eval_strategy="epoch", eval_on_start=True, **inputs, **flags
    )
    before, after = [entry for entry in metrics(tmp_path / "out") if "eval_loss" in entry]
    for model, expected in ((base, before), (tmp_path / "out", after)):
        found = evaluated(folder, model, **flags)
        assert found["loss"] == expected["eval_loss"]
        assert found["perplexity"] == expected["eval_perplexity"]
        assert found["arithmetic"] == ("bf16" if "bf16" in flags else "fp32")
    assert before["eval_loss"] != after["eval_loss"]


def test_its_numbers_do_not_depend_on_how_they_are_computed(folder, tmp_path):
    tokens = tmp_path / "tokens.parquet"
    strake("prepare", tokenizer=folder / "masked", input=folder / "train.parquet", output=tokens, max_seq_length=10_000)
    expected = numbers(evaluated(folder, folder / "masked"))
    assert expected["rows"] == 40 and 0 < expected["rows_cut"] < 40
    for flags in ({"max_tokens_per_batch": 1}, {"max_tokens_per_batch": 50}, {"input": tokens}):
        assert numbers(evaluated(folder, folder / "masked", **flags)) == expected, flags
    assert numbers(evaluated(folder, folder / "masked", mlm_probability=0.5)) != expected
    assert numbers(evaluated(folder, folder / "masked", max_seq_length=None))["rows_cut"] == 0


def test_pieces_are_no_longer_than_the_tokenizer_allows_as_in_training(folder, tmp_path):
    model = make_masked_model(tmp_path / "model")
    settings = json.loads((model / "tokenizer_config.json").read_text()) | {"model_max_length": 10}
    (model / "tokenizer_config.json").write_text(json.dumps(settings))
    found = numbers(evaluated(folder, model, max_seq_length=None))
    assert found == numbers(evaluated(folder, model, max_seq_length=10))
    assert found != numbers(evaluated(folder, model, max_seq_length=16))


@pytest.mark.parametrize(
    ("flags", "code", "named"),
    [
        ({"max_seq_length": 65}, USAGE, "--max_seq_length 65 is more than the model's 64 positions"),
        ({"max_seq_length": 2}, USAGE, "a piece has at least 3 tokens"),
        ({"mlm_probability": 0}, USAGE, "--mlm_probability 0 is not in (0, 1]"),
        ({"precision": "int8"}, USAGE, "--precision int8: language models compute in fp32 or bf16"),
        ({"device": "cuda", "max_tokens_per_batch": 64}, USAGE, "--max_tokens_per_batch 64 is not of a language model"),
        ({"calibrate": True}, USAGE, "--calibrate is not of --task masked-lm"),
        ({"label_column": "label"}, USAGE, "--label_column is not of --task masked-lm"),
        ({"text_column": "txt"}, DATA, "there is no column 'txt'"),
        ({"model_name_or_path": "encoder"}, USAGE, "these weights were never trained"),
        ({"model_name_or_path": "gpt2"}, USAGE, "gpt2 is a causal language model, not an encoder"),
        ({"task": "feature-extraction", "calibrate": True, "mlm_probability": 0.2}, USAGE, "is of --task masked-lm"),
        (
            {"task": "causal-lm", "model_name_or_path": "gpt2", "max_seq_length": None, "mlm_probability": 0.2},
            USAGE,
            "not",
        ),
    ],
)
def test_evaluate_refuses_what_does_not_belong(folder, flags, code, named):
    flags = {"task": "masked-lm", "model_name_or_path": "masked", "max_seq_length": 16} | flags
    flags |= {"input": folder / "train.parquet", "model_name_or_path": folder / flags["model_name_or_path"]}
    outcome = run(command("evaluate", **{name: value for name, value in flags.items() if value is not None}))
    assert outcome.code == code, outcome.err
    assert named in outcome.err
    assert outcome.out == ""


def test_evaluate_refuses_broken_weights_and_predict_the_task(folder, tmp_path):
    broken = make_masked_model(tmp_path / "broken")
    change_weights(broken, lambda name, array: array * float("nan") if name == "cls.predictions.bias" else array)
    outcome = run(command("evaluate", task="masked-lm", model_name_or_path=broken, input=folder / "train.parquet"))
    assert outcome.code == NUMERIC
    assert "the loss is nan, not a finite number" in outcome.err
    flags = {"model_name_or_path": folder / "masked", "input": folder / "train.parquet"}
    outcome = run(command("predict", task="masked-lm", output=tmp_path / "out.parquet", **flags))
    assert outcome.code == USAGE
    assert "--task masked-lm: the tasks that strake scores are" in outcome.err
