"""Long rows, texts, words and contexts take the memory that is named at the start, or a few times their size."""

import json
import multiprocessing
import os
import resource
import signal
import subprocess

import numpy
import pyarrow
import pyarrow.parquet
import pytest
from program import command, environment, run
from refusals import USAGE
from tiny_models import make_model, make_reader, make_tagger, reviews, write_table


def peak_bytes(line):
    process = subprocess.Popen(line, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    message = process.stderr.read().decode()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, message
    return usage.ru_maxrss * 1024


def with_bound(model, table, output, **flags):
    """Peak memory of a predict run, and what its manifest says of it."""
    line = command("predict", model_name_or_path=model, input=table, output=output, max_seq_length=32, **flags)
    peak = peak_bytes(line)
    return peak, json.loads((output.parent / f"_{output.name}.manifest.json").read_text())["memory_bytes"]


def write_long_rows(file, rows):
    """One text of 20 KB so often, without the memory for it here: a child's peak begins with that of this process."""
    text = ("the film was good " * 1200)[:20_000]
    if file.suffix == ".csv":
        with file.open("w") as out:
            out.write("text\n")
            out.writelines(f"{text}\n" for _ in range(rows))
        return
    values = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * rows, pyarrow.int32()), [text])
    keep_type = file.stem.endswith("dictionary")  # else it is read as a column of strings
    pyarrow.parquet.write_table(pyarrow.table({"text": values}), file, store_schema=keep_type)


@pytest.mark.parametrize("kind", [".parquet", "-dictionary.parquet", ".csv"])
def test_long_rows_stay_within_the_memory_that_is_named_at_the_start(folder, tmp_path, kind):
    """24,000 rows of 20 KB; in the Parquet files they are one value of a dictionary, and the files are small."""

    def measured(rows):
        file = tmp_path / f"{rows}{kind}"
        write_long_rows(file, rows)
        return with_bound(folder / "model", file, tmp_path / f"{rows}-out.parquet")

    (alone, bound), (many, _) = measured(1), measured(24_000)
    mebibytes = [round(value / 2**20) for value in (alone, many, bound["tables"])]
    print(f"{kind}: {mebibytes[0]} MiB with one row, {mebibytes[1]} with all; at most {mebibytes[2]} more")
    assert bound["weights"] > 0 and bound["activations"] > 0
    assert many - alone < bound["tables"] < 330 * 2**20  # of 480 MB of text


def write_blobs(file, rows):
    """Of 32 KB each, which nothing makes smaller."""
    source = numpy.random.default_rng(1)
    blobs = pyarrow.array([source.bytes(32_000) for _ in range(rows)], pyarrow.binary())
    table = pyarrow.table({"text": ["the film was good"] * rows, "blob": blobs})
    pyarrow.parquet.write_table(table, file, row_group_size=500)


def write_wide_rows(file, rows):
    source = numpy.random.default_rng(1)
    numbers = {f"number {i}": source.normal(size=rows) for i in range(200)}
    pyarrow.parquet.write_table(pyarrow.table({"text": ["the film was good"] * rows} | numbers), file)


@pytest.mark.parametrize(("write", "rows"), [(write_blobs, 8_000), (write_wide_rows, 50_000)])
def test_other_columns_stay_within_the_memory_that_is_named_too(folder, tmp_path, write, rows):
    def measured(count):
        file = tmp_path / f"{count}.parquet"
        # A child's peak begins with that of this process.
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            pool.apply(write, (file, count))
        return with_bound(folder / "model", file, tmp_path / f"{count}-out.parquet")

    (alone, bound), (many, _) = measured(1), measured(rows)
    mebibytes = [round(value / 2**20) for value in (alone, many, bound["tables"])]
    print(f"{write.__name__}: {mebibytes[0]} MiB with one row, {mebibytes[1]} with all; at most {mebibytes[2]} more")
    assert many - alone < bound["tables"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("memory")
    make_model(folder / "model", head=True)
    return folder


def test_a_long_context_is_not_there_once_more_for_each_of_its_windows(tmp_path):
    model = make_reader(tmp_path / "model")

    def peak(size):
        file = tmp_path / f"{size}.parquet"
        context = "the film was good\n" * (size // 18)
        pyarrow.parquet.write_table(pyarrow.table({"question": ["what was good?"], "context": [context]}), file)
        flags = {"input": file, "output": tmp_path / "out.parquet", "keep_columns": "", "doc_stride": 32}
        return peak_bytes(command("predict", model_name_or_path=model, max_seq_length=64, **flags))

    size = 2_000_000
    small, large = peak(18), peak(size)
    print(f"{small / 2**20:.0f} MiB, with {size} bytes in one context {large / 2**20:.0f} MiB")
    assert large - small < 60 * size


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_one_long_text_takes_a_few_times_its_size(tmp_path, family):
    """Of 20 MB only the start is looked at, whose tokens have places."""
    model = make_tagger(tmp_path / "model", family)

    def peak(size):
        file = tmp_path / f"{size}.parquet"
        pyarrow.parquet.write_table(pyarrow.table({"text": ["the caf\u00e9 was good\n" * (size // 20)]}), file)
        flags = {"input": file, "output": tmp_path / "out.parquet", "task": "token-classification"}
        return peak_bytes(command("predict", model_name_or_path=model, max_seq_length=32, **flags))

    small, large = peak(20), peak(20_000_000)
    print(f"{family}: {small / 2**20:.0f} MiB, with 20 MB in one text {large / 2**20:.0f} MiB")
    assert large - small < 12 * 20_000_000


@pytest.mark.parametrize(("family", "bytes_per_letter"), [("bert", 25), ("roberta", 65)])
def test_one_long_word_takes_its_letters_and_their_places(tmp_path, family, bytes_per_letter):
    """A word is looked at as a whole; byte pairs also need the order in which all of its letters are joined."""
    model = make_tagger(tmp_path / "model", family)
    letters = 20_000_000

    def peak(text):
        file = tmp_path / f"{len(text)}.parquet"
        pyarrow.parquet.write_table(pyarrow.table({"text": [text]}), file)
        flags = {"input": file, "output": tmp_path / "out.parquet", "keep_columns": ""}
        return peak_bytes(command("predict", model_name_or_path=model, max_seq_length=32, **flags))

    small, large = peak("ab"), peak("ab" * (letters // 2))
    print(f"{family}: {small / 2**20:.0f} MiB, with a word of 20 MB {large / 2**20:.0f} MiB")
    assert large - small < bytes_per_letter * letters


def test_a_run_with_little_memory_ends_and_says_so(tmp_path):
    """libtorch waits for ever for threads whose stacks there is no room for."""
    model = make_model(tmp_path / "model", head=True)
    table = write_table(tmp_path / "in.parquet", reviews(10))
    line = command("predict", model_name_or_path=model, input=table, output=tmp_path / "out.parquet")
    told = []
    for megabytes in range(90, 400, 30):

        def limit(data=megabytes << 20):
            resource.setrlimit(resource.RLIMIT_DATA, (data, data))

        outcome = run(line, timeout=30, preexec_fn=limit)
        if outcome.code == -signal.SIGABRT:
            assert not told, outcome.err  # libraries need more before main()
        elif outcome.code:
            told.append(outcome.err)
            assert outcome.code == USAGE, outcome.err
            assert "no more threads" in outcome.err or "there is not enough memory" in outcome.err
    assert told
