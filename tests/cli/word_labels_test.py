"""`strake predict` and `strake worker` on lists of words: a label for each word, as Transformers' run_ner.py has it."""

import json
import os
import shutil

import pyarrow
import pyarrow.parquet as parquet
import pytest
import torch
import transformers
from program import command, full_disk, run, scored_by_worker, strake, summary
from refusals import DATA, FILE, USAGE
from tiny_models import make_model, make_tagger, read_config, tagged_reviews, write_table

ROWS = 300
LENGTH = 16  # some rows are cut
TOLERANCE = 1e-5  # two layers in fp32, whose sums two programs take in different orders
# Words of several tokens, of an unknown one, and without any.
STRANGE = [["goods", "films", "hating"], ["", "unhappy", " "], [], ["a-b", "\u200b", "the", "the film"], [""] * 3]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    for family in ("bert", "roberta", "distilbert"):
        make_tagger(folder / family, family)
    make_model(folder / "classifier", head=True)
    rows = [{"number": i} | row for i, row in enumerate(tagged_reviews(ROWS))]
    write_table(folder / "words.parquet", rows)
    write_table(folder / "words.jsonl", rows)
    write_table(folder / "strange.parquet", [{"words": words} for words in STRANGE])
    return folder


def flags_of(folder, **changes):
    flags = {"model_name_or_path": folder / "bert", "input": folder / "words.parquet", "text_column": "words"}
    return {**flags, "max_seq_length": LENGTH, **changes}


def scored(folder, output, **changes):
    strake("predict", output=output, **flags_of(folder, **changes))
    return parquet.read_table(output).replace_schema_metadata()


def refused(folder, output, code, **changes):
    outcome = run(command("predict", output=output, **flags_of(folder, **changes)))
    assert outcome.code == code, outcome.err
    assert not output.exists()
    return outcome.err


def by_transformers(folder, family, rows, strategy, length=LENGTH):
    """Label and score of each word; None where it has no token among those that are kept."""
    more = {"add_prefix_space": True} if family == "roberta" else {}
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / family, **more)
    model = transformers.AutoModelForTokenClassification.from_pretrained(folder / family).eval()
    for words in rows:
        inputs = tokenizer(words, is_split_into_words=True, truncation=True, max_length=length)
        with torch.no_grad():
            logits = model(torch.tensor([inputs["input_ids"]])).logits[0]
        found = [None] * len(words)
        for word in {word for word in inputs.word_ids() if word is not None}:
            tokens = logits[[i for i, of in enumerate(inputs.word_ids()) if of == word]].softmax(1)
            chosen = {"first": tokens[0], "average": tokens.mean(0), "max": tokens[tokens.max(1).values.argmax()]}
            score, label = chosen[strategy].max(0)
            found[word] = (model.config.id2label[label.item()], score.item())
        yield found


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert"])
@pytest.mark.parametrize("strategy", ["first", "average", "max"])
def test_transformers_gives_the_same_labels(folder, tmp_path, family, strategy):
    flags = {"model_name_or_path": folder / family, "output_columns": ["prediction", "score"]}
    flags |= {} if strategy == "first" else {"aggregation_strategy": strategy}
    for name in ("words", "strange"):
        table = scored(folder, tmp_path / f"{name}.parquet", input=folder / f"{name}.parquet", **flags)
        rows = table["words"].to_pylist()[:60]
        expected = list(by_transformers(folder, family, rows, strategy))
        assert any(None in row for row in expected)
        columns = [table[name].to_pylist()[: len(expected)] for name in flags["output_columns"]]
        for found, scores, row in zip(*columns, expected, strict=True):
            assert found == [word and word[0] for word in row]
            for score, word in zip(scores, row, strict=True):
                assert score == pytest.approx(word and word[1], abs=TOLERANCE) if word else score is None


# A special token is found within a word, and of the parts beside it each is a word's beginning.
MARKED = ["<unk>", "<s>love", "film<mask>", "good</s>bad", "[MASK]", "x[SEP]y", " <unk>", "<mask>"]


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_special_tokens_within_words_are_those_of_transformers(folder, tmp_path, family):
    rows = [[*row["words"][:3], MARKED[i % len(MARKED)], "film"] for i, row in enumerate(tagged_reviews(24))]
    table = write_table(tmp_path / "in.parquet", [{"words": words} for words in rows])
    flags = {"model_name_or_path": folder / family, "max_seq_length": 32, "output_columns": ["prediction", "score"]}
    found = scored(folder, tmp_path / "out.parquet", input=table, **flags).to_pydict()
    for names, scores, row in zip(
        found["prediction"], found["score"], by_transformers(folder, family, rows, "first", 32), strict=True
    ):
        assert names == [word[0] for word in row]
        assert scores == pytest.approx([word[1] for word in row], abs=TOLERANCE)


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_words_are_cut_at_the_side_that_the_tokenizer_names(folder, tmp_path, family):
    shutil.copytree(folder / family, tmp_path / family)
    file = tmp_path / family / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"truncation_side": "left"}))
    rows = [row["words"] for row in tagged_reviews(40)]
    table = scored(folder, tmp_path / "out.parquet", model_name_or_path=tmp_path / family)
    expected = list(by_transformers(tmp_path, family, rows, "first"))
    assert any(row[0] is None for row in expected)
    assert table["prediction"].to_pylist()[:40] == [[word and word[0] for word in row] for row in expected]


def test_the_output_has_the_words_and_a_list_beside_them(folder, tmp_path):
    table = scored(folder, tmp_path / "out.parquet")
    assert table.column_names == ["number", "words", "tags", "prediction"]
    assert table["words"].to_pylist() == parquet.read_table(folder / "words.parquet")["words"].to_pylist()
    assert table.schema.field("prediction").type == pyarrow.list_(pyarrow.field("element", pyarrow.string()))
    names = {label for row in table["prediction"].to_pylist() for label in row}
    assert names == {*read_config(folder / "bert")["id2label"].values(), None}
    only = scored(folder, tmp_path / "only.parquet", keep_columns="number", output_columns="score")
    assert only.column_names == ["number", "score"]


def test_json_lines_and_long_lists_give_the_same(folder, tmp_path):
    expected = scored(folder, tmp_path / "out.parquet")["prediction"]
    assert scored(folder, tmp_path / "json.parquet", input=folder / "words.jsonl")["prediction"].equals(expected)
    table = parquet.read_table(folder / "words.parquet")
    kinds = [pyarrow.large_list(pyarrow.string()), pyarrow.list_(pyarrow.dictionary(pyarrow.int32(), pyarrow.string()))]
    for kind in kinds:  # of categories in several row groups, too
        other = table.set_column(1, "words", cast_lists(table["words"], kind))
        parquet.write_table(other, tmp_path / "other.parquet", row_group_size=70)
        flags = {"input": tmp_path / "other.parquet", "overwrite_output": True}
        assert scored(folder, tmp_path / "o.parquet", **flags)["prediction"].equals(expected), kind


def cast_lists(column, kind):
    lists = column.combine_chunks()
    values = lists.values.dictionary_encode() if pyarrow.types.is_dictionary(kind.value_type) else lists.values
    if pyarrow.types.is_large_list(kind):
        return pyarrow.LargeListArray.from_arrays(lists.offsets.cast(pyarrow.int64()), values)
    return pyarrow.ListArray.from_arrays(lists.offsets, values)


def test_lists_of_one_length_and_numbers_are_words_too(folder, tmp_path):
    rows = [[1, 2, 30], [4, 5, 6]]
    outputs = []
    for i, kind in enumerate([pyarrow.list_(pyarrow.int64()), pyarrow.list_(pyarrow.int64(), 3)]):
        parquet.write_table(pyarrow.table({"words": pyarrow.array(rows, kind)}), tmp_path / "in.parquet")
        outputs.append(scored(folder, tmp_path / f"{i}.parquet", input=tmp_path / "in.parquet")["prediction"])
    assert outputs[0].equals(outputs[1])
    texts = write_table(tmp_path / "texts.parquet", [{"words": [str(word) for word in row]} for row in rows])
    assert scored(folder, tmp_path / "texts_out.parquet", input=texts)["prediction"].equals(outputs[0])


@pytest.mark.parametrize(
    ("kind", "rows"),
    [
        (pyarrow.list_(pyarrow.list_(pyarrow.string())), [[["a"]]]),
        (pyarrow.list_(pyarrow.binary()), [[b"a"]]),
        (pyarrow.list_(pyarrow.uint64()), [[2**64 - 1]]),
        (pyarrow.list_(pyarrow.float32()), [[0.5]]),
    ],
)
def test_lists_of_other_things_are_named(folder, tmp_path, kind, rows):
    parquet.write_table(pyarrow.table({"words": pyarrow.array(rows, kind)}), tmp_path / "in.parquet")
    message = refused(folder, tmp_path / "out.parquet", DATA, input=tmp_path / "in.parquet")
    assert "column 'words'" in message
    assert "strings, booleans or integers" in message or "not in range" in message


@pytest.mark.parametrize("kind", ["dictionary", "list", "int64", "string", "large_string"])
def test_a_columns_metadata_is_not_trusted(folder, tmp_path, kind):
    """That of JSON lines is kept in outputs, so that they can be read again; others may write it, too."""
    column = {
        "dictionary": pyarrow.array(["a", "b"]).dictionary_encode(),
        "list": pyarrow.array([["a"], ["b"]]),
        "int64": pyarrow.array([1, 2]),
        "string": pyarrow.array(["a", "b"]),
        "large_string": pyarrow.array(["a", "b"], pyarrow.large_string()),
    }[kind]
    field = pyarrow.field("words", column.type, metadata={"strake.json": "1"})
    parquet.write_table(pyarrow.Table.from_arrays([column], schema=pyarrow.schema([field])), tmp_path / "in.parquet")
    outcome = run(command("predict", output=tmp_path / "o.parquet", **flags_of(folder, input=tmp_path / "in.parquet")))
    assert outcome.code == (0 if kind in ("dictionary", "list", "large_string") else DATA), outcome.err


def test_an_output_of_json_lines_is_an_input(folder, tmp_path):
    flags = {"keep_columns": ["words"], "output_columns": "score"}
    first = scored(folder, tmp_path / "first.parquet", input=folder / "words.jsonl", **flags)
    again = scored(folder, tmp_path / "again.parquet", input=tmp_path / "first.parquet", keep_columns="words")
    assert again["words"].equals(first["words"])
    assert again["prediction"].equals(scored(folder, tmp_path / "out.parquet")["prediction"])


def test_evaluate_compares_these_labels(folder, tmp_path):
    """Of words that are cut off there is none to compare."""
    rows = [{"words": row["words"], "tags": ["O" for _ in row["tags"]]} for row in tagged_reviews(ROWS)]
    flags = flags_of(folder, input=write_table(tmp_path / "none.parquet", rows), label_column="tags")
    found = summary("evaluate", **flags)
    labels = [
        label for row in scored(folder, tmp_path / "out.parquet")["prediction"].to_pylist() for label in row if label
    ]
    assert found["accuracy"] == labels.count("O") / len(labels)
    outcome = run(command("predict", output=tmp_path / "o.parquet", **flags_of(folder)))
    assert f"{found['rows_cut']} rows had more than --max_seq_length {LENGTH} tokens" in outcome.err


def test_a_row_has_the_same_bits_in_any_company(folder, tmp_path):
    flags = {"output_columns": ["prediction", "score"]}
    whole = scored(folder, tmp_path / "whole.parquet", **flags)
    parquet.write_table(parquet.read_table(folder / "words.parquet").slice(100, 20), tmp_path / "part.parquet")
    part = scored(folder, tmp_path / "out.parquet", input=tmp_path / "part.parquet", max_tokens_per_batch=16, **flags)
    assert part.equals(whole.slice(100, 20))
    shards = [scored_shard(folder, tmp_path, i, **flags) for i in range(3)]
    assert pyarrow.concat_tables(shards).equals(whole)
    assert scored_by_worker(flags_of(folder), text_column="words", **flags).equals(whole)


def scored_shard(folder, tmp_path, index, **flags):
    strake("predict", output=tmp_path / "shard.parquet", shard=f"{index}/3", **flags_of(folder, **flags))
    return parquet.read_table(tmp_path / f"shard-{index:05}-of-00003.parquet").replace_schema_metadata()


def interrupted(folder, output, **changes):
    """A run that ends on a full disk with about half of the words scored."""
    flags = {"max_tokens_per_batch": 16, "output_columns": ["prediction", "score"], "keep_columns": "number", **changes}
    flags = flags_of(folder, **flags)
    words = sum(min(len(row["words"]), LENGTH) for row in tagged_reviews(ROWS))
    outcome = run(command("predict", output=output, **flags), **full_disk((ROWS * 4 + words * 16) // 2))
    assert outcome.code == FILE, outcome.err
    return flags


def test_an_interrupted_run_goes_on_with_the_same_bytes(folder, tmp_path):
    flags = interrupted(folder, tmp_path / "out.parquet")
    strake("predict", output=tmp_path / "whole.parquet", **flags)
    other = run(command("predict", output=tmp_path / "out.parquet", aggregation_strategy="max", **flags))
    assert other.code == USAGE
    assert "task = " in other.err
    result = summary("predict", output=tmp_path / "out.parquet", **flags)
    assert 0 < result["rows_scored"] < ROWS
    assert (tmp_path / "out.parquet").read_bytes() == (tmp_path / "whole.parquet").read_bytes()


def test_words_that_changed_are_not_given_old_labels(folder, tmp_path):
    table = tmp_path / "in.jsonl"
    rows = [
        {"number": i, "words": [f"w{i:04}", *row["words"]], "x": "x" * 900}
        for i, row in enumerate(tagged_reviews(ROWS))
    ]
    write_table(table, rows)
    times, before = table.stat(), table.read_bytes()
    flags = interrupted(folder, tmp_path / "out.parquet", input=table)
    table.write_bytes(before.replace(b'"w0090"', b'"w9999"'))
    os.utime(table, ns=(times.st_atime_ns, times.st_mtime_ns))
    outcome = run(command("predict", output=tmp_path / "out.parquet", **flags))
    assert outcome.code == DATA
    assert "are not those that the interrupted run scored" in outcome.err


@pytest.mark.parametrize(
    ("changes", "code", "named"),
    [
        ({"aggregation_strategy": "simple"}, USAGE, "--aggregation_strategy simple is of texts"),
        ({"aggregation_strategy": "none"}, USAGE, "--aggregation_strategy none is of texts"),
        ({"output_columns": "entities"}, USAGE, "token-classification of lists of words, which has prediction, score"),
        ({"label_column": "tags"}, USAGE, "--label_column tags: predict needs no labels"),
        ({"max_seq_length": 2}, USAGE, "--max_seq_length 2: of words it is at least 3"),
        ({"text_column": "number"}, DATA, "column 'number'"),
        ({"text_column": "word"}, DATA, "'word'"),
    ],
)
def test_flags_and_columns_that_do_not_fit_are_refused(folder, tmp_path, changes, code, named):
    assert named in refused(folder, tmp_path / "out.parquet", code, **changes)


def test_columns_of_words_are_not_those_of_texts(folder, tmp_path):
    rows = write_table(tmp_path / "texts.parquet", [{"words": "the film"}])
    message = refused(folder, tmp_path / "out.parquet", USAGE, input=rows, output_columns="prediction")
    assert "the task is token-classification, which has entities" in message
    assert (
        scored(folder, tmp_path / "out.parquet", input=rows, aggregation_strategy="none").column_names[-1] == "entities"
    )


def test_classifiers_have_no_words(folder, tmp_path):
    message = refused(folder, tmp_path / "out.parquet", DATA, model_name_or_path=folder / "classifier")
    assert "column 'words'" in message


@pytest.mark.parametrize("bad", [None, ["the", None], {"a": 1}, [1.5]])
def test_a_row_that_is_no_list_of_words_is_named(folder, tmp_path, bad):
    rows = write_table(tmp_path / "rows.jsonl", [{"words": ["a"]}, {"words": bad}])
    message = refused(folder, tmp_path / "out.parquet", DATA, input=rows)
    assert "rows.jsonl, row 1, line 2: column 'words' has" in message
    assert "expected a list of strings, booleans or integers" in message
