"""A run that was killed and resumed ends with the bits of one that was not, also on another number of ranks."""

import json
import random
import shutil
import subprocess
import time

import pytest
from program import environment, files_in, losses, metrics, run, run_mpi
from refusals import NUMERIC
from resumable_run import STEPS, train_command
from tiny_models import reviews, training_inputs, write_table

ONE_CYCLE = '{"cycle_min_lr": 1e-4, "cycle_max_lr": 1e-2, "cycle_first_step_size": 4}'


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    return training_inputs(tmp_path_factory.mktemp("inputs"), wide=False)


def evaluations(folder):
    return [(entry["step"], entry["eval_loss"]) for entry in metrics(folder) if "eval_loss" in entry]


def kill_when(line, ready, delay=0.0):
    """Starts the run and kills it as soon as `ready()` holds; False if it ended before."""
    process = subprocess.Popen(line, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while process.poll() is None and not ready():
        assert time.monotonic() < deadline
    time.sleep(delay)
    process.kill()
    return process.wait() != 0


def logged_steps(folder):
    try:
        return (folder / "metrics.jsonl").read_bytes().count(b'"loss"')
    except FileNotFoundError:
        return 0


def assert_same_end(found, expected):
    """The loss of a step that a kill lost between log and checkpoint is logged again, with the same bits."""
    assert losses(found) == losses(expected)
    assert evaluations(found) == evaluations(expected)
    assert (found / "model.safetensors").read_bytes() == (expected / "model.safetensors").read_bytes()
    states = [json.loads((folder / "trainer_state.json").read_text()) for folder in (found, expected)]
    for key in ("best_global_step", "best_metric", "global_step", "epoch", "total_flos"):
        assert states[0][key] == states[1][key]
    leftovers = [path.name for path in found.iterdir() if path.name.startswith(".") or ".tmp" in path.name]
    assert leftovers == []


@pytest.fixture(scope="module")
def uninterrupted(inputs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("uninterrupted")
    outcome = run(train_command(inputs, folder))
    assert outcome.code == 0, outcome.err
    assert len(losses(folder)) == STEPS
    return folder


@pytest.fixture(scope="module")
def half_done(inputs, tmp_path_factory):
    """Killed somewhere between the first checkpoint and the last."""
    folder = tmp_path_factory.mktemp("half_done")
    assert kill_when(train_command(inputs, folder), lambda: logged_steps(folder) >= STEPS // 2)
    assert list(folder.glob("checkpoint-*"))
    return folder


@pytest.fixture
def killed(half_done, tmp_path):
    return shutil.copytree(half_done, tmp_path / "killed")


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_a_killed_run_goes_on_with_the_same_bits(inputs, uninterrupted, killed, ranks):
    outcome = run(train_command(inputs, killed, ranks, resume_from_checkpoint="true"))
    assert outcome.code == 0, outcome.err
    assert_same_end(killed, uninterrupted)


def test_a_killed_run_goes_on_as_processes(inputs, uninterrupted, killed):
    flags = {"ranks": 1, "gradient_accumulation_steps": 2}
    outcome = run_mpi(2, train_command(inputs, killed, resume_from_checkpoint="true", **flags))
    assert outcome.code == 0, outcome.err
    assert_same_end(killed, uninterrupted)


@pytest.mark.parametrize(
    "flags",
    [
        {"optim": "sgd", "optim_args": "momentum=0.9"},
        {"optim": "sgd"},
        {"optim": "adagrad"},
        {"optim": "lion", "learning_rate": 1e-4},
        {"optim": "lamb", "lr_scheduler_type": "OneCycle", "lr_scheduler_kwargs": ONE_CYCLE, "warmup_steps": None},
    ],
    ids=["sgd_momentum", "sgd", "adagrad", "lion", "lamb_one_cycle"],
)
def test_every_optimizer_goes_on_with_the_same_bits(inputs, tmp_path, flags):
    flags = {"max_steps": 12} | flags
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert run(train_command(inputs, whole, **flags)).code == 0
    kill_when(train_command(inputs, killed, **flags), lambda: any(killed.glob("checkpoint-*")))
    shutil.rmtree(killed / "checkpoint-12", ignore_errors=True)  # it may have come to its end
    outcome = run(train_command(inputs, killed, 2, resume_from_checkpoint="true", **flags))
    assert outcome.code == 0, outcome.err
    assert_same_end(killed, whole)


def is_saving(folder, saved_before):
    """In the middle of a save, and not the first one of this run."""
    return len(set(folder.glob("checkpoint-*")) - saved_before) > 1 and any(folder.glob(".checkpoint-*.tmp"))


def test_kills_while_saving_lose_no_checkpoint(inputs, uninterrupted, tmp_path):
    """Killed again and again at random moments of a save, until the run is through."""
    source = random.Random(11)
    kills = 0
    for _ in range(6):
        saved = set(tmp_path.glob("checkpoint-*"))
        line = train_command(inputs, tmp_path, resume_from_checkpoint="true")
        kills += kill_when(line, lambda saved=saved: is_saving(tmp_path, saved), delay=source.uniform(0, 0.004))
        for folder in tmp_path.glob("checkpoint-*"):
            if (folder / "manifest.json").exists():
                assert sum(path.stat().st_size for path in folder.glob("model*.safetensors")) > 100_000
    assert kills >= 3
    outcome = run(train_command(inputs, tmp_path, resume_from_checkpoint="true"))
    assert outcome.code == 0, outcome.err
    assert_same_end(tmp_path, uninterrupted)


def test_a_damaged_checkpoint_is_passed_over(inputs, uninterrupted, killed):
    newest = max(killed.glob("checkpoint-*"), key=lambda folder: int(folder.name.split("-")[1]))
    weights = min(newest.glob("model*.safetensors"))
    content = bytearray(weights.read_bytes())
    content[-5] ^= 1
    weights.write_bytes(content)
    outcome = run(train_command(inputs, killed, resume_from_checkpoint="true"))
    assert outcome.code == 0, outcome.err
    assert f"{newest} is not used" in outcome.err and "damaged" in outcome.err
    assert_same_end(killed, uninterrupted)


def test_a_damaged_checkpoint_asked_for_by_name_is_refused(inputs, killed):
    newest = max(killed.glob("checkpoint-*"), key=lambda folder: int(folder.name.split("-")[1]))
    states = min(newest.glob("optimizer*.safetensors"))
    states.write_bytes(b"cut")
    before = files_in(killed)
    outcome = run(train_command(inputs, killed, resume_from_checkpoint=newest))
    assert outcome.code == 4
    assert f"{states} has 3 bytes, the manifest says" in outcome.err
    assert files_in(killed) == before


def test_weights_that_are_not_finite_are_gone_on_from_in_the_last_place(inputs, tmp_path):
    flags = {"learning_rate": 1e38, "warmup_steps": 1, "save_steps": 1, "save_total_limit": 1, "eval_strategy": "no"}
    flags |= {"validation_file": None, "max_steps": 6, "load_best_model_at_end": None, "eval_steps": None}
    for ranks, said in ((1, "saved"), (2, "checkpoint-2 has weights that are not finite")):
        resume = {} if ranks == 1 else {"resume_from_checkpoint": "true"}
        outcome = run(train_command(inputs, tmp_path, ranks, **flags, **resume))
        assert outcome.code == NUMERIC and said in outcome.err, outcome.err
        assert sorted(path.name for path in tmp_path.glob("checkpoint-*")) == ["checkpoint-1", "checkpoint-2"]
        assert json.loads((tmp_path / "checkpoint-2" / "manifest.json").read_text())["finite"] is False
    assert "going on from" in outcome.err and "behind step 1" in outcome.err


def test_resuming_a_finished_run_changes_nothing(inputs, uninterrupted, tmp_path):
    again = shutil.copytree(uninterrupted, tmp_path / "again")
    for ranks in (1, 2):
        outcome = run(train_command(inputs, again, ranks, resume_from_checkpoint="true"))
        assert outcome.code == 0, outcome.err
        assert files_in(again) == files_in(uninterrupted)


@pytest.mark.parametrize("ranks", [1, 2])
def test_resuming_with_fewer_steps_than_are_done_says_that_nothing_is_left(inputs, uninterrupted, tmp_path, ranks):
    again = shutil.copytree(uninterrupted, tmp_path / "again")
    flags = {"max_steps": STEPS - 4, "learning_rate": 5e-4}
    outcome = run(train_command(inputs, again, ranks, resume_from_checkpoint="true", **flags))
    assert outcome.code == 0, outcome.err
    told = outcome.err.splitlines()
    left = f"checkpoint-{STEPS} is behind step {STEPS} and the run has {STEPS - 4}: nothing is left to train"
    assert len([line for line in told if left in line]) == 1
    (changes,) = [line for line in told if "--learning_rate was 0.001 and is 0.0005 now" in line]
    assert f"change nothing, for the model stays that of step {STEPS}: " in changes
    assert f"from step {STEPS + 1} on" not in outcome.err
    assert (again / "model.safetensors").read_bytes() == (uninterrupted / "model.safetensors").read_bytes()


def closings(entries):
    return [entry["step"] for entry in entries if "train_runtime" in entry]


def test_a_run_that_goes_on_after_its_end_has_one_closing_line(inputs, uninterrupted, tmp_path):
    again = shutil.copytree(uninterrupted, tmp_path / "again")
    outcome = run(train_command(inputs, again, resume_from_checkpoint="true", max_steps=STEPS + 3))
    assert outcome.code == 0, outcome.err
    assert closings(metrics(uninterrupted)) == [STEPS]
    assert closings(metrics(again)) == [STEPS + 3]
    assert json.loads((again / "trainer_state.json").read_text())["log_history"] == metrics(again)


def test_a_run_killed_in_its_final_write_is_finished(inputs, uninterrupted, tmp_path):
    again = shutil.copytree(uninterrupted, tmp_path / "again")
    (again / "trainer_state.json").unlink()
    (again / "model.safetensors").rename(again / "model.safetensors.tmp-99999999-60")
    (again / "config.json.tmp-99999999-61").write_text("{")
    (again / "notes.tmp").write_text("mine")
    outcome = run(train_command(inputs, again, resume_from_checkpoint="true"))
    assert outcome.code == 0, outcome.err
    assert "model.safetensors.tmp-99999999-60, left by an interrupted save" in outcome.err
    assert (again / "notes.tmp").read_text() == "mine"
    (again / "notes.tmp").unlink()
    assert_same_end(again, uninterrupted)
    assert closings(metrics(again)) == [STEPS]
    assert json.loads((again / "trainer_state.json").read_text())["log_history"] == metrics(again)


@pytest.mark.parametrize(
    "saves", [{}, {"save_steps": STEPS, "load_best_model_at_end": "false"}], ids=["often", "never"]
)
def test_resuming_a_run_that_stopped_early_does_not_go_on(inputs, tmp_path, saves):
    """The step at which it stopped is saved, as the last one is."""
    flags = {"early_stopping_patience": 1, "early_stopping_threshold": 10.0, "metric_for_best_model": "loss"} | saves
    assert run(train_command(inputs, tmp_path, **flags)).code == 0
    steps = len(losses(tmp_path))
    assert steps < STEPS
    weights = (tmp_path / "model.safetensors").read_bytes()
    outcome = run(train_command(inputs, tmp_path, resume_from_checkpoint="true", **flags))
    assert outcome.code == 0, outcome.err
    assert len(losses(tmp_path)) == steps
    assert (tmp_path / "model.safetensors").read_bytes() == weights


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"seed": 7}, "with seed = 42, now it is 7"),
        ({"data_seed": 7}, "with data_seed = 42, now it is 7"),
        ({"per_device_train_batch_size": 4}, "per_device_train_batch_size = 3, now it is 4"),
        ({"gradient_accumulation_steps": 2}, "micro_batches_per_step = 4, now it is 2"),
        ({"max_tokens_per_batch": 100, "per_device_train_batch_size": None}, "max_tokens_per_batch = 0, now it is 100"),
        ({"bf16": True}, "bf16 = false, now it is true"),
        ({"optim": "sgd"}, 'optim = "adamw_torch", now it is "sgd"'),
        ({"max_seq_length": 8}, "train_tokens = "),
        ({"dataloader_drop_last": True}, "dataloader_drop_last = false, now it is true"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_resuming_another_run_is_refused(inputs, killed, change, named):
    before = files_in(killed)
    for dry_run in (None, True):
        outcome = run(train_command(inputs, killed, resume_from_checkpoint="true", dry_run=dry_run, **change))
        assert outcome.code == 2
        assert "strake_state.json" in outcome.err and named in outcome.err
        assert files_in(killed) == before


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_dry_run_names_the_checkpoint_to_go_on_from(inputs, killed, ranks):
    before = files_in(killed)
    outcome = run(train_command(inputs, killed, ranks, resume_from_checkpoint="true", dry_run=True))
    assert outcome.code == 0, outcome.err
    newest = max(killed.glob("checkpoint-*"), key=lambda folder: int(folder.name.split("-")[1]))
    assert f"the run would go on from {newest}\n" in outcome.err
    assert files_in(killed) == before


def test_a_file_is_no_checkpoint(inputs, killed):
    file = max(killed.glob("checkpoint-*")) / "manifest.json"
    outcome = run(train_command(inputs, killed, resume_from_checkpoint=file))
    assert outcome.code == 4 and f"{file} is no folder" in outcome.err


def test_other_settings_of_optimizer_and_schedule_hold_from_there_on_and_are_named(inputs, uninterrupted, tmp_path):
    again = shutil.copytree(uninterrupted, tmp_path / "again")
    flags = {"max_steps": STEPS + 4, "learning_rate": 5e-4, "lr_scheduler_type": "constant"}
    outcome = run(train_command(inputs, again, 2, resume_from_checkpoint="true", **flags))
    assert outcome.code == 0, outcome.err
    notice = [line for line in outcome.err.splitlines() if "with other settings" in line]
    assert len(notice) == 1
    for told in (
        f"checkpoint-{STEPS} with other settings from step {STEPS + 1} on: ",
        "--learning_rate was 0.001 and is 0.0005 now",
        '--lr_scheduler_type was "linear" and is "constant" now',
        f"the run had {STEPS} steps and has {STEPS + 4} now",
        "Transformers' Trainer would keep the checkpoint's learning_rate",
    ):
        assert told in notice[0]
    rates = [entry["learning_rate"] for entry in metrics(again) if "loss" in entry]
    assert rates[-4:] == [5e-4] * 4
    outcome = run(train_command(inputs, again, resume_from_checkpoint="true", **flags))
    assert "with other settings" not in outcome.err, "they are those of the checkpoint now"


def test_resuming_with_other_data_is_refused(inputs, killed, tmp_path):
    other = write_table(tmp_path / "other.parquet", reviews(39))
    outcome = run(train_command(inputs | {"train_file": other}, killed, resume_from_checkpoint="true"))
    assert outcome.code == 2
    assert "train_sequences = 38, now it is 39" in outcome.err


@pytest.mark.parametrize("change", [{"label": "positive"}, {"text": "happy"}], ids=lambda change: next(iter(change)))
def test_resuming_with_as_much_other_data_is_refused(inputs, killed, tmp_path, change):
    rows = reviews(38)
    i = next(i for i, row in enumerate(rows) if row["label"] == "negative" and "sad" in row["text"].split())
    if "text" in change:
        change = {"text": rows[i]["text"].replace("sad", "bad")}
    rows[i] |= change
    other = write_table(tmp_path / "other.parquet", rows)
    before = files_in(killed)
    outcome = run(train_command(inputs | {"train_file": other}, killed, resume_from_checkpoint="true"))
    assert outcome.code == 2
    assert "training_data_crc32c = " in outcome.err
    assert files_in(killed) == before


def test_a_folder_with_checkpoints_is_not_started_over_unasked(inputs, killed):
    for flags in ({}, {"resume_from_checkpoint": "false"}, {"dry_run": True}):
        before = files_in(killed)
        outcome = run(train_command(inputs, killed, **flags))
        assert outcome.code == 2
        assert str(killed) in outcome.err
        assert "--resume_from_checkpoint true" in outcome.err and "--overwrite_output_dir" in outcome.err
        assert files_in(killed) == before


def test_overwriting_starts_over(inputs, uninterrupted, killed):
    outcome = run(train_command(inputs, killed, overwrite_output_dir=True))
    assert outcome.code == 0, outcome.err
    assert_same_end(killed, uninterrupted)
