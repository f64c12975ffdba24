"""Runs of strake train for tests of its tasks: `flags_of(folder, output, **changes)` of a test gives their flags."""

from program import command, run
from refusals import USAGE


class TaskRuns:
    def __init__(self, flags_of):
        self.flags_of = flags_of

    def train(self, folder, output, **changes):
        outcome = run(command("train", **self.flags_of(folder, output, **changes)))
        assert outcome.code == 0, outcome.err
        return outcome

    def refused(self, folder, output, code=USAGE, **changes):
        """The last line that is said, of a run that leaves nothing behind."""
        outcome = run(command("train", **self.flags_of(folder, output, **changes)))
        assert outcome.code == code, outcome.err
        assert not output.exists()
        return outcome.err.splitlines()[-1]

    def assert_resumes_with_the_same_bits(self, folder, path):
        """Leaves a run in `path`/halves whose checkpoints are those of steps 2 and 4."""
        flags = {"save_strategy": "steps", "save_steps": 2, "max_steps": 4}
        self.train(folder, path / "whole", **flags)
        self.train(folder, path / "halves", **flags)
        (path / "halves" / "model.safetensors").unlink()
        self.train(folder, path / "halves", resume_from_checkpoint=path / "halves" / "checkpoint-2", **flags)
        weights = [(path / run / "model.safetensors").read_bytes() for run in ("whole", "halves")]
        assert weights[0] == weights[1]
