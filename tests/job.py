"""A run in the background, whose processes can be killed."""

import os
import pathlib
import shutil
import signal
import subprocess
import time

import pytest
from program import BINARY, MPIEXEC, OPEN_MPI_SETTINGS, environment, wait_until

PATIENCE = 30  # seconds a job may take to end once a rank is dead; it takes tenths of one on an idle machine


class Job:
    """A command line, alone or in so many processes."""

    def __init__(self, line, folder, processes=0):
        if processes and shutil.which(MPIEXEC) is None:
            pytest.skip(f"there is no {MPIEXEC}")
        self.folder = folder
        self.log = folder.parent / f"{folder.name}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [MPIEXEC, "-n", str(processes), *line] if processes else line,
                env=environment(**{f"OMPI_{setting}": "1" for setting in OPEN_MPI_SETTINGS}),
                stdout=log,
                stderr=subprocess.STDOUT,
                preexec_fn=lambda: signal.signal(signal.SIGXFSZ, signal.SIG_IGN),  # a full disk is an error, no signal
            )

    def wait_for(self, ready):
        def is_ready():
            assert self.process.poll() is None, self.log.read_text()
            return ready(self.folder)

        wait_until(is_ready, self.log.read_text)

    def processes(self):
        """Ids of the processes that are ranks, by rank."""
        parents = {}
        for status in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:
                parents[int(status.parent.name)] = int(status.read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue

        def is_ours(pid):
            while pid in parents and pid != self.process.pid:
                pid = parents[pid]
            return pid == self.process.pid

        ranks = [pid for pid in parents if is_ours(pid) and program_of(pid) == os.path.realpath(BINARY)]
        return sorted(ranks, key=rank_of)

    def end(self):
        """Exit code and log of a job that is to end by itself."""
        try:
            code = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            for pid in self.processes():
                os.kill(pid, signal.SIGKILL)
            pytest.fail(f"the other ranks wait for ever\n{self.log.read_text()}")
        return code, self.log.read_text()


def lateness():
    """What a busy machine adds: it stretches the start of a program, 0.2 s on an idle one, as it does an end."""
    begin = time.monotonic()
    subprocess.run([BINARY, "--version"], check=True, capture_output=True)
    return 2 * (time.monotonic() - begin)


def program_of(pid):
    try:
        return str(pathlib.Path(f"/proc/{pid}/exe").readlink())
    except OSError:
        return ""


def rank_of(pid):
    try:
        variables = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return 0
    named = dict(variable.split(b"=", 1) for variable in variables if b"=" in variable)
    return int(named.get(b"PMI_RANK", named.get(b"OMPI_COMM_WORLD_RANK", b"0")))


def is_alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
