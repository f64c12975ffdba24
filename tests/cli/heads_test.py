"""`strake predict` and `strake worker` with heads other than sequence classification, seen from outside."""

import json
import shutil

import numpy
import pyarrow
import pyarrow.parquet as parquet
import pytest
from program import command, environment, full_disk, run, scored_by_worker, strake, summary
from refusals import DATA, FILE, USAGE
from safetensors.numpy import load_file, save_file
from tiny_models import (
    GOOD,
    change_config,
    change_weights,
    make_model,
    make_reader,
    make_tagger,
    read_config,
    reviews,
    write_table,
)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    model = make_model(folder / "model")
    table = write_table(folder / "in.parquet", reviews(600))
    return {"model_name_or_path": model, "input": table, "max_seq_length": 32}


def refused(code, *names, verb="predict", **flags):
    outcome = run(command(verb, **flags))
    assert outcome.code == code, outcome.err
    for name in names:
        assert name in outcome.err


def rows_of(path):
    return parquet.read_table(path).replace_schema_metadata()


# Feature extraction


@pytest.mark.parametrize("pooling", ["mean", "cls"])
@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
def test_an_embedding_has_the_same_bits_in_any_company(inputs, tmp_path, pooling, precision):
    flags = inputs | {"task": "feature-extraction", "pooling": pooling, "precision": precision}
    strake("predict", output=tmp_path / "one.parquet", **flags)
    strake(
        "predict",
        output=tmp_path / "other.parquet",
        max_tokens_per_batch=50,
        env=environment(STRAKE_NUM_THREADS="3"),
        **flags,
    )
    whole = rows_of(tmp_path / "one.parquet")
    assert whole.equals(rows_of(tmp_path / "other.parquet"))
    alone = write_table(tmp_path / "alone.parquet", whole.slice(17, 1).drop_columns(["embedding"]).to_pylist())
    strake("predict", output=tmp_path / "out.parquet", **(flags | {"input": alone}))
    assert rows_of(tmp_path / "out.parquet").column("embedding").equals(whole.slice(17, 1).column("embedding"))


@pytest.mark.parametrize(("precision", "least"), [("bf16", 0.999), ("int8", 0.98)])
def test_embeddings_of_a_smaller_precision_point_the_same_way(inputs, tmp_path, precision, least):
    vectors = []
    for name in ("fp32", precision):
        flags = inputs | {"task": "feature-extraction", "normalize": "true", "precision": name}
        strake("predict", output=tmp_path / f"{name}.parquet", **flags)
        vectors.append(numpy.array(rows_of(tmp_path / f"{name}.parquet")["embedding"].to_pylist()))
    cosines = (vectors[0] * vectors[1]).sum(axis=1)
    assert cosines.min() > least  # 8 and 7 bits, two layers
    assert not numpy.array_equal(vectors[0], vectors[1])


def test_a_head_in_the_folder_makes_no_difference_to_embeddings(inputs, tmp_path):
    with_head = make_model(tmp_path / "with_head", head=True)
    flags = inputs | {"task": "feature-extraction"}
    strake("predict", output=tmp_path / "one.parquet", **flags)
    strake("predict", output=tmp_path / "other.parquet", **(flags | {"model_name_or_path": with_head}))
    assert rows_of(tmp_path / "one.parquet").equals(rows_of(tmp_path / "other.parquet"))


def test_tensors_without_the_prefix_of_the_family_are_found(inputs, tmp_path):
    model = make_model(tmp_path / "model")
    weights = load_file(model / "model.safetensors")
    save_file({name.removeprefix("bert."): array for name, array in weights.items()}, model / "model.safetensors")
    flags = inputs | {"task": "feature-extraction"}
    strake("predict", output=tmp_path / "one.parquet", **flags)
    strake("predict", output=tmp_path / "other.parquet", **(flags | {"model_name_or_path": model}))
    assert rows_of(tmp_path / "one.parquet").equals(rows_of(tmp_path / "other.parquet"))


def test_an_interrupted_extraction_goes_on_with_the_same_bytes(inputs, tmp_path):
    half = 600 * 32 * 2  # of the numbers
    flags = inputs | {"task": "feature-extraction", "max_tokens_per_batch": 16}
    strake("predict", output=tmp_path / "whole.parquet", **flags)
    outcome = run(command("predict", output=tmp_path / "out.parquet", **flags), **full_disk(half))
    assert outcome.code == FILE, outcome.err
    refused(USAGE, "task = ", output=tmp_path / "out.parquet", **(flags | {"pooling": "cls"}))
    result = summary("predict", output=tmp_path / "out.parquet", **flags)
    assert 0 < result["rows_scored"] < 600
    assert (tmp_path / "out.parquet").read_bytes() == (tmp_path / "whole.parquet").read_bytes()


def test_the_worker_gives_the_embeddings_of_predict(inputs, tmp_path):
    strake("predict", output=tmp_path / "out.parquet", task="feature-extraction", **inputs)
    found = scored_by_worker(inputs, task="feature-extraction")
    assert found.equals(rows_of(tmp_path / "out.parquet"))


def write_modules(model, pooling, *types):
    modules = [{"path": "", "type": "sentence_transformers.models.Transformer"}]
    modules.append({"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"})
    modules += [{"path": name, "type": f"sentence_transformers.models.{name}"} for name in types]
    (model / "modules.json").write_text(json.dumps(modules))
    (model / "1_Pooling").mkdir()
    (model / "1_Pooling/config.json").write_text(json.dumps(pooling))


def test_the_older_form_of_a_pooling_is_understood(inputs, tmp_path):
    model = make_model(tmp_path / "model")
    write_modules(model, {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "Normalize")
    strake("predict", output=tmp_path / "one.parquet", **(inputs | {"model_name_or_path": model}))
    flags = inputs | {"task": "feature-extraction", "pooling": "cls", "normalize": "true"}
    strake("predict", output=tmp_path / "other.parquet", **flags)
    assert rows_of(tmp_path / "one.parquet").equals(rows_of(tmp_path / "other.parquet"))


@pytest.mark.parametrize("folder_of", ["sentence_transformers", "transformers"])
def test_white_space_around_texts_is_that_of_the_folder(tmp_path, folder_of):
    """sentence-transformers strips texts before it tokenizes them, which byte-level tokenizers notice."""
    model = make_model(tmp_path / "model", "roberta")
    if folder_of == "sentence_transformers":
        write_modules(model, {"pooling_mode": "mean"})
    texts = ["good film", " good film", "good film\n", "\t good film\u3000\x1c"]
    table = write_table(tmp_path / "in.parquet", [{"text": text} for text in texts])
    flags = {"model_name_or_path": model, "input": table, "task": "feature-extraction", "max_seq_length": 32}
    strake("predict", output=tmp_path / "out.parquet", **flags)
    found = rows_of(tmp_path / "out.parquet")
    assert found.column("text").to_pylist() == texts
    vectors = found.column("embedding").to_pylist()
    same = [vector == vectors[0] for vector in vectors]
    expected = [True] * 4 if folder_of == "sentence_transformers" else [True, False, False, False]
    assert same == expected
    pairs = write_table(tmp_path / "pairs.parquet", [{"text": "a", "pair": text} for text in texts])
    flags |= {"input": pairs, "text_pair_column": "pair"}
    strake("predict", output=tmp_path / "of_pairs.parquet", **flags)
    vectors = rows_of(tmp_path / "of_pairs.parquet").column("embedding").to_pylist()
    assert [vector == vectors[0] for vector in vectors] == expected


@pytest.mark.parametrize(
    ("pooling", "types", "named"),
    [
        ({"pooling_mode": "max"}, [], "pooling 'max' is not supported"),
        (
            {"pooling_mode_cls_token": True, "pooling_mode_max_tokens": True},
            [],
            "pooling 'cls and max_tokens' is not supported",
        ),
        ({"pooling_mode": "mean"}, ["Dense"], "sentence_transformers.models.Dense is not supported"),
    ],
    ids=["max", "two", "dense"],
)
def test_what_sentence_transformers_would_do_otherwise_is_refused(inputs, tmp_path, pooling, types, named):
    model = make_model(tmp_path / "model")
    write_modules(model, pooling, *types)
    refused(USAGE, named, output=tmp_path / "out.parquet", **(inputs | {"model_name_or_path": model}))


def test_modules_of_other_code_are_refused(inputs, tmp_path):
    model = make_model(tmp_path / "model")
    write_modules(model, {"pooling_mode": "mean"})
    modules = (model / "modules.json").read_text()
    (model / "modules.json").write_text(modules.replace("sentence_transformers.models.Pooling", "my_code.Pooling"))
    flags = inputs | {"model_name_or_path": model}
    refused(USAGE, "the module my_code.Pooling is not supported", output=tmp_path / "out.parquet", **flags)


@pytest.mark.parametrize("order", [["Transformer", "Normalize", "Pooling"], ["Transformer", "Pooling", "Pooling"], []])
def test_modules_in_another_order_are_refused(inputs, tmp_path, order):
    model = make_model(tmp_path / "model")
    write_modules(model, {"pooling_mode": "mean"})
    paths = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}
    modules = [{"path": paths[name], "type": f"sentence_transformers.models.{name}"} for name in order]
    (model / "modules.json").write_text(json.dumps(modules))
    flags = inputs | {"model_name_or_path": model}
    refused(USAGE, "in this order", ", ".join(order), output=tmp_path / "out.parquet", **flags)


@pytest.mark.parametrize(
    ("name", "content", "named"),
    [
        ("config_sentence_transformers.json", {"truncate_dim": 8}, "truncate_dim 8 is not supported"),
        ("config_sentence_transformers.json", {"default_prompt_name": "query"}, "default_prompt_name 'query'"),
        ("config_sentence_transformers.json", {"model_type": "SparseEncoder"}, "model_type 'SparseEncoder'"),
        ("sentence_bert_config.json", {"transformer_task": "fill-mask"}, "transformer_task 'fill-mask'"),
        ("sentence_roberta_config.json", {"do_lower_case": True}, "do_lower_case is not supported"),
        ("sentence_bert_config.json", {"max_seq_length": 0}, "max_seq_length is 0"),
    ],
)
def test_other_settings_of_sentence_transformers_are_refused(inputs, tmp_path, name, content, named):
    model = make_model(tmp_path / "model")
    write_modules(model, {"pooling_mode": "mean"})
    (model / name).write_text(json.dumps(content))
    refused(USAGE, name, named, output=tmp_path / "out.parquet", **(inputs | {"model_name_or_path": model}))


def length_of_texts(output):
    return int(parquet.read_metadata(output).metadata[b"strake.max_seq_length"])


def test_texts_are_as_long_as_the_folder_says_unless_a_flag_does(inputs, tmp_path):
    model = make_model(tmp_path / "model")
    write_modules(model, {"pooling_mode": "mean"})
    positions = read_config(model)["max_position_embeddings"]
    tokenizer = json.loads((model / "tokenizer_config.json").read_text())
    output = tmp_path / "out.parquet"

    def length(of_folder=None, of_tokenizer=None, **flags):
        (model / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": of_folder}))
        changed = tokenizer | {"model_max_length": of_tokenizer or 10**30}
        (model / "tokenizer_config.json").write_text(json.dumps(changed))
        given = {"model_name_or_path": model, "input": inputs["input"], "overwrite_output": True} | flags
        strake("predict", output=output, **given)
        return length_of_texts(output)

    assert length() == positions
    assert length(of_tokenizer=20) == 20
    assert length(of_folder=10) == 10
    assert length(of_folder=30, of_tokenizer=20) == 30
    assert length(of_folder=positions + 1) == positions
    assert length(of_folder=10, max_seq_length=12) == 12


def test_a_pooling_outside_of_the_folder_is_refused(inputs, tmp_path):
    model = make_model(tmp_path / "model")
    modules = [{"path": "../1_Pooling", "type": "sentence_transformers.models.Pooling"}]
    (model / "modules.json").write_text(json.dumps(modules))
    flags = inputs | {"model_name_or_path": model}
    refused(USAGE, "'../1_Pooling' is not that of a folder", output=tmp_path / "out.parquet", **flags)


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ({"task": "feature-extractoin"}, "did you mean 'feature-extraction'"),
        ({"task": "fill-mask"}, "the tasks that strake scores are text-classification"),
        ({"task": "feature-extraction", "pooling": "max"}, "--pooling max: mean and cls are supported"),
        ({"task": "text-classification", "pooling": "mean"}, "are of --task feature-extraction"),
        (
            {"task": "feature-extraction", "output_columns": "logits"},
            "the task is feature-extraction, which has embedding",
        ),
        ({"task": "text-classification", "output_columns": "embedding"}, "the task is text-classification"),
    ],
    ids=lambda value: "-".join(value.values()) if isinstance(value, dict) else "",
)
def test_flags_that_do_not_fit_the_task_are_refused(inputs, tmp_path, flags, named):
    model = make_model(tmp_path / "model", head=True)
    changed = inputs | {"model_name_or_path": model} | flags
    refused(USAGE, named, output=tmp_path / "out.parquet", **changed)


# Token classification


@pytest.fixture(scope="module")
def tagging(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tagging")
    model = make_tagger(folder / "model")
    return {
        "model_name_or_path": model,
        "input": write_table(folder / "in.parquet", reviews(300)),
        "max_seq_length": 32,
    }


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
def test_entities_are_the_same_in_any_company(tagging, tmp_path, precision):
    flags = tagging | {"precision": precision}
    strake("predict", output=tmp_path / "one.parquet", **flags)
    several = environment(STRAKE_NUM_THREADS="3")
    strake("predict", output=f"{tmp_path}/many/", rows_per_file=70, max_tokens_per_batch=50, env=several, **flags)
    whole = rows_of(tmp_path / "one.parquet")
    assert whole.column_names[-1] == "entities"
    assert any(whole["entities"].to_pylist())
    assert len(list((tmp_path / "many").glob("part-*"))) == 5
    assert whole.equals(rows_of(tmp_path / "many"))


def test_the_worker_gives_the_entities_of_predict(tagging, tmp_path):
    strake("predict", output=tmp_path / "out.parquet", **tagging)
    assert scored_by_worker(tagging).equals(rows_of(tmp_path / "out.parquet"))


@pytest.mark.parametrize("aggregation", ["simple", "none", "average"])
def test_an_interrupted_search_for_entities_goes_on_with_the_same_bytes(tagging, tmp_path, aggregation):
    flags = tagging | {"max_tokens_per_batch": 16, "aggregation_strategy": aggregation, "keep_columns": "number"}
    strake("predict", output=tmp_path / "whole.parquet", **flags)
    counts = [len(entities) for entities in rows_of(tmp_path / "whole.parquet")["entities"].to_pylist()]
    assert min(counts) != max(counts)
    half = sum(4 + 16 * count for count in counts) // 2  # of the numbers, without the heads of their records
    outcome = run(command("predict", output=tmp_path / "out.parquet", **flags), **full_disk(half))
    assert outcome.code == FILE, outcome.err
    other = {"simple": "none", "none": "simple", "average": "max"}[aggregation]
    refused(USAGE, "task = ", output=tmp_path / "out.parquet", **(flags | {"aggregation_strategy": other}))
    result = summary("predict", output=tmp_path / "out.parquet", **flags)
    assert 0 < result["rows_scored"] < 300
    assert (tmp_path / "out.parquet").read_bytes() == (tmp_path / "whole.parquet").read_bytes()


def test_a_run_of_entities_that_failed_at_once_leaves_nothing(tagging, tmp_path):
    (tmp_path / "bad.jsonl").write_text('{"text": "a film"}\n{"text": null}\n')
    flags = tagging | {"input": tmp_path / "bad.jsonl"}
    refused(DATA, "null", output=tmp_path / "out.parquet", **flags)
    assert [path.name for path in tmp_path.iterdir()] == ["bad.jsonl"]


def test_the_number_of_texts_that_were_cut_is_told(tagging, tmp_path):
    texts = [{"text": "a film"}, {"text": "a film " * 40}, {"text": "good " * 31}]
    flags = tagging | {"input": write_table(tmp_path / "in.parquet", texts)}
    done = strake("predict", output=tmp_path / "out.parquet", **flags)
    assert "2 rows had more than --max_seq_length 32 tokens" in done.err


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ({"task": "text-classification"}, "holds a BertForTokenClassification, whose task is token-classification"),
        ({"text_pair_column": "label"}, "token-classification looks at single texts"),
        ({"aggregation_strategy": "last"}, "last: those of Transformers are none, simple, first, average and max"),
        ({"task": "feature-extraction", "aggregation_strategy": "none"}, "is of --task token-classification"),
        ({"output_columns": "logits"}, "the task is token-classification, which has entities"),
    ],
    ids=["task", "pair", "strategy", "other", "column"],
)
def test_flags_that_do_not_fit_entities_are_refused(tagging, tmp_path, flags, named):
    refused(USAGE, named, output=tmp_path / "out.parquet", **(tagging | flags))


def test_a_classifier_is_no_tagger(tagging, tmp_path):
    model = make_model(tmp_path / "model", head=True)
    flags = tagging | {"model_name_or_path": model, "task": "token-classification"}
    refused(USAGE, "whose task is text-classification", output=tmp_path / "out.parquet", **flags)
    refused(USAGE, "whose task is token-classification", verb="evaluate", task="text-classification", **tagging)


def test_heads_that_are_not_computed_are_named(tmp_path):
    model = make_model(tmp_path / "model", head=True)
    change_config(model, architectures=["BertForMultipleChoice"])
    flags = {"input": write_table(tmp_path / "in.parquet", reviews(3)), "max_seq_length": 32}
    flags |= {"model_name_or_path": model}
    refused(USAGE, "a BertForMultipleChoice, whose head", output=tmp_path / "out.parquet", **flags)
    strake("predict", output=tmp_path / "out.parquet", task="feature-extraction", **flags)


# Question answering


def questions(count):
    """Rows with contexts of one window of 32 tokens, and of many."""
    contexts = [row["text"] for row in reviews(count, longest=80)]
    return [
        {"number": i, "question": f"was the {GOOD[i % 5]} film?", "context": context}
        for i, context in enumerate(contexts)
    ]


@pytest.fixture(scope="module")
def reading(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reading")
    return {
        "model_name_or_path": make_reader(folder / "model"),
        "input": write_table(folder / "in.parquet", questions(300)),
        "max_seq_length": 32,
    }


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
def test_answers_are_the_same_in_any_company(reading, tmp_path, precision):
    flags = reading | {"precision": precision, "handle_impossible_answer": "true"}
    strake("predict", output=tmp_path / "one.parquet", **flags)
    several = environment(STRAKE_NUM_THREADS="3")
    strake("predict", output=f"{tmp_path}/many/", rows_per_file=70, max_tokens_per_batch=50, env=several, **flags)
    whole = rows_of(tmp_path / "one.parquet")
    assert whole.column_names == ["number", "question", "context", "answer", "score", "start", "end"]
    for row in whole.to_pylist():
        assert row["answer"] == row["context"][row["start"] : row["end"]]
    assert len(set(whole["answer"].to_pylist())) > 10
    assert len(list((tmp_path / "many").glob("part-*"))) == 5
    assert whole.equals(rows_of(tmp_path / "many"))


def test_shards_and_single_rows_have_the_answers_of_the_whole(reading, tmp_path):
    strake("predict", output=tmp_path / "whole.parquet", **reading)
    whole = rows_of(tmp_path / "whole.parquet")
    for i in range(3):
        strake("predict", output=tmp_path / "part.parquet", shard=f"{i}/3", **reading)
    parts = [rows_of(tmp_path / f"part-0000{i}-of-00003.parquet") for i in range(3)]
    assert whole.equals(pyarrow.concat_tables(parts))
    alone = write_table(tmp_path / "alone.parquet", whole.slice(17, 1).select(["question", "context"]).to_pylist())
    strake("predict", output=tmp_path / "out.parquet", **(reading | {"input": alone}))
    for name in ("answer", "score", "start", "end"):
        assert rows_of(tmp_path / "out.parquet")[name].equals(whole.slice(17, 1)[name])


@pytest.mark.parametrize("top_k", [1, 3])
def test_an_interrupted_search_for_answers_goes_on_with_the_same_bytes(reading, tmp_path, top_k):
    flags = reading | {"max_tokens_per_batch": 32, "top_k": top_k, "keep_columns": "number"}
    strake("predict", output=tmp_path / "whole.parquet", **flags)
    most = 2000 + 300 * top_k * 12 // 2  # half of the answers, and the heads of their records
    line = command("predict", output=tmp_path / "out.parquet", **flags)
    outcome = run(line, **full_disk(most))
    assert outcome.code == FILE, outcome.err
    for change, named in [
        ({"max_answer_len": 3}, "task = "),
        ({"handle_impossible_answer": "true"}, "task = "),
        ({"align_to_words": "false"}, "task = "),
        ({"doc_stride": 3}, "doc_stride = "),
        ({"top_k": 2, "output_columns": "answers"}, "= "),
    ]:
        refused(USAGE, named, output=tmp_path / "out.parquet", **(flags | change))
    result = summary("predict", output=tmp_path / "out.parquet", **flags)
    assert 0 < result["rows_scored"] < 300
    assert (tmp_path / "out.parquet").read_bytes() == (tmp_path / "whole.parquet").read_bytes()


def test_the_worker_gives_the_answers_of_predict(reading, tmp_path):
    for flags in ({}, {"top_k": 2, "handle_impossible_answer": "true"}):
        strake("predict", output=tmp_path / "out.parquet", **reading, **flags)
        assert scored_by_worker(reading, **flags).equals(rows_of(tmp_path / "out.parquet"))


def test_columns_of_questions_and_contexts_may_have_other_names(reading, tmp_path):
    rows = [{"q": row["question"], "text": row["context"]} for row in questions(20)]
    names = {"question_column": "q", "context_column": "text", "keep_columns": ""}
    flags = reading | {"input": write_table(tmp_path / "in.jsonl", rows)} | names
    strake("predict", output=tmp_path / "out.parquet", **flags)
    strake("predict", output=tmp_path / "other.parquet", keep_columns="", **reading)
    assert rows_of(tmp_path / "out.parquet").equals(rows_of(tmp_path / "other.parquet").slice(0, 20))


@pytest.mark.parametrize(
    ("row", "named"),
    [
        ({"question": "", "context": "a film"}, "column 'question' is empty"),
        ({"question": "a film?", "context": ""}, "column 'context' has no tokens"),
        ({"question": "a film?", "context": " \n"}, "column 'context' has no tokens"),
        ({"question": None, "context": "a film"}, "column 'question' is null"),
        ({"question": "a film?", "context": None}, "column 'context' is null"),
        ({"question": "the film " * 10, "context": "a film " * 10}, "the question leaves 9 of 32 tokens"),
        ({"question": "the film " * 20, "context": "a film " * 10}, "the question leaves 0 of 32 tokens"),
    ],
    ids=["no-question", "no-context", "blank-context", "null-question", "null-context", "long", "longer"],
)
def test_rows_without_a_question_or_context_are_refused(reading, tmp_path, row, named):
    rows = [{"question": "a film?", "context": "a film"}, row]
    flags = reading | {"input": write_table(tmp_path / "in.jsonl", rows)}
    refused(DATA, named, "in.jsonl, row 1", output=tmp_path / "out.parquet", **flags)
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


def test_a_long_question_with_a_context_that_fits_is_answered(reading, tmp_path):
    rows = [{"question": "the film " * 10, "context": "a good film"}]
    flags = reading | {"input": write_table(tmp_path / "in.jsonl", rows)}
    strake("predict", output=tmp_path / "out.parquet", **flags)
    assert len(rows_of(tmp_path / "out.parquet")) == 1


def test_no_room_for_the_context_is_no_lack_of_context(reading, tmp_path):
    rows = [{"question": "a film?", "context": "a good film"}]
    flags = reading | {"input": write_table(tmp_path / "in.jsonl", rows), "max_seq_length": 3}
    refused(DATA, "the question leaves 0 of 3 tokens to the context", output=tmp_path / "out.parquet", **flags)


def test_a_context_that_comes_first_is_refused(reading, tmp_path):
    model = shutil.copytree(reading["model_name_or_path"], tmp_path / "model")
    config = json.loads((model / "tokenizer_config.json").read_text())
    (model / "tokenizer_config.json").write_text(json.dumps(config | {"padding_side": "left"}))
    flags = reading | {"model_name_or_path": model}
    refused(USAGE, "padding_side is left", output=tmp_path / "out.parquet", **flags)


def test_windows_have_at_most_the_positions_of_the_model(reading, tmp_path):
    flags = {name: reading[name] for name in ("model_name_or_path", "input")}
    strake("predict", output=tmp_path / "out.parquet", **flags)
    positions = read_config(reading["model_name_or_path"])["max_position_embeddings"]
    assert length_of_texts(tmp_path / "out.parquet") == positions


def test_windows_have_at_most_the_tokens_that_the_tokenizer_gives(reading, tmp_path):
    model = shutil.copytree(reading["model_name_or_path"], tmp_path / "model")
    config = json.loads((model / "tokenizer_config.json").read_text())
    (model / "tokenizer_config.json").write_text(json.dumps(config | {"model_max_length": 40}))
    strake("predict", model_name_or_path=model, input=reading["input"], output=tmp_path / "out.parquet")
    assert length_of_texts(tmp_path / "out.parquet") == 40


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ({"task": "text-classification"}, "holds a BertForQuestionAnswering, whose task is question-answering"),
        ({"text_column": "context"}, "leave out --text_column"),
        ({"text_pair_column": "context"}, "leave out --text_column and --text_pair_column"),
        ({"doc_stride": 32}, "--doc_stride 32 must be less than --max_seq_length 32"),
        ({"doc_stride": -1}, "--doc_stride -1 is negative"),
        ({"top_k": 0}, "--top_k 0 must be positive"),
        ({"max_answer_len": 0}, "--max_answer_len 0 must be positive"),
        ({"max_seq_length": 65}, "--max_seq_length 65 is more than the model's"),
        ({"output_columns": "entities"}, "the task is question-answering, which has answer, score"),
        ({"task": "feature-extraction", "top_k": 2}, "--top_k is of --task question-answering"),
        ({"max_answer_length": 30}, "it is called --max_answer_len here"),
    ],
    ids=lambda value: "-".join(map(str, value)) if isinstance(value, dict) else "",
)
def test_flags_that_do_not_fit_answers_are_refused(reading, tmp_path, flags, named):
    refused(USAGE, named, output=tmp_path / "out.parquet", **(reading | flags))


def test_no_other_model_is_a_reader(reading, tagging, tmp_path):
    flags = tagging | {"task": "question-answering"}
    refused(USAGE, "whose task is token-classification", output=tmp_path / "out.parquet", **flags)
    flags = tagging | {"context_column": "text"}
    refused(USAGE, "--context_column is of --task question-answering", output=tmp_path / "out.parquet", **flags)


def test_a_head_of_another_size_is_refused(reading, tmp_path):
    model = make_reader(tmp_path / "model")
    change_weights(model, lambda name, array: array[:1] if name.startswith("qa_outputs") else array)
    refused(USAGE, "qa_outputs", output=tmp_path / "out.parquet", **(reading | {"model_name_or_path": model}))
