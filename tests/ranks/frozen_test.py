"""Frozen parameters: written as they were loaded, the rest the same on every layout, resumed only as they were."""

import json
import re
import shutil
import tempfile

import numpy
import pytest
from program import command, files_in, losses, run, run_mpi, strake
from safetensors.numpy import load_file
from tiny_models import make_language_model, make_model, reviews, widen_layers, write_table

USAGE = 2
MICRO_BATCHES = 4
# Blocks that are frozen, mixed and trained, from the bottom up; what LoRA would do; a part with frozen ones above.
CHOICES = {
    "upper": {"freeze": "bert.embeddings.*,*.layer.0.*,*.layer.1.*.weight"},
    "head": {"train_only": "classifier.*"},
    "biases": {"train_only": "*.bias"},
    "bottom": {"train_only": "bert.embeddings.LayerNorm.*"},
}
PATTERNS = {  # the same in Python's words
    "upper": lambda name: not re.search(r"embeddings|layer\.0\.|layer\.1\..*weight", name),
    "head": lambda name: name.startswith("classifier."),
    "biases": lambda name: name.endswith(".bias"),
    "bottom": lambda name: name.startswith("bert.embeddings.LayerNorm."),
}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    return {
        "model_name_or_path": widen_layers(make_model(folder / "model", dropout=0.1, head=True)),
        "train_file": write_table(folder / "train.parquet", labelled(reviews(38))),
    }


def labelled(rows):
    """With the three labels of the trained head, so that all of the model is in the checkpoint."""
    return [row | {"label": f"LABEL_{i % 3}"} for i, row in enumerate(rows)]


def train_command(inputs, output, num_ranks=1, **flags):
    defaults = {
        "gradient_accumulation_steps": MICRO_BATCHES // num_ranks,
        "max_seq_length": 32,
        "per_device_train_batch_size": 3,
        "max_steps": 6,
        "learning_rate": 1e-3,
        "weight_decay": 0.01,
        "logging_steps": 1,
        "save_steps": 3,
    }
    return command("train", output_dir=output, **(inputs | defaults | flags))


@pytest.fixture(scope="module")
def alone(inputs, tmp_path_factory):
    """One rank's run for each choice and precision, made once."""
    runs = {}

    def get(choice, **flags):
        key = (choice, *flags)
        if key not in runs:
            folder = tmp_path_factory.mktemp(f"alone_{choice}")
            outcome = run(train_command(inputs, folder, **CHOICES[choice], **flags))
            assert outcome.code == 0, outcome.err
            runs[key] = (folder, outcome)
        return runs[key]

    return get


@pytest.mark.parametrize("flags", [{}, {"bf16": True}], ids=["fp32", "bf16"])
@pytest.mark.parametrize("choice", CHOICES)
def test_frozen_parameters_are_written_as_they_were_loaded(inputs, alone, choice, flags):
    folder, outcome = alone(choice, **flags)
    before = load_file(inputs["model_name_or_path"] / "model.safetensors")
    for checkpoint in (folder, folder / "checkpoint-3"):
        after = load_file(checkpoint / "model.safetensors")
        assert after.keys() <= before.keys()
        trained = {name for name in after if before[name].tobytes() != after[name].tobytes()}
        assert trained == {name for name in after if PATTERNS[choice](name)}
    count = sum(after[name].size for name in trained)
    total = sum(array.size for array in after.values())
    assert (
        f"trainable params: {count:,} || all params: {total:,} || trainable%: {100 * count / total:.4f}" in outcome.err
    )
    assert re.search(rf"trainable_parameters += +{count:,} of {total:,} \({100 * count / total:.4f} %\)", outcome.out)
    assert losses(folder)[-1][1] != losses(folder)[0][1]


def on_disk(stage, *what, **more):
    nvme = {"device": "nvme", "nvme_path": tempfile.gettempdir()}
    zero = {"stage": stage, "stage3_param_persistence_threshold": 0, **dict.fromkeys(what, nvme)}
    return {"deepspeed": json.dumps({"zero_optimization": zero | more})}


LAYOUTS = {
    "two_threads": (run, 2, {"ranks": 2}),
    "four_threads_stage_0": (run, 4, {"ranks": 4, **on_disk(0)}),
    "two_threads_all_on_disk": (run, 2, {"ranks": 2, **on_disk(3, "offload_optimizer", "offload_param")}),
    "four_threads_in_groups_on_disk": (
        run,
        4,
        {"ranks": 4, **on_disk(3, "offload_optimizer", "offload_param", mics_shard_size=2)},
    ),
    "two_processes_stage_1": (lambda line: run_mpi(2, line), 2, on_disk(1)),
    "two_processes_stage_3": (lambda line: run_mpi(2, line), 2, on_disk(3)),
    "two_processes_states_on_disk": (lambda line: run_mpi(2, line), 2, on_disk(2, "offload_optimizer")),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("choice", ["upper", "biases"])
def test_every_layout_gives_the_same_bits(inputs, alone, tmp_path, choice, layout):
    start, ranks, flags = LAYOUTS[layout]
    outcome = start(train_command(inputs, tmp_path, ranks, **CHOICES[choice], **flags, bf16=True, save_strategy="no"))
    assert outcome.code == 0, outcome.err
    expected, _ = alone(choice, bf16=True)
    assert losses(tmp_path) == losses(expected)
    assert (tmp_path / "model.safetensors").read_bytes() == (expected / "model.safetensors").read_bytes()


@pytest.mark.parametrize("ranks, stage", [(1, 2), (2, 0), (4, 3)])
def test_a_run_is_resumed_bit_for_bit_on_other_ranks_and_stages(inputs, alone, tmp_path, ranks, stage):
    expected, _ = alone("upper", bf16=True)
    shutil.copytree(expected, tmp_path / "run")
    shutil.rmtree(tmp_path / "run/checkpoint-6")
    (tmp_path / "run/model.safetensors").unlink()
    flags = {"bf16": True, "resume_from_checkpoint": "true", "ranks": ranks, **on_disk(stage)}
    outcome = run(train_command(inputs, tmp_path / "run", ranks, **CHOICES["upper"], **flags))
    assert outcome.code == 0, outcome.err
    assert losses(tmp_path / "run") == losses(expected)
    assert (tmp_path / "run/model.safetensors").read_bytes() == (expected / "model.safetensors").read_bytes()


def test_other_trainable_parameters_are_refused_when_a_run_is_resumed(inputs, alone, tmp_path):
    expected, _ = alone("upper")
    shutil.copytree(expected, tmp_path / "run")
    before = files_in(tmp_path / "run")
    for flags, then, now in [
        ({}, "bert.embeddings.word_embeddings.weight", "nothing"),
        ({"freeze": "*.layer.0.*"}, "bert.embeddings.word_embeddings.weight", "nothing"),
        (CHOICES["head"], "nothing", "bert.encoder.layer.1.attention.self.query.bias"),
    ]:
        outcome = run(train_command(inputs, tmp_path / "run", resume_from_checkpoint="true", **flags))
        assert outcome.code == USAGE
        assert "other trainable parameters" in outcome.err
        assert f"Frozen then and not now: {then}" in outcome.err
        assert f"Frozen now and not then: {now}" in outcome.err
    assert files_in(tmp_path / "run") == before


@pytest.mark.parametrize("trained", ["transformer.wte.weight", "lm_head.weight"])
def test_a_tied_weight_has_two_names(tmp_path, trained):
    inputs = {
        "task": "causal-lm",
        "model_name_or_path": make_language_model(tmp_path / "model"),
        "train_file": write_table(tmp_path / "train.jsonl", reviews(24)),
    }
    lengths = {"max_seq_length": None, "block_size": 32}
    outcome = run(train_command(inputs, tmp_path / "out", train_only=trained, **lengths))
    assert outcome.code == 0, outcome.err
    before = load_file(tmp_path / "model/model.safetensors")
    after = load_file(tmp_path / "out/model.safetensors")
    changed = [name for name in after if not numpy.array_equal(before[name], after[name])]
    assert changed == ["transformer.wte.weight"]


def number(text, name):
    return float(re.search(rf"^ *{name} +([\d.,]+)", text, re.MULTILINE)[1].replace(",", ""))


def test_less_memory_and_arithmetic_are_planned_and_taken(inputs, tmp_path):
    flags = {"max_seq_length": 32, "per_device_train_batch_size": 36, "gradient_accumulation_steps": 1}
    model = {"model_name_or_path": inputs["model_name_or_path"]}
    whole = strake("estimate", **model, **flags).out
    frozen = strake("estimate", **model, **flags, **CHOICES["head"]).out
    assert "trainable params: " in frozen and "trainable params: " not in whole
    assert number(frozen, "total of a rank") < 0.5 * number(whole, "total of a rank")
    peaks = []
    for name, choice in (("whole", {}), ("head", CHOICES["head"])):
        line = train_command(inputs, tmp_path / name, **flags, **choice, save_strategy="no")
        planned = number(run([*line, "--dry_run"]).out, "total of a machine") * 2**20
        peaks.append(number(run(line).out, "peak_tracked_bytes +="))
        # Tensors of a few dozen bytes, which a model as small as this one has relatively many of, are not planned.
        assert planned == pytest.approx(peaks[-1], rel=0.05)
    assert peaks[1] < 0.5 * peaks[0]


@pytest.mark.parametrize(
    "flags, told",
    [
        ({"freeze": "bert.*", "train_only": "bert.*"}, "--freeze bert.* and --train_only bert.* contradict each other"),
        ({"freeze": "bert.encodr.*"}, "'bert.encodr.*' matches no parameter of the model; near it are bert.enc"),
        ({"train_only": "classifier.wieght"}, "near it are classifier.weight"),
        ({"freeze": "*.query.*"}, "can only be frozen or trained together: bert.encoder.layer.0.attention.self.query"),
        ({"freeze": "*"}, "--freeze * leaves nothing to train"),
        ({"freeze": "bert.*,"}, "a pattern is empty"),
    ],
)
def test_choices_that_make_no_sense_are_refused(inputs, tmp_path, flags, told):
    estimated = {"model_name_or_path": inputs["model_name_or_path"], "max_seq_length": 32}
    for line in (train_command(inputs, tmp_path / "out", **flags), command("estimate", **estimated, **flags)):
        outcome = run(line)
        assert outcome.code == USAGE
        assert told in outcome.err
    assert not (tmp_path / "out").exists()
