"""kill -9 at any moment: whatever `strake predict` was doing, the run goes on and ends with the bytes of one that never
stopped. STRAKE_CHAOS_KILLS says how often (8), STRAKE_CHAOS_SEED when."""

import contextlib
import itertools
import json
import os
import random
import subprocess
import time

import pyarrow
import pyarrow.csv
import pyarrow.parquet as parquet
import pytest
from program import command, environment, files_in, strake
from tiny_models import make_model, reviews

KILLS = int(os.environ.get("STRAKE_CHAOS_KILLS", "8"))
SEED = int(os.environ.get("STRAKE_CHAOS_SEED", "1"))
ROWS = 60_000
KINDS = {
    "file": ("scored.parquet", {}),
    "folder": ("scored/", {"rows_per_file": 9000}),
    "shard": ("scored.parquet", {"shard": "1/2", "input_kind": "csv"}),
}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    block = pyarrow.Table.from_pylist(reviews(ROWS // 4, longest=6))
    table = pyarrow.concat_tables([block] * 4)
    parquet.write_table(table, folder / "in.parquet", row_group_size=1800)
    pyarrow.csv.write_csv(table, folder / "in.csv")
    return {"model_name_or_path": make_model(folder / "model", head=True), "max_seq_length": 16, "folder": folder}


def line_of(inputs, kind, folder):
    name, flags = KINDS[kind]
    flags = dict(flags)
    table = inputs["folder"] / f"in.{flags.pop('input_kind', 'parquet')}"
    known = {name: value for name, value in inputs.items() if name != "folder"}
    return command("predict", input=table, output=f"{folder}/{name}", max_tokens_per_batch=16, **known, **flags)


def result_of(folder):
    """Every file but the manifest, which tells times; and the manifest."""
    files = files_in(folder)
    (manifest,) = [name for name in files if "manifest" in name]
    return {name: content for name, content in files.items() if name != manifest}, json.loads(files[manifest])


def wait(process, ready, seconds):
    """Until `ready()`, the end of the process, or so many seconds."""
    deadline = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < deadline and not ready():
        time.sleep(0.0005)


def state_of(folder):
    """Changes when a start has loaded everything and is about to score."""
    for state in folder.rglob("state.json"):
        with contextlib.suppress(FileNotFoundError):
            return state.stat().st_ino, state.stat().st_mtime_ns
    return None


def run_with_kills(line, folder, seconds, source):
    """Starts it until it ends by itself; how often it was killed. One kill in four may hit the loading of the model."""
    for kills in itertools.count():
        before = state_of(folder)
        process = subprocess.Popen(line, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        if source.random() < 0.75:
            wait(process, lambda before=before: state_of(folder) not in (None, before), 60)
        wait(process, lambda: False, source.uniform(0, seconds))
        process.kill()
        message = process.communicate()[1].decode()
        if process.returncode == 0:
            return kills
        assert process.returncode == -9, message
    raise AssertionError


def test_killed_runs_end_with_the_bytes_of_one_that_was_not(inputs, tmp_path):
    source = random.Random(SEED)
    expected, seconds = {}, {}
    for kind in KINDS:
        (tmp_path / kind).mkdir()
        start = time.monotonic()
        strake(*line_of(inputs, kind, tmp_path / kind)[1:])
        seconds[kind] = time.monotonic() - start
        expected[kind], manifest = result_of(tmp_path / kind)
        assert manifest["resumes"] == 0
    kills = resumes = 0
    for number, kind in enumerate(itertools.cycle(KINDS)):
        if kills >= KILLS:
            break
        folder = tmp_path / f"killed-{number}"
        folder.mkdir()
        kills += run_with_kills(line_of(inputs, kind, folder), folder, seconds[kind], source)
        found, manifest = result_of(folder)
        assert found == expected[kind], f"{kind}, seed {SEED}"
        resumes += manifest["resumes"]
    print(f"{kills} kills, {resumes} of them with rows to go on from, {number} outputs, seconds {seconds}")
    assert resumes > 0
