"""Text that is not what it should be or only looks so, tokens of something else, and outputs that do not fit."""

import os
import pathlib
import random
import resource
import signal
import subprocess

import pyarrow
import pyarrow.parquet as parquet
import pytest
from program import BINARY, environment, files_in, predict, run, strake, summary
from refusals import DATA, FILE, USAGE
from tiny_models import reviews

KINDS = ["parquet", "csv", "tsv", "jsonl"]
ROWS = reviews(40)


# Text


@pytest.mark.parametrize("kind", ["csv", "jsonl", "txt"])
def test_bytes_that_are_not_utf8(place, kind):
    texts = {
        "csv": b"text,label\ngood,positive\ncaf\xe9,negative\n",
        "jsonl": b'{"text": "good", "label": "positive"}\n\n{"text": "caf\xe9", "label": "negative"}\n',
        "txt": b"good\nfine\ncaf\xe9\n",
    }
    table = place.file(f"latin.{kind}", texts[kind])
    offset = texts[kind].index(b"\xe9")
    named = [f"{table}, line 3, byte offset {offset}", "0xE9", "--encoding cp1252"]
    place.refuses(DATA, place.predict(input=table), *named)
    place.refuses(DATA, place.prepare(input=table), *named)
    rows = predict(place.shared / "classifier", table, place.output, encoding="cp1252")
    assert rows["text"][-1] == "caf\u00e9"


def test_parquet_strings_that_are_not_utf8(place):
    values = pyarrow.array([b"good", b"caf\xe9"], pyarrow.binary()).view(pyarrow.string())
    table = place.path / "latin.parquet"
    parquet.write_table(pyarrow.table({"text": values}), table)
    place.refuses(DATA, place.predict(input=table), f"{table}, row 1, column 'text'", "0xE9", "--encoding cp1252")
    rows = predict(place.shared / "classifier", table, place.output, encoding="cp1252")
    assert rows["text"] == ["good", "caf\u00e9"]


LATIN = pyarrow.array([b"good", b"caf\xe9"], pyarrow.binary())


@pytest.mark.parametrize("kind", ["string_view", "list"])
def test_parquet_strings_of_other_kinds_that_are_not_utf8(place, kind):
    if kind == "string_view":
        column = LATIN.cast(pyarrow.binary_view()).view(pyarrow.string_view())
    else:
        column = pyarrow.ListArray.from_arrays([0, 1, 2], LATIN.view(pyarrow.string()))
    table = place.path / "latin.parquet"
    parquet.write_table(pyarrow.table({"text": ["fine"] * 2, "extra": column}), table)
    place.refuses(DATA, place.predict(input=table), f"{table}, row", "column 'extra'", "0xE9", "--encoding cp1252")
    rows = predict(place.shared / "classifier", table, place.output, encoding="cp1252")
    assert rows["extra"] == (["good", "caf\u00e9"] if kind == "string_view" else [["good"], ["caf\u00e9"]])


def test_parquet_dictionary_that_is_not_utf8(place):
    column = pyarrow.DictionaryArray.from_arrays([1, 0, 1], LATIN.view(pyarrow.string()))
    table = place.path / "latin.parquet"
    good = pyarrow.array(["good", "bad", "fine"])
    columns = {"text": good, "kind": good.dictionary_encode(), "extra": column, "late": good.dictionary_encode()}
    parquet.write_table(pyarrow.table(columns), table)
    for encoding in ("utf-8", "cp1252"):
        line = place.predict(input=table, encoding=encoding)
        place.refuses(DATA, line, f"{table}, rows from 0 on, column 'extra': dictionary-encoded strings", "as such")


def test_utf16_file(place):
    table = place.file("wide.csv", "text\ngood\n".encode("utf-16"))
    place.refuses(DATA, place.predict(input=table), f"{table} is UTF-16 text", "convert it to UTF-8")


def test_unknown_encoding(place):
    place.refuses(USAGE, place.predict(encoding="ebcdic"), "'ebcdic'", "utf-8, cp1252 and latin-1")


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_missing_text(place, kind):
    table = place.table(f"gap.{kind}", [*ROWS[:3], ROWS[3] | {"text": None}])
    place.refuses(DATA, place.predict(input=table), f"{table}, row 3", "column 'text' is null")


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_text_without_characters_is_text(place, kind):
    rows = [*ROWS[:3], ROWS[3] | {"text": ""}]
    table = place.table(f"short.{kind}", rows)
    scored = predict(place.shared / "classifier", table, place.output)
    assert len(scored["prediction"]) == 4
    assert (
        summary("evaluate", model_name_or_path=place.shared / "classifier", input=table, max_seq_length=32)["rows"] == 4
    )
    assert run(place.train(train_file=table)).code == 0


def test_text_of_ten_megabytes_is_truncated(place):
    rows = [ROWS[0], {"text": "good film " * 1_000_000, "label": "positive"}, ROWS[1]]
    rows = [{"text": row["text"], "label": row["label"]} for row in rows]
    for kind in KINDS:
        table = place.table(f"long.{kind}", rows)
        scored = predict(place.shared / "classifier", table, place.output, max_seq_length=32)
        assert [len(text) for text in scored["text"]] == [len(row["text"]) for row in rows]
    result = summary("prepare", tokenizer=place.shared / "base", input=table, output=place.output, max_seq_length=32)
    assert result["rows"] == 3
    assert len(parquet.read_table(place.output)["input_ids"][1]) == 32


def test_control_characters_do_not_reach_the_terminal(place):
    table = place.table("evil.parquet", [{"text": "a", "label": "\x1b[2J" + "x" * 500}, {"text": "b", "label": "y"}])
    place.refuses(DATA, place.evaluate(input=table), "\\x1b[2J", "...")


# Token files


def test_tokens_of_another_tokenizer(place):
    other = place.model()
    vocabulary = (other / "vocab.txt").read_text().replace("film", "flim")
    (other / "vocab.txt").write_text(vocabulary)
    tokens = place.shared / "tokens.parquet"
    place.refuses(DATA, place.train(train_file=tokens, model_name_or_path=other), tokens, "another tokenizer")


def test_tokens_without_labels(place):
    tokens = place.shared / "unlabelled_tokens.parquet"
    place.refuses(DATA, place.train(train_file=tokens), f"{tokens} has no labels", "--label_column")


def test_tokens_with_other_labels_than_the_training_data(place):
    table = place.table("stars.parquet", [{"text": "good", "label": i} for i in range(3)])
    stars = place.path / "stars_tokens.parquet"
    flags = {"label_column": "label", "max_seq_length": 32}
    strake("prepare", tokenizer=place.shared / "base", input=table, output=stars, **flags)
    line = place.train(validation_file=stars, eval_strategy="epoch")
    place.refuses(DATA, line, stars, "0, 1, 2", "negative, positive")


@pytest.mark.parametrize(
    ("flag", "value"),
    [("text_column", "text"), ("text_pair_column", "second"), ("label_column", "label"), ("encoding", "utf-8")],
)
def test_flags_about_text_that_was_prepared_already(place, flag, value):
    tokens = place.shared / "tokens.parquet"
    named = [f"--{flag} cannot apply to {tokens}", "prepared already"]
    place.refuses(USAGE, place.train(train_file=tokens, **{flag: value}), *named)
    config = place.file("run.toml", f"{flag} = '{value}'\n")
    place.refuses(USAGE, place.train(train_file=tokens, config=config), *named)


@pytest.mark.parametrize("length", [16, 128])
def test_another_length_than_that_of_the_tokens(place, length):
    tokens = place.shared / "tokens.parquet"
    named = [f"--max_seq_length {length} contradicts {tokens}", "prepared already, with 32"]
    place.refuses(USAGE, place.train(train_file=tokens, max_seq_length=length), *named)
    line = place.train(validation_file=tokens, eval_strategy="epoch", max_seq_length=length)
    place.refuses(USAGE, line, *named)


def test_tokens_where_text_is_expected(place):
    place.refuses(DATA, place.predict(input=place.shared / "tokens.parquet"), "tokens.parquet", "no column 'text'")


def test_tokens_beyond_the_vocabulary(place):
    small = place.model()
    (small / "vocab.txt").write_text(
        (small / "vocab.txt").read_text() + "\n".join(f"word{i}" for i in range(60)) + "\nanother\n"
    )
    table = place.table("big.parquet", [{"text": "another", "label": "a"}, {"text": "b", "label": "b"}])
    line = place.train(train_file=table, model_name_or_path=small)
    place.refuses(
        USAGE, line, table, "is not in the model's vocabulary of 120", "tokenizer does not belong to the model"
    )


# Output


def test_output_folder_that_does_not_exist(place):
    output = place.path / "nowhere" / "scored.parquet"
    place.refuses(FILE, place.predict(output=output), f"cannot write {output}", "No such file or directory")
    place.refuses(FILE, place.prepare(output=output), f"cannot write {output}")


def test_output_folder_that_is_a_file(place):
    taken = place.file("taken", "x")
    place.refuses(FILE, place.train(output_dir=taken), taken)
    assert taken.read_text() == "x"


def limit_file_size(bytes_allowed):
    """Stands for a full disk: writing beyond the limit fails with an error instead of a signal."""

    def apply():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_allowed, bytes_allowed))

    return {"preexec_fn": apply}


def test_full_disk_while_predicting(place):
    table = place.table("large.parquet", reviews(3000))
    line = place.predict(input=table)
    journal = place.output.parent / f".{place.output.name}.job" / "logits.journal"
    place.refuses(FILE, line, f"cannot write {journal}: File too large", **limit_file_size(5000))
    small = place.table("small.parquet", [row | {"more": random.randbytes(500).hex()} for row in reviews(40)])
    line = place.predict(input=small, overwrite_output=True)
    outcome = run(line, **limit_file_size(5000))
    assert outcome.code == FILE
    assert f"cannot write {place.output}" in outcome.err and "previous file is unchanged" in outcome.err
    assert "40 rows are scored and kept in" in outcome.err
    assert place.output.read_bytes() == b"of an earlier run"
    line = place.prepare(input=table)
    place.refuses(FILE, line, f"cannot write {place.output}", "previous file is unchanged", **limit_file_size(5000))


def test_full_disk_while_saving(place):
    flags = {"output_dir": place.path / "run", "save_steps": 2, "logging_steps": 1}
    outcome = run(place.train(**flags))
    assert outcome.code == 0, outcome.err
    before = files_in(place.path / "run")
    outcome = run(place.train(**flags, max_steps=4, resume_from_checkpoint="true"), **limit_file_size(90_000))
    assert outcome.code == FILE
    assert "model.safetensors" in outcome.err and "File too large" in outcome.err
    after = files_in(place.path / "run")
    del before["metrics.jsonl"], after["metrics.jsonl"]
    assert after == before
    outcome = run(place.train(**flags, max_steps=4, resume_from_checkpoint="true"))
    assert outcome.code == 0, outcome.err


@pytest.mark.parametrize("shown", ["results", "--help", "--version"])
def test_full_disk_behind_standard_output(place, shown):
    texts = place.file("texts.jsonl", '"good film"\n')
    line = place.tokenize(input=texts) if shown == "results" else [BINARY, shown]
    with pathlib.Path("/dev/full").open("w") as full:
        done = subprocess.run(line, stdout=full, stderr=subprocess.PIPE, env=environment())
    assert done.returncode == FILE
    assert b"standard output" in done.stderr


@pytest.mark.parametrize("closed", ["full", "pipe"])
def test_a_run_outlives_those_who_read_what_it_prints(place, closed):
    """The model is what it is for; a log or a table that cannot be written is only told, where that is possible."""
    reader, writer = os.pipe()
    os.close(reader)
    with pathlib.Path("/dev/full").open("w") as full:
        unread = full if closed == "full" else writer
        for streams in ({"stdout": unread, "stderr": subprocess.PIPE}, {"stdout": unread, "stderr": unread}):
            line = place.train(max_steps=4, logging_steps=1, disable_tqdm="true", overwrite_output_dir="true")
            done = subprocess.run(line, env=environment(), **streams)
            assert done.returncode == 0, done.stderr
            assert (place.output_dir / "model.safetensors").exists()
            if done.stderr is not None:
                assert b"cannot write to standard output; the files are complete" in done.stderr
    os.close(writer)


# Lines for strake tokenize


def test_lines_that_are_not_texts(place):
    texts = place.file("texts.jsonl", '"good"\n{"txt": "bad"}\n')
    place.refuses(DATA, place.tokenize(input=texts, output=place.output), f"{texts}:2", "'text' is missing")
    ids = place.file("ids.jsonl", "[1, 2]\n[3, -4]\n")
    place.refuses(DATA, place.tokenize(input=ids, output=place.output, decode=True), f"{ids}:2", "-4 is not a token id")
    torn = place.file("torn.jsonl", '"good"\n"bad\n')
    place.refuses(DATA, place.tokenize(input=torn, output=place.output), f"{torn}:2", "not valid JSON")
