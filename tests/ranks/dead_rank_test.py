"""A rank of three that is killed, in any phase: the others end within two seconds, and say which rank it was."""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time
import uuid

import pytest
from failure_test import MOMENTS, RUN
from job import is_alive, lateness, program_of, rank_of
from program import BINARY, MPIEXEC, environment, free_port, is_open_mpi, wait_until
from refusals import COMMUNICATION
from resume_test import train_command
from tiny_models import training_inputs

RANKS = 3
VICTIMS = [0, RANKS - 1]  # the one that others meet at, and one of those
SECONDS = 2
GUARD = "strake-guard"  # names the rank where mpiexec leaves the others no time
LAUNCHES = ["torchrun", "mpiexec"]
SCRIPT = f"""
for rank in {" ".join(map(str, range(RANKS)))}; do RANK=$rank "$@" >"$LOGS$rank" 2>&1 & ranks="$ranks $!"; echo $!; done
for rank in $ranks; do wait $rank; echo $?; done
"""


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    return training_inputs(tmp_path_factory.mktemp("inputs"), validation_rows=200)


@pytest.fixture(autouse=True, scope="module")
def mpich():
    if shutil.which(MPIEXEC) is None:
        pytest.skip(f"there is no {MPIEXEC}")
    if is_open_mpi():
        pytest.skip("Open MPI's launcher names a rank that dies, and Open MPI has no start without it")


class Job:
    """Three processes, as mpiexec starts them, or as torchrun does but with nobody to look after them, or a script."""

    def __init__(self, launch, inputs, folder, **flags):
        self.folder, self.launch = folder, launch
        self.mark = f"STRAKE_TEST_JOB={uuid.uuid4()}"
        flags = RUN | {"ranks": 1, "gradient_accumulation_steps": 1, "max_steps": 2000} | flags
        line = train_command(inputs, folder, RANKS, **flags)
        shared = dict([self.mark.split("=")])
        self.pids = []  # of ranks, where they are known
        if launch == "mpiexec":
            self.logs = [folder.parent / "log"]
            self.started = [self.start([MPIEXEC, "-n", str(RANKS), *line], self.logs[0], **shared)]
        else:
            shared |= {"WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
            self.logs = [folder.parent / f"log{rank}" for rank in range(RANKS)]
            if launch == "script":
                shared["LOGS"] = str(folder.parent / "log")
                command = ["sh", "-c", SCRIPT, "sh", *line]
                self.started = [subprocess.Popen(command, env=environment(**shared), stdout=subprocess.PIPE)]
                self.pids = [int(self.started[0].stdout.readline()) for _ in range(RANKS)]
            else:
                self.started = [self.start(line, log, RANK=str(rank), **shared) for rank, log in enumerate(self.logs)]
                self.pids = [process.pid for process in self.started]

    @staticmethod
    def start(line, log, **variables):
        with log.open("wb") as file:
            return subprocess.Popen(line, env=environment(**variables), stdout=file, stderr=subprocess.STDOUT)

    def processes(self, is_wanted):
        pids = [int(entry.name) for entry in pathlib.Path("/proc").iterdir() if entry.name.isdigit()]
        return [pid for pid in pids if is_wanted(pid) and self.has(pid)]

    def has(self, pid):
        try:
            return self.mark.encode() in pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            return False

    def ranks(self):
        """Ids of the processes that are ranks, by rank, as soon as there are all."""
        if self.launch != "mpiexec":
            return self.pids

        def is_rank(pid):
            return program_of(pid) == os.path.realpath(BINARY) and name_of(pid) != GUARD

        found = []

        def is_complete():  # and nothing that is just being split off
            found[:] = sorted((rank_of(pid), pid) for pid in self.processes(is_rank))
            return [rank for rank, _ in found] == list(range(RANKS))

        wait_until(is_complete)
        return [pid for _, pid in found]

    def wait_for(self, ready):
        """Until the job is at work as `ready` says; it must not end before that."""

        def is_ready():
            assert all(process.poll() is None for process in self.started), self.log()
            return ready()

        wait_until(is_ready, self.log)

    def wait_for_guard(self):
        wait_until(lambda: self.processes(lambda pid: name_of(pid) == GUARD))

    def log(self):
        return "".join(log.read_text() for log in self.logs)

    def kill(self, victim):
        """Seconds until all are gone, and the exit codes of those that this test started, but the victim's."""
        ranks = self.ranks()
        begin = time.monotonic()
        os.kill(ranks[victim], signal.SIGKILL)
        try:
            codes = [process.wait(30) for process in self.started]
        except subprocess.TimeoutExpired:
            pytest.fail(f"the other ranks wait for ever\n{self.log()}")
        wait_until(lambda: not any(map(is_alive, ranks)), self.log)  # mpiexec does not wait for those that it kills
        # The guard may have to speak still: mpiexec may end at once when the rank that it writes to has gone.
        wait_until(lambda: not self.processes(lambda pid: name_of(pid) == GUARD), self.log)
        seconds = time.monotonic() - begin
        if self.launch == "script":
            codes = [int(line) for line in self.started[0].stdout]
        if self.launch != "mpiexec":
            assert codes.pop(victim) in (-signal.SIGKILL, 128 + signal.SIGKILL)
        return seconds, codes

    def end(self):
        for process in self.started:
            process.kill()
            process.wait()
        for pid in self.processes(lambda _: True):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def start(inputs, tmp_path):
    jobs = []

    def start_job(launch, **flags):
        jobs.append(Job(launch, inputs, tmp_path / "run", **flags))
        return jobs[-1]

    yield start_job
    for job in jobs:
        job.end()


def name_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def assert_named(job, victim, outcome, allowance):
    seconds, codes = outcome
    # Without a launcher each survivor says it; mpiexec may have killed them before they could, but not the guard.
    logs = [log for rank, log in enumerate(job.logs) if job.launch == "mpiexec" or rank != victim]
    for log in map(pathlib.Path.read_text, logs):
        assert re.search(f"rank {victim} is gone: the others cannot go on without it .*killed, or crashed", log), log
        assert set(re.findall(r"rank \d is gone", log)) == {f"rank {victim} is gone"}, log
    log = job.log()
    if job.launch != "mpiexec":
        assert codes == [COMMUNICATION] * (RANKS - 1), log
    else:
        assert codes[0] != 0
    assert seconds < SECONDS + allowance, log


@pytest.mark.parametrize("victim", VICTIMS)
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("launch", LAUNCHES)
def test_a_rank_that_dies_at_work_is_named(start, launch, moment, victim):
    job = start(launch)
    job.wait_for(lambda: MOMENTS[moment](job.folder))
    outcome = job.kill(victim)
    assert_named(job, victim, outcome, lateness())


@pytest.mark.parametrize("victim", VICTIMS)
@pytest.mark.parametrize("launch", LAUNCHES)
def test_a_rank_that_dies_before_the_first_step_is_named(start, launch, victim):
    job = start(launch)
    job.wait_for(job.log)
    outcome = job.kill(victim)
    assert_named(job, victim, outcome, lateness())


@pytest.mark.parametrize("victim", VICTIMS)
@pytest.mark.parametrize("delay", [0.05, 0.15, 0.3, 0.5])
def test_a_rank_that_dies_at_its_start_is_named(start, delay, victim):
    """Also one that died before it, or any other, had said a word: a script that waits starts no more."""
    allowance = lateness()
    job = start("script")
    time.sleep(delay)
    assert_named(job, victim, job.kill(victim), allowance)


# While MPI starts, a rank's death can make MPICH's mpiexec fail where it writes to that rank, or another rank's MPI
# abort the job before it has heard of it. Then mpiexec ends without forwarding what anybody says.
LAUNCHER_BROKE = re.compile(r"^\[(mpiexec|proxy)\S*\] .*(error|failed)|Fatal error in internal_Init_thread", re.M)
ATTEMPTS = 5


@pytest.mark.parametrize("victim", VICTIMS)
@pytest.mark.parametrize("delay", [0, 0.05, 0.2])
def test_mpiexec_does_not_hide_a_rank_that_dies_at_its_start(start, delay, victim):
    """From when there is a guard; if a rank dies before that, mpiexec kills the others, and nobody can tell."""
    for _ in range(ATTEMPTS):
        job = start("mpiexec")
        job.wait_for_guard()
        time.sleep(delay)
        outcome = job.kill(victim)
        if "is gone" in job.log() or not LAUNCHER_BROKE.search(job.log()):
            return assert_named(job, victim, outcome, lateness())
    pytest.fail(f"mpiexec broke {ATTEMPTS} times\n{job.log()}")
