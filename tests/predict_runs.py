"""A table of reviews, scored by `strake predict` as a whole or interrupted."""

import json

import pyarrow
import pyarrow.parquet as parquet
from program import command, full_disk, run, strake
from refusals import FILE
from tiny_models import make_model, reviews, write_table

ROWS = 6000
RECORD = {"max_tokens_per_batch": 16}  # a durable record each 256 tokens, about 20 rows


def make_inputs(folder):
    model = make_model(folder / "model", head=True)
    rows = reviews(ROWS)
    parquet.write_table(pyarrow.Table.from_pylist(rows), folder / "in.parquet", row_group_size=700)
    write_table(folder / "in.csv", rows)
    return {"model_name_or_path": model, "input": folder / "in.parquet", "max_seq_length": 32}


def score(inputs, folder):
    """The output of a run that never stopped."""
    output = folder / "scored.parquet"
    strake("predict", output=output, **inputs)
    return output


def interrupt(inputs, output, **flags):
    """A run that ends on a full disk with about half of the rows scored; what it says."""
    line = command("predict", output=output, **(inputs | RECORD | flags))
    outcome = run(line, **full_disk(ROWS // 2 * 3 * 4))  # three logits of four bytes
    assert outcome.code == FILE, outcome.err
    return outcome.err


def manifest_of(output):
    return json.loads((output.parent / f"_{output.name}.manifest.json").read_text())


def rows_of(*files):
    return pyarrow.concat_tables([parquet.read_table(file) for file in files])
