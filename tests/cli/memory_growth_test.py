"""Tables may be larger than memory: ten times the rows take no more of it."""

import pyarrow
import pyarrow.csv
import pyarrow.parquet
import pytest
from memory_test import peak_bytes
from program import command
from tiny_models import make_model, reviews

# More than four row groups of the output (64 Ki rows), so that all buffers have been as full in the smaller run as they
# get: with two a predict run takes 7 % less, from four on nothing grows.
ROWS = 280_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("memory")
    make_model(folder / "model", head=True)
    block = pyarrow.Table.from_pylist(reviews(ROWS // 10, longest=3))
    for size in (1, 10):
        table = pyarrow.concat_tables([block] * (10 * size))
        pyarrow.parquet.write_table(table, folder / f"{size}.parquet", row_group_size=20_000)
        pyarrow.csv.write_csv(table, folder / f"{size}.csv")
    return folder


@pytest.mark.parametrize(("verb", "kind"), [("prepare", "parquet"), ("prepare", "csv"), ("predict", "parquet")])
def test_ten_times_the_rows_take_the_same_memory(folder, tmp_path, verb, kind):
    def peak(size):
        flags = {"input": folder / f"{size}.{kind}", "output": tmp_path / f"{size}.parquet", "max_seq_length": 32}
        if verb == "prepare":
            return peak_bytes(command("prepare", tokenizer=folder / "model", label_column="label", **flags))
        return peak_bytes(command("predict", model_name_or_path=folder / "model", **flags))

    # How full buffers get is a matter of scheduling: the longer run has ten times the chances.
    small, large = max(peak(1) for _ in range(3)), peak(10)
    print(f"{verb} {kind}: {small / 2**20:.0f} MiB, ten times the rows {large / 2**20:.0f} MiB")
    assert large < 1.1 * small
