"""`strake evaluate` for the other tasks than text classification: answers' metrics, and every task's calibration."""

import collections
import json
import random
import re
import shutil
import string
import subprocess

import numpy
import pyarrow
import pyarrow.parquet as parquet
import pytest
from program import command, environment, full_disk, predict, run, strake, summary
from refusals import DATA, FILE, USAGE
from tiny_models import GOOD, change_weights, make_model, make_reader, make_tagger, reviews, tagged_reviews, write_table

RECORD = "strake_precision.json"
ROWS = 500  # the fewest of a calibration that auto relies on


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("evaluate")
    make_tagger(folder / "tagger", labels=("O", "B-PER"))
    make_reader(folder / "reader")
    make_model(folder / "encoder")
    make_model(folder / "classifier", head=True)
    write_table(folder / "texts.parquet", reviews(ROWS))
    write_table(folder / "questions.parquet", questions(ROWS))
    return folder


def questions(count):
    return [
        {"number": i, "question": f"was the {GOOD[i % 5]} film?", "context": row["text"]}
        for i, row in enumerate(reviews(count, longest=80))
    ]


def refused(code, *names, verb="evaluate", **flags):
    outcome = run(command(verb, max_seq_length=32, **flags))
    assert outcome.code == code, outcome.err
    for name in names:
        assert name in outcome.err


def calibrate(model, table, **flags):
    result = summary("evaluate", model_name_or_path=model, input=table, max_seq_length=32, calibrate=True, **flags)
    return result, json.loads((model / RECORD).read_text())


def in_each_precision(model, table, output, **flags):
    return {name: predict(model, table, output, precision=name, **flags) for name in ("fp32", "bf16", "int8")}


# Metrics of answers


def words_of(text):
    """normalize_answer() of SQuAD's evaluation scripts, as a list."""
    text = "".join(c for c in text.lower() if c not in set(string.punctuation))
    return re.sub(r"\b(a|an|the)\b", " ", text).split()


def score_one(predicted, truth, version):
    """exact match and F1, as compute_exact() and compute_f1() or f1_score()."""
    predicted, truth = words_of(predicted), words_of(truth)
    exact = int(predicted == truth)
    if version == 2 and not (predicted and truth):
        return exact, exact
    same = sum((collections.Counter(predicted) & collections.Counter(truth)).values())
    if same == 0:
        return exact, 0
    precision, recall = same / len(predicted), same / len(truth)
    return exact, 2 * precision * recall / (precision + recall)


def squad_metrics(predictions, truths, version):
    """In percent. A question without an answer has the empty one in both versions."""
    exact = f1 = 0
    for predicted, accepted in zip(predictions, truths, strict=True):
        kept = [truth for truth in accepted if version == 1 or words_of(truth)]
        scores = [score_one(predicted, truth, version if kept else 2) for truth in kept or [""]]
        exact += max(score[0] for score in scores)
        f1 += max(score[1] for score in scores)
    return 100 * exact / len(predictions), 100 * f1 / len(predictions)


def truths_of(predictions, seed=3):
    """True answers that are near: the predicted one, changed or not, others, or none."""
    source = random.Random(seed)
    truths = []
    for predicted in predictions:
        words = predicted.split() or ["nothing"]
        forms = [
            [predicted],
            [f"The {predicted.upper()}!", "something else"],
            ["a", " ".join([*words, "and", "more"])],
            ["somebody", " ".join(words[1:]) or "nobody", f"  {words[0]}, "],
            ["the"],
            ["nobody"],
            [],
        ]
        truths.append(source.choice(forms))
    return truths


@pytest.fixture(scope="module")
def answers(folder):
    """Of both versions of SQuAD: the predictions, and true answers for them."""
    found = {}
    for version, flags in ((1, {}), (2, {"handle_impossible_answer": "true"})):
        table = predict(folder / "reader", folder / "questions.parquet", folder / "answers.parquet", **flags)
        found[version] = (table["answer"], truths_of(table["answer"]), flags)
    assert "" in found[2][0] and "" not in found[1][0]
    return found


def with_answers(path, values):
    return write_table(path, [row | {"answers": value} for row, value in zip(questions(ROWS), values, strict=True)])


def as_squad(truths):
    return [{"text": texts, "answer_start": [0] * len(texts)} for texts in truths]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_answers_count_as_in_the_scripts_of_squad(folder, answers, tmp_path, version, kind):
    predictions, truths, flags = answers[version]
    table = with_answers(tmp_path / f"in.{kind}", as_squad(truths))
    result = summary("evaluate", model_name_or_path=folder / "reader", input=table, max_seq_length=32, **flags)
    exact, f1 = squad_metrics(predictions, truths, version)
    assert 10 < exact < f1 < 90
    assert result["exact_match"] == pytest.approx(exact, abs=1e-9)  # sums of the same numbers
    assert result["f1"] == pytest.approx(f1, abs=1e-9)
    assert result["rows"] == ROWS


def test_answers_may_be_lists_of_texts_objects_or_texts(folder, answers, tmp_path):
    predictions, truths, _ = answers[1]
    expected = squad_metrics(predictions, truths, 1)
    forms = {
        "lists.parquet": truths,
        "lists.jsonl": truths,
        "objects.parquet": [[{"text": text, "answer_start": 0} for text in texts] for texts in truths],
        "objects.jsonl": [[{"text": text} for text in texts] or None for texts in truths],
    }
    for name, values in forms.items():
        table = with_answers(tmp_path / name, values)
        result = summary("evaluate", model_name_or_path=folder / "reader", input=table, max_seq_length=32)
        assert (result["exact_match"], result["f1"]) == pytest.approx(expected), name
    first = [texts[0] if texts else "nobody" for texts in truths]
    for name in ("text.parquet", "text.csv"):
        table = with_answers(tmp_path / name, first)
        result = summary("evaluate", model_name_or_path=folder / "reader", input=table, max_seq_length=32)
        expected = squad_metrics(predictions, [[text] for text in first], 1)
        assert (result["exact_match"], result["f1"]) == pytest.approx(expected), name


def test_text_beyond_ascii_is_normalized_as_by_python(folder, tmp_path):
    """Lower case, spaces, and where words end, of several scripts. A context is one word, most often the answer."""
    source = random.Random(5)
    letters = "aAtThHeEnN\u00c9\u00e9\u0130\u00df\u0416\u0436\u4e2d\u0e01\u0301\u2013\u2019\u00bd\u0664'-._,9"
    spaces = [" ", "\u00a0", "\u3000", "\u2028", "\u0085", "\x1f", "\u2013", "\u0301", "-"]
    rows = []
    for _ in range(400):
        word = "".join(source.choices(letters, k=source.randint(1, 5))) + "x"
        forms = [
            word,
            word.lower(),
            word.upper(),
            "".join(c + source.choice(["", "", "", " ", "!", "_"]) for c in word),
        ]
        parts = source.choices(["the", "A", "an", "other"], k=source.randint(0, 2)) + [source.choice(forms)]
        source.shuffle(parts)
        truth = parts[0] + "".join(source.choice(spaces) + part for part in parts[1:])
        rows.append({"question": "what?", "context": word, "answers": truth})
    table = write_table(tmp_path / "in.parquet", rows)
    found = predict(folder / "reader", table, tmp_path / "out.parquet")
    assert sum(row["context"] == answer for row, answer in zip(rows, found["answer"], strict=True)) > 150
    result = summary("evaluate", model_name_or_path=folder / "reader", input=table, max_seq_length=32)
    exact, f1 = squad_metrics(found["answer"], [[row["answers"]] for row in rows], 1)
    assert 10 < exact < f1 < 90
    assert (result["exact_match"], result["f1"]) == pytest.approx((exact, f1), abs=1e-9)


def test_columns_without_texts_are_refused(folder, tmp_path):
    reader = {"model_name_or_path": folder / "reader"}
    refused(DATA, "there is no column 'answers'", input=folder / "questions.parquet", **reader)
    refused(DATA, "there is no column 'truth'", answers_column="truth", input=folder / "questions.parquet", **reader)
    refused(
        DATA,
        "there is no column 'truth'",
        answers_column="truth",
        calibrate=True,
        input=folder / "questions.parquet",
        **reader,
    )
    refused(
        DATA,
        "column 'number' has the type int64, expected a text",
        answers_column="number",
        input=folder / "questions.parquet",
        **reader,
    )
    starts = with_answers(tmp_path / "in.parquet", [{"answer_start": [1]}] * ROWS)
    refused(DATA, "column 'answers' has the type struct<answer_start", "expected a text", input=starts, **reader)
    written = with_answers(tmp_path / "in.csv", ["a", json.dumps({"text": ["a"], "answer_start": [13]})] * (ROWS // 2))
    refused(DATA, "in.csv, row 1, line 3: column 'answers' has an object written as a text", input=written, **reader)
    paired = with_answers(tmp_path / "in.jsonl", [{"text": [None, "a"], "answer_start": [13, None]}] * ROWS)
    refused(DATA, "in.jsonl, row 0", "has a list with null, expected one 'text' for each", input=paired, **reader)
    mixed = with_answers(tmp_path / "in.jsonl", [["a"]] * (ROWS - 1) + [[["a"]]])
    refused(DATA, f"in.jsonl, row {ROWS - 1}", "column 'answers' has [[\"a\"]]", input=mixed, **reader)


@pytest.mark.parametrize(
    ("model", "flags", "named"),
    [
        ("encoder", {"task": "feature-extraction"}, "compares the vectors of two texts, of --text_column and"),
        ("encoder", {"task": "feature-extraction", "calibrate": True, "label_column": "a"}, "compares the vectors"),
        ("reader", {"label_column": "a"}, "--label_column is of --task text-classification, token-classification and"),
        ("tagger", {"calibrate": True, "label_column": "tags"}, "--label_column with --calibrate is of lists of words"),
        ("classifier", {"label_all_tokens": True}, "--label_all_tokens is of --task token-classification"),
        ("classifier", {"answers_column": "a"}, "--answers_column is of --task question-answering"),
        ("reader", {"top_k": 5}, "--top_k is of strake predict and strake worker"),
        ("classifier", {"pooling": "cls"}, "are of --task feature-extraction"),
        ("classifier", {"task": "question-answering"}, "whose task is text-classification"),
    ],
)
def test_flags_that_do_not_fit_the_task_are_refused(folder, model, flags, named):
    refused(USAGE, named, model_name_or_path=folder / model, input=folder / "texts.parquet", **flags)


@pytest.mark.parametrize("calibrates", [None, True])
def test_cut_texts_are_counted_and_told(folder, copy, tmp_path, calibrates):
    rows = [{"text": " ".join(["good"] * count), "label": "LABEL_0"} for count in (3, 8, 9, 30, 8)]
    table = write_table(tmp_path / "in.parquet", rows)
    flags = {"model_name_or_path": copy("classifier"), "input": table, "calibrate": calibrates}
    line = command("evaluate", max_seq_length=10, **flags)
    outcome = run([*line, "--summary_json"])
    assert json.loads(outcome.out)["rows_cut"] == 2
    assert outcome.err.count("2 rows had more than --max_seq_length 10 tokens") == 1
    assert "rows_cut" in run(line).out
    outcome = run(command("evaluate", max_seq_length=32, summary_json=True, **flags))
    assert json.loads(outcome.out)["rows_cut"] == 0
    assert "had more than" not in outcome.err


# Calibration. A prediction in int8 keeps the linear layers in bf16 that the calibration found.


def test_a_folder_that_cannot_be_written_is_refused_before_the_passes(folder, copy):
    flags = {"input": folder / "questions.parquet", "text_column": "context", "task": "feature-extraction"}
    line = command("evaluate", model_name_or_path=copy("encoder"), max_seq_length=32, calibrate=True, **flags)
    outcome = run(line, **full_disk(0))
    assert outcome.code == FILE
    assert "--calibrate writes what it finds into the model's folder" in outcome.err
    assert "agrees" not in outcome.err


@pytest.fixture
def copy(folder, tmp_path):
    """Of a model, which a test may change."""
    return lambda name: shutil.copytree(folder / name, tmp_path / name)


def test_labels_of_tokens_are_calibrated(folder, copy, tmp_path):
    model = copy("tagger")
    result, record = calibrate(model, folder / "texts.parquet")
    assert (record["task"], record["metric"]) == ("token-classification", None)
    found = in_each_precision(model, folder / "texts.parquet", tmp_path / "out.parquet", aggregation_strategy="none")

    def labels(rows, text):
        """One for each word: all words are in the vocabulary."""
        labels = {entity["start"]: entity["entity"] for entity in rows}
        return [labels.get(match.start(), "O") for match in re.finditer(r"\w+", text)]

    by_precision = {name: sum(map(labels, table["entities"], table["text"]), []) for name, table in found.items()}
    assert len(set(by_precision["fp32"])) == 2
    for name in ("bf16", "int8"):
        same = sum(a == b for a, b in zip(by_precision[name], by_precision["fp32"], strict=True))
        assert record[name]["agreement"] == result[f"{name}_agreement"] == same / len(by_precision["fp32"])
        assert 0 < record[name]["mean_logit_difference"] < record[name]["max_logit_difference"] < 1
        assert "metric" not in record[name]


WORDS = {"text_column": "words", "label_column": "tags"}


def tagged(path, count, seed=1):
    """Words with the tagger's labels: runs of good words are of people."""
    rows = tagged_reviews(count, seed)
    for row in rows:
        row["tags"] = ["B-PER" if tag.endswith("GOOD") else "O" for tag in row["tags"]]
    return write_table(path, rows)


def test_the_metric_of_labelled_words_is_part_of_the_calibration(folder, copy, tmp_path):
    model = copy("tagger")
    table = tagged(tmp_path / "in.parquet", ROWS)
    result, record = calibrate(model, table, **WORDS)
    assert (record["task"], record["metric"], record["rows"]) == ("token-classification", "f1", ROWS)
    for name, values in (("", record["fp32"]), ("bf16_", record["bf16"]), ("int8_", record["int8"])):
        flags = {"precision": name[:-1]} if name else {}
        alone = summary("evaluate", model_name_or_path=model, input=table, max_seq_length=32, **WORDS, **flags)
        assert values["metric"] == result[f"{name}f1"] == alone["f1"]
        assert 0 < alone["f1"] < 1
    texts, _ = calibrate(model, folder / "texts.parquet")
    assert result["int8_agreement"] == texts["int8_agreement"], "the same words in a list and in a text"
    unlabelled, record = calibrate(model, table, text_column="words")
    assert unlabelled["int8_agreement"] == texts["int8_agreement"]
    assert record["metric"] is None


def test_words_without_a_label_that_fits_are_named(folder, tmp_path):
    tagger = {"model_name_or_path": folder / "tagger"}
    refused(DATA, "column 'text' holds no lists", input=folder / "texts.parquet", **tagger)
    refused(DATA, "there is no column 'label'", input=tagged(tmp_path / "a.parquet", 3), text_column="words", **tagger)
    rows = [{"words": ["the", "film"], "tags": ["O", "B-PER"]}, {"words": ["the", "film"], "tags": ["O", "I-PER"]}]
    other = write_table(tmp_path / "other.jsonl", rows)
    refused(
        DATA, "other.jsonl, row 1", "label 'I-PER' is none of the model's: 'O', 'B-PER'", input=other, **WORDS, **tagger
    )
    rows[1]["tags"] = ["O"]
    uneven = write_table(tmp_path / "uneven.jsonl", rows)
    refused(DATA, "uneven.jsonl, row 1", "2 words in column 'words' and 1 labels", input=uneven, **WORDS, **tagger)
    nothing = write_table(tmp_path / "nothing.jsonl", [{"words": [], "tags": []}])
    refused(DATA, "nothing.jsonl: no row has a labelled word", input=nothing, **WORDS, **tagger)


@pytest.mark.parametrize("labelled", [False, True])
def test_answers_are_calibrated(folder, copy, answers, tmp_path, labelled):
    model = copy("reader")
    _, truths, _ = answers[1]
    table = with_answers(tmp_path / "in.parquet", as_squad(truths)) if labelled else folder / "questions.parquet"
    result, record = calibrate(model, table)
    assert (record["task"], record["metric"]) == ("question-answering", "f1" if labelled else None)
    found = in_each_precision(model, table, tmp_path / "out.parquet")
    for name in ("bf16", "int8"):
        same = sum(map(str.__eq__, found[name]["answer"], found["fp32"]["answer"]))
        assert record[name]["agreement"] == result[f"{name}_agreement"] == same / ROWS
        if labelled:
            _, f1 = squad_metrics(found[name]["answer"], truths, 1)
            assert record[name]["metric"] == result[f"{name}_f1"] == pytest.approx(f1)
    if labelled:
        alone = summary("evaluate", model_name_or_path=model, input=table, max_seq_length=32)
        assert record["fp32"]["metric"] == result["f1"] == alone["f1"]
        assert result["exact_match"] == alone["exact_match"]
    else:
        assert "f1" not in result and "int8_f1" not in result


def centred_cosine(vectors, exact):
    vectors, exact = (x / numpy.linalg.norm(x, axis=1, keepdims=True) for x in (vectors, exact))
    a, b = vectors - exact.mean(axis=0), exact - exact.mean(axis=0)
    return ((a * b).sum(axis=1) / numpy.linalg.norm(a, axis=1) / numpy.linalg.norm(b, axis=1)).mean()


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_embeddings_are_calibrated(folder, copy, tmp_path, pooling):
    model = copy("encoder")
    flags = {"task": "feature-extraction", "pooling": pooling}
    result, record = calibrate(model, folder / "texts.parquet", **flags)
    assert (record["task"], record["pooling"], record["metric"]) == ("feature-extraction", pooling, None)
    found = in_each_precision(model, folder / "texts.parquet", tmp_path / "out.parquet", **flags)
    vectors = {name: numpy.array(table["embedding"], dtype=numpy.float64) for name, table in found.items()}
    for name in ("bf16", "int8"):
        expected = centred_cosine(vectors[name], vectors["fp32"])
        assert record[name]["centred_cosine"] == result[f"{name}_centred_cosine"]
        assert record[name]["centred_cosine"] == pytest.approx(expected, abs=1e-6)  # directions are kept in fp32
        largest = numpy.abs(vectors[name] - vectors["fp32"]).max()
        assert record[name]["max_number_difference"] == pytest.approx(largest, rel=1e-6)
    assert record["int8"]["centred_cosine"] >= 0.99


PAIRS = {"task": "feature-extraction", "text_pair_column": "second", "label_column": "alike"}


@pytest.fixture
def pairs(tmp_path):
    """Two reviews in a row, and the share of words that they have in common."""
    rows = []
    for i, (one, other) in enumerate(zip(reviews(ROWS), reviews(ROWS, seed=2), strict=True)):
        words = set(one["text"].split()), set(other["text"].split())
        alike = len(words[0] & words[1]) / len(words[0] | words[1]) + i / 10**6  # no two are the same
        rows.append({"text": one["text"], "second": other["text"], "alike": alike})
    return write_table(tmp_path / "pairs.parquet", rows)


def correlations(first, second, numbers):
    """Pearson's and Spearman's, of the rows' cosines."""
    first, second = (numpy.array(x, dtype=numpy.float64) for x in (first, second))
    lengths = numpy.linalg.norm(first, axis=1) * numpy.linalg.norm(second, axis=1)
    cosines = (first * second).sum(axis=1) / lengths
    ranks = [numpy.argsort(numpy.argsort(x)) for x in (cosines, numbers)]
    return numpy.corrcoef(cosines, numbers)[0, 1], numpy.corrcoef(*ranks)[0, 1]


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_embeddings_of_pairs_are_compared_with_numbers(folder, copy, pairs, tmp_path, pooling):
    model = copy("encoder")
    flags = {"task": "feature-extraction", "pooling": pooling}
    columns = (predict(model, pairs, tmp_path / f"{x}.parquet", text_column=x, **flags) for x in ("text", "second"))
    first, second = columns
    expected = correlations(first["embedding"], second["embedding"], first["alike"])
    result = summary("evaluate", model_name_or_path=model, input=pairs, max_seq_length=32, **(PAIRS | flags))
    assert (result["pearson"], result["spearmanr"]) == pytest.approx(expected, abs=1e-5)  # of cosines in fp32
    assert 0.05 < expected[1] < 0.99
    assert result["rows"] == ROWS


def test_their_rank_correlation_is_part_of_the_calibration(folder, copy, pairs):
    model = copy("encoder")
    result, record = calibrate(model, pairs, **PAIRS)
    assert (record["metric"], record["rows"]) == ("spearmanr", ROWS)
    for name, values in (("", record["fp32"]), ("bf16_", record["bf16"]), ("int8_", record["int8"])):
        flags = PAIRS | ({"precision": name[:-1]} if name else {})
        alone = summary("evaluate", model_name_or_path=model, input=pairs, max_seq_length=32, **flags)
        assert values["metric"] == result[f"{name}spearmanr"] == alone["spearmanr"]
    together, _ = calibrate(model, pairs, **{name: PAIRS[name] for name in ("task", "text_pair_column")})
    assert "spearmanr" not in together, "without labels a pair is one text"
    assert together["int8_centred_cosine"] != result["int8_centred_cosine"]


def test_pairs_that_are_cut_are_counted_once(folder, tmp_path):
    long = " ".join(["good"] * 40)
    rows = [{"text": a, "second": b, "alike": i} for i, (a, b) in enumerate([("a", "b"), (long, long), ("a", long)])]
    table = write_table(tmp_path / "in.jsonl", rows)
    result = summary("evaluate", model_name_or_path=folder / "encoder", input=table, max_seq_length=32, **PAIRS)
    assert (result["rows"], result["rows_cut"]) == (3, 2)
    rows[1]["alike"] = "very"
    table = write_table(tmp_path / "in.jsonl", rows)
    refused(DATA, "'alike'", model_name_or_path=folder / "encoder", input=table, **PAIRS)
    rows[1] |= {"alike": 1, "second": None}
    table = write_table(tmp_path / "in.jsonl", rows)
    refused(DATA, "in.jsonl, row 1", model_name_or_path=folder / "encoder", input=table, **PAIRS)


def test_auto_believes_a_record_of_its_own_task_alone(folder, copy, tmp_path):
    model = copy("classifier")
    flags = {"model_name_or_path": model, "input": folder / "texts.parquet", "max_seq_length": 32}
    flags |= {"output": tmp_path / "out.parquet"}
    calibrate(model, folder / "texts.parquet", task="feature-extraction")

    def chosen(**more):
        return strake("predict", **flags, **more).err

    assert "--precision auto: int8" in chosen(precision="auto", task="feature-extraction")
    for other in ({}, {"task": "feature-extraction", "pooling": "cls"}):
        assert "--precision auto: int8" not in chosen(precision="auto", **other)
        assert "but one for feature-extraction with mean pooling" in chosen(precision="int8", **other)


@pytest.mark.parametrize(
    ("name", "flags"), [("tagger", {}), ("reader", {}), ("encoder", {"task": "feature-extraction"})]
)
def test_predict_and_worker_keep_the_linears_in_bf16_that_the_file_names(folder, copy, tmp_path, name, flags):
    model = copy(name)
    table = folder / ("questions.parquet" if name == "reader" else "texts.parquet")
    calibrate(model, table, **flags)
    record = json.loads((model / RECORD).read_text())
    names = ["attention.qkv", "attention.output", "feed_forward.in", "feed_forward.out"]
    record["int8"]["bf16_linears"] = [{"layer": layer, "linear": name} for layer in (0, 1) for name in names]
    (model / RECORD).write_text(json.dumps(record))
    expected = predict(model, table, tmp_path / "bf16.parquet", precision="bf16", **flags)
    assert predict(model, table, tmp_path / "int8.parquet", precision="int8", **flags) == expected
    sink = pyarrow.BufferOutputStream()
    rows = parquet.read_table(table)
    with pyarrow.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    line = command("worker", model_name_or_path=model, max_seq_length=32, precision="int8", **flags)
    done = subprocess.run(line, input=sink.getvalue().to_pybytes(), capture_output=True, env=environment(), timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    assert pyarrow.ipc.open_stream(done.stdout).read_all().to_pydict() == expected


@pytest.mark.parametrize("name", ["tagger", "encoder"])
def test_calibration_keeps_the_harmful_linears_in_bf16(folder, copy, name):
    """As of classifiers: one input of some linear layers is much larger than the others."""

    def spoil(tensor, array):
        array = array.copy()
        if tensor.endswith(("intermediate.dense.bias", "value.bias")):
            array[5] = 2000
        if tensor.endswith("output.dense.weight"):
            array[:, 5] = 0
        return array

    model = copy(name)
    change_weights(model, spoil)
    flags = {"task": "feature-extraction"} if name == "encoder" else {}
    result, record = calibrate(model, folder / "texts.parquet", **flags)
    kept = record["int8"]["bf16_linears"]
    spoilt = [{"layer": layer, "linear": name} for layer in (0, 1) for name in ("attention.output", "feed_forward.out")]
    assert kept and all(linear in spoilt for linear in kept)
    assert result["int8_linears_in_bf16"] == len(kept)
    assert record["int8"]["agreement" if name == "tagger" else "centred_cosine"] >= 0.99
