"""Ranks that die or fail at any moment, and checkpoints that are damaged or mixed: the job ends, nothing is lost.

A job with a dead rank must end by itself, with a message and a non-zero exit code, and its run must go on from the last
checkpoint with the bits of one that never stopped.
"""

import json
import os
import resource
import shutil
import signal
import subprocess
import time

import pytest
from job import PATIENCE, Job, is_alive, lateness
from program import BINARY, environment, files_in, free_port, run, run_mpi, wait_until
from refusals import COMMUNICATION, FILE, USAGE
from resume_test import assert_same_end, logged_steps, train_command
from tiny_models import training_inputs

RUN = {"max_steps": 24, "save_total_limit": 0}
LAST, BEFORE_LAST = "checkpoint-24", "checkpoint-20"


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """Enough to evaluate that an evaluation can be caught."""
    return training_inputs(tmp_path_factory.mktemp("inputs"), validation_rows=200)


@pytest.fixture(scope="module")
def whole(inputs, tmp_path_factory):
    """Two ranks' run that never stopped, with all its checkpoints."""
    folder = tmp_path_factory.mktemp("whole")
    outcome = run(train_command(inputs, folder, 2, **RUN))
    assert outcome.code == 0, outcome.err
    return folder


def background_run(kind, num_ranks, inputs, folder, nohup=False, **flags):
    """The run in the background, as `num_ranks` threads or processes."""
    line = train_command(inputs, folder, num_ranks, **(RUN | flags))
    if kind == "processes":
        line[line.index("--ranks") + 1] = "1"
    return Job(["nohup", *line] if nohup else line, folder, processes=num_ranks if kind == "processes" else 0)


# Moments of a run, as its files show them


def saved(folder):
    return len(list(folder.glob("checkpoint-*/manifest.json")))


def in_steps(folder):
    return saved(folder) >= 2 and logged_steps(folder) % 4 == 2


def in_save(folder):
    return saved(folder) >= 2 and any(folder.glob(".checkpoint-*.tmp"))


def in_evaluation(folder):
    """The loss of a step after which there is an evaluation is logged, the evaluation is not."""
    if saved(folder) < 2:
        return False
    lines = (folder / "metrics.jsonl").read_text().splitlines(keepends=True)
    last = json.loads(lines[-1]) if lines[-1].endswith("\n") else {}
    return "loss" in last and last["step"] % 4 == 0


MOMENTS = {"steps": in_steps, "save": in_save, "evaluation": in_evaluation}


def test_both_ranks_have_a_part_of_everything(whole):
    """Else the cases below would show little."""
    parts = list(whole.glob(f"{LAST}/*-of-00002.safetensors"))
    assert len(parts) == 4
    assert min(part.stat().st_size for part in parts) > 100_000


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_process_ends_the_job_and_the_run_goes_on(inputs, whole, tmp_path, moment, victim):
    folder = tmp_path / "run"
    job = background_run("processes", 2, inputs, folder)
    job.wait_for(MOMENTS[moment])
    ranks = job.processes()
    assert len(ranks) == 2
    os.kill(ranks[victim], signal.SIGKILL)
    code, log = job.end()
    assert code != 0
    # The launcher names the process that ended first: the other one may notice before it does, in the middle of a
    # transfer, and UCX says why it aborts it. The launcher then gives the signal, or a code of its own.
    assert any(cause in log for cause in ("signal 9", "signal 6", "returned -1: No such process")), log
    allowance = 2 + lateness()
    wait_until(
        lambda: not any(map(is_alive, ranks)), seconds=allowance
    )  # mpiexec does not wait for those that it kills
    outcome = run_mpi(2, train_command(inputs, folder, 2, **(RUN | {"ranks": 1, "resume_from_checkpoint": "true"})))
    assert outcome.code == 0, outcome.err
    assert_same_end(folder, whole)


@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_process_ends_the_others_without_a_launcher(inputs, whole, tmp_path, victim):
    """As torchrun starts processes, but with nobody to look after them."""
    folder, logs = tmp_path / "run", [tmp_path / f"rank{rank}.log" for rank in (0, 1)]
    line = train_command(inputs, folder, 2, **(RUN | {"ranks": 1}))
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    ranks = []
    for rank, log in enumerate(logs):
        with log.open("wb") as file:
            variables = environment(RANK=str(rank), **shared)
            ranks.append(subprocess.Popen(line, env=variables, stdout=file, stderr=subprocess.STDOUT))
    deadline = time.monotonic() + 60
    while not in_steps(folder):
        assert time.monotonic() < deadline and not any(rank.poll() for rank in ranks), logs[0].read_text()
        time.sleep(0.0005)
    ranks[victim].kill()
    survivor = 1 - victim
    try:
        code = ranks[survivor].wait(PATIENCE)
    finally:
        ranks[survivor].kill()
        ranks[victim].wait()
    log = logs[survivor].read_text()
    # UCX may notice first, in the middle of a transfer, and aborts.
    told = {
        COMMUNICATION: f"rank {victim} is gone: the others cannot go on without it",
        -signal.SIGABRT: "No such process",
    }
    assert told[code] in log
    outcome = run(train_command(inputs, folder, 2, **RUN, resume_from_checkpoint="true"))
    assert outcome.code == 0, outcome.err
    assert_same_end(folder, whole)


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_process_of_two_threads_goes_on(inputs, whole, tmp_path, moment):
    folder = tmp_path / "run"
    job = background_run("threads", 2, inputs, folder)
    job.wait_for(MOMENTS[moment])
    job.process.kill()
    assert job.end()[0] == -signal.SIGKILL
    outcome = run(train_command(inputs, folder, 2, **RUN, resume_from_checkpoint="true"))
    assert outcome.code == 0, outcome.err
    assert_same_end(folder, whole)


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_a_rank_that_cannot_write_ends_the_job(inputs, whole, tmp_path, kind, victim):
    """Its part of the checkpoint is larger than what it may write, as on a full disk."""
    if kind == "threads" and victim == 1:
        pytest.skip("threads share the limit")
    folder = tmp_path / "run"
    job = background_run(kind, 2, inputs, folder)
    job.wait_for(in_steps)
    largest = min(path.stat().st_size for path in whole.glob(f"{LAST}/*-of-00002.safetensors")) // 2
    resource.prlimit(job.processes()[victim], resource.RLIMIT_FSIZE, (largest, largest))
    code, log = job.end()
    assert code == FILE, log
    part = "-of-00002.safetensors" if kind == "threads" else f"-0000{victim + 1}-of-00002.safetensors"
    assert f"{part}: File too large" in log
    outcome = run(train_command(inputs, folder, 2, **RUN, resume_from_checkpoint="true"))
    assert outcome.code == 0, outcome.err
    assert_same_end(folder, whole)


# Damaged and mixed checkpoints

MODEL_PART, OPTIMIZER_PART = "model-00001-of-00002.safetensors", "optimizer-00002-of-00002.safetensors"


def cut(path):
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def mix(path):
    shutil.copy(path.parent.parent / BEFORE_LAST / path.name, path)


def remove(path):
    path.unlink()


def add(path):
    """Weights of another step, under a name that is read first."""
    shutil.copy(path.parent.parent / "model.safetensors", path)


DAMAGES = [
    (add, "model.safetensors"),
    (cut, MODEL_PART),
    (cut, OPTIMIZER_PART),
    (flip, MODEL_PART),
    (flip, OPTIMIZER_PART),
    (flip, "strake_state.json"),
    (flip, "model.safetensors.index.json"),
    (flip, "manifest.json"),
    (cut, "manifest.json"),
    (mix, MODEL_PART),
    (mix, OPTIMIZER_PART),
    (mix, "strake_state.json"),
    (mix, "manifest.json"),
    (remove, MODEL_PART),
    (remove, OPTIMIZER_PART),
]


@pytest.mark.parametrize(("damage", "name"), DAMAGES, ids=lambda value: getattr(value, "__name__", value))
def test_a_damaged_checkpoint_is_refused_by_name_and_else_passed_over(inputs, whole, tmp_path, damage, name):
    folder = shutil.copytree(whole, tmp_path / "run")
    damage(folder / LAST / name)
    before = files_in(folder)
    outcome = run(train_command(inputs, folder, 2, **RUN, resume_from_checkpoint=folder / LAST))
    assert outcome.code == FILE, outcome.err
    assert str(folder / LAST) in outcome.err.splitlines()[-1]
    if name != "manifest.json":
        assert name in outcome.err.splitlines()[-1]
    assert files_in(folder) == before

    outcome = run(train_command(inputs, folder, 2, **RUN, resume_from_checkpoint="true"))
    assert outcome.code == 0, outcome.err
    assert f"{folder / LAST} is not used" in outcome.err
    assert_same_end(folder, whole)


@pytest.mark.parametrize("verb", ["train", "predict"])
def test_a_damaged_checkpoint_is_no_model(inputs, whole, tmp_path, verb):
    folder = shutil.copytree(whole / LAST, tmp_path / LAST)
    flip(folder / MODEL_PART)
    if verb == "train":
        line = train_command(inputs | {"model_name_or_path": folder}, tmp_path / "run", 2, **RUN)
    else:
        line = ["predict", "--model_name_or_path", folder, "--input", inputs["validation_file"], "--output"]
        line = [BINARY, *line, tmp_path / "scored.parquet", "--text_column", "text"]
    outcome = run(line)
    assert outcome.code == FILE, outcome.err
    assert f"{folder / MODEL_PART} is damaged" in outcome.err.splitlines()[-1]


@pytest.mark.parametrize("wish", ["latest", "run"])
def test_the_newest_checkpoint_has_more_than_one_name(inputs, whole, tmp_path, wish):
    folder = shutil.copytree(whole, tmp_path / "run")
    shutil.rmtree(folder / LAST)
    outcome = run(train_command(inputs, folder, 2, **RUN, resume_from_checkpoint=folder if wish == "run" else wish))
    assert outcome.code == 0, outcome.err
    assert_same_end(folder, whole)


def test_checkpoints_of_deepspeed_are_refused_by_name(inputs, tmp_path):
    (tmp_path / "theirs" / "global_step5").mkdir(parents=True)
    (tmp_path / "theirs" / "latest").write_text("global_step5")
    outcome = run(train_command(inputs, tmp_path / "run", 1, **RUN, resume_from_checkpoint=tmp_path / "theirs"))
    assert outcome.code == USAGE, outcome.err
    assert "is a checkpoint of DeepSpeed (global_step5)" in outcome.err.splitlines()[-1]


# Other stages and numbers of ranks


def stage(number):
    return {"deepspeed": json.dumps({"zero_optimization": {"stage": number, "stage3_param_persistence_threshold": 0}})}


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_a_run_moves_between_stages_and_ranks(inputs, whole, tmp_path, kind):
    """Four ranks with stage 3, killed; two with stage 1, killed; four with stage 3, killed; then one to the end."""
    folder = tmp_path / "run"
    for num_ranks, number in [(4, 3), (2, 1), (4, 3)]:
        before = saved(folder)
        job = background_run(kind, num_ranks, inputs, folder, resume_from_checkpoint="true", **stage(number))
        job.wait_for(lambda path, before=before: saved(path) > before and logged_steps(path) % 4 != 0)
        os.kill(job.processes()[-1], signal.SIGKILL)
        code, log = job.end()  # a launcher may forward what its ranks print a little later than they do
        assert code != 0
        assert f"sharding zero-{number}" in log
    outcome = run(train_command(inputs, folder, 1, **RUN, resume_from_checkpoint="true"))
    assert outcome.code == 0, outcome.err
    assert_same_end(folder, whole)
