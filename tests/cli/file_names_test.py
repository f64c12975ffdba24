"""Files whose names are bytes that are no UTF-8: Linux allows them, JSON does not."""

import json
import os
import shutil
import subprocess

import pyarrow.parquet as parquet
from program import command, environment, run, strake
from tiny_models import make_model, reviews, write_table


def test_such_files_are_scored(tmp_path):
    source = tmp_path / os.fsdecode(b"caf\xe9.parquet")
    shutil.move(write_table(tmp_path / "in.parquet", reviews(60)), source)  # pyarrow knows no such names
    output = tmp_path / os.fsdecode(b"sc\xf6red")
    flags = {"model_name_or_path": make_model(tmp_path / "model", head=True), "input": source, "max_seq_length": 32}
    line = command("predict", **flags, output=f"{output}/", summary_json=True)
    for _ in range(2):  # the second one finds nothing left to do
        done = subprocess.run(line, capture_output=True, timeout=60, env=environment())
        assert done.returncode == 0, done.stderr
        json.loads(done.stdout)
        (manifest,) = (json.loads(path.read_text()) for path in output.glob("_manifest*.json"))
        assert "caf\\xe9.parquet, " in manifest["job"]["input file 00000"]
    shutil.copytree(output, tmp_path / "renamed")
    assert parquet.read_table(tmp_path / "renamed").num_rows == 60


def test_names_that_are_too_long_are_refused_before_anything_is_scored(tmp_path):
    flags = {"model_name_or_path": make_model(tmp_path / "model", head=True), "max_seq_length": 32}
    flags["input"] = write_table(tmp_path / "in.parquet", reviews(3))
    longest = 255 - 24 - len("_.manifest.json") - len(".parquet")
    strake("predict", output=tmp_path / ("n" * longest + ".parquet"), **flags)
    outcome = run(command("predict", output=tmp_path / ("n" * (longest + 1) + ".parquet"), **flags))
    assert outcome.code == 2 and "the name is 1 bytes too long" in outcome.err, outcome
    assert len(list(tmp_path.glob("n*"))) == 1 and not list(tmp_path.glob(".n*"))
