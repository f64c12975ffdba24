"""`strake predict` as a job: interrupted and continued, what it replaces, with columns as asked for."""

import fcntl
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess

import pyarrow
import pyarrow.parquet as parquet
import pytest
from predict_runs import RECORD, ROWS, interrupt, make_inputs, manifest_of, rows_of, score
from program import command, environment, files_in, run, strake, summary
from refusals import DATA, USAGE
from tiny_models import change_weights, reviews, write_table


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    return make_inputs(tmp_path_factory.mktemp("inputs"))


@pytest.fixture(scope="module")
def whole(inputs, tmp_path_factory):
    return score(inputs, tmp_path_factory.mktemp("whole"))


@pytest.fixture
def interrupted(inputs, tmp_path):
    interrupt(inputs, tmp_path / "scored.parquet")
    return tmp_path / "scored.parquet"


# Interrupted runs


def test_two_runs_give_the_same_bytes(inputs, whole, tmp_path):
    strake("predict", output=tmp_path / "scored.parquet", **inputs)
    assert (tmp_path / "scored.parquet").read_bytes() == whole.read_bytes()


def test_a_full_disk_keeps_what_was_scored_and_the_run_goes_on(inputs, whole, tmp_path):
    output = tmp_path / "scored.parquet"
    message = interrupt(inputs, output)
    assert "logits.journal: File too large" in message
    assert "rows are scored and kept in" in message and "the same command goes on" in message
    assert [path.name for path in tmp_path.iterdir()] == [".scored.parquet.job"]
    result = summary("predict", output=output, **inputs, **RECORD)
    assert result["rows"] == ROWS
    assert result["resumes"] == 1
    assert ROWS * 0.4 < result["rows_scored"] < ROWS * 0.6
    assert output.read_bytes() == whole.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["_scored.parquet.manifest.json", "scored.parquet"]


def test_threads_and_batches_may_change_in_between(inputs, whole, interrupted):
    flags = {"max_tokens_per_batch": 1000, "env": environment(STRAKE_NUM_THREADS="3")}
    strake("predict", output=interrupted, **inputs, **flags)
    assert interrupted.read_bytes() == whole.read_bytes()


def test_the_model_may_move_in_between(inputs, whole, interrupted, tmp_path):
    moved = shutil.copytree(inputs["model_name_or_path"], tmp_path / "moved")
    strake("predict", output=interrupted, **(inputs | {"model_name_or_path": moved}))
    assert rows_of(interrupted).equals(rows_of(whole))  # the metadata say where the model was


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"max_seq_length": 16}, "max_seq_length = 32, now it is 16"),
        ({"bf16": True}, 'precision = "fp32", now it is "bf16"'),
        ({"text_column": "label"}, 'text_column = "text", now it is "label"'),
        ({"keep_columns": "number"}, 'keep_columns = [], now it is ["number"]'),
        ({"output_columns": "logits"}, 'output_columns = ["prediction","probabilities"], now it is ["logits"]'),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_going_on_with_other_flags_is_refused(inputs, interrupted, change, named):
    before = files_in(interrupted.parent)
    outcome = run(command("predict", output=interrupted, **(inputs | change)))
    assert outcome.code == USAGE
    assert named in outcome.err and "--overwrite_output" in outcome.err
    assert files_in(interrupted.parent) == before


def test_going_on_with_another_model_is_refused(inputs, interrupted, tmp_path):
    other = shutil.copytree(inputs["model_name_or_path"], tmp_path / "other")
    change_weights(other, lambda name, array: array * 2 if name == "classifier.bias" else array)
    outcome = run(command("predict", output=interrupted, **(inputs | {"model_name_or_path": other})))
    assert outcome.code == USAGE
    assert "model_fingerprint" in outcome.err and "--overwrite_output" in outcome.err


def touch(path):
    os.utime(path, ns=(0, 0))


def cut(path):
    write_table(path, reviews(ROWS - 1))


@pytest.mark.parametrize(("change", "named"), [(touch, "input file 00000 = "), (cut, "input content 00000 = ")])
def test_going_on_with_an_input_that_changed_is_refused(inputs, tmp_path, change, named):
    flags = inputs | {"input": shutil.copy(inputs["input"], tmp_path / "in.parquet")}
    output = tmp_path / "scored.parquet"
    interrupt(flags, output)
    change(tmp_path / "in.parquet")
    outcome = run(command("predict", output=output, **flags))
    assert outcome.code == USAGE
    assert named in outcome.err and "--overwrite_output" in outcome.err


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_texts_that_changed_in_the_middle_of_an_input_are_not_given_old_numbers(inputs, tmp_path, kind):
    """Path, size, time, beginning and end of the file are as before."""
    rows = [row | {"text": f"{row['number']:06} {row['text']}", "more": "x" * 50} for row in reviews(ROWS)]
    table = tmp_path / f"in.{kind}"
    if kind == "csv":
        write_table(table, rows)
    else:
        parquet.write_table(pyarrow.Table.from_pylist(rows), table, compression="none", use_dictionary=False)
    flags = inputs | {"input": table}
    output = tmp_path / "scored.parquet"
    interrupt(flags, output)
    times, before = table.stat(), table.read_bytes()
    place = before.index(b"001500 ")
    assert 1 << 16 < place < len(before) - (1 << 16)
    table.write_bytes(before[:place] + b"zzzzzz" + before[place + 6 :])
    os.utime(table, ns=(times.st_atime_ns, times.st_mtime_ns))
    outcome = run(command("predict", output=output, **flags))
    assert outcome.code == DATA
    first = int(re.search(rf"texts of the \d+ rows from {re.escape(str(table))}, row (\d+)", outcome.err)[1])
    assert 1400 < first <= 1500
    assert "--overwrite_output" in outcome.err
    assert not output.exists()
    table.write_bytes(before)
    os.utime(table, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert summary("predict", output=output, **flags)["rows_scored"] < ROWS  # nothing was lost


def test_going_on_with_other_kernels_is_refused(inputs, interrupted):
    """Their bits differ."""
    line = command("predict", output=interrupted, **inputs)
    outcome = run(line, env=environment(STRAKE_ISA="reference"))
    assert outcome.code == USAGE
    assert "kernels = " in outcome.err and 'now it is "reference"' in outcome.err


def test_going_on_with_another_version_of_strake_is_refused(inputs, interrupted):
    """Its bits may differ."""
    path = interrupted.parent / f".{interrupted.name}.job" / "state.json"
    state = json.loads(path.read_text())
    current = state["job"]["strake"]
    state["job"]["strake"] = "0.0.9"
    path.write_text(json.dumps(state))
    outcome = run(command("predict", output=interrupted, **inputs))
    assert outcome.code == USAGE
    assert f'strake = "0.0.9", now it is "{current}"' in outcome.err


def test_an_input_that_changes_while_it_is_read_is_an_error(inputs, tmp_path):
    table = pathlib.Path(shutil.copy(inputs["input"], tmp_path / "in.parquet"))
    output = tmp_path / "scored.parquet"
    line = command("predict", output=output, **(inputs | RECORD | {"input": table}))
    process = subprocess.Popen(line, env=environment(), stderr=subprocess.PIPE)
    state = tmp_path / ".scored.parquet.job" / "state.json"
    while not state.exists():
        assert process.poll() is None
    touch(table)
    message = process.communicate(timeout=60)[1].decode()
    assert process.returncode == DATA, message
    assert "the input changed while it was read: input" in message
    assert not output.exists()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"job": 3, "starts": 1}', b'{"job": {}}', b"\xff\0"])
def test_a_damaged_state_is_named_and_can_be_deleted(inputs, whole, interrupted, content):
    state = interrupted.parent / ".scored.parquet.job" / "state.json"
    state.write_bytes(content)
    outcome = run(command("predict", output=interrupted, **inputs))
    assert outcome.code == DATA
    assert f"{state} is damaged" in outcome.err and "--overwrite_output" in outcome.err
    assert "parse" not in outcome.err and "[json" not in outcome.err
    assert state.read_bytes() == content
    strake("predict", output=interrupted, overwrite_output=True, **inputs)
    assert interrupted.read_bytes() == whole.read_bytes()


def test_overwriting_starts_over(inputs, whole, interrupted):
    result = summary("predict", output=interrupted, overwrite_output=True, **inputs)
    assert result["rows_scored"] == ROWS
    assert result["resumes"] == 0
    assert interrupted.read_bytes() == whole.read_bytes()


def test_a_damaged_journal_costs_only_what_comes_after(inputs, whole, interrupted):
    journal = interrupted.parent / ".scored.parquet.job" / "logits.journal"
    content = bytearray(journal.read_bytes())
    content[len(content) // 2] ^= 1
    journal.write_bytes(content)
    result = summary("predict", output=interrupted, **inputs)
    assert ROWS * 0.6 < result["rows_scored"] < ROWS * 0.9
    assert interrupted.read_bytes() == whole.read_bytes()


def test_what_a_kill_left_unfinished_is_removed(inputs, whole, interrupted):
    for name in (
        "scored.parquet.tmp-1-0",
        "_scored.parquet.manifest.json.tmp-1-1",
        ".scored.parquet.job/state.json.tmp-1-2",
    ):
        (interrupted.parent / name).write_text("half")
    (interrupted.parent / "other.parquet.tmp-1-3").write_text("somebody else's")
    strake("predict", output=interrupted, **inputs)
    names = {"_scored.parquet.manifest.json", "scored.parquet", "other.parquet.tmp-1-3"}
    assert {path.name for path in interrupted.parent.iterdir()} == names
    assert interrupted.read_bytes() == whole.read_bytes()


def test_a_second_process_is_refused(inputs, tmp_path):
    job = tmp_path / ".scored.parquet.job"
    job.mkdir()
    with (job / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        outcome = run(command("predict", output=tmp_path / "scored.parquet", **inputs))
    assert outcome.code == USAGE
    assert "scored.parquet: another process is writing it" in outcome.err
    strake("predict", output=tmp_path / "scored.parquet", **inputs)


@pytest.mark.parametrize("closed", [(0, 1, 2), (2,), (1, 2)])
def test_closed_streams_are_not_taken_for_the_output(inputs, tmp_path, closed):
    strake("predict", output=tmp_path / "expected.parquet", **inputs)

    def close():
        for stream in closed:
            os.close(stream)

    line = command("predict", output=tmp_path / "scored.parquet", **inputs)
    subprocess.run(line, preexec_fn=close, env=environment(), timeout=60)
    assert (tmp_path / "scored.parquet").read_bytes() == (tmp_path / "expected.parquet").read_bytes()


# What an output may not replace


def refused_output(output, *named, code=USAGE, **flags):
    """Refused before anything is loaded or written."""
    folder = pathlib.Path(output).parent
    before = files_in(folder)
    outcome = run(command("predict", output=output, **flags))
    assert outcome.code == code, outcome.err
    assert all(name in outcome.err for name in named), outcome.err
    assert "kernels" not in outcome.err  # the line that tells what was loaded
    assert files_in(folder) == before
    return outcome


@pytest.fixture
def folder(inputs, tmp_path):
    """Of inputs, a hard and a symbolic link to one of them, and a copy of the model."""
    (tmp_path / "in").mkdir()
    shutil.copy(inputs["input"], tmp_path / "in" / "a.parquet")
    os.link(tmp_path / "in" / "a.parquet", tmp_path / "hard.parquet")
    (tmp_path / "link.parquet").symlink_to(tmp_path / "in" / "a.parquet")
    shutil.copytree(inputs["model_name_or_path"], tmp_path / "model")
    return tmp_path


@pytest.mark.parametrize("name", ["in/../in/a.parquet", "hard.parquet", "link.parquet"])
@pytest.mark.parametrize("of", ["in", "in/a.parquet", "hard.parquet", "link.parquet"])
def test_the_input_is_never_the_output(inputs, folder, name, of):
    refused_output(f"{folder}/{name}", "--output", "input", **(inputs | {"input": folder / of}))


def test_the_same_file_with_overwrite_and_shards(inputs, folder):
    flags = inputs | {"input": folder / "in" / "a.parquet"}
    refused_output(folder / "in" / "a.parquet", "would replace the input", overwrite_output=True, **flags)
    shutil.copy(inputs["input"], folder / "in" / "a-00000-of-00002.parquet")
    flags["input"] = folder / "in" / "a-00000-of-00002.parquet"
    refused_output(folder / "in" / "a.parquet", "would replace the input", shard="0/2", **flags)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "vocab.txt", "strake_packed/some.file"])
def test_files_of_the_model_are_not_replaced(inputs, folder, name):
    (folder / "model" / "strake_packed").mkdir(exist_ok=True)
    (folder / "model" / "strake_packed" / "some.file").write_bytes(b"x")
    flags = inputs | {"model_name_or_path": folder / "model"}
    refused_output(folder / "model" / name, f"{name} would replace a file of the model", **flags)


def test_an_output_beside_the_models_files_may_be_replaced_by_the_next_one(inputs, folder):
    flags = inputs | {"model_name_or_path": folder / "model", "output": folder / "model" / "scored.parquet"}
    strake("predict", **flags)
    before = parquet.read_table(flags["output"])
    strake("predict", **flags)
    assert parquet.read_table(flags["output"]).equals(before)


def test_what_is_no_regular_file_is_not_replaced(inputs, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        for name in ("fifo", "socket"):
            (tmp_path / f"link-to-{name}").symlink_to(tmp_path / name)
            for output in (tmp_path / name, tmp_path / f"link-to-{name}"):
                refused_output(output, f"{name} is no regular file", overwrite_output=True, **inputs)
    assert (tmp_path / "fifo").is_fifo() and (tmp_path / "socket").is_socket()


def test_a_symbolic_link_is_followed(inputs, whole, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    real, link = tmp_path / "elsewhere" / "real.parquet", tmp_path / "link.parquet"
    real.write_bytes(b"of an earlier run")
    link.symlink_to("elsewhere/real.parquet")
    strake("predict", output=link, **inputs)
    assert link.is_symlink()
    assert real.read_bytes() == whole.read_bytes()
    assert {path.name for path in real.parent.iterdir()} == {"real.parquet", "_real.parquet.manifest.json"}
    (tmp_path / "dangling.parquet").symlink_to("nowhere/real.parquet")
    refused_output(tmp_path / "dangling.parquet", "dangling.parquet is a symbolic link that leads to no file", **inputs)


@pytest.mark.parametrize("name", ["scored.csv", "scored.jsonl", "scored.TXT"])
def test_an_output_has_no_name_of_another_kind(inputs, folder, name):
    refused_output(f"{folder}/{name}", name, "predictions are written as Parquet", **inputs)


def test_an_output_is_not_made_where_the_next_start_would_read_it(inputs, folder):
    flags = inputs | {"input": folder / "in"}
    for output in (f"{folder}/in/scored.parquet", f"{folder}/in/scored.txt", f"{folder}/in/"):
        refused_output(output, f"{folder}/in, so that the next start would read it", **flags)
    strake("predict", output=folder / "in" / "scored", **flags)  # names that are not read are no matter
    strake("predict", output=f"{folder}/in/scored-too/", **flags)


def test_an_output_folder_does_not_delete_its_input(inputs, tmp_path):
    table = shutil.copy(inputs["input"], tmp_path / "part-00000.parquet")
    refused_output(f"{tmp_path}/", "holds the input", overwrite_output=True, **(inputs | {"input": table}))


# Columns


def test_all_output_columns_agree(inputs, tmp_path):
    output = tmp_path / "scored.parquet"
    columns = ["score", "label_id", "prediction", "logits", "probabilities"]
    strake("predict", output=output, output_columns=columns, keep_columns=["number", "text"], **inputs)
    table = parquet.read_table(output)
    assert table.column_names == ["number", "text", *columns]
    for row in table.slice(0, 100).to_pylist():
        assert row["label_id"] == max(range(3), key=lambda i, row=row: row["logits"][i])
        assert row["prediction"] == f"LABEL_{row['label_id']}"
        assert row["score"] == row["probabilities"][row["label_id"]] == max(row["probabilities"])


@pytest.mark.parametrize(
    ("kept", "found"), [("number", ["number"]), ("", []), (None, ["text", "label", "number", "score"])]
)
def test_columns_of_the_input_are_kept_as_asked(inputs, whole, tmp_path, kept, found):
    output = tmp_path / "scored.parquet"
    strake("predict", output=output, keep_columns=kept, **inputs)
    table = parquet.read_table(output)
    assert table.column_names == [*found, "prediction", "probabilities"]
    assert table.equals(rows_of(whole).select(table.column_names))


@pytest.mark.parametrize(
    ("flags", "code", "named"),
    [
        ({"output_columns": "predictions"}, USAGE, "--output_columns predictions: the columns are prediction,"),
        ({"output_columns": ["logits", "logits"]}, USAGE, "'logits' is named twice"),
        ({"keep_columns": ["text", "text"]}, USAGE, "'text' is named twice"),
        ({"keep_columns": "txt"}, DATA, "there is no column 'txt'"),
        ({"output_columns": "score"}, DATA, "the column 'score' that would be added already exists"),
        ({"rows_per_file": 0}, USAGE, "--rows_per_file 0"),
        ({"rows_per_file": 9}, USAGE, "--rows_per_file 9 is for an output folder: write --output"),
        ({"max_seq_length": 1}, USAGE, "--max_seq_length 1 is less than the 2 special tokens"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_columns_that_make_no_sense(inputs, tmp_path, flags, code, named):
    outcome = run(command("predict", output=tmp_path / "scored.parquet", **(inputs | flags)))
    assert outcome.code == code
    assert named in outcome.err
    assert files_in(tmp_path) == {}


def test_cut_texts_are_counted_and_told(inputs, tmp_path):
    words = [3, 8, 9, 30, 8]
    table = tmp_path / "in.parquet"
    parquet.write_table(pyarrow.table({"text": [" ".join(["good"] * count) for count in words]}), table)
    flags = inputs | {"input": table, "max_seq_length": 10, "output": tmp_path / "out.parquet", "summary_json": True}
    outcome = run(command("predict", **flags))
    assert "2 rows had more than --max_seq_length 10 tokens" in outcome.err
    assert json.loads(outcome.out)["rows_cut"] == manifest_of(tmp_path / "out.parquet")["rows_cut"] == 2
    outcome = run(command("predict", text_pair_column="text", **(flags | {"max_seq_length": 19})))
    assert "2 rows had more than" in outcome.err  # pairs of 2 * 8 + 3 tokens fit
    outcome = run(command("predict", **(flags | {"max_seq_length": 32})))
    assert "had more than" not in outcome.err and json.loads(outcome.out)["rows_cut"] == 0


# Manifest


def test_the_manifest_says_what_was_done(inputs, tmp_path):
    output = tmp_path / "scored.parquet"
    result = summary("predict", output=output, **inputs)
    manifest = manifest_of(output)
    assert result == {name: manifest[name] for name in result}
    assert manifest["rows"] == manifest["rows_scored"] == ROWS
    assert manifest["tokens"] == manifest["tokens_scored"] > ROWS
    assert 0 < manifest["seconds_waiting_for_input"] < manifest["seconds"]
    assert 0 <= manifest["seconds_waiting_for_output"] < manifest["seconds"]
    assert manifest["rows_per_second"] == pytest.approx(ROWS / manifest["seconds"])
    assert manifest["peak_resident_bytes"] > 1_000_000
    (file,) = manifest["files"]
    assert (file["name"], file["rows"], file["bytes"]) == ("scored.parquet", ROWS, output.stat().st_size)
    job = manifest["job"]
    assert job["precision"] == "fp32" and job["kernels"] and job["max_seq_length"] == 32
    metadata = parquet.read_metadata(output).metadata
    assert metadata[b"strake.model_fingerprint"].decode() == job["model_fingerprint"]
    assert metadata[b"strake.precision"] == b"fp32"
