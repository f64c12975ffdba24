"""A place of `strake predict` that something has happened to since: to files that it has filled, or its folder."""

import json
import os
import pathlib
import shutil

import pyarrow
import pyarrow.parquet as parquet
import pytest
from program import command, files_in, run, strake, summary
from refusals import DATA, FILE, USAGE
from tiny_models import make_model, reviews, write_table

ROWS = 60


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The flags of a job that filled a folder with three files, but for --output, and the folder."""
    folder = tmp_path_factory.mktemp("finished")
    model = make_model(folder / "model", head=True)
    table = write_table(folder / "in.parquet", reviews(ROWS))
    flags = {"model_name_or_path": model, "input": table, "max_seq_length": 32, "rows_per_file": 25}
    strake("predict", output=f"{folder}/out/", **flags)
    return flags, folder / "out"


def rows_in(folder):
    return pyarrow.concat_tables([parquet.read_table(file) for file in sorted(folder.glob("part-*"))])


def change_in_the_middle(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    before = path.stat()
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def other_file(path):
    path.unlink()
    path.mkdir()


def test_a_link_to_nothing_is_no_place_for_a_job(finished, tmp_path):
    (tmp_path / ".scored.parquet.job").symlink_to(tmp_path / "moved_away")
    outcome = run(command("predict", output=tmp_path / "scored.parquet", **finished[0] | {"rows_per_file": None}))
    assert outcome.code == FILE
    assert "cannot open" in outcome.err and ".scored.parquet.job/lock: No such file" in outcome.err


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (pathlib.Path.unlink, "is gone"),
        (lambda path: os.truncate(path, path.stat().st_size - 1), "bytes, and had"),
        (change_in_the_middle, "has other contents: its checksum has changed"),
        (other_file, "is no regular file"),
    ],
    ids=["deleted", "cut", "changed", "folder"],
)
def test_a_changed_file_of_a_finished_folder_is_named(finished, tmp_path, change, named):
    flags, folder = finished
    out = shutil.copytree(folder, tmp_path / "out")
    change(out / "part-00001.parquet")
    before = files_in(out)
    outcome = run(command("predict", output=f"{out}/", **flags))
    assert outcome.code == DATA
    assert f"{out}/part-00001.parquet" in outcome.err and named in outcome.err
    assert "pass --overwrite_output" in outcome.err
    assert files_in(out) == before
    strake("predict", output=f"{out}/", overwrite_output=True, **flags)
    assert rows_in(out).equals(rows_in(folder))


def test_a_finished_folder_may_be_copied(finished, tmp_path):
    flags, folder = finished
    alone = run(command("predict", output=f"{folder}/", **flags))
    assert "is complete: nothing is left to be done" in alone.err
    assert "comparing its checksum" not in alone.err
    out = shutil.copytree(folder, tmp_path / "out", copy_function=shutil.copyfile)
    outcome = run(command("predict", output=f"{out}/", **flags))
    assert outcome.code == 0 and "is complete: nothing is left to be done" in outcome.err
    assert outcome.err.count("comparing its checksum") == 3


def test_a_finished_folder_whose_files_are_all_gone_is_filled_again(finished, tmp_path):
    flags, folder = finished
    out = shutil.copytree(folder, tmp_path / "out")
    for part in out.glob("part-*"):
        part.unlink()
    assert summary("predict", output=f"{out}/", **flags)["rows_scored"] == ROWS
    assert rows_in(out).equals(rows_in(folder))


def test_a_manifest_that_does_not_say_how_files_were_written_does_not_count_as_complete(finished, tmp_path):
    flags, folder = finished
    out = shutil.copytree(folder, tmp_path / "out")
    manifest = json.loads((out / "_manifest.json").read_text())
    manifest["files"] = [file["name"] for file in manifest["files"]]
    (out / "_manifest.json").write_text(json.dumps(manifest))
    outcome = run(command("predict", output=f"{out}/", **flags))
    assert outcome.code == USAGE
    assert f"{out}/_manifest.json: key 'files' holds something that is no object" in outcome.err
    strake("predict", output=f"{out}/", overwrite_output=True, **flags)
