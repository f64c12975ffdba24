"""A run that is asked to end by SIGTERM saves what it has done, and goes on with the bits of one that never stopped."""

import os
import re
import signal
import subprocess
import time

import pytest
from failure_test import MOMENTS, background_run, saved
from program import command, environment, run
from refusals import INTERRUPTED
from resume_test import assert_same_end, logged_steps, train_command
from tiny_models import training_inputs

RUN = {"max_steps": 60, "save_total_limit": 0}  # long enough not to end before the signal comes


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    return training_inputs(tmp_path_factory.mktemp("inputs"), validation_rows=200)


@pytest.fixture(scope="module")
def whole(inputs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    outcome = run(train_command(inputs, folder, 2, **RUN))
    assert outcome.code == 0, outcome.err
    return folder


def asked_to_end(job, moment, times=1):
    """Sends SIGTERM to the last rank. Returns the step that the job saved last."""
    job.wait_for(lambda folder: logged_steps(folder) >= 1)
    asked = job.processes()[-1]
    job.wait_for(moment)
    os.kill(asked, signal.SIGTERM)
    for _ in range(times - 1):
        time.sleep(0.01)
        os.kill(asked, signal.SIGTERM)
    code, log = job.end()
    assert code == INTERRUPTED, log
    step = int(re.search(r"SIGTERM: the run ends after step (\d+), which is saved", log)[1])
    assert (job.folder / f"checkpoint-{step}" / "manifest.json").exists()
    assert not (job.folder / "model.safetensors").exists()
    assert "error" not in log
    return step


@pytest.mark.parametrize("is_ignored", [False, True])
def test_a_closed_terminal_ends_a_run_unless_nohup_says_otherwise(inputs, tmp_path, is_ignored):
    job = background_run("threads", 1, inputs, tmp_path / "run", nohup=is_ignored, **RUN)
    job.wait_for(lambda folder: logged_steps(folder) >= 1)
    os.kill(job.processes()[-1], signal.SIGHUP)
    code, log = job.end()
    assert code == (0 if is_ignored else -signal.SIGHUP), log


@pytest.mark.parametrize("seconds", [0.02, 0.1, 0.15, 0.2, 0.3, 0.5])
def test_a_terminal_that_closes_while_the_program_starts_ends_it(inputs, seconds):
    """A worker waits for its input without end: one that lost the signal to a library would not end."""
    line = command("worker", model_name_or_path=inputs["model_name_or_path"], task="feature-extraction", pooling="mean")
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    worker = subprocess.Popen(line, stdin=subprocess.PIPE, env=environment(), preexec_fn=hear_hangups, **quiet)
    time.sleep(seconds)
    worker.send_signal(signal.SIGHUP)
    try:
        assert worker.wait(timeout=30) == -signal.SIGHUP
    finally:
        worker.kill()
        worker.stdin.close()


def hear_hangups():
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_one_rank_that_is_asked_is_enough(inputs, whole, tmp_path, kind, moment):
    folder = tmp_path / "run"
    step = asked_to_end(background_run(kind, 2, inputs, folder, **RUN), MOMENTS[moment])
    assert logged_steps(folder) == step
    outcome = run(train_command(inputs, folder, 1, **RUN, resume_from_checkpoint="true"))
    assert outcome.code == 0, outcome.err
    assert_same_end(folder, whole)


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_a_launcher_that_passes_on_what_its_rank_was_sent_too_asks_once(inputs, tmp_path, kind):
    asked_to_end(background_run(kind, 2, inputs, tmp_path / "run", **RUN), lambda folder: saved(folder) >= 1, times=2)


def test_checkpoints_that_nobody_asked_for_are_saved_too(inputs, tmp_path):
    flags = {"save_strategy": "no", "load_best_model_at_end": None}
    reference = tmp_path / "reference"
    assert run(train_command(inputs, reference, **(RUN | flags))).code == 0
    job = background_run("threads", 1, inputs, tmp_path / "run", **(RUN | flags))
    asked_to_end(job, lambda folder: logged_steps(folder) >= 5)
    assert saved(job.folder) == 1
    outcome = run(train_command(inputs, job.folder, **(RUN | flags), resume_from_checkpoint="true"))
    assert outcome.code == 0, outcome.err
    assert_same_end(job.folder, reference)


def test_a_run_may_end_at_once(inputs, tmp_path):
    job = background_run("threads", 1, inputs, tmp_path / "run", **RUN, enable_jit_checkpoint="false")
    job.wait_for(lambda folder: logged_steps(folder) >= 5)
    job.process.terminate()
    assert job.end()[0] == -signal.SIGTERM
