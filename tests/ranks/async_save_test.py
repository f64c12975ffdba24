"""Checkpoints that are written while training goes on (--async_save) are those that are written before it does.

A library loaded before libc (slow_disk.cpp) lets an optimizer's file take long to reach the disk, so that there is a
moment to look at.
"""

import json
import os
import resource
import shutil
import signal
import time

import pytest
from failure_test import background_run, saved
from program import SANITIZE, environment, files_in, full_disk, run, run_mpi
from refusals import FILE, INTERRUPTED, NUMERIC, USAGE
from resume_test import assert_same_end, logged_steps, train_command
from tiny_models import training_inputs

RUN = {"max_steps": 24, "save_total_limit": 0}
BEST = {"metric_for_best_model": "loss", "greater_is_better": "true", "save_total_limit": 2}  # the first is the best
BATCHES = {"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "gradient_clipping": "auto"}
STAGE_3 = json.dumps({"zero_optimization": {"stage": 3}} | BATCHES)
WISH_SECONDS = 2  # in which several SIGTERMs are one
SLOW_DISK = os.environ.get("STRAKE_SLOW_DISK", "")
needs_slow_disk = pytest.mark.skipif(
    SLOW_DISK == "" or SANITIZE != "",
    reason="needs STRAKE_SLOW_DISK, and sanitizers want to be loaded first themselves",
)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    return training_inputs(tmp_path_factory.mktemp("inputs"), wide=False)


@pytest.fixture(scope="module")
def whole(inputs, tmp_path_factory):
    """A run whose checkpoints are written before it goes on."""
    folder = tmp_path_factory.mktemp("whole")
    outcome = run(train_command(inputs, folder, **RUN))
    assert outcome.code == 0, outcome.err
    return folder


def timeless(folder):
    """A run's files but for those that tell times or the flag, and manifests, which have their sums."""
    names = ("metrics.jsonl", "trainer_state.json", "manifest.json", "ds_config_resolved.json")
    return {name: data for name, data in files_in(folder).items() if not name.endswith(names)}


def start(kind, ranks, inputs, folder, **flags):
    line = train_command(inputs, folder, ranks, **flags)
    if kind == "threads":
        return run(line)
    line[line.index("--ranks") + 1] = "1"
    return run_mpi(ranks, line)


@pytest.mark.parametrize(
    "flags", [{}, BEST, {"bf16": True}, {"deepspeed": STAGE_3}], ids=["plain", "best", "bf16", "3"]
)
@pytest.mark.parametrize(("kind", "ranks"), [("threads", 1), ("threads", 2), ("processes", 2)])
def test_the_files_are_those_of_a_run_that_waits(inputs, tmp_path, kind, ranks, flags):
    for name, is_asynchronous in (("waits", "false"), ("goes_on", "true")):
        outcome = start(kind, ranks, inputs, tmp_path / name, **(RUN | flags), async_save=is_asynchronous)
        assert outcome.code == 0, outcome.err
        assert outcome.err.count("is copied in") == (5 if is_asynchronous == "true" else 0), "all but the last"
    assert timeless(tmp_path / "goes_on") == timeless(tmp_path / "waits")
    assert len(list((tmp_path / "goes_on").glob("checkpoint-*"))) == (2 if flags is BEST else 6)


def on_slow_disk(seconds):
    return {"LD_PRELOAD": SLOW_DISK, "STRAKE_TEST_FSYNC_SECONDS": str(seconds)}


def start_on_slow_disk(seconds, kind, ranks, inputs, folder):
    with pytest.MonkeyPatch.context() as patch:
        for name, value in on_slow_disk(seconds).items():
            patch.setenv(name, value)
        return background_run(kind, ranks, inputs, folder, **RUN, async_save=True)


def is_writing(folder, step):
    """Whether a run has taken steps since a checkpoint that is not there yet."""
    return logged_steps(folder) > step + 1 and not (folder / f"checkpoint-{step}").exists()


@pytest.fixture(params=[("threads", 1), ("threads", 2), ("processes", 2)], ids=["alone", "threads", "processes"])
def writing(request, inputs, tmp_path):
    """A job that has gone on from step 8 while its checkpoint is being written, that of step 4 is there."""
    job = start_on_slow_disk(1, *request.param, inputs, tmp_path / "run")
    job.wait_for(lambda folder: is_writing(folder, 8))
    assert (job.folder / "checkpoint-4" / "manifest.json").exists()
    return job


def resumed(inputs, folder, **flags):
    outcome = run(train_command(inputs, folder, **RUN, resume_from_checkpoint="true", **flags))
    assert outcome.code == 0, outcome.err
    return folder


@needs_slow_disk
def test_a_killed_run_goes_on_from_the_checkpoint_that_was_complete(inputs, whole, writing):
    for pid in writing.processes():
        os.kill(pid, signal.SIGKILL)
    writing.process.wait()
    assert sorted(path.name for path in writing.folder.glob("*checkpoint-*")) == [".checkpoint-8.tmp", "checkpoint-4"]
    assert_same_end(resumed(inputs, writing.folder, async_save=True), whole)


@needs_slow_disk
def test_a_run_that_is_asked_to_end_finishes_what_is_being_written(inputs, whole, writing):
    os.kill(writing.processes()[-1], signal.SIGTERM)
    code, log = writing.end()
    assert code == INTERRUPTED, log
    assert (writing.folder / "checkpoint-8" / "manifest.json").exists()
    assert logged_steps(writing.folder) == max(int(path.name[11:]) for path in writing.folder.glob("checkpoint-*"))
    assert_same_end(resumed(inputs, writing.folder), whole)


@needs_slow_disk
def test_who_asks_again_later_ends_a_run_that_waits_for_the_disk(inputs, tmp_path):
    job = start_on_slow_disk(60, "threads", 1, inputs, tmp_path / "run")
    job.wait_for(lambda folder: is_writing(folder, 4))
    job.process.terminate()
    first = time.monotonic()
    while time.monotonic() < first + WISH_SECONDS:
        assert job.process.poll() is None, job.log.read_text()
        time.sleep(0.05)
    job.process.terminate()
    assert job.end()[0] == -signal.SIGTERM


@needs_slow_disk
def test_a_run_without_memory_finishes_what_is_being_written(inputs, tmp_path, monkeypatch):
    sign = tmp_path / "no_memory"
    monkeypatch.setenv("STRAKE_TEST_NO_MEMORY", str(sign))
    job = start_on_slow_disk(1, "threads", 1, inputs, tmp_path / "run")
    job.wait_for(lambda folder: is_writing(folder, 8))
    sign.touch()
    code, log = job.end()
    assert code not in (0, INTERRUPTED) and "memory" in log, log
    assert (job.folder / "checkpoint-8" / "manifest.json").exists()
    assert not list(job.folder.glob(".checkpoint-*"))


@needs_slow_disk
def test_a_rank_that_dies_ends_the_others_although_the_disk_hangs(inputs, tmp_path):
    job = start_on_slow_disk(60, "processes", 2, inputs, tmp_path / "run")
    job.wait_for(lambda folder: is_writing(folder, 4))
    os.kill(job.processes()[-1], signal.SIGKILL)
    code, log = job.end()  # long before the disk
    assert code != 0, log
    assert not list((tmp_path / "run").glob("checkpoint-*"))


@needs_slow_disk
def test_a_loss_that_is_not_finite_does_not_take_a_checkpoint_along(inputs, tmp_path):
    flags = RUN | {"save_steps": 1, "eval_steps": 1, "learning_rate": 1e30, "warmup_steps": 0, "async_save": True}
    outcome = run(train_command(inputs, tmp_path, **flags), env=environment(**on_slow_disk(0.3)))
    assert outcome.code == NUMERIC, outcome.err
    assert (tmp_path / "checkpoint-1" / "manifest.json").exists()
    assert not list(tmp_path.glob(".checkpoint-*"))


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_full_disk_ends_the_run_and_leaves_the_checkpoints_before(inputs, whole, tmp_path, ranks):
    """The tensors of the second one do not fit."""
    shutil.copytree(whole, tmp_path / "run")
    for step in range(8, 25, 4):
        shutil.rmtree(tmp_path / "run" / f"checkpoint-{step}")
    size = max(path.stat().st_size for path in (whole / "checkpoint-4").glob("*.safetensors"))
    line = train_command(inputs, tmp_path / "run", ranks, **RUN, async_save=True, resume_from_checkpoint="true")
    outcome = run(line, **full_disk(size // 2 // ranks))
    assert outcome.code == FILE, outcome.err
    assert "checkpoint-8.tmp/" in outcome.err and "safetensors" in outcome.err
    assert [path.name for path in (tmp_path / "run").glob("checkpoint-*")] == ["checkpoint-4"]
    assert_same_end(resumed(inputs, tmp_path / "run"), whole)


@needs_slow_disk
@pytest.mark.parametrize("victim", [0, 1])
def test_a_full_disk_of_one_process_is_the_error_of_all(inputs, whole, tmp_path, victim):
    job = start_on_slow_disk(0.3, "processes", 2, inputs, tmp_path / "run")
    job.wait_for(lambda folder: saved(folder) >= 1)
    most = (whole / "checkpoint-4" / "model.safetensors").stat().st_size // 4
    resource.prlimit(job.processes()[victim], resource.RLIMIT_FSIZE, (most, most))
    code, log = job.end()
    assert code == FILE, log
    assert "File too large" in log and "No such file" not in log, log


@pytest.mark.parametrize(
    ("flags", "copies"), [({"save_steps": 8}, True), ({"save_steps": 24, "eval_steps": 24}, False)]
)
def test_memory_is_planned_for_copies_that_will_be_made(inputs, tmp_path, flags, copies):
    outcome = run(train_command(inputs, tmp_path, **(RUN | flags), async_save=True, dry_run=True))
    assert outcome.code == 0, outcome.err
    assert ("copies being saved" in outcome.out) == copies


def test_an_error_of_the_only_rank_does_not_take_a_checkpoint_along(inputs, tmp_path):
    """fp16 that can scale no further: the loss scale is at its least from the first overflow on."""
    scaling = {"enabled": True, "initial_scale_power": 1, "min_loss_scale": 2, "hysteresis": 1}
    flags = RUN | {"save_steps": 1, "eval_steps": 1, "learning_rate": 1e4, "warmup_steps": 0, "async_save": True}
    config = json.dumps({"fp16": scaling} | BATCHES)
    outcome = run(train_command(inputs, tmp_path, **flags, deepspeed=config))
    assert outcome.code == NUMERIC, outcome.err
    assert f"saved {tmp_path}/checkpoint-1\n" in outcome.err
    assert not list(tmp_path.glob(".checkpoint-*"))


OFFLOADED = {"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme"}}}


@pytest.mark.parametrize("section", [{"checkpoint": {"writer": {"decoupled": True}}}, {"nebula": {"enabled": True}}])
def test_a_ds_config_asks_for_it(inputs, whole, tmp_path, section):
    outcome = run(train_command(inputs, tmp_path / "run", **RUN, deepspeed=json.dumps(section | BATCHES)))
    assert outcome.code == 0, outcome.err
    assert outcome.err.count("is copied in") == 5
    assert_same_end(tmp_path / "run", whole)
    line = train_command(inputs, tmp_path / "no", **RUN, deepspeed=json.dumps(section | BATCHES), async_save="false")
    outcome = run(line)
    assert outcome.code == USAGE and "--async_save" in outcome.err


def test_states_on_disk_are_not_copied_into_memory(inputs, tmp_path):
    config = OFFLOADED | BATCHES
    config["zero_optimization"]["offload_optimizer"]["nvme_path"] = str(tmp_path)
    outcome = run(train_command(inputs, tmp_path / "run", **RUN, deepspeed=json.dumps(config), async_save=True))
    assert outcome.code == USAGE and "--async_save copies the optimizer's states into memory" in outcome.err
    config["nebula"] = {"enabled": True}
    outcome = run(train_command(inputs, tmp_path / "run", **RUN, deepspeed=json.dumps(config)))
    assert outcome.code == 0, outcome.err
    assert "what is offloaded to nvme is not copied into memory" in outcome.err
    assert "is copied in" not in outcome.err
