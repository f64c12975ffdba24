"""prepare and tokenize: what they write holds, and what they read stays."""

import json
import os
import shutil
import subprocess

import pyarrow.parquet as parquet
import pytest
from program import command, run, strake
from tiny_models import make_model, reviews, write_table


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenize")
    make_model(folder / "base")
    write_table(folder / "train.parquet", reviews(120))
    return folder


def test_prepared_tokens_that_have_changed_are_refused(folder, tmp_path):
    tokens, changed = tmp_path / "tokens.parquet", tmp_path / "changed.parquet"
    flags = {"tokenizer": folder / "base", "label_column": "label", "max_seq_length": 32}
    strake("prepare", input=folder / "train.parquet", output=tokens, **flags)
    content = tokens.read_bytes()
    ids = parquet.read_metadata(tokens).row_group(0).column(0)
    middle = ids.dictionary_page_offset + ids.total_compressed_size // 2
    for at in range(middle, middle + 80, 20):
        changed.write_bytes(content[:at] + bytes([content[at] ^ 0x40]) + content[at + 1 :])
        flags = {"model_name_or_path": folder / "base", "train_file": changed, "output_dir": tmp_path / "out"}
        outcome = run(command("train", **flags))
        assert outcome.code == 3 and "changed.parquet" in outcome.err, outcome


def test_the_input_is_not_replaced(folder, tmp_path):
    table, link, lines = tmp_path / "table.parquet", tmp_path / "link.parquet", tmp_path / "lines.jsonl"
    shutil.copy(folder / "train.parquet", table)
    link.symlink_to(table)
    lines.write_text('"good film"\n')
    for verb, source, output in [("prepare", table, link), ("tokenize", lines, lines)]:
        content = source.read_bytes()
        outcome = run(command(verb, tokenizer=folder / "base", input=source, output=output))
        assert outcome.code == 2 and f"{output} would replace the input {source}" in outcome.err, outcome
        assert source.read_bytes() == content


@pytest.mark.parametrize(("cleans", "expected"), [(None, "it ' s a, good!"), (True, "it's a, good!")])
def test_decoded_texts_lose_spaces_where_the_configuration_says_so(folder, tmp_path, cleans, expected):
    """As AutoTokenizer decodes: the space after an apostrophe goes with clean_up_tokenization_spaces only."""
    tokenizer, ids = tmp_path / "tokenizer", tmp_path / "ids.jsonl"
    tokenizer.mkdir()
    vocabulary = [*(folder / "base" / "vocab.txt").read_text().split(), "'"]
    (tokenizer / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    configuration = {"tokenizer_class": "BertTokenizer", "clean_up_tokenization_spaces": cleans}
    (tokenizer / "tokenizer_config.json").write_text(json.dumps(configuration))
    ids.write_text(json.dumps([vocabulary.index(token) for token in ["it", "'", "s", "a", ",", "good", "!"]]) + "\n")
    assert json.loads(strake("tokenize", tokenizer=tokenizer, input=ids, decode=True).out)["text"] == expected


@pytest.mark.parametrize("name", ["tokens.csv", "tokens", "tokens.parquet.gz"])
def test_tokens_have_a_name_under_which_they_are_read(folder, tmp_path, name):
    outcome = run(command("prepare", tokenizer=folder / "base", input=folder / "train.parquet", output=tmp_path / name))
    assert outcome.code == 2 and "tokens are written as Parquet; name a file that ends with .parquet" in outcome.err


def test_a_length_that_no_token_file_has_is_refused(folder, tmp_path):
    flags = {"tokenizer": folder / "base", "input": folder / "train.parquet", "output": tmp_path / "tokens.parquet"}
    outcome = run(command("prepare", max_seq_length=2**31, **flags))
    assert outcome.code == 2 and "--max_seq_length 2147483648 is above 2147483647" in outcome.err, outcome


def test_what_a_killed_run_left_is_removed(folder, tmp_path):
    gone = subprocess.Popen(["true"])
    gone.wait()
    left = tmp_path / f"tokens.parquet.tmp-{gone.pid}-0"
    others = [tmp_path / f"tokens.parquet.tmp-{os.getpid()}-0", tmp_path / f"more.parquet.tmp-{gone.pid}-0"]
    for path in [left, *others]:
        path.touch()
    strake("prepare", tokenizer=folder / "base", input=folder / "train.parquet", output=tmp_path / "tokens.parquet")
    assert not left.exists() and all(path.exists() for path in others)


def test_the_file_of_a_tokenizer_is_named_as_it_was_given(folder, tmp_path):
    vocabulary = tmp_path / "vocab.json"
    vocabulary.write_text("{}")
    outcome = run(
        command("prepare", tokenizer=vocabulary, input=folder / "train.parquet", output=tmp_path / "t.parquet")
    )
    assert outcome.code == 2 and f"{vocabulary}: key 'model' is missing" in outcome.err, outcome


def test_a_template_of_chats_goes_where_the_tokenizer_goes(folder, tmp_path):
    model = shutil.copytree(folder / "base", tmp_path / "model")
    (model / "chat_template.jinja").write_text("{{ messages }}")
    flags = {"model_name_or_path": model, "train_file": folder / "train.parquet", "max_seq_length": 32}
    strake("train", max_steps=1, output_dir=tmp_path / "out", **flags)
    for place in [tmp_path / "out", tmp_path / "out" / "checkpoint-1"]:
        assert (place / "chat_template.jinja").read_text() == "{{ messages }}"
