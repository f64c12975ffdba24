"""Tables whose files, columns or labels are not what they should be."""

import json

import pyarrow
import pyarrow.parquet as parquet
import pytest
from program import predict, run
from refusals import DATA, FILE, USAGE
from tiny_models import make_model, reviews

KINDS = ["parquet", "csv", "tsv", "jsonl"]
ROWS = reviews(40)


# Columns


def test_missing_text_column(place):
    place.refuses(
        DATA, place.train(text_column="txt"), "train.parquet: there is no column 'txt'", "did you mean 'text'"
    )
    place.refuses(DATA, place.predict(text_column="review"), "no column 'review'; the columns are text, label, number")
    place.refuses(DATA, place.prepare(text_column="review"), "no column 'review'")
    place.refuses(DATA, place.evaluate(text_column="review"), "no column 'review'")


def test_missing_label_column(place):
    place.refuses(DATA, place.train(label_column="labels"), "train.parquet: there is no column 'labels'", "'label'")
    place.refuses(DATA, place.evaluate(label_column="stars"), "no column 'stars'")


def test_missing_pair_column(place):
    place.refuses(DATA, place.train(text_pair_column="second"), "no column 'second'")


def test_labels_whose_names_no_configuration_can_hold(place):
    rows = [{"text": "a", "label": f"{row}" + "x" * 6000} for row in range(1500)]
    line = place.train(train_file=place.table("long.parquet", rows))
    place.refuses(DATA, line, "1500 labels: its config.json", "at most 16777216 are read")


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_text_column_of_numbers(place, kind):
    table = place.table(f"numbers.{kind}", ROWS)
    place.refuses(
        DATA, place.predict(input=table, text_column="number"), table, "'number'", "int64", "must hold strings"
    )


def test_label_column_of_lists(place):
    table = place.table("lists.parquet", [{"text": "a", "label": [1]}, {"text": "b", "label": [2]}])
    single = {"problem_type": "single_label_classification"}
    place.refuses(
        DATA, place.train(train_file=table, **single), table, "column 'label' holds lists", "one label per row"
    )


def test_columns_that_differ_between_files(place):
    files = [place.table("a.parquet", ROWS), place.table("b.parquet", [{"text": "x", "label": 3}])]
    place.refuses(
        DATA, place.train(train_file=files), files[0], files[1], "column 'label' has the type int64, not string"
    )


def test_files_are_compared_before_the_model_is_loaded(place):
    model = place.model("classifier")
    (model / "model.safetensors").write_bytes(b"")  # so that an error of the files shows what came first
    files = [place.table("a.parquet", ROWS), place.table("b.parquet", [{"text": "x", "label": 3, "number": 1}])]
    flags = {"input": files, "model_name_or_path": model}
    place.refuses(DATA, place.predict(**flags), files[0], files[1], "int64", "string")
    place.refuses(DATA, place.predict(keep_columns="number", text_column="label", **flags), files[0], files[1])
    place.refuses(DATA, place.evaluate(**flags), files[0], files[1], "int64", "string")
    place.refuses(DATA, place.evaluate(calibrate=True, **flags), files[0], files[1], "int64", "string")
    place.refuses(DATA, place.predict(text_column="number", **(flags | {"input": files[0]})), "must hold strings")


def test_only_columns_that_are_read_must_be_the_same(place):
    files = [place.table("a.parquet", ROWS), place.table("b.parquet", [{"text": "x", "label": "positive"}])]
    for line in [
        place.predict(input=files, keep_columns="label", output=place.path / "scored.parquet"),
        place.evaluate(input=files),
        place.prepare(input=files, output=place.path / "tokens.parquet"),
    ]:
        outcome = run(line)
        assert outcome.code == 0, outcome.err


def test_json_values_of_columns_that_are_not_read(place):
    lines = [json.dumps({"text": "good", "label": "positive", "x": 1})] * 9000
    lines.append(json.dumps({"text": "bad", "label": "positive", "x": 1.5, "y": "new"}))
    table = place.file("lines.jsonl", "\n".join(lines) + "\n")
    assert run(place.predict(input=table, output=place.path / "all.parquet")).code == DATA
    scored = place.path / "scored.parquet"
    for line in [
        place.predict(input=table, keep_columns="", output=scored),
        place.predict(input=table, keep_columns="label", output=place.path / "shard.parquet", shard="1/2"),
        place.evaluate(input=table),
    ]:
        outcome = run(line)
        assert outcome.code == 0, outcome.err
    assert parquet.read_table(scored).column_names == ["prediction", "probabilities"]


def test_prediction_column_that_is_there_already(place):
    table = place.table("scored.parquet", [row | {"prediction": "x"} for row in ROWS])
    place.refuses(DATA, place.predict(input=table), table, "'prediction'", "already exists")


# Files


@pytest.mark.parametrize("kind", KINDS)
def test_empty_file(place, kind):
    table = place.file(f"empty.{kind}", b"")
    for line in (place.train(train_file=table), place.predict(input=table), place.prepare(input=table)):
        place.refuses(DATA, line, f"{table} is empty")


def test_header_without_rows(place):
    table = place.file("header.csv", "text,label\n")
    place.refuses(DATA, place.train(train_file=table), table, "has no rows")
    place.refuses(DATA, place.train(train_file=table, model_name_or_path=place.shared / "classifier"), table, "no rows")
    place.refuses(DATA, place.prepare(input=table), table, "has no rows")
    place.refuses(DATA, place.evaluate(input=table), table, "has no rows")
    assert predict(place.shared / "classifier", table, place.output)["prediction"] == []


def test_parquet_file_cut_in_half(place):
    whole = (place.shared / "train.parquet").read_bytes()
    table = place.file("half.parquet", whole[: len(whole) // 2])
    for line in (place.train(train_file=table), place.predict(input=table), place.prepare(input=table)):
        place.refuses(DATA, line, table)


def test_parquet_file_with_damaged_pages(place):
    content = bytearray((place.shared / "train.parquet").read_bytes())
    content[4:400] = bytes(396)
    table = place.file("damaged.parquet", bytes(content))
    place.refuses(DATA, place.predict(input=table), table, "rows from 0 on")


def test_parquet_page_that_is_not_what_its_checksum_says(place):
    table = place.path / "flipped.parquet"
    parquet.write_table(
        pyarrow.table({"text": ["a sound film"] * 9}), table, compression="none", write_page_checksum=True
    )
    table.write_bytes(table.read_bytes().replace(b"a sound", b"a round", 1))
    place.refuses(DATA, place.predict(input=table), table, "CRC checksum verification failed")


def test_csv_lines_that_end_with_a_carriage_return_alone(place):
    table = place.file("mac.csv", "text,label\rgood film,positive\rbad film,negative\r")
    place.refuses(DATA, place.predict(input=table), f"{table}, line 1: field 2 holds a carriage return")
    table = place.file("mixed.csv", 'text,label\n"a\rb",positive\nbad\rfilm,negative\n')
    place.refuses(DATA, place.predict(input=table), f"{table}, line 3: field 1 holds a carriage return")


def test_csv_file_cut_in_a_quoted_field(place):
    text = 'text,label\n"good film",positive\n"bad film",negative\n"a long'
    table = place.file("half.csv", text)
    place.refuses(DATA, place.train(train_file=table), f"{table}, line 4", "not closed", "cut short")


def test_csv_file_cut_in_a_row(place):
    table = place.file("half.csv", "text,label\ngood film,positive\nbad film,negative\na long")
    place.refuses(DATA, place.train(train_file=table), f"{table}, line 4: 1 fields found, 2 expected (text, label)")


def test_json_lines_file_cut_in_a_row(place):
    table = place.file("half.jsonl", '{"text": "good", "label": "x"}\n{"text": "bad", "la')
    place.refuses(DATA, place.train(train_file=table), f"{table}, line 2", "complete JSON object")


def test_json_rows_that_are_not_objects(place):
    table = place.file("list.jsonl", '{"text": "good"}\n["bad"]\n')
    place.refuses(DATA, place.predict(input=table), f"{table}, line 2", "an array instead of an object")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (['{"a": [123456789012345678901234567890]}'], "integer 123456789012345678901234567890 is out of range"),
        (['{"a": [{"b": {"c": 1, "c": 2}}]}'], "key 'c' occurs twice in one object"),
        (["9007199254740993", "1.5"], "key 'extra' has 9007199254740993, which a column of decimal numbers"),
    ],
)
def test_json_values_that_could_not_be_kept_as_they_are(place, values, words):
    rows = [f'{{"text": "good", "extra": {value}}}\n' for value in values]
    table = place.file("values.jsonl", "".join(rows))
    place.refuses(DATA, place.predict(input=table), f"{table}, line 1", words)
    same_keys = '{"text": "good", "extra": [{"c": 1}, {"c": 2, "d": {"c": 3}}]}\n'
    rows = predict(place.shared / "classifier", place.file("good.jsonl", same_keys), place.output)
    assert rows["extra"] == ['[{"c":1},{"c":2,"d":{"c":3}}]']


def test_folder_with_data_in_subfolders(place):
    folder = place.path / "hive"
    for year in (1, 2):
        (folder / f"y={year}").mkdir(parents=True)
        place.table(f"hive/y={year}/a.parquet", ROWS[:3])
    words = "its subfolders y=1, y=2 hold data files", f"the pattern {folder}/*/*.parquet"
    place.refuses(DATA, place.predict(input=folder), folder, *words)
    place.refuses(DATA, place.train(train_file=folder), folder, *words)
    top = place.table("hive/a.parquet", ROWS[3:5])
    place.refuses(DATA, place.predict(input=folder), f"{folder}/*.parquet {folder}/*/*.parquet")
    files = [top, folder / "y=1", folder / "y=2"]
    outcome = run(place.predict(input=files, output=place.path / "scored.parquet"))
    assert outcome.code == 0, outcome.err
    assert parquet.read_table(place.path / "scored.parquet").num_rows == 8


def test_folder_with_files_that_are_not_read(place):
    folder = place.path / "folder"
    (folder / "day=1").mkdir(parents=True)
    place.table("folder/a.parquet", ROWS[:3]).rename(folder / "A.PARQUET")
    place.table("folder/b.parquet", ROWS[3:5])
    for name in ("c.csv.xz", "d.pq", "_SUCCESS", ".hidden.parquet"):
        place.file(f"folder/{name}", b"x")
    outcome = run(place.predict(input=folder, output=place.path / "scored.parquet"))
    assert outcome.code == 0, outcome.err
    assert outcome.err.count(f"{folder}: 3 of its entries are not read") == 1
    assert "c.csv.xz, d.pq, day=1" in outcome.err
    assert parquet.read_metadata(place.path / "scored.parquet").num_rows == 5


def test_missing_file(place):
    missing = place.path / "none.parquet"
    place.refuses(FILE, place.train(train_file=missing), f"{missing}: no such file")
    place.refuses(FILE, place.predict(input=missing), f"{missing}: no such file")
    place.refuses(FILE, place.tokenize(input=missing), missing)


def test_unknown_kind_of_file(place):
    table = place.file("data.xlsx", "x")
    place.refuses(USAGE, place.train(train_file=table), table, ".parquet, .csv, .tsv, .json, .jsonl and .txt")


def test_folder_without_data(place):
    empty = place.path / "empty"
    empty.mkdir()
    place.refuses(DATA, place.train(train_file=empty), empty, "holds no data files")


# Labels


@pytest.mark.parametrize("kind", KINDS)
def test_label_that_the_model_does_not_know(place, kind):
    table = place.table(f"new.{kind}", [*ROWS, {"text": "a film", "label": "neutral", "number": 1, "score": 0.5}])
    named = [f"{table}, row 40", "'neutral'", "'negative', 'positive'"]
    place.refuses(DATA, place.evaluate(input=table), *named)
    place.refuses(DATA, place.train(train_file=table, model_name_or_path=place.shared / "classifier"), *named)
    validation = {"validation_file": table, "eval_strategy": "epoch"}
    place.refuses(DATA, place.train(**validation), *named)


def test_text_without_tokens(place):
    model = make_model(place.path / "model", "roberta")
    tokenizer = json.loads((model / "tokenizer.json").read_text())
    (model / "tokenizer.json").write_text(json.dumps(tokenizer | {"post_processor": None}))
    (model / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
    table = place.table("gap.jsonl", [*ROWS[:7], ROWS[7] | {"text": ""}, *ROWS[8:]])
    place.refuses(DATA, place.train(train_file=table, model_name_or_path=model), f"{table}: row 7 has no tokens")


@pytest.mark.parametrize("kind", KINDS)
def test_unlabelled_rows(place, kind):
    table = place.table(f"gap.{kind}", [*ROWS[:7], ROWS[7] | {"label": None}, *ROWS[8:]])
    place.refuses(DATA, place.train(train_file=table), f"{table}, row 7", "label")
    place.refuses(DATA, place.evaluate(input=table), f"{table}, row 7", "no label")
    place.refuses(DATA, place.prepare(input=table, label_column="label"), f"{table}, row 7", "label")
    assert len(predict(place.shared / "classifier", table, place.output)["prediction"]) == 40


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_label_that_is_meant_to_be_passed_over(place, kind):
    rows = [{"text": "a film", "label": label} for label in (0, 1, -100, 1)]
    table = place.table(f"rows.{kind}", rows)
    place.refuses(DATA, place.train(train_file=table), f"{table}, row 2", "label -100, which losses")


def test_regression_label_that_is_no_number(place):
    table = place.table("scores.csv", [*ROWS, ROWS[0] | {"score": "high"}])
    line = place.train(train_file=table, label_column="score", problem_type="regression")
    place.refuses(DATA, line, f"{table}, row 40, line 42", "'score'", "'high'", "a finite number")


def test_regression_label_that_is_not_finite(place):
    table = place.table("scores.parquet", [*ROWS, ROWS[0] | {"score": float("nan")}])
    place.refuses(DATA, place.train(train_file=table, label_column="score"), f"{table}, row 40", "a finite number")
    table = place.table("scores.parquet", [*ROWS, ROWS[0] | {"score": 1e39}])
    named = [f"{table}, row 40: label 1e+39 is out of the range of fp32"]
    place.refuses(DATA, place.train(train_file=table, label_column="score"), *named)
    place.refuses(DATA, place.prepare(input=table, label_column="score"), *named)


@pytest.mark.parametrize(
    ("label", "metric", "named"),
    [
        ("label", "acuracy", ["acuracy is none of the metrics of classification", "did you mean 'accuracy'?"]),
        ("label", "mse", ["mse is none", "loss, accuracy, f1, precision, recall, matthews_correlation"]),
        ("label", "eval_runtime", ["eval_runtime is none"]),
        ("score", "accuracy", ["accuracy is none of the metrics of regression: loss, mse, mae, pearson, spearmanr"]),
    ],
)
def test_metric_that_the_labels_do_not_have(place, label, metric, named):
    validation = {"validation_file": place.shared / "train.parquet", "eval_strategy": "epoch", "label_column": label}
    place.refuses(USAGE, place.train(metric_for_best_model=metric, **validation), "--metric_for_best_model", *named)
    place.refuses(USAGE, place.train(metric_for_best_model=metric, label_column=label, dry_run=True), *named)


def test_numbers_cannot_be_smoothed(place):
    line = place.train(label_column="score", label_smoothing_factor=0.1)
    place.refuses(USAGE, line, "--label_smoothing_factor 0.1 needs texts with one class each", "is regression")


def test_a_single_class(place):
    table = place.table("one.parquet", [ROWS[0], ROWS[0]])
    place.refuses(DATA, place.train(train_file=table), f"{table}: column 'label' has 1 different labels", "at least 2")


def test_no_whole_batch(place):
    train = place.table("train.parquet", reviews(5))
    line = place.train(train_file=train, per_device_train_batch_size=8, dataloader_drop_last=True)
    place.refuses(DATA, line, "5 sequences with batch size 8", "last incomplete batch is dropped")
