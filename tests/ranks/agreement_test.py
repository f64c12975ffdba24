"""Ranks that are processes read flags, data and checkpoints each on its own: what differs ends the job."""

import json
import shutil
import subprocess

import pyarrow.parquet
import pytest
from program import environment, files_in, free_port, is_open_mpi, run
from resumable_run import train_command
from tiny_models import change_weights, training_inputs, write_table

pytestmark = pytest.mark.skipif(is_open_mpi(), reason="Open MPI has no ranks without its launcher")
FLAGS = {"max_steps": 8, "ranks": None, "gradient_accumulation_steps": 2}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    return training_inputs(tmp_path_factory.mktemp("inputs"), wide=False)


def run_both(lines, **of_second):
    """The outcomes of ranks 0 and 1, the second with more variables."""
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    other = subprocess.Popen(
        lines[1],
        env=environment(RANK="1", **shared, **of_second),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    first = run(lines[0], env=environment(RANK="0", **shared))
    _, said = other.communicate(timeout=60)
    return first, other.returncode, said


def other_file(inputs, tmp_path, name, rows):
    """Same number of rows, other content."""
    return {name: write_table(tmp_path / "other.parquet", rows(pyarrow.parquet.read_table(inputs[name]).to_pylist()))}


def swapped(rows):
    labels = [row["label"] for row in rows]
    return [row | {"label": label} for row, label in zip(rows, labels[1:] + labels[:1], strict=True)]


def other_weights(inputs, folder):
    shutil.copytree(inputs["model_name_or_path"], folder)
    change_weights(folder, lambda name, array: array * 2 if "embeddings.LayerNorm.weight" in name else array)
    return folder


def sgd(momentum):
    return json.dumps({"optimizer": {"type": "SGD", "params": {"lr": 0.001, "momentum": momentum}}})


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"learning_rate": 1e-2}, "learning_rate is 0.01 here and 0.001 on rank 0"),
        ({"seed": 7}, "seed is 7 here and 42 on rank 0"),
        ({"max_steps": 9}, "max_steps is 9 here and 8 on rank 0"),
        ({"dry_run": True}, "dry_run is true here and false on rank 0"),
        ({"eval_steps": 2}, "eval_steps is 2.0 here and 4.0 on rank 0"),
        ({"deepspeed": json.dumps({"zero_optimization": {"stage": 3}})}, "sharding"),
        ({"deepspeed": sgd(0.1)}, "momentum is 0.1 here and 0.9 on rank 0"),
        ("model_name_or_path", "crc32c of the weights to start from is "),
        ("train_file", "training_data_crc32c is "),
        ("validation_file", "evaluation_data_crc32c is "),
    ],
    ids=str,
)
def test_a_rank_with_other_settings_or_data_is_named(inputs, tmp_path, change, named):
    first_flags = {"deepspeed": sgd(0.9)} if change == {"deepspeed": sgd(0.1)} else {}
    if change == "model_name_or_path":
        change = {change: other_weights(inputs, tmp_path / "model")}
    elif isinstance(change, str):
        change = other_file(inputs, tmp_path, change, swapped)
    lines = [train_command(inputs, tmp_path / "out", **(FLAGS | more)) for more in (first_flags, change)]
    first, code, said = run_both(lines)
    assert first.code == code == 2, first.err + said
    assert "all ranks must be started with the same settings and data" in first.err + said
    assert named in first.err + said
    assert not (tmp_path / "out" / "model.safetensors").exists()


def test_a_rank_with_other_kernels_says_so(inputs, tmp_path):
    line = train_command(inputs, tmp_path / "out", **FLAGS)
    first, code, said = run_both([line, line], STRAKE_ISA="reference")
    assert first.code == code == 0, first.err + said
    assert "warning r1] this rank computes with reference and " in said


def test_an_output_folder_that_is_not_shared_ends_the_run_before_its_first_step(inputs, tmp_path):
    lines = [train_command(inputs, tmp_path / name, **FLAGS) for name in ("here", "there")]
    first, code, said = run_both(lines)
    assert first.code == code == 4, first.err + said
    assert f"rank 1: --output_dir {tmp_path / 'there'} is not the folder of rank 0" in first.err + said
    assert not list(tmp_path.glob("here/checkpoint-*")) + list(tmp_path.glob("here/.checkpoint*"))


def test_a_folder_that_is_not_shared_keeps_the_checkpoints_that_were_to_be_replaced(inputs, tmp_path):
    assert run(train_command(inputs, tmp_path / "here", **(FLAGS | {"ranks": 2}))).code == 0
    before = files_in(tmp_path / "here")
    flags = FLAGS | {"overwrite_output_dir": True}
    first, code, said = run_both([train_command(inputs, tmp_path / name, **flags) for name in ("here", "there")])
    assert first.code == code == 4, first.err + said
    assert "is not the folder of rank 0" in first.err + said
    assert files_in(tmp_path / "here") == before


def test_paths_may_differ(inputs, tmp_path):
    elsewhere = shutil.copytree(inputs["model_name_or_path"], tmp_path / "model")
    data = shutil.copy(inputs["train_file"], tmp_path / "train.parquet")
    more = {"model_name_or_path": elsewhere, "train_file": data}
    first, code, said = run_both([train_command(inputs | m, tmp_path / "out", **FLAGS) for m in ({}, more)])
    assert first.code == code == 0, first.err + said


def test_all_ranks_go_on_from_the_checkpoint_of_rank_zero(inputs, tmp_path):
    """Rank 1 sees one of its own that is newer: a folder that is not shared, or not up to date."""
    folders = tmp_path / "here", tmp_path / "there"
    assert run(train_command(inputs, folders[0], **(FLAGS | {"ranks": 2}))).code == 0
    shutil.copytree(*folders)
    shutil.rmtree(folders[0] / "checkpoint-8")
    before = files_in(folders[0])
    # The same path, but for each rank another folder behind it, as on two machines.
    outcomes = []
    for folder in folders:
        place = folder.parent / f"{folder.name}_place"
        place.mkdir()
        (place / "run").symlink_to(folder)
        line = train_command(inputs, "run", **(FLAGS | {"max_steps": 8, "resume_from_checkpoint": "true"}))
        outcomes.append(["env", "--chdir", str(place), *line])
    (folders[1] / "checkpoint-4" / "manifest.json").write_text("{}")
    first, code, said = run_both(outcomes)
    assert first.code == code == 4, first.err + said
    assert "checkpoint-4" in first.err + said
    assert files_in(folders[0]) == before
