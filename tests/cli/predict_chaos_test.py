"""kill -9 at any moment: whatever `strake predict` was doing, the run goes on and ends with the bytes of one that never
stopped. STRAKE_CHAOS_KILLS says how often at least (50), over all kinds of jobs, STRAKE_CHAOS_SEED when."""

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
from program import command, environment, files_in
from tiny_models import make_language_model, make_model, make_reader, make_tagger, reviews

KILLS = int(os.environ.get("STRAKE_CHAOS_KILLS", "50"))
SEED = int(os.environ.get("STRAKE_CHAOS_SEED", "1"))
ROWS = 30_000
KINDS = {
    "file": ("scored.parquet", {}),
    "int8 folder": ("scored/", {"precision": "int8", "rows_per_file": 4000}),
    "shard": ("scored.parquet", {"shard": "1/2", "input_kind": "csv"}),
    "entities": ("scored.parquet", {"model": "tagger"}),
    "answers": ("scored.parquet", {"model": "reader", "doc_stride": 4, "keep_columns": "context"}),
    "embeddings": ("scored.parquet", {"task": "feature-extraction", "pooling": "mean"}),
    "losses": ("scored.parquet", {"model": "gpt2", "block_size": 16}),
}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    block = pyarrow.Table.from_pylist(reviews(ROWS // 4, longest=6))
    table = pyarrow.concat_tables([block] * 4)
    table = table.append_column("question", pyarrow.array(["a good film"] * table.num_rows))
    table = table.append_column("context", table["text"])
    parquet.write_table(table, folder / "in.parquet", row_group_size=1800)
    pyarrow.csv.write_csv(table, folder / "in.csv")
    make_model(folder / "model", head=True)
    make_tagger(folder / "tagger")
    make_reader(folder / "reader")
    make_language_model(folder / "gpt2")
    return {"folder": folder}


def line_of(inputs, kind, folder):
    name, flags = KINDS[kind]
    flags = dict(flags)
    table = inputs["folder"] / f"in.{flags.pop('input_kind', 'parquet')}"
    length = {} if "block_size" in flags else {"max_seq_length": 16}
    model = inputs["folder"] / flags.pop("model", "model")
    return command(
        "predict",
        model_name_or_path=model,
        input=table,
        output=f"{folder}/{name}",
        max_tokens_per_batch=16,
        **(length | flags),
    )


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


def progress_of(folder):
    """Bytes of rows that are durable: the journal's, less its first 16."""
    most = 0
    with contextlib.suppress(FileNotFoundError):  # a run that ends removes it, and its folder
        for journal in folder.rglob("logits.journal"):
            most = max(most, journal.stat().st_size - 16)
    return most


def run_undisturbed(line, folder):
    """Seconds until it scored, and seconds from then to its end."""
    start = time.monotonic()
    process = subprocess.Popen(line, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    wait(process, lambda: any(folder.rglob("state.json")), 60)
    loaded = time.monotonic()
    message = process.communicate()[1].decode()
    assert process.returncode == 0, message
    return loaded - start, time.monotonic() - loaded


def run_with_kills(line, folder, seconds, source):
    """Starts it, with any number of threads, until it ends by itself. How often it was killed, and how often with rows
    to go on from: one kill in four may hit the loading of the model, the others wait for new durable rows. `seconds`
    are those of an undisturbed run, so that its share that is loading, another on each machine, matters little."""
    loading, scoring = seconds
    with_progress = 0
    for kills in itertools.count():
        before = progress_of(folder)
        env = environment(STRAKE_NUM_THREADS=str(source.randint(1, 3)))
        process = subprocess.Popen(line, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        if source.random() < 0.75:
            wait(process, lambda before=before: progress_of(folder) > before, 60)
            moment = source.uniform(0, 0.5 * scoring)
        else:
            moment = source.uniform(0, loading + 0.5 * scoring)
        wait(process, lambda: False, moment)
        process.kill()
        message = process.communicate()[1].decode()
        if process.returncode == 0:
            return kills, with_progress
        assert process.returncode == -9, message
        with_progress += progress_of(folder) > 0
    raise AssertionError


def test_killed_runs_end_with_the_bytes_of_one_that_was_not(inputs, tmp_path):
    source = random.Random(SEED)
    expected, seconds = {}, {}
    for kind in KINDS:
        (tmp_path / kind).mkdir()
        seconds[kind] = run_undisturbed(line_of(inputs, kind, tmp_path / kind), tmp_path / kind)
        expected[kind], manifest = result_of(tmp_path / kind)
        assert manifest["resumes"] == 0
    kills = with_progress = 0
    for number, kind in enumerate(itertools.cycle(KINDS)):
        if kills >= KILLS and number >= len(KINDS):
            break
        folder = tmp_path / f"killed-{number}"
        folder.mkdir()
        killed, at_work = run_with_kills(line_of(inputs, kind, folder), folder, seconds[kind], source)
        kills += killed
        with_progress += at_work
        found, _ = result_of(folder)
        assert found == expected[kind], f"{kind}, seed {SEED}"
    print(f"{kills} kills, {with_progress} of them with rows to go on from, {number} outputs, seconds {seconds}")
    assert with_progress > kills / 2
