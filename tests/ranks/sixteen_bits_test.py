"""Training in fp16 with loss scaling, and gradients in 16 bits: skipped steps, and the same bits in every layout."""

import itertools
import json
import shutil

import pytest
from program import command, losses, metrics, run, run_mpi
from tiny_models import change_weights, make_model, training_inputs, widen_layers

STEPS = 24
MICRO_BATCHES = 4
# Starts far too high, doubles every third step without an overflow: many overflows in a short run.
RESTLESS = {"enabled": True, "initial_scale_power": 26, "loss_scale_window": 3, "hysteresis": 1}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    return training_inputs(tmp_path_factory.mktemp("inputs"))


def train_command(inputs, output, num_ranks=1, config=None, **flags):
    defaults = {
        "gradient_accumulation_steps": MICRO_BATCHES // num_ranks,
        "max_seq_length": 32,
        "per_device_train_batch_size": 3,
        "max_steps": STEPS,
        "learning_rate": 1e-3,
        "warmup_steps": 4,
        "logging_steps": 1,
        "eval_strategy": "steps",
        "eval_steps": 8,
        "save_steps": 8,
        "deepspeed": config and json.dumps(config),
    }
    return command("train", output_dir=output, **(inputs | defaults | flags))


def train(inputs, output, num_ranks=1, config=None, **flags):
    outcome = run(train_command(inputs, output, num_ranks, config, ranks=num_ranks, **flags))
    assert outcome.code == 0, outcome.err
    return outcome


def steps_of(folder):
    return [entry for entry in metrics(folder) if "loss" in entry]


def scales(folder):
    return [(entry["loss_scale"], entry["skipped_steps"]) for entry in steps_of(folder)]


def assert_same_run(found, expected):
    assert len(losses(expected)) == STEPS
    assert losses(found) == losses(expected)
    assert [e.get("loss_scale") for e in steps_of(found)] == [e.get("loss_scale") for e in steps_of(expected)]
    assert (found / "model.safetensors").read_bytes() == (expected / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def restless(inputs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("restless")
    return folder, train(inputs, folder, config={"fp16": RESTLESS})


def test_overflows_are_skipped_until_the_scale_fits(restless):
    folder, outcome = restless
    entries = steps_of(folder)
    counts = [0, *(entry["skipped_steps"] for entry in entries)]
    skipped = [after - before for before, after in itertools.pairwise(counts)]
    assert skipped[:3] == [1, 1, 1], "no gradient of this model fits fp16 at a scale of 2^24"
    assert 4 <= sum(skipped) <= STEPS // 2
    assert sum(skipped[skipped.index(0) :]) > 0, "the scale rises until it overflows again"
    for is_skipped, (entry, after) in zip(skipped, itertools.pairwise(entries), strict=False):
        assert ("grad_norm" in entry) != bool(is_skipped)
        # A skipped step halves the scale, and the schedule of the learning rate waits.
        change = after["loss_scale"] / entry["loss_scale"]
        assert change == 0.5 if is_skipped else change in (1, 2)
        assert (after["learning_rate"] == entry["learning_rate"]) == bool(is_skipped)
        assert (f"step {entry['step']} is skipped: its gradient overflowed" in outcome.err) == bool(is_skipped)
    assert outcome.err.count(" is skipped: ") == sum(skipped)
    assert ["skipped_steps", "=", str(sum(skipped))] in [line.split() for line in outcome.out.splitlines()]


def test_a_run_learns_once_its_scale_fits(inputs, tmp_path):
    calm = inputs | {"model_name_or_path": widen_layers(make_model(tmp_path / "calm", dropout=0.0))}
    train(calm, tmp_path / "out", config={"fp16": RESTLESS | {"loss_scale_window": 1000}}, max_steps=60)
    entries = steps_of(tmp_path / "out")
    assert entries[6]["skipped_steps"] == 7 and entries[-1]["skipped_steps"] < 15
    before, after = (sum(entry["loss"] for entry in part) / 7 for part in (entries[:7], entries[-7:]))
    assert before > 1, "with the initial weights"
    assert after < 0.62, "log(2) is what knows nothing of two labels"


def test_a_step_that_is_skipped_updates_nothing(inputs, restless, tmp_path):
    """The parameters after the first steps, all skipped, are the initial ones."""
    skipped = next(i for i, entry in enumerate(steps_of(restless[0])) if entry["skipped_steps"] != i + 1)
    train(inputs, tmp_path / "skipped", config={"fp16": RESTLESS}, max_steps=skipped)
    train(inputs, tmp_path / "still", config={"fp16": RESTLESS}, max_steps=1)
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("skipped", "still")]
    assert skipped > 1
    assert weights[0] == weights[1]


def on_disk(folder, **more):
    nvme = {"device": "nvme", "nvme_path": str(folder)}
    zero = {"stage": 3, "stage3_param_persistence_threshold": 0, "offload_optimizer": nvme, "offload_param": nvme}
    return zero | more


ZERO = {
    "zero0": {"stage": 0},
    "zero2": {"stage": 2},
    "zero3": {"stage": 3, "stage3_param_persistence_threshold": 0},
    "on_disk": None,
    "recompute": {"stage": 1},
}


@pytest.mark.parametrize("stage", ZERO)
@pytest.mark.parametrize("ranks", [1, 2])
def test_fp16_has_the_same_bits_in_every_stage(inputs, restless, tmp_path, stage, ranks):
    zero = ZERO[stage] or on_disk(tmp_path)
    recompute = True if stage == "recompute" else None
    config = {"fp16": RESTLESS, "zero_optimization": zero}
    train(inputs, tmp_path / "out", ranks, config, gradient_checkpointing=recompute)
    assert_same_run(tmp_path / "out", restless[0])


@pytest.mark.parametrize("stage", ["zero0", "zero3"])
def test_fp16_has_the_same_bits_as_processes(inputs, restless, tmp_path, stage):
    config = {"fp16": RESTLESS, "zero_optimization": ZERO[stage]}
    outcome = run_mpi(2, train_command(inputs, tmp_path, 2, config))
    assert outcome.code == 0, outcome.err
    assert outcome.err.count("step 1 is skipped") == 1
    assert_same_run(tmp_path, restless[0])


def test_fp16_has_the_same_bits_in_groups_on_disk(inputs, restless, tmp_path):
    config = {"fp16": RESTLESS, "zero_optimization": on_disk(tmp_path, mics_shard_size=2)}
    train(inputs, tmp_path / "out", 4, config)
    assert_same_run(tmp_path / "out", restless[0])


def test_fp16_goes_on_from_a_checkpoint_with_the_same_bits(inputs, restless, tmp_path):
    for kept in (8, 16):
        for ranks in (1, 2):
            folder = shutil.copytree(restless[0], tmp_path / f"{kept}_{ranks}")
            for checkpoint in folder.glob("checkpoint-*"):
                if int(checkpoint.name.split("-")[1]) > kept:
                    shutil.rmtree(checkpoint)
            train(inputs, folder, ranks, {"fp16": RESTLESS}, resume_from_checkpoint="true")
            assert_same_run(folder, restless[0])


def test_fp16_learns_as_fp32(inputs, tmp_path):
    """Rounding to 11 bits in every layer: the losses of 24 steps stay within 2 % of fp32's."""
    train(inputs, tmp_path / "fp16", fp16=True)
    train(inputs, tmp_path / "fp32")
    assert scales(tmp_path / "fp16")[0][0] == 65536, "DeepSpeed's first scale"
    found, expected = ([entry["loss"] for entry in steps_of(tmp_path / name)] for name in ("fp16", "fp32"))
    assert scales(tmp_path / "fp16")[-1][1] == 0, "no step is skipped, so that the runs can be compared"
    assert found == pytest.approx(expected, rel=0.02)
    assert found != expected


def test_a_static_scale_is_kept_and_its_overflows_are_skipped(inputs, tmp_path):
    train(inputs, tmp_path / "fits", config={"fp16": {"enabled": True, "loss_scale": 100}})
    assert set(scales(tmp_path / "fits")) == {(100, 0)}
    train(inputs, tmp_path / "not", config={"fp16": {"enabled": True, "loss_scale": 1e9}}, max_steps=4)
    assert scales(tmp_path / "not") == [(1e9, 1), (1e9, 2), (1e9, 3), (1e9, 4)]


def test_an_overflow_at_the_least_scale_ends_the_run(inputs, tmp_path):
    config = {"fp16": RESTLESS | {"min_loss_scale": 2**25}}
    for ranks in (1, 2):
        outcome = run(train_command(inputs, tmp_path / str(ranks), ranks, config, ranks=ranks))
        assert outcome.code == 6
        assert "the fp16 loss scale is at its minimum" in outcome.err


def test_a_model_that_does_not_fit_fp16_ends_the_run(inputs, tmp_path):
    """Its loss is not a number in any step, which no scale mends."""
    model = shutil.copytree(inputs["model_name_or_path"], tmp_path / "large")
    change_weights(model, lambda _, array: array * 1e4)
    config = {"fp16": {"enabled": True, "initial_scale_power": 3, "hysteresis": 1}}
    outcome = run(train_command(inputs | {"model_name_or_path": model}, tmp_path / "out", config=config))
    assert outcome.code == 6
    assert outcome.err.count(" is skipped: ") == 3
    assert [entry["loss"] for entry in steps_of(tmp_path / "out")] == [0, 0, 0], "metrics.jsonl has numbers only"


GRADIENTS = {
    "reduced_in_bf16": {"bf16": {"enabled": True}, "communication_data_type": "bf16"},
    "reduced_in_fp16": {"communication_data_type": "fp16"},
    "added_up_in_bf16": {"data_types": {"grad_accum_dtype": "bf16"}},
    "all_in_fp16": {
        "fp16": RESTLESS,
        "communication_data_type": "fp16",
        "data_types": {"grad_accum_dtype": "fp16", "param_dtype": "fp16"},
    },
}


@pytest.mark.parametrize("types", GRADIENTS)
def test_gradients_of_sixteen_bits_have_the_same_bits_in_every_layout(inputs, tmp_path, types):
    train(inputs, tmp_path / "alone", config=GRADIENTS[types])
    for stage in ("zero0", "zero3"):
        train(inputs, tmp_path / stage, 2, GRADIENTS[types] | {"zero_optimization": ZERO[stage]})
        assert_same_run(tmp_path / stage, tmp_path / "alone")
    config = GRADIENTS[types] | {"zero_optimization": ZERO["zero2"]}
    outcome = run_mpi(2, train_command(inputs, tmp_path / "processes", 2, config))
    assert outcome.code == 0, outcome.err
    assert_same_run(tmp_path / "processes", tmp_path / "alone")
    wide = {key: value for key, value in GRADIENTS[types].items() if key in ("bf16", "fp16")}
    train(inputs, tmp_path / "wide", config=wide)
    assert losses(tmp_path / "wide") != losses(tmp_path / "alone"), "the types do something"


# Those of Azure/azureml-examples, best-practices/largescale-deep-learning/Training, but for the batches.
PROFILER = {"enabled": True, "profile_step": 1, "module_depth": -1, "top_modules": 1, "detailed": True}
AZURE_ML = {
    "bert_pretrain": {
        "train_micro_batch_size_per_gpu": 3,
        "fp16": {"enabled": True},
        "flops_profiler": PROFILER | {"output_file": "outputs/profile.txt"},
        "zero_optimization": {"stage": 1},
        "tensorboard": {"enabled": True, "output_path": "outputs/runs/", "job_name": "train_bert"},
        "nebula": {
            "enabled": True,
            "persistent_storage_path": "/outputs/nebula_checkpoint/",
            "persistent_time_interval": 10,
            "num_of_version_in_retention": 2,
            "enable_nebula_load": True,
        },
        "gradient_accumulation_steps": 1,
    },
    "bert_base": {
        "train_micro_batch_size_per_gpu": 3,
        "fp16": {"enabled": True},
        "flops_profiler": PROFILER,
        "zero_optimization": {"stage": 0},
        "gradient_accumulation_steps": 1,
        "train_batch_size": 6,
    },
    "distilbert": {
        "train_micro_batch_size_per_gpu": 3,
        "fp16": {"enabled": True},
        "flops_profiler": PROFILER,
        "zero_optimization": {"stage": 0},
        "gradient_accumulation_steps": 2,
    },
}


@pytest.mark.parametrize("name", AZURE_ML)
def test_fp16_configurations_of_azure_ml_run(inputs, tmp_path, name):
    flags = {"gradient_accumulation_steps": None, "per_device_train_batch_size": None, "max_steps": 4, "save_steps": 4}
    outcome = run(train_command(inputs, tmp_path, 2, AZURE_ML[name], ranks=2, **flags), cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    assert "; fp16" in outcome.err
    assert {scale for scale, _ in scales(tmp_path)} <= {65536, 32768}
    file = AZURE_ML[name]["flops_profiler"].get("output_file")
    profile = (tmp_path / file).read_text() if file else outcome.out
    assert "flops profile of step 1" in profile and "layer.0" in profile
    assert len(list((tmp_path / "outputs/runs/train_bert").glob("events*"))) == ("tensorboard" in AZURE_ML[name])
