"""Language models, classifiers of words and finders of answers have the same bits on any number of ranks."""

import json
import tempfile

import pytest
from program import command, losses, metrics, run, run_mpi
from tiny_models import (
    asked_reviews,
    make_language_model,
    make_masked_model,
    make_model,
    reviews,
    tagged_reviews,
    write_table,
)

MICRO_BATCHES = 4
SETTINGS = {
    "plain": {},
    "smoothed": {"label_smoothing_factor": 0.1},
    "clipped": {"max_grad_norm": 0.05},
    "bf16": {"bf16": True},
    "fp16": {"fp16": True},
    "untied": {},
    "masked": {},
    "masked_smoothed_bf16": {"label_smoothing_factor": 0.1, "bf16": True},
    "words": {"label_smoothing_factor": 0.1},
    "answers": {},
    "answers_bf16": {"bf16": True},
}
CAUSAL = {"task": "causal-lm", "block_size": 24}
MASKED = {"task": "masked-lm", "max_seq_length": 16}
ANSWERS = {"task": "question-answering", "max_seq_length": 16, "doc_stride": 4}
WORDS = {"task": "token-classification", "text_column": "words", "label_column": "tags", "max_seq_length": 24}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    make_language_model(folder / "tied", dropout=0.1)
    make_language_model(folder / "untied", dropout=0.1, tied=False)
    make_language_model(folder / "calm", dropout=0.0)
    make_masked_model(folder / "masked", "roberta", dropout=0.1)
    make_model(folder / "words", dropout=0.1)
    make_model(folder / "answers", "distilbert", dropout=0.1)
    # 38 documents, some of them cut, in micro-batches of 3: the last step has too few for all ranks.
    write_table(folder / "train.jsonl", reviews(38))
    write_table(folder / "validation.jsonl", reviews(21, seed=2))
    write_table(folder / "train_words.jsonl", tagged_reviews(38))
    write_table(folder / "validation_words.jsonl", tagged_reviews(21, seed=2))
    write_table(folder / "train_answers.jsonl", asked_reviews(38))
    write_table(folder / "validation_answers.jsonl", asked_reviews(21, seed=2))
    return folder


TASKS = {"masked": MASKED, "words": WORDS, "answers": ANSWERS}


def train(folder, output, ranks, model="tied", processes=False, **flags):
    kind = f"_{model}" if model in ("words", "answers") else ""
    line = command(
        "train",
        **TASKS.get(model, CAUSAL),
        model_name_or_path=folder / model,
        train_file=folder / f"train{kind}.jsonl",
        validation_file=folder / f"validation{kind}.jsonl",
        eval_strategy="epoch",
        output_dir=output,
        ranks=1 if processes else ranks,
        gradient_accumulation_steps=MICRO_BATCHES // ranks,
        per_device_train_batch_size=3,
        num_train_epochs=2,
        learning_rate=1e-3,
        weight_decay=0.01,
        logging_steps=1,
        save_strategy="no",
        **flags,
    )
    outcome = run_mpi(ranks, line) if processes else run(line)
    assert outcome.code == 0, outcome.err
    metric = "eval_f1" if kind else "eval_perplexity"
    evaluations = [(e["step"], e["eval_loss"], e[metric]) for e in metrics(output) if "eval_loss" in e]
    assert len(evaluations) == 2
    assert len(losses(output)) > 6
    return losses(output), evaluations, (output / "model.safetensors").read_bytes()


def flags_of(setting):
    first = setting.split("_")[0]
    model = first if first in ("untied", *TASKS) else "tied"
    return SETTINGS[setting] | {"model": model}


@pytest.fixture(scope="module")
def alone(folder, tmp_path_factory):
    return {setting: train(folder, tmp_path_factory.mktemp(setting), 1, **flags_of(setting)) for setting in SETTINGS}


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_as_threads(folder, alone, tmp_path, ranks, setting):
    assert train(folder, tmp_path, ranks, **flags_of(setting)) == alone[setting]


def zero(stage, checkpoints_in_cpu=False, **more):
    section = {"stage": stage, "stage3_param_persistence_threshold": 0} | more
    activations = {"activation_checkpointing": {"cpu_checkpointing": True}} if checkpoints_in_cpu else {}
    return {"deepspeed": json.dumps({"zero_optimization": section} | activations)}


NVME = {"device": "nvme", "nvme_path": tempfile.gettempdir()}
LAYOUTS = {
    "zero0": (2, zero(0)),
    "zero1": (2, zero(1)),
    "zero3": (4, zero(3)),
    "checkpoints_in_cpu": (2, zero(3, checkpoints_in_cpu=True) | {"gradient_checkpointing": True}),
    "states_on_disk": (2, zero(2, offload_optimizer=NVME)),
    "all_on_disk": (2, zero(3, offload_optimizer=NVME, offload_param=NVME) | {"gradient_checkpointing": True}),
    "processes_zero0": (2, zero(0) | {"processes": True}),
    "processes_zero3": (2, zero(3) | {"processes": True, "gradient_checkpointing": True}),
    "processes_hybrid": (4, zero(3, mics_shard_size=2) | {"processes": True}),
}


@pytest.mark.parametrize("setting", ["clipped", "bf16", "fp16", "masked", "words", "answers"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_stage_gives_the_same_bits(folder, alone, tmp_path, layout, setting):
    ranks, flags = LAYOUTS[layout]
    assert train(folder, tmp_path, ranks, **flags_of(setting), **flags) == alone[setting]


@pytest.mark.parametrize("setting", ["plain", "masked", "words", "answers"])
def test_recomputing_activations_changes_nothing(folder, alone, tmp_path, setting):
    assert train(folder, tmp_path, 1, gradient_checkpointing=True, **flags_of(setting)) == alone[setting]


def test_dropout_changes_the_run(folder, alone, tmp_path):
    """Else equal runs would not show that dropout is the same on all layouts."""
    assert train(folder, tmp_path, 1, model="calm")[0] != alone["plain"][0]
    assert len({weights for _, _, weights in alone.values()}) == len(SETTINGS)
