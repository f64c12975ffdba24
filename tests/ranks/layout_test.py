"""The same global batch gives the same bits however it is spread over ranks, threads or processes, with dropout on."""

import json
import os
import tempfile

import numpy
import pytest
from program import MEMORY, SANITIZE, command, is_open_mpi, losses, metrics, run, run_mpi, run_torchrun
from tiny_models import (
    change_config,
    change_weights,
    make_model,
    reviews,
    training_inputs,
    widen_layers,
    write_table,
)

# 38 rows in micro-batches of 3 are 13 micro-batches: with 4 of them a step, each epoch ends with a step of one,
# in which all ranks but the first have nothing to do.
MICRO_BATCHES = 4
SETTINGS = {
    "plain": {},
    "smoothed": {"label_smoothing_factor": 0.1},
    "clipped": {"max_grad_norm": 0.5},
    "unclipped": {"max_grad_norm": 0},
    "by_tokens": {"max_tokens_per_batch": 60, "per_device_train_batch_size": None},
    "bf16": {"bf16": True},
    "lamb": {"optim": "lamb"},
    "lamb_bf16": {"optim": "lamb", "bf16": True},
}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    return training_inputs(tmp_path_factory.mktemp("inputs"), validation_rows=21)


def train_command(inputs, output, num_ranks, **flags):
    defaults = {
        "max_seq_length": 32,
        "per_device_train_batch_size": 3,
        "num_train_epochs": 2,
        "learning_rate": 1e-3,
        "weight_decay": 0.01,
        "logging_steps": 1,
        "eval_strategy": "epoch",
        "save_strategy": "no",
    }
    defaults["gradient_accumulation_steps"] = MICRO_BATCHES // num_ranks
    return command("train", output_dir=output, **(inputs | defaults | flags))


def run_threads(inputs, output, ranks, **flags):
    return run(train_command(inputs, output, ranks, ranks=ranks, **flags))


@pytest.fixture(scope="module")
def alone(inputs, tmp_path_factory):
    """One rank's run for each setting, made once."""
    runs = {}

    def get(setting):
        if setting not in runs:
            runs[setting] = tmp_path_factory.mktemp(f"alone_{setting}")
            outcome = run_threads(inputs, runs[setting], 1, **SETTINGS[setting])
            assert outcome.code == 0, outcome.err
        return runs[setting]

    return get


def assert_same_run(found, expected):
    assert len(losses(expected)) > 4
    assert losses(found) == losses(expected)
    assert (found / "model.safetensors").read_bytes() == (expected / "model.safetensors").read_bytes()
    assert evaluations(found) == evaluations(expected)


def evaluations(folder):
    return [(e["step"], e["eval_loss"], e["eval_accuracy"]) for e in metrics(folder) if "eval_loss" in e]


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_as_threads(inputs, alone, tmp_path, ranks, setting):
    outcome = run_threads(inputs, tmp_path, ranks, **SETTINGS[setting])
    assert outcome.code == 0, outcome.err
    assert_same_run(tmp_path, alone(setting))


def run_processes(inputs, output, ranks, memory, **flags):
    """On this host, with memory in common or as on several hosts."""
    outcome = run_mpi(ranks, train_command(inputs, output, ranks, **flags), **MEMORY[memory])
    assert outcome.code == 0, outcome.err
    assert ("which have memory in common" in outcome.err) == (memory == "common")
    return outcome


@pytest.mark.parametrize("memory", MEMORY)
@pytest.mark.parametrize("setting", ["plain", "by_tokens", "bf16"])
def test_ranks_as_mpi_processes(inputs, alone, tmp_path, setting, memory):
    run_processes(inputs, tmp_path, 2, memory, **SETTINGS[setting])
    assert_same_run(tmp_path, alone(setting))


WORDS = 40_000  # in a table of 1.28 million numbers: ranks that are processes send only what they touch of it


def with_many_words(folder):
    model = widen_layers(make_model(folder, dropout=0.1))

    def grown(name, array):
        if "word_embeddings" not in name:
            return array
        more = numpy.random.default_rng(1).normal(0, 0.02, (WORDS - len(array), array.shape[1]))
        return numpy.concatenate([array, more.astype(array.dtype)])

    change_weights(model, grown)
    change_config(model, vocab_size=WORDS)
    return model


@pytest.mark.parametrize("setting", ["clipped", "bf16"])
def test_processes_with_few_of_many_words_have_the_same_bits(inputs, tmp_path, setting):
    many = inputs | {"model_name_or_path": with_many_words(tmp_path / "model")}
    assert run_threads(many, tmp_path / "alone", 1, **SETTINGS[setting]).code == 0
    for ranks, stage, memory in ((2, "zero0", "common"), (4, "zero3", "apart")):
        folder = tmp_path / f"{ranks} {stage}"
        run_processes(many, folder, ranks, memory, **SETTINGS[setting], **STAGES[stage])
        assert_same_run(folder, tmp_path / "alone")


def on_disk(stage, *what, **more):
    nvme = {"device": "nvme", "nvme_path": tempfile.gettempdir()}
    zero = {"stage": stage, "stage3_param_persistence_threshold": 0, **dict.fromkeys(what, nvme)}
    return json.dumps({"zero_optimization": zero | more})


STAGES = {
    "zero0": {"deepspeed": '{"zero_optimization": {"stage": 0}}'},
    "zero1": {"deepspeed": '{"zero_optimization": {"stage": 1}}'},
    "zero2": {"deepspeed": '{"zero_optimization": {"stage": 2}}'},
    "zero3": {"deepspeed": '{"zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0}}'},
    "full_shard": {"fsdp": "full_shard auto_wrap"},
    "recompute": {"gradient_checkpointing": True},
    "states_on_disk": {"deepspeed": on_disk(2, "offload_optimizer")},
    "all_on_disk": {"deepspeed": on_disk(3, "offload_optimizer", "offload_param")},
}


def in_groups(ranks):
    zero = {"stage": 3, "mics_shard_size": ranks, "stage3_param_persistence_threshold": 0}
    return json.dumps({"zero_optimization": zero})


HYBRID = in_groups(2)


@pytest.mark.parametrize("setting", ["clipped", "bf16"])
@pytest.mark.parametrize("stage", STAGES)
def test_every_stage_gives_the_same_bits(inputs, alone, tmp_path, stage, setting):
    for ranks in (1, 2):
        folder = tmp_path / str(ranks)
        outcome = run_threads(inputs, folder, ranks, **SETTINGS[setting], **STAGES[stage])
        assert outcome.code == 0, outcome.err
        assert_same_run(folder, alone(setting))


SMALL_WINDOWS = {"sub_group_size": 16384}
HALF = {"device": "nvme", "nvme_path": tempfile.gettempdir(), "ratio": 0.5}


@pytest.mark.parametrize("setting", ["lamb", "lamb_bf16"])
@pytest.mark.parametrize(
    "config",
    [
        on_disk(1, "offload_optimizer", **SMALL_WINDOWS),
        on_disk(3, "offload_optimizer", "offload_param", **SMALL_WINDOWS),
        on_disk(3, offload_optimizer=HALF),
    ],
    ids=["states", "all", "half"],
)
def test_trust_ratios_of_state_on_disk_have_the_same_bits(inputs, alone, tmp_path, config, setting):
    """LAMB's norms are of whole tensors, which lie in several windows and on several ranks."""
    for ranks in (1, 2):
        folder = tmp_path / str(ranks)
        outcome = run_threads(inputs, folder, ranks, **SETTINGS[setting], deepspeed=config)
        assert outcome.code == 0, outcome.err
        assert_same_run(folder, alone(setting))


@pytest.mark.parametrize("memory", MEMORY)
@pytest.mark.parametrize("stage", ["zero0", "zero2", "zero3", "all_on_disk"])
def test_every_stage_gives_the_same_bits_as_processes(inputs, alone, tmp_path, stage, memory):
    """Without memory in common, stage 3 gathers each block's parameters for each pass."""
    run_processes(inputs, tmp_path, 2, memory, **SETTINGS["clipped"], **STAGES[stage])
    assert_same_run(tmp_path, alone("clipped"))


@pytest.mark.parametrize("memory", MEMORY)
@pytest.mark.parametrize("group", [1, 2])
def test_hybrid_sharding_over_four_processes(inputs, alone, tmp_path, group, memory):
    outcome = run_processes(inputs, tmp_path, 4, memory, **SETTINGS["clipped"], deepspeed=in_groups(group))
    assert "sharding hybrid" in outcome.err
    assert_same_run(tmp_path, alone("clipped"))


GROUPS_ON_DISK = {
    "threads": ("bf16", {"mics_shard_size": 2}),
    "threads_alone": ("clipped", {"mics_shard_size": 1}),
    "threads_lamb": ("lamb_bf16", {"zero_hpz_partition_size": 2} | SMALL_WINDOWS),
    "processes": ("clipped", {"mics_shard_size": 2} | SMALL_WINDOWS),
    "processes_bf16": ("bf16", {"zero_hpz_partition_size": 2}),
}


@pytest.mark.parametrize("case", GROUPS_ON_DISK)
def test_hybrid_sharding_with_parameters_on_disk(inputs, alone, tmp_path, case):
    setting, more = GROUPS_ON_DISK[case]
    flags = SETTINGS[setting] | {"deepspeed": on_disk(3, "offload_optimizer", "offload_param", **more)}
    are_threads = case.startswith("threads")
    line = train_command(inputs, tmp_path, 4, ranks=4 if are_threads else None, **flags)
    outcome = run(line) if are_threads else run_mpi(4, line)
    assert outcome.code == 0, outcome.err
    assert "sharding hybrid" in outcome.err
    assert_same_run(tmp_path, alone(setting))


DECAY = {"total_num_steps": "auto", "warmup_min_lr": "auto", "warmup_max_lr": "auto", "warmup_num_steps": "auto"}


def test_a_scheduler_follows_the_number_of_steps(inputs, tmp_path):
    """13 micro-batches, 4 of them a step: 4 steps an epoch."""
    scheduler = {"type": "WarmupDecayLR", "params": DECAY}
    for ranks in (1, 2):
        folder = tmp_path / str(ranks)
        outcome = run_threads(inputs, folder, ranks, deepspeed=json.dumps({"scheduler": scheduler}), warmup_ratio=0.2)
        assert outcome.code == 0, outcome.err
        settings = json.loads((folder / "ds_config_resolved.json").read_text())["settings"]
        assert settings["scheduler.params.total_num_steps"] == {"value": 8, "from": "auto <- number of steps"}
        assert settings["scheduler.params.warmup_num_steps"]["value"] == 2
        rates = [entry["learning_rate"] for entry in metrics(folder) if "learning_rate" in entry]
        # DeepSpeed's schedules lag by a step: the last update has the rate of 6 of 8 steps, 2 of them warm-up.
        assert max(rates) == rates[3] == 1e-3
        assert rates[-1] == pytest.approx(1e-3 * (8 - 6) / (8 - 2))
    assert_same_run(tmp_path / "1", tmp_path / "2")
    scheduler["params"]["total_num_steps"] = 5
    outcome = run_threads(inputs, tmp_path / "5", 1, deepspeed=json.dumps({"scheduler": scheduler}))
    assert outcome.code == 2
    assert "ds scheduler.params.total_num_steps=5 vs the run's 8 steps" in outcome.err


OPTIMIZERS = {
    "SGD": ({"momentum": 0.9}, {"optim": "sgd", "optim_args": "momentum=0.9"}),
    "Adagrad": ({"lr_decay": 0.1}, {"optim": "adagrad", "optim_args": "lr_decay=0.1"}),
    "Lion": ({"betas": [0.9, 0.98]}, {"optim": "lion", "adam_beta2": 0.98}),
    "Lamb": ({"max_coeff": 5}, {"optim": "lamb", "optim_args": "max_coeff=5"}),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_of_the_file_is_that_of_the_flags(inputs, tmp_path, name):
    params, flags = OPTIMIZERS[name]
    shared = {"max_steps": 3, "num_train_epochs": None, "weight_decay": None}
    outcome = run_threads(inputs, tmp_path / "flags", 1, **shared | flags)
    assert outcome.code == 0, outcome.err
    params = {"lr": 1e-3, **params}  # without decay, which the file has for biases and norms too
    config = json.dumps({"optimizer": {"type": name, "params": params}})
    outcome = run_threads(inputs, tmp_path / "file", 2, **shared, deepspeed=config)
    assert outcome.code == 0, outcome.err
    assert losses(tmp_path / "file") == losses(tmp_path / "flags")
    assert (tmp_path / "file/model.safetensors").read_bytes() == (tmp_path / "flags/model.safetensors").read_bytes()


AMSGRAD = {"type": "AdamW", "params": {"lr": 1e-3, "betas": [0.9, 0.9], "amsgrad": True}}


@pytest.mark.parametrize("bf16", [None, True], ids=["fp32", "bf16"])
def test_amsgrad_has_the_same_bits_in_every_layout(inputs, tmp_path, bf16):
    def trained(name, num_ranks, zero, optimizer=AMSGRAD):
        config = json.dumps({"optimizer": optimizer, "zero_optimization": zero})
        flags = {"learning_rate": None, "weight_decay": None, "bf16": bf16, "deepspeed": config}
        outcome = run_threads(inputs, tmp_path / name, num_ranks, **flags)
        assert outcome.code == 0, outcome.err
        return tmp_path / name

    expected = trained("alone", 1, {"stage": 0})
    for ranks, zero in ((2, {"stage": 0}), (2, {"stage": 3}), (4, {"stage": 3, "mics_shard_size": 2})):
        assert_same_run(trained(f"{ranks} {zero['stage']}", ranks, zero), expected)
    disk = json.loads(on_disk(3, "offload_optimizer", "offload_param", mics_shard_size=2))["zero_optimization"]
    assert_same_run(trained("disk", 4, disk), expected)
    plain = trained("plain", 1, {"stage": 0}, AMSGRAD | {"params": AMSGRAD["params"] | {"amsgrad": False}})
    assert losses(plain) != losses(expected), "it does something"


SLOW_END = os.environ.get("STRAKE_SLOW_END", "")


@pytest.mark.skipif(SLOW_END == "" or SANITIZE != "", reason="needs STRAKE_SLOW_END, and no library before it")
def test_a_rank_that_was_told_ends_without_its_launcher(inputs, tmp_path):
    """It would kill the rank that has failed, with a signal for the job's exit code."""
    (tmp_path / "file").write_text("not a folder")
    line = train_command(inputs, tmp_path / "file", 2)
    for _ in range(3):
        outcome = run_mpi(2, ["env", f"LD_PRELOAD={SLOW_END}", *line])
        assert outcome.code == 4, outcome.err


def test_the_exit_code_of_a_job_is_that_of_its_error(inputs, tmp_path):
    (tmp_path / "file").write_text("not a folder")  # only rank 0 looks at the output folder
    bad = write_table(tmp_path / "bad.parquet", [row | {"label": None} for row in reviews(4)])
    assert run_mpi(2, train_command(inputs, tmp_path / "checkpoints", 2, save_strategy="epoch")).code == 0
    cases = [
        ("checkpoints", {}, 2, "usage error: --output_dir"),
        ("out", {"train_file": bad}, 3, "data error: "),
        ("file", {}, 4, "file error: "),
    ]
    for folder, flags, code, message in cases:
        outcome = run_mpi(2, train_command(inputs | flags, tmp_path / folder, 2))
        assert outcome.code == code, outcome.err
        assert f"stops the job: {message}" in outcome.err


def test_ranks_from_a_torchrun_environment(inputs, alone, tmp_path):
    if is_open_mpi():
        pytest.skip("Open MPI has no protocol by which a process without its launcher can become a rank")
    outcome = run_torchrun(2, train_command(inputs, tmp_path, 2))
    assert outcome.code == 0, outcome.err
    assert_same_run(tmp_path, alone("plain"))


def test_ranks_from_the_launcher_of_deepspeed_in_tasks_of_slurm(inputs, alone, tmp_path):
    """One task on each machine, as far as the ranks know, with their number before the verb."""
    if is_open_mpi():
        pytest.skip("Open MPI has no protocol by which a process without its launcher can become a rank")

    def variables_of(rank):
        return {"LOCAL_RANK": "0", "SLURM_PROCID": str(rank), "SLURM_NTASKS": "2", "SLURM_STEP_ID": "0"}

    program, *rest = train_command(inputs, tmp_path, 2)
    outcome = run_torchrun(2, [program, "--local_rank=0", *rest], variables_of)
    assert outcome.code == 0, outcome.err
    assert_same_run(tmp_path, alone("plain"))


def test_settings_change_the_run(alone):
    """Else the cases above would not show anything about them."""
    weights = {setting: (alone(setting) / "model.safetensors").read_bytes() for setting in SETTINGS}
    assert len(set(weights.values())) == len(SETTINGS)
    assert max(norm for _, _, norm in losses(alone("clipped"))) > 0.5


def test_dropout_and_seed_change_the_run(inputs, alone, tmp_path):
    """Else equal runs would not show that dropout is the same on all layouts."""
    calm = inputs | {"model_name_or_path": widen_layers(make_model(tmp_path / "calm", dropout=0.0))}
    assert run_threads(calm, tmp_path / "without", 1).code == 0
    assert run_threads(inputs, tmp_path / "seed", 1, seed=43, data_seed=42).code == 0
    expected = losses(alone("plain"))
    assert losses(tmp_path / "without") != expected
    assert losses(tmp_path / "seed") != expected
