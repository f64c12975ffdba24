"""Runs that are drawn at random and ended at random moments, by kill -9 of a rank or by SIGTERM, and that go on each
time in another layout of ranks, stages and offload: the end is that of a run that nobody disturbed, bit for bit.

STRAKE_KILLS says how many runs are ended at least (20), STRAKE_KILL_SEED which and when."""

import contextlib
import itertools
import json
import os
import signal
import time

import pytest
from drawn_runs import Draw, layout, make_inputs, outcome_of, settings
from job import Job
from program import command, run, wait_until
from refusals import DATA, FILE, INTERRUPTED, NUMERIC, USAGE
from resume_test import assert_same_end, logged_steps

KILLS = int(os.environ.get("STRAKE_KILLS", "20"))
SEED = int(os.environ.get("STRAKE_KILL_SEED", "1"))
MOST_KILLS = 6  # of one run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_inputs(tmp_path_factory.mktemp("inputs"))


def long_settings(draw, folder):
    """Of runs that take long enough to be caught at something."""
    flags = settings(draw, folder) | {"num_train_epochs": None, "max_steps": 30}
    flags |= draw.maybe(0.5, save_total_limit=[1, 2])
    flags |= draw.maybe(0.5, load_best_model_at_end=[True])
    if "load_best_model_at_end" in flags and draw.random() < 0.3:
        flags |= {"early_stopping_patience": draw.choice([1, 2, 4])}
    return flags


class Run:
    """A run that is started until it comes to its end."""

    def __init__(self, draw, numbers, flags, output):
        self.draw, self.numbers, self.flags, self.output = draw, numbers, flags, output
        self.nvme = output.parent / "nvme"
        self.nvme.mkdir()
        self.layouts = []

    def start(self):
        flags = layout(self.draw, self.numbers, self.nvme)
        processes = self.draw.choice([0, flags["ranks"]])
        self.layouts.append(flags | {"processes": processes})
        if processes:
            flags |= {"ranks": 1}
        flags = self.flags | flags | {"resume_from_checkpoint": "true", "output_dir": self.output}
        return Job(command("train", **flags), self.output, processes)

    def wait_for_a_moment(self, job):
        """Whatever it is doing then: a time from its start, or from some step's line in the log."""

        def has_ended():
            return job.process.poll() is not None

        if self.draw.random() < 0.3:
            pause = self.draw.uniform(0, 0.5)
        else:
            pause = self.draw.choice([0, self.draw.uniform(0, 0.03)])
            awaited = logged_steps(self.output) + self.draw.randint(1, 8)
            wait_until(lambda: has_ended() or logged_steps(self.output) >= awaited, job.log.read_text)
        time.sleep(pause)

    def end_early(self):
        """Whether the run ended before it was through."""
        job = self.start()
        self.wait_for_a_moment(job)
        number = self.draw.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM])
        victim = self.draw.random()
        is_ended = False
        if ranks := job.processes():
            with contextlib.suppress(ProcessLookupError):  # it ended just now
                os.kill(ranks[int(victim * len(ranks))], number)
                is_ended = True
        code, log = job.end()
        assert code in self.codes(number if is_ended else None), log
        assert "internal error" not in log, log
        return code != 0

    def codes(self, number):
        """That a run may end with that got this signal, or none."""
        if number is None:
            return (0,)
        if not self.layouts[-1]["processes"]:
            return (0, -number, INTERRUPTED) if number == signal.SIGTERM else (0, -number)
        # Launchers give codes of their own to ranks that signals end.
        return [code for code in range(-64, 256) if code not in (USAGE, DATA, FILE, NUMERIC)]


def end_of(output):
    """Weights, log, whether the best evaluation's checkpoint is kept, and the newest checkpoint."""
    best = json.loads((output / "trainer_state.json").read_text())["best_global_step"]
    newest = max(output.glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1])).name
    return *outcome_of(output), (output / f"checkpoint-{best}").exists(), newest


def times_ended(draw, folder, place):
    """How often the drawn run was ended; its end is that of one that nobody disturbed."""
    flags = long_settings(draw, folder)
    numbers = draw.choice([1, 2, 4]), draw.choice([None, None, "bf16", "fp16"])
    disturbed = Run(draw, numbers, flags, place / "disturbed")
    kills = sum(itertools.takewhile(bool, (disturbed.end_early() for _ in range(MOST_KILLS))))
    code, log = disturbed.start().end()
    assert code == 0, log
    whole = run(command("train", **(flags | layout(draw, numbers, place)), output_dir=place / "whole"))
    assert whole.code == 0, whole.err
    assert end_of(place / "disturbed") == end_of(place / "whole"), (flags, disturbed.layouts)
    assert_same_end(place / "disturbed", place / "whole")
    assert not any(path.is_file() for path in disturbed.nvme.rglob("*"))
    return kills


def test_runs_that_are_ended_go_on_to_the_same_end(folder, tmp_path):
    kills, runs = 0, 0
    while kills < KILLS and runs < 2 * KILLS:  # a run may end before it is hit
        place = tmp_path / str(runs)
        place.mkdir()
        kills += times_ended(Draw(f"{SEED} {runs}"), folder, place)
        runs += 1
    print(f"{runs} runs, ended {kills} times")
    assert kills >= KILLS
