"""Input files that different writers made: the output is as if all had the first file's schema."""

import bz2
import gzip

import pyarrow
import pyarrow.parquet as parquet
import pytest
from program import command, full_disk, predict, run, strake, summary
from refusals import DATA, FILE
from tiny_models import make_model, reviews, write_table

ROWS = reviews(40)
TEXTS, LABELS = [row["text"] for row in ROWS], [row["label"] for row in ROWS]
FIRST = pyarrow.table({"text": TEXTS, "n": list(range(40)), "label": LABELS, "tags": [["a", "b"], []] * 20})


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("inputs") / "model", head=True)


def cast(**types):
    fields = [pyarrow.field(field.name, types.get(field.name, field.type)) for field in FIRST.schema]
    return FIRST.cast(pyarrow.schema(fields))


def replaced(name, values):
    return FIRST.set_column(FIRST.column_names.index(name), name, values)


def required(*names):
    fields = [field.with_nullable(field.name not in names) for field in FIRST.schema]
    return pyarrow.table(FIRST.columns, schema=pyarrow.schema(fields))


def score(model, folder, tables, **flags):
    """The bytes of the output for these tables, each a file."""
    folder.mkdir()
    files = [folder / f"{name}.parquet" for name in "abc"[: len(tables)]]
    for file, table in zip(files, tables, strict=True):
        parquet.write_table(table, file)
    output = folder / "scored.parquet"
    strake("predict", model_name_or_path=model, input=files, output=output, max_seq_length=32, **flags)
    return output.read_bytes()


@pytest.mark.parametrize("kind", ["jsonl", "csv", "txt"])
@pytest.mark.parametrize(("ending", "library"), [(".gz", gzip), (".bz2", bz2)])
def test_compressed_text_is_read_like_text(model, tmp_path, kind, ending, library):
    """Also a part of nothing, as Spark writes it, and one that was made of two."""
    plain, packed = tmp_path / "plain", tmp_path / "packed"
    for place in (plain, packed):
        place.mkdir()
    for number in (1, 2):
        content = write_table(plain / f"part-{number}.{kind}", ROWS[number * 5 :]).read_bytes()
        half = content.index(b"\n") + 1
        halves = library.compress(content[:half]) + library.compress(content[half:])
        (packed / f"part-{number}.{kind}{ending}").write_bytes(halves)
    (packed / f"part-0.{kind}{ending}").write_bytes(library.compress(b""))
    scored = {}
    for place in (plain, packed):
        output = tmp_path / f"{place.name}.parquet"
        strake("predict", model_name_or_path=model, input=place, output=output, max_seq_length=32)
        scored[place] = output.read_bytes()
    assert scored[packed] == scored[plain]


def test_a_compressed_file_that_is_cut_off_is_refused(model, tmp_path):
    whole = write_table(tmp_path / "in.csv", ROWS * 500).read_bytes()
    cut = tmp_path / "cut.csv.gz"
    cut.write_bytes(gzip.compress(whole)[:-100])
    output = tmp_path / "scored.parquet"
    outcome = run(command("predict", model_name_or_path=model, input=cut, output=output, max_seq_length=32))
    assert outcome.code == DATA
    assert f"{cut}: " in outcome.err
    assert not output.exists()


def categories(name, index):
    """As pandas writes a categorical column, whose indices are as wide as the number of categories asks for."""
    return replaced(
        name, FIRST[name].combine_chunks().dictionary_encode().cast(pyarrow.dictionary(index, FIRST[name].type))
    )


NO_NUMBERS = pyarrow.array([None] * 40, pyarrow.int64())
VARIANTS = {
    "order": ([FIRST, FIRST.select(["tags", "label", "n", "text"])], [FIRST, FIRST]),
    "other indices": ([categories("text", pyarrow.int8()), categories("text", pyarrow.int16())], [FIRST, FIRST]),
    "dictionary": ([categories("n", pyarrow.int8()), FIRST], [FIRST, FIRST]),
    "large strings": ([FIRST, cast(text=pyarrow.large_string())], [FIRST, FIRST]),
    "string views": ([FIRST, cast(label=pyarrow.string_view(), text=pyarrow.string_view())], [FIRST, FIRST]),
    "lists": ([FIRST, cast(tags=pyarrow.large_list(pyarrow.large_string()))], [FIRST, FIRST]),
    "strings after large ones": ([cast(text=pyarrow.large_string()), FIRST], [cast(text=pyarrow.large_string())] * 2),
    "required later": ([FIRST, required("text", "n")], [FIRST, FIRST]),
    "required first": ([required("text", "n"), FIRST], [FIRST, FIRST]),
    "required everywhere": ([required("n"), required("n", "text")], [required("n")] * 2),
    "nulls later": ([FIRST, replaced("n", pyarrow.nulls(40))], [FIRST, replaced("n", NO_NUMBERS)]),
    "nulls first": ([replaced("n", pyarrow.nulls(40)), FIRST], [replaced("n", NO_NUMBERS), FIRST]),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_output_is_that_of_files_of_one_schema(model, tmp_path, variant):
    mixed, alike = VARIANTS[variant]
    assert score(model, tmp_path / "mixed", mixed) == score(model, tmp_path / "alike", alike)


def extensions():
    """UUIDs, also in lists, and JSON, of which the text column is one."""
    uuids = pyarrow.ExtensionArray.from_storage(
        pyarrow.uuid(), pyarrow.array([bytes(range(16))] * 40, pyarrow.binary(16))
    )
    lists = pyarrow.ListArray.from_arrays(range(41), uuids)
    texts = pyarrow.ExtensionArray.from_storage(pyarrow.json_(), pyarrow.array(TEXTS))
    return pyarrow.table({"text": texts, "uuid": uuids, "lists": lists, "json": texts})


def plain(table):
    """As programs write it that do not know these types."""
    types = {"uuid": pyarrow.binary(16), "lists": pyarrow.list_(pyarrow.binary(16)), "json": pyarrow.string()}
    fields = [pyarrow.field(name, types.get(name, pyarrow.string())) for name in table.column_names]
    return table.cast(pyarrow.schema(fields))


@pytest.mark.parametrize("store_schema", [True, False])
def test_uuids_and_json_remain_what_they_are(model, tmp_path, store_schema):
    """Also where only the Parquet types tell, as of files that Arrow has not written."""
    parquet.write_table(extensions(), tmp_path / "in.parquet", store_schema=store_schema)
    found = predict(model, tmp_path / "in.parquet", tmp_path / "out.parquet", 32)
    scored = parquet.read_table(tmp_path / "out.parquet")
    assert scored.select(["text", "uuid", "lists", "json"]).equals(extensions())
    parquet.write_table(FIRST.select(["text"]), tmp_path / "texts.parquet")
    assert (
        found["probabilities"]
        == predict(model, tmp_path / "texts.parquet", tmp_path / "out2.parquet", 32)["probabilities"]
    )


def test_uuids_and_json_of_some_files_become_what_the_others_hold(model, tmp_path):
    typed = extensions()
    expected = score(model, tmp_path / "alike", [plain(typed)] * 2)
    assert score(model, tmp_path / "typed first", [typed, plain(typed)]) == expected
    assert score(model, tmp_path / "plain first", [plain(typed), typed]) == expected


def test_the_type_may_come_with_the_last_file(model, tmp_path):
    nulls = replaced("n", pyarrow.nulls(40))
    typed = replaced("n", NO_NUMBERS)
    for name, flags in {"whole": {}, "kept": {"keep_columns": "n"}}.items():
        mixed = score(model, tmp_path / name, [nulls, nulls, FIRST], **flags)
        assert mixed == score(model, tmp_path / f"{name} alike", [typed, typed, FIRST], **flags)


def test_shards_have_the_schema_of_the_whole(model, tmp_path):
    files = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    parquet.write_table(required("n"), files[0])
    parquet.write_table(replaced("n", pyarrow.nulls(40)).select(["n", "tags", "text", "label"]), files[1])
    flags = {"model_name_or_path": model, "input": files, "max_seq_length": 32}
    strake("predict", output=tmp_path / "scored.parquet", **flags)
    for i in range(2):
        strake("predict", output=tmp_path / "part.parquet", shard=f"{i}/2", **flags)
    parts = [parquet.ParquetFile(tmp_path / f"part-0000{i}-of-00002.parquet").read() for i in range(2)]
    assert parts[0].schema == parts[1].schema
    assert pyarrow.concat_tables(parts) == parquet.ParquetFile(tmp_path / "scored.parquet").read()


def test_an_interrupted_job_goes_on(model, tmp_path):
    tables = [
        FIRST,
        cast(text=pyarrow.large_string()),
        replaced("n", pyarrow.nulls(40)).select(["label", "tags", "n", "text"]),
    ]
    files = [tmp_path / f"{i}.parquet" for i in range(3)]
    for file, table in zip(files, tables, strict=True):
        parquet.write_table(pyarrow.concat_tables([table] * 50), file)
    flags = {"model_name_or_path": model, "input": files, "max_seq_length": 32, "max_tokens_per_batch": 16}
    strake("predict", output=tmp_path / "whole.parquet", **flags)
    output = tmp_path / "scored.parquet"
    assert run(command("predict", output=output, **flags), **full_disk(3000 * 3 * 4)).code == FILE
    outcome = strake("predict", output=output, **flags)
    assert "going on after" in outcome.err
    assert output.read_bytes() == (tmp_path / "whole.parquet").read_bytes()


def test_other_types_and_columns_are_refused(model, tmp_path):
    parquet.write_table(FIRST, tmp_path / "a.parquet")
    files = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    line = command("predict", model_name_or_path=model, input=files, output=tmp_path / "o.parquet", max_seq_length=32)
    for table, words in [
        (cast(n=pyarrow.int32()), "column 'n' has the type int32, not int64"),
        (FIRST.drop_columns("n"), f"column 'n' is not in {files[1]}"),
        (FIRST.append_column("more", pyarrow.nulls(40)), f"column 'more' is not in {files[0]}"),
    ]:
        parquet.write_table(table, files[1])
        outcome = run(line)
        assert outcome.code == DATA
        assert f"{files[1]}: its columns differ from those of {files[0]}: {words}" in outcome.err


def test_training_and_evaluation_take_them_too(model, tmp_path):
    files = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    parquet.write_table(cast(label=pyarrow.large_string()).drop_columns(["n", "tags"]), files[0])
    parquet.write_table(FIRST, files[1])
    base = make_model(tmp_path / "base")
    flags = {"max_seq_length": 32, "model_name_or_path": base}
    strake("train", train_file=files, output_dir=tmp_path / "out", max_steps=2, save_strategy="no", **flags)
    flags["model_name_or_path"] = tmp_path / "out"
    one_file = tmp_path / "one.parquet"
    parquet.write_table(pyarrow.concat_tables([FIRST, FIRST]), one_file)
    found = summary("evaluate", input=files, **flags)
    expected = summary("evaluate", input=one_file, **flags)
    assert found["rows"] == expected["rows"] == 2 * FIRST.num_rows
    assert {name: found[name] for name in ("accuracy", "f1")} == {name: expected[name] for name in ("accuracy", "f1")}


def test_columns_of_csv_files_may_have_another_order(model, tmp_path):
    files = [write_table(tmp_path / "a.csv", ROWS), tmp_path / "b.csv"]
    files[1].write_text("number,score,label,text\n1,0.5,positive,good\n")
    output = tmp_path / "scored.parquet"
    strake("predict", model_name_or_path=model, input=files, output=output, max_seq_length=32)
    last = parquet.read_table(output).select(["text", "label", "number", "score"]).to_pylist()[-1]
    assert last == {"text": "good", "label": "positive", "number": "1", "score": "0.5"}
