"""A rank that hangs, here because a signal has stopped it: the patience of --ddp_timeout ends the job and names it."""

import contextlib
import os
import signal
import subprocess
import time

import pytest
from dead_rank_test import LAUNCHES, RANKS, VICTIMS, inputs, mpich, start  # noqa: F401
from failure_test import background_run, in_steps
from refusals import COMMUNICATION
from resume_test import logged_steps

PATIENCE = 5


@pytest.mark.parametrize("victim", VICTIMS)
@pytest.mark.parametrize("launch", LAUNCHES)
def test_a_stopped_rank_is_named(start, launch, victim):  # noqa: F811
    job = start(launch, ddp_timeout=PATIENCE)
    job.wait_for(lambda: in_steps(job.folder))
    stopped = job.ranks()[victim]
    os.kill(stopped, signal.SIGSTOP)
    others = [process for process in job.started if process.pid != stopped]
    try:
        codes = [process.wait(30) for process in others]
    except subprocess.TimeoutExpired:
        pytest.fail(f"the other ranks wait for ever\n{job.log()}")
    finally:
        with contextlib.suppress(ProcessLookupError):  # mpiexec has done it
            os.kill(stopped, signal.SIGKILL)
    log = job.log()
    if launch == "torchrun":
        assert codes == [COMMUNICATION] * (RANKS - 1), log
    assert f"rank {victim} has not come to" in log, log
    if launch == "torchrun" and victim == 0:  # whose process serves the news
        assert f"for {PATIENCE} s (--ddp_timeout), and its process does not answer" in log, log
    else:
        assert f"for {PATIENCE} s (--ddp_timeout) (process {stopped} on" in log, log
        assert "which is stopped" in log, log


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_a_job_that_is_paused_as_a_whole_goes_on(inputs, tmp_path, kind):  # noqa: F811
    """As Ctrl-Z and `docker pause` do it."""
    flags = {"ddp_timeout": PATIENCE, "max_steps": 1000000, "save_steps": 1000000, "eval_steps": 1000000}
    job = background_run(kind, RANKS, inputs, tmp_path / "run", **flags)
    try:
        job.wait_for(lambda folder: logged_steps(folder) >= 3)
        ranks = job.processes()
        for pid in ranks:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(PATIENCE + 1)
        before = logged_steps(job.folder)
        for pid in ranks:
            os.kill(pid, signal.SIGCONT)
        job.wait_for(lambda folder: logged_steps(folder) >= before + 20)
    finally:
        for pid in job.processes():
            os.kill(pid, signal.SIGKILL)
        job.process.wait()
