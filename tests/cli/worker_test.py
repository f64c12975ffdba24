"""`strake worker`: Arrow batches through pipes, as Spark's mapInArrow and other engines drive it."""

import contextlib
import fcntl
import os
import shutil
import struct
import subprocess
import termios
import threading
import time

import pyarrow
import pyarrow.feather as feather
import pyarrow.parquet as parquet
import pytest
from program import command, environment, strake, wait_until
from refusals import DATA, FILE, USAGE
from tiny_models import make_model, reviews, write_table


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("worker") / "model", head=True)


@pytest.fixture(scope="module")
def expected(model, tmp_path_factory):
    """What `strake predict` says."""
    folder = tmp_path_factory.mktemp("expected")
    table = write_table(folder / "in.parquet", reviews(500))
    strake("predict", model_name_or_path=model, input=table, output=folder / "out.parquet", max_seq_length=32)
    return parquet.read_table(folder / "out.parquet")


class Worker:
    """The process, and what a driver does with it. It never outlives the test."""

    def __init__(self, model, **flags):
        line = command("worker", model_name_or_path=model, max_seq_length=32, **flags)
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(line, stdin=pipe, stdout=pipe, stderr=pipe, env=environment())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            with contextlib.suppress(BrokenPipeError):
                pipe.close()

    def end(self):
        """Exit code and messages of a process that ends although its input is still open."""
        code = self.process.wait(30)
        return code, self.process.stderr.read().decode()


def stream_of(batches, schema=None):
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, schema or batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def scored(model, batches, schema=None, **flags):
    """All batches at once; the batches that come back."""
    with Worker(model, **flags) as worker:
        out, err = worker.process.communicate(stream_of(batches, schema), timeout=60)
        assert worker.process.returncode == 0, err.decode()
    reader = pyarrow.ipc.open_stream(out)
    return reader.schema, list(reader)


def is_full(pipe):
    """If nothing came for a while: what is written at once may be more than is left."""
    before = bytes_in(pipe)
    time.sleep(0.3)
    return before > 32_768 and bytes_in(pipe) == before


def bytes_in(pipe):
    return struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0]


def test_a_pipe_that_does_not_wait_is_waited_for(model, expected):
    batches = expected.select(["text"]).to_batches(max_chunksize=100)
    line = command("worker", model_name_or_path=model, max_seq_length=32)
    out, into = os.pipe()
    os.set_blocking(into, False)
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=into, env=environment()) as process:
        os.close(into)
        rows = stream_of(batches * 40)  # whose results are more than a pipe holds
        feeder = threading.Thread(target=feed, args=(process.stdin, rows))
        feeder.start()
        wait_until(lambda: is_full(out))
        with os.fdopen(out, "rb") as stream:
            found = pyarrow.ipc.open_stream(stream).read_all()
        feeder.join()
        process.stdin.close()
        assert process.wait(30) == 0
    assert found.num_rows == 40 * expected.num_rows
    assert found["prediction"].to_pylist() == 40 * expected["prediction"].to_pylist()


def failed(model, content, **flags):
    """Exit code and message of a worker that gets this and then waits for ever."""
    with Worker(model, **flags) as worker:
        feeder = threading.Thread(target=feed, args=(worker.process.stdin, content))
        feeder.start()
        outcome = worker.end()
        feeder.join()
    return outcome


def feed(stdin, content):
    with contextlib.suppress(BrokenPipeError):
        stdin.write(content)
        stdin.flush()


def batches_of(table, rows):
    return table.combine_chunks().to_batches(max_chunksize=rows)


def test_rows_come_back_in_order_with_the_bits_of_predict(model, expected):
    table = expected.drop_columns(["prediction", "probabilities"]).replace_schema_metadata()
    for rows in (500, 77, 1):
        batches = batches_of(table.slice(0, 500 if rows > 1 else 20), rows)
        schema, found = scored(model, batches)
        assert [batch.num_rows for batch in found] == [batch.num_rows for batch in batches]
        assert schema.names == [*table.column_names, "prediction", "probabilities"]
        whole = pyarrow.Table.from_batches(found)
        assert whole.equals(expected.slice(0, whole.num_rows).replace_schema_metadata())


def test_a_batch_keeps_its_metadata(model):
    sink = pyarrow.BufferOutputStream()
    batch = pyarrow.record_batch({"id": [1], "text": ["good"]})
    with pyarrow.ipc.new_stream(sink, batch.schema) as writer:
        for part in ("a", "b"):
            writer.write_batch(batch, custom_metadata={"part": part})
    with Worker(model, keep_columns="id") as worker:
        out, err = worker.process.communicate(sink.getvalue().to_pybytes(), timeout=60)
    reader = pyarrow.ipc.open_stream(out)
    found = [reader.read_next_batch_with_custom_metadata().custom_metadata for _ in range(2)]
    assert [metadata[b"part"] for metadata in found] == [b"a", b"b"], err


def test_a_batch_is_answered_before_the_next_one_is_sent(model, expected):
    batches = batches_of(expected.select(["text"]).replace_schema_metadata(), 100)
    with Worker(model, output_columns="label_id") as worker:
        writer = pyarrow.ipc.new_stream(worker.process.stdin, batches[0].schema)
        worker.process.stdin.flush()
        reader = None
        for batch in batches:
            writer.write_batch(batch)
            worker.process.stdin.flush()
            reader = reader or pyarrow.ipc.open_stream(worker.process.stdout)
            answer = reader.read_next_batch()
            assert answer.column("text").equals(batch.column("text"))
        writer.close()
        worker.process.stdin.close()
        with pytest.raises(StopIteration):
            reader.read_next_batch()
        assert worker.process.wait(30) == 0


@pytest.mark.parametrize(
    "kind",
    [
        pyarrow.string(),
        pyarrow.large_string(),
        pyarrow.string_view(),
        pyarrow.dictionary(pyarrow.int32(), pyarrow.string()),
        pyarrow.dictionary(pyarrow.int32(), pyarrow.string_view()),
    ],
    ids=str,
)
def test_every_kind_of_string(model, expected, kind):
    texts = expected.column("text").combine_chunks()
    if pyarrow.types.is_dictionary(kind):
        encoded = texts.dictionary_encode()
        values = encoded.dictionary.cast(kind.value_type)
        texts = pyarrow.DictionaryArray.from_arrays(encoded.indices, values)
    else:
        texts = texts.cast(kind)
    batches = batches_of(pyarrow.table({"text": texts, "id": range(500)}), 200)
    schema, found = scored(model, batches)
    assert schema.field("text").type == kind
    whole = pyarrow.Table.from_batches(found)
    assert whole.column("text").to_pylist() == expected.column("text").to_pylist()
    assert whole.column("probabilities").equals(expected.column("probabilities"))


def test_dictionaries_may_change_between_batches(model, expected):
    texts = expected.column("text").to_pylist()
    batches = [
        pyarrow.record_batch({"text": pyarrow.array(texts[i : i + 100]).dictionary_encode()}) for i in (0, 100, 200)
    ]
    _, found = scored(model, batches)
    assert [batch.column("text").to_pylist() for batch in found] == [texts[i : i + 100] for i in (0, 100, 200)]
    assert found[2].column("prediction").to_pylist() == expected.column("prediction").to_pylist()[200:300]


def test_batches_without_rows_and_streams_without_batches(model):
    schema = pyarrow.schema([("text", pyarrow.string()), ("id", pyarrow.int64())])
    empty = pyarrow.record_batch([[], []], schema=schema)
    one = pyarrow.record_batch([["good"], [7]], schema=schema)
    found_schema, found = scored(model, [empty, one, empty])
    assert [batch.num_rows for batch in found] == [0, 1, 0]
    assert found_schema.field("probabilities").type == pyarrow.list_(pyarrow.float32())
    assert scored(model, [], schema) == (found_schema, [])


def test_columns_are_kept_and_added_as_asked(model, expected):
    batches = batches_of(expected.select(["text", "number"]).replace_schema_metadata(), 250)
    schema, found = scored(model, batches, keep_columns="number", output_columns=["score", "label_id"])
    assert schema.names == ["number", "score", "label_id"]
    assert found[1].column("number").to_pylist() == list(range(250, 500))


def test_pairs_and_other_column_names(model, tmp_path):
    rows = [{"a": row["text"], "b": other["text"]} for row, other in zip(reviews(50), reviews(50, seed=2), strict=True)]
    flags = {"text_column": "a", "text_pair_column": "b"}
    table = pyarrow.Table.from_pylist(rows)
    parquet.write_table(table, tmp_path / "in.parquet")
    strake(
        "predict",
        model_name_or_path=model,
        input=tmp_path / "in.parquet",
        output=tmp_path / "out.parquet",
        max_seq_length=32,
        **flags,
    )
    _, found = scored(model, batches_of(table, 50), **flags)
    assert (
        found[0]
        .column("probabilities")
        .equals(parquet.read_table(tmp_path / "out.parquet").column("probabilities").combine_chunks())
    )


def test_a_null_text_names_batch_and_row(model):
    batches = [pyarrow.record_batch({"text": ["a", "b"]}), pyarrow.record_batch({"text": ["c", "d", None]})]
    code, message = failed(model, stream_of(batches)[:-8])  # without the end of the stream: there could be more
    assert code == DATA
    assert "standard input, batch 1, row 2: column 'text' is null where text is expected" in message


@pytest.mark.parametrize(
    ("schema", "named"),
    [
        ({"txt": pyarrow.string()}, "there is no column 'text'; the columns are txt"),
        ({"text": pyarrow.int64()}, "column 'text' has the type int64"),
        ({"text": pyarrow.string(), "prediction": pyarrow.int64()}, "'prediction' that would be added already exists"),
    ],
)
def test_schemas_that_do_not_fit_are_refused_before_any_batch(model, schema, named):
    content = stream_of([], pyarrow.schema(schema.items()))[:-8]
    code, message = failed(model, content)
    assert code == DATA
    assert "standard input" in message and named in message


def test_the_first_schema_is_looked_at_before_the_model_is_loaded(model, tmp_path):
    folder = shutil.copytree(model, tmp_path / "model")
    (folder / "model.safetensors").unlink()
    schema = pyarrow.schema([("text", pyarrow.string()), ("score", pyarrow.int64())])
    for flags, named in (
        ({"output_columns": "score"}, "standard input: the column 'score' that would be added already exists"),
        ({"output_columns": "score", "keep_columns": "score"}, "or leave it out with --keep_columns, or name other"),
        ({"text_column": "review"}, "there is no column 'review'"),
        ({"keep_columns": "id"}, "there is no column 'id'"),
    ):
        code, message = failed(folder, stream_of([], schema)[:-8], **flags)
        assert code == DATA, message
        assert named in message


def test_what_is_no_stream_is_refused(model):
    batch = pyarrow.record_batch({"text": ["a", "b"]})
    cut = stream_of([batch])[:-60]
    for content in (b"text\nhello world\n" * 10, b"", cut):
        with Worker(model) as worker:
            _, err = worker.process.communicate(content, timeout=30)
            assert worker.process.returncode == DATA, err.decode()
            assert "standard input" in err.decode()


def test_files_instead_of_a_stream_are_told(model):
    table = pyarrow.table({"text": ["a", "b"]})
    for write, kind in ((feather.write_feather, "an Arrow file"), (parquet.write_table, "a Parquet file")):
        content = pyarrow.BufferOutputStream()
        write(table, content)
        code, message = failed(model, content.getvalue().to_pybytes())
        assert code == DATA
        assert "standard input" in message and "expected an Arrow IPC stream" in message and kind in message


def test_a_stream_without_its_end_and_what_comes_behind_it_are_refused(model):
    whole = stream_of([pyarrow.record_batch({"text": ["a", "b"]})])
    end = whole[-8:]
    for content, named in (
        (whole[:-8], "without its end marker"),
        (whole + whole, "bytes behind the end"),
        (whole + b"garbage", "bytes behind the end"),
    ):
        with Worker(model) as worker:
            out, err = worker.process.communicate(content, timeout=30)
        assert worker.process.returncode == DATA, err.decode()
        assert "standard input" in err.decode() and named in err.decode()
        assert not out.endswith(end)  # the output has no end either


def test_text_that_is_not_utf8_names_no_flag_that_is_not_there(model):
    values = pyarrow.array([b"good", b"caf\xe9"], pyarrow.binary()).view(pyarrow.string())
    code, message = failed(model, stream_of([pyarrow.record_batch({"text": values})])[:-8])
    assert code == DATA
    assert "batch 0, row 1, column 'text'" in message and "0xE9" in message and "--encoding" not in message


def test_a_driver_that_has_gone_is_an_error(model, expected):
    content = stream_of(batches_of(expected.select(["text"]).replace_schema_metadata(), 10))
    with Worker(model) as worker:
        worker.process.stdout.close()
        feeder = threading.Thread(target=feed, args=(worker.process.stdin, content))
        feeder.start()
        code, message = worker.end()
        feeder.join()
    assert code == FILE
    assert "Broken pipe" in message


def test_flags_of_files_are_unknown(model):
    for flag in ("--input", "--output"):
        done = subprocess.run(
            [*command("worker", model_name_or_path=model), flag, "x"], capture_output=True, check=False
        )
        assert done.returncode == USAGE
        assert f"unknown flag {flag}" in done.stderr.decode()


@pytest.mark.parametrize("stream", [0, 1])
def test_a_stream_that_is_closed(model, stream):
    line = command("worker", model_name_or_path=model, max_seq_length=32)
    pipes = {0: {"stdout": subprocess.PIPE}, 1: {"stdin": subprocess.DEVNULL}}[stream]
    done = subprocess.run(
        line, stderr=subprocess.PIPE, env=environment(), timeout=60, preexec_fn=lambda: os.close(stream), **pipes
    )
    assert done.returncode in (DATA, FILE), done.stderr
