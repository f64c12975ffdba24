"""For tests of input that must be refused: exit code, a message that says where and what, files left as they were."""

import shutil

from program import command, files_in, run, strake
from tiny_models import make_model, reviews, write_table

USAGE, DATA, FILE, COMMUNICATION, NUMERIC, INTERRUPTED = 2, 3, 4, 5, 6, 75


def make_shared(folder):
    """A base model, a classifier of negative and positive, a model for scores, and their data as text and tokens."""
    base = make_model(folder / "base")
    data = write_table(folder / "train.parquet", reviews(40))
    flags = {
        "model_name_or_path": base,
        "train_file": data,
        "max_seq_length": 32,
        "max_steps": 2,
        "save_strategy": "no",
    }
    strake("train", output_dir=folder / "classifier", **flags)
    strake("train", output_dir=folder / "regressor", label_column="score", **flags)
    tokens = {"tokenizer": base, "input": data, "max_seq_length": 32}
    strake("prepare", output=folder / "unlabelled_tokens.parquet", **tokens)
    strake("prepare", output=folder / "tokens.parquet", label_column="label", **tokens)
    return folder


class Place:
    """A folder for one case, with an output folder and an output file of an earlier run."""

    def __init__(self, shared, path):
        self.shared = shared
        self.path = path
        self.output_dir = path / "out"
        self.output = path / "written" / "old.parquet"
        self.output_dir.mkdir()
        (self.output_dir / "model.safetensors").write_bytes(b"of an earlier run")
        self.output.parent.mkdir()
        self.output.write_bytes(b"of an earlier run")

    def model(self, name="base"):
        """A copy that the case may damage."""
        return shutil.copytree(self.shared / name, self.path / name)

    def table(self, name, rows):
        return write_table(self.path / name, rows)

    def file(self, name, content):
        path = self.path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def train(self, **flags):
        defaults = {
            "model_name_or_path": self.shared / "base",
            "train_file": self.shared / "train.parquet",
            "output_dir": self.output_dir,
            "max_seq_length": 32,
            "max_steps": 2,
        }
        return command("train", **(defaults | flags))

    def predict(self, **flags):
        return command("predict", **(self._score_flags() | {"output": self.output} | flags))

    def evaluate(self, **flags):
        return command("evaluate", **(self._score_flags() | flags))

    def _score_flags(self):
        model, table = self.shared / "classifier", self.shared / "train.parquet"
        return {"model_name_or_path": model, "input": table, "max_seq_length": 32}

    def prepare(self, **flags):
        defaults = {"tokenizer": self.shared / "base", "input": self.shared / "train.parquet", "output": self.output}
        return command("prepare", **(defaults | flags))

    def tokenize(self, **flags):
        return command("tokenize", **({"tokenizer": self.shared / "base"} | flags))

    def refuses(self, code, line, *named, **options):
        """Runs `line`, which must fail with this code and a message that names all of `named`."""
        before = files_in(self.output_dir), files_in(self.output.parent)
        outcome = run(line, **options)
        assert outcome.code == code, outcome.err
        message = outcome.err.splitlines()[-1]
        assert message.startswith("strake: "), outcome.err
        for text in named:
            assert str(text) in message, message
        assert outcome.out == ""
        assert (files_in(self.output_dir), files_in(self.output.parent)) == before
