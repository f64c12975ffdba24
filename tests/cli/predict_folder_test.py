"""Shards of `strake predict`, and output folders."""

import json
import random
import shutil

import pyarrow.parquet as parquet
import pytest
from predict_runs import RECORD, ROWS, interrupt, make_inputs, rows_of, score
from program import command, environment, files_in, full_disk, run, strake, summary
from refusals import DATA, FILE, USAGE
from tiny_models import reviews, write_table


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    return make_inputs(tmp_path_factory.mktemp("inputs"))


@pytest.fixture(scope="module")
def whole(inputs, tmp_path_factory):
    return score(inputs, tmp_path_factory.mktemp("whole"))


# Shards


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_shards_together_are_the_whole(inputs, tmp_path, kind):
    flags = inputs | {"input": inputs["input"].with_suffix(f".{kind}")}
    strake("predict", output=tmp_path / "whole.parquet", **flags)
    for index in range(3):
        strake("predict", output=tmp_path / "out.parquet", shard=f"{index}/3", **flags)
    parts = [tmp_path / f"out-{index:05}-of-00003.parquet" for index in range(3)]
    assert [parquet.read_metadata(part).num_rows for part in parts] == [2000, 2000, 2000]
    assert rows_of(*parts).equals(rows_of(tmp_path / "whole.parquet"))


def test_more_shards_than_rows(inputs, tmp_path):
    flags = inputs | {"input": write_table(tmp_path / "two.parquet", reviews(2))}
    for index in range(3):
        strake("predict", output=tmp_path / "out.parquet", shard=f"{index}/3", **flags)
    parts = sorted(tmp_path.glob("out-*.parquet"))
    assert [parquet.read_metadata(part).num_rows for part in parts] == [0, 1, 1]
    assert rows_of(*parts).column("text").to_pylist() == [row["text"] for row in reviews(2)]


def test_a_shard_reads_only_its_row_groups(inputs, tmp_path):
    content = bytearray(inputs["input"].read_bytes())
    content[4:400] = bytes(396)  # the first page of the first row group
    table = tmp_path / "damaged.parquet"
    table.write_bytes(content)
    flags = inputs | {"input": table, "output": tmp_path / "out.parquet"}
    assert run(command("predict", shard="0/2", **flags)).code == DATA
    strake("predict", shard="1/2", **flags)


def test_a_shard_goes_on(inputs, tmp_path):
    whole, output = tmp_path / "whole.parquet", tmp_path / "out.parquet"
    strake("predict", output=whole, shard="1/2", **inputs)
    line = command("predict", output=output, shard="1/2", **inputs, **RECORD)
    assert run(line, **full_disk(ROWS // 4 * 3 * 4)).code == FILE
    assert summary("predict", output=output, shard="1/2", **inputs)["resumes"] == 1
    shard = "-00001-of-00002.parquet"
    assert (tmp_path / f"out{shard}").read_bytes() == (tmp_path / f"whole{shard}").read_bytes()


@pytest.mark.parametrize("shard", ["2", "2/2", "-1/2", "0/0", "a/b", "1/2/3"])
def test_shards_that_make_no_sense(inputs, tmp_path, shard):
    outcome = run(command("predict", output=tmp_path / "out.parquet", **inputs) + [f"--shard={shard}"])
    assert outcome.code == USAGE
    assert f"--shard {shard}" in outcome.err
    assert files_in(tmp_path) == {}


# Folders


def test_a_folder_gets_several_files(inputs, whole, tmp_path):
    strake("predict", output=f"{tmp_path}/out/", rows_per_file=2500, **inputs)
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    parts = [f"part-{i:05}.parquet" for i in range(3)]
    assert names == ["_SUCCESS", "_manifest.json", *parts]
    files = [tmp_path / "out" / part for part in parts]
    assert [parquet.read_metadata(file).num_rows for file in files] == [2500, 2500, 1000]
    assert rows_of(*files).equals(rows_of(whole))
    assert parquet.read_table(tmp_path / "out").num_rows == ROWS  # readers of folders pass over the other names


def test_an_interrupted_folder_goes_on(inputs, tmp_path):
    flags = {"rows_per_file": 1000}
    strake("predict", output=f"{tmp_path}/whole/", **inputs, **flags)
    interrupt(inputs, f"{tmp_path}/out/", **flags)
    assert not (tmp_path / "out" / "_SUCCESS").exists()
    assert summary("predict", output=f"{tmp_path}/out/", **inputs, **flags)["resumes"] == 1
    found, expected = files_in(tmp_path / "out"), files_in(tmp_path / "whole")
    found.pop("_manifest.json"), expected.pop("_manifest.json")
    assert found == expected


def test_a_full_disk_names_the_file_that_was_written_meanwhile(inputs, tmp_path):
    table = write_table(tmp_path / "in.parquet", [row | {"more": random.randbytes(500).hex()} for row in reviews(300)])
    flags = inputs | {"input": table, "output": f"{tmp_path}/out/", "rows_per_file": 100}
    outcome = run(command("predict", **flags), **full_disk(20_000))
    assert outcome.code == FILE
    assert f"cannot write {tmp_path}/out/part-00000.parquet: File too large" in outcome.err
    assert "300 rows are scored and kept in" in outcome.err
    result = summary("predict", **flags)
    assert (result["resumes"], result["rows_scored"]) == (1, 0)


def test_a_finished_folder_is_left_alone(inputs, tmp_path):
    flags = inputs | {"output": f"{tmp_path}/out/"}
    first = summary("predict", **flags)
    before = files_in(tmp_path)
    again = run(command("predict", summary_json=True, **flags))
    assert again.code == 0 and "is complete: nothing is left to be done" in again.err
    assert json.loads(again.out)["rows_scored"] == 0
    assert json.loads(again.out)["rows"] == first["rows"]
    other = run(command("predict", **(flags | {"max_seq_length": 16})))
    assert other.code == USAGE
    assert "of an earlier run, which had max_seq_length = 32, now it is 16; pass --overwrite_output" in other.err
    shard = run(command("predict", shard="0/2", **flags))
    assert shard.code == USAGE
    assert "holds part-00000.parquet, which another cut of the rows gave" in shard.err
    assert files_in(tmp_path) == before
    strake("predict", overwrite_output=True, rows_per_file=3000, **flags)
    assert len(list((tmp_path / "out").glob("part-*"))) == 2


@pytest.mark.parametrize("name", ["data.parquet", "part-00000-5f3c-c000.snappy.parquet", "part-notes.txt"])
def test_files_of_others_are_neither_joined_nor_deleted(inputs, tmp_path, name):
    other = tmp_path / "out" / name
    other.parent.mkdir()
    other.write_text("of somebody else")
    for flags in ({}, {"overwrite_output": True}):
        outcome = run(command("predict", output=f"{tmp_path}/out/", **inputs, **flags))
        assert outcome.code == USAGE
        assert f"--output {tmp_path}/out/ holds {name}, which strake predict did not write" in outcome.err
    assert {path.name for path in other.parent.iterdir()} == {name}
    assert other.read_text() == "of somebody else"


def test_a_folder_without_its_slash_is_refused_at_once(inputs, tmp_path):
    outcome = run(command("predict", output=tmp_path, **inputs))
    assert outcome.code == USAGE
    assert f"--output {tmp_path} is a folder: write {tmp_path}/" in outcome.err


def test_shards_fill_a_folder(inputs, whole, tmp_path):
    flags = inputs | {"output": f"{tmp_path}/out/", "rows_per_file": 1500}
    success = tmp_path / "out" / "_SUCCESS"
    for shard in ("2/3", "0/3"):
        strake("predict", shard=shard, **flags)
        assert not success.exists()
    strake("predict", shard="1/3", **flags)
    assert success.exists()
    parts = sorted((tmp_path / "out").glob("part-*"))
    assert [part.name for part in parts][:2] == [
        "part-00000-of-00003-00000.parquet",
        "part-00000-of-00003-00001.parquet",
    ]
    assert rows_of(*parts).equals(rows_of(whole))


def test_shards_that_do_not_belong_together_are_no_success(inputs, tmp_path):
    flags = inputs | {"output": f"{tmp_path}/out/"}
    strake("predict", shard="0/2", **flags)
    outcome = run(command("predict", shard="1/2", **(flags | {"max_seq_length": 16})))
    assert outcome.code == DATA
    assert "_manifest-00000-of-00002.json: that shard had max_seq_length = 32, this one has 16" in outcome.err
    assert not list((tmp_path / "out").glob("part-00001-*"))  # found before anything was scored
    other = run(command("predict", shard="1/2", **flags), env=environment(STRAKE_ISA="avx2"))
    assert other.code == DATA
    assert "that shard had kernels = " in other.err and "STRAKE_ISA names kernels" in other.err
    replaced = run(command("predict", shard="1/2", overwrite_output=True, **(flags | {"max_seq_length": 16})))
    assert replaced.code == 0 and "no _SUCCESS yet" in replaced.err
    assert not (tmp_path / "out" / "_SUCCESS").exists()
    copy = flags | {"input": shutil.copy(inputs["input"], tmp_path / "copy.parquet")}  # as on a machine's own disk
    strake("predict", shard="1/2", overwrite_output=True, **copy)
    assert (tmp_path / "out" / "_SUCCESS").exists()
