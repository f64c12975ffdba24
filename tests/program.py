"""Runs the strake program that STRAKE_BINARY names, by default build/strake."""

import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import resource
import shutil
import signal
import socket
import subprocess
import time

import pyarrow
import pyarrow.parquet as parquet
import pytest
from forked_starts import ForkedStarts

BINARY = os.environ.get("STRAKE_BINARY") or str(pathlib.Path(__file__).parent.parent / "build" / "strake")
MPIEXEC = os.environ.get("STRAKE_MPIEXEC") or "mpiexec.mpich"  # of the MPI that the program was built with
SANITIZE = os.environ.get("STRAKE_SANITIZE", "")  # as the program was built with
OPEN_MPI_SETTINGS = ("ALLOW_RUN_AS_ROOT", "ALLOW_RUN_AS_ROOT_CONFIRM", "MCA_rmaps_base_oversubscribe")
LAUNCHER_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "PMI_", "OMPI_", "SLURM_", "MPI_", "ACCELERATE_")
LAUNCHER_VARIABLES += ("LOCAL_RANK", "STRAKE_NUM_THREADS", "OMP_NUM_THREADS")


@dataclasses.dataclass
class Outcome:
    code: int
    out: str
    err: str


def wait_until(ready, said=str, seconds=60):
    """Fails with what said() gives when it has waited so long."""
    deadline = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < deadline, said()
        time.sleep(0.0005)


def environment(**changes):
    """This process's environment without what a launcher or an earlier test may have left, one thread per rank."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHER_VARIABLES)}
    return kept | {"STRAKE_NUM_THREADS": "1"} | changes


def command(verb, *positional, **flags):
    """strake VERB --flag value ...: True gives a flag alone, None leaves it out, a list gives it several values."""
    line = [BINARY, verb, *positional]
    for name, value in flags.items():
        if value is None:
            continue
        line.append(f"--{name}")
        if value is not True:
            line += [str(item) for item in (value if isinstance(value, list) else [value])]
    return line


@functools.cache
def forked_starts():
    """None without the library that it needs, as the tests under sanitizers are, or where the program's forbid it."""
    library = os.environ.get("STRAKE_FORKED_STARTS")
    starts = ForkedStarts(library, BINARY, environment()) if library else None
    return starts if starts and starts.is_ready else None


def run(line, timeout=60, env=None, **options):
    env = env or environment()
    starts = forked_starts()
    if starts and options.keys() <= {"cwd"} and starts.can_start(line, env):
        done = starts.run(line, timeout, env, **options)
    else:
        done = subprocess.run(line, capture_output=True, timeout=timeout, env=env, **options)
    return Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())


def scored_by_worker(inputs, **flags):
    """The table that the worker makes of inputs["input"], which it gets in batches."""
    sink = pyarrow.BufferOutputStream()
    table = parquet.read_table(inputs["input"])
    with pyarrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=100)
    flags |= {name: inputs[name] for name in ("model_name_or_path", "max_seq_length")}
    line = command("worker", **flags)
    done = subprocess.run(line, input=sink.getvalue().to_pybytes(), capture_output=True, env=environment(), timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    return pyarrow.ipc.open_stream(done.stdout).read_all()


def full_disk(bytes_allowed):
    """For run: no file may grow beyond this."""

    def apply():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_allowed, bytes_allowed))

    return {"preexec_fn": apply}


# Of processes on one host: parameters in common, or each its own as on several hosts.
MEMORY = {"common": {"STRAKE_SHARED_MEMORY": "1"}, "apart": {"STRAKE_SHARED_MEMORY": "0"}}


def run_mpi(num_ranks, line, **variables):
    if shutil.which(MPIEXEC) is None:
        pytest.skip(f"there is no {MPIEXEC}")
    env = environment(**{f"OMPI_{setting}": "1" for setting in OPEN_MPI_SETTINGS}, **variables)
    return run([MPIEXEC, "-n", str(num_ranks), *line], env=env)


def free_port():
    """A launcher's port; the next one, where the ranks meet, is not kept by a connection that has just ended either."""
    while True:
        with socket.socket() as launcher, socket.socket() as ranks:
            launcher.bind(("127.0.0.1", 0))
            port = launcher.getsockname()[1]
            ranks.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                ranks.bind(("127.0.0.1", port + 1))
                return port


def run_torchrun(num_ranks, line, variables_of=lambda rank: {}):
    """As torchrun starts its processes."""
    shared = {"WORLD_SIZE": str(num_ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}

    def environment_of(rank):
        return environment(RANK=str(rank), **shared, **variables_of(rank))

    others = [
        subprocess.Popen(line, env=environment_of(rank), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        for rank in range(1, num_ranks)
    ]
    outcome = run(line, env=environment_of(0))
    for other in others:
        text, _ = other.communicate(timeout=30)
        assert other.returncode == 0, text.decode()
        assert b"*****" not in text, "only rank 0 prints results"
    return outcome


def is_open_mpi():
    if shutil.which(MPIEXEC) is None:
        return False
    return "Open" in subprocess.run([MPIEXEC, "--version"], capture_output=True, text=True, check=True).stdout


def strake(verb, *positional, env=None, **flags):
    """Runs to the end; only looks at the exit code if it is not 0."""
    outcome = run(command(verb, *positional, **flags), env=env)
    assert outcome.code == 0, f"{verb} {flags}: exit code {outcome.code}\n{outcome.err}"
    return outcome


def summary(verb, **flags):
    """The result of a verb that knows --summary_json."""
    return json.loads(strake(verb, summary_json=True, **flags).out)


def predict(model, table, output, max_seq_length=32, **flags):
    """The scored table, as a dictionary of columns."""
    strake("predict", model_name_or_path=model, input=table, output=output, max_seq_length=max_seq_length, **flags)
    return parquet.read_table(output).to_pydict()


def metrics(folder):
    text = (pathlib.Path(folder) / "metrics.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def losses(folder):
    """(step, loss, gradient norm) of every training entry. A step that fp16 skipped has no norm."""
    return [(entry["step"], entry["loss"], entry.get("grad_norm")) for entry in metrics(folder) if "loss" in entry]


def files_in(folder):
    """Path and content of every file, to see that nothing changed."""
    folder = pathlib.Path(folder)
    if not folder.exists():
        return None
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
