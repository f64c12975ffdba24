"""Runs that are drawn at random: whatever the settings, two layouts of ranks, stages, offload and recomputation give
the same losses and weights, bit for bit, and a third goes on from a checkpoint of the first to the same end.

STRAKE_DRAWS says how many runs are drawn (25), STRAKE_DRAW_SEED which."""

import os

import pytest
from drawn_runs import Draw, layout, make_inputs, outcome_of, settings
from program import command, environment, run

DRAWS = int(os.environ.get("STRAKE_DRAWS", "25"))
SEED = int(os.environ.get("STRAKE_DRAW_SEED", "1"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_inputs(tmp_path_factory.mktemp("inputs"))


def trained(draw, output, flags):
    line = command("train", output_dir=output, **flags)
    done = run(line, env=environment(STRAKE_NUM_THREADS=draw.choice(["1", "2"])))
    assert done.code == 0, f"{' '.join(map(str, line))}\n{done.err}"
    return outcome_of(output)


def step_of(checkpoint):
    return int(checkpoint.name.split("-")[1])


@pytest.mark.parametrize("number", range(DRAWS))
def test_any_layout_gives_the_same_bits(folder, tmp_path, number):
    draw = Draw(f"{SEED} {number}")
    flags = settings(draw, folder)
    numbers = draw.choice([1, 2, 4, 4, 4]), draw.choice([None, None, None, "bf16", "fp16"])
    nvme = tmp_path / "nvme"
    nvme.mkdir()
    layouts = [layout(draw, numbers, nvme) for _ in range(3)]
    expected = trained(draw, tmp_path / "first", flags | layouts[0])
    assert trained(draw, tmp_path / "second", flags | layouts[1]) == expected, layouts
    checkpoints = sorted((tmp_path / "first").glob("checkpoint-*"), key=step_of)
    saved = draw.choice(checkpoints[:-1] or checkpoints)
    weights, entries = trained(draw, tmp_path / "third", flags | layouts[2] | {"resume_from_checkpoint": saved})
    assert weights == expected[0], (saved.name, layouts)
    later, all_later = ([entry for entry in log if entry["step"] > step_of(saved)] for log in (entries, expected[1]))
    assert later == all_later, (saved.name, layouts)
    assert not any(path.is_file() for path in nvme.rglob("*"))
