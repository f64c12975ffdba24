"""strake train on the first rows of its files, and evaluated on those that it does not train on: --max_train_samples,
--max_eval_samples and --validation_split_percentage. The same as with files of these rows alone."""

import pytest
from program import command, losses, metrics, run, strake
from refusals import DATA, USAGE
from tiny_models import make_language_model, make_model, reviews, write_table

ROWS = 30
SPLIT = {"validation_split_percentage": 5, "eval_strategy": "epoch"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("samples")
    make_language_model(folder / "gpt2", dropout=0.1)
    make_model(folder / "bert")
    rows = reviews(ROWS)
    write_rows(folder, "train", rows)
    write_rows(folder, "first7", rows[:7])
    write_rows(folder, "first6", rows[:6])
    write_rows(folder, "from6", rows[6:])
    return folder


def write_rows(folder, name, rows):
    for form in ("csv", "parquet"):
        write_table(folder / f"{name}.{form}", rows)
    prepare = {"input": folder / f"{name}.csv", "max_seq_length": 40}
    classes, documents = (folder / f"{name}.{kind}.parquet" for kind in ("classes", "documents"))
    strake("prepare", tokenizer=folder / "bert", output=classes, label_column="label", **prepare)
    strake("prepare", tokenizer=folder / "gpt2", output=documents, **prepare)


def flags_of(folder, task, output, **changes):
    flags = {"task": task, "output_dir": output, "max_steps": 3, "logging_steps": 1, "save_strategy": "no"}
    if task == "causal-lm":
        flags |= {"model_name_or_path": folder / "gpt2", "block_size": 64}
    else:
        flags |= {"model_name_or_path": folder / "bert"}
    return flags | changes


def results(folder, task, output, **changes):
    strake("train", **flags_of(folder, task, output, **changes))
    return losses(output), [entry["eval_loss"] for entry in metrics(output) if "eval_loss" in entry]


def forms(folder, task, name):
    prepared = "documents" if task == "causal-lm" else "classes"
    return [folder / f"{name}{end}" for end in (".csv", ".parquet", f".{prepared}.parquet")]


@pytest.mark.parametrize("task", ["sequence-classification", "causal-lm"])
def test_the_first_rows_are_those_of_a_file_of_them(folder, tmp_path, task):
    names = (forms(folder, task, name) for name in ("train", "first7", "first6"))
    for i, (whole, seven, six) in enumerate(zip(*names, strict=True)):
        flags = {"eval_strategy": "epoch"}
        if task == "sequence-classification" and ".classes" not in whole.name:
            flags["max_seq_length"] = 40
        cut = {"max_train_samples": 7, "max_eval_samples": 6}
        limited = results(folder, task, tmp_path / f"a{i}", train_file=whole, validation_file=whole, **cut, **flags)
        apart = results(folder, task, tmp_path / f"b{i}", train_file=seven, validation_file=six, **flags)
        assert limited == apart
        assert limited[1]
        assert limited != results(folder, task, tmp_path / f"c{i}", train_file=whole, validation_file=whole, **flags)


def test_more_samples_than_there_are_are_all(folder, tmp_path):
    flags = {"train_file": folder / "train.csv", "max_seq_length": 40}
    all_rows = results(folder, "sequence-classification", tmp_path / "all", **flags)
    assert all_rows == results(
        folder, "sequence-classification", tmp_path / "many", max_train_samples=ROWS + 5, **flags
    )


def test_samples_of_documents_are_their_pieces(folder, tmp_path):
    """Of 3 documents of 20 tokens each, pieces of 8, 8 and 4 tokens."""
    (tmp_path / "texts.txt").write_text("~" * 20 + "\n" + "~" * 20 + "\n" + "~" * 20 + "\n")
    (tmp_path / "four.txt").write_text("~" * 20 + "\n" + "~" * 8 + "\n")
    flags = {"block_size": 8, "per_device_train_batch_size": 4}
    cut = results(
        folder, "causal-lm", tmp_path / "cut", train_file=tmp_path / "texts.txt", max_train_samples=4, **flags
    )
    assert cut == results(folder, "causal-lm", tmp_path / "four", train_file=tmp_path / "four.txt", **flags)


def test_a_part_of_the_documents_is_only_evaluated_on(folder, tmp_path):
    """A fifth of 30."""
    wholes, firsts, others = (forms(folder, "causal-lm", name) for name in ("train", "first6", "from6"))
    for i, (whole, first, other) in enumerate(zip(wholes, firsts, others, strict=True)):
        evaluated = {"eval_strategy": "epoch"}
        split = results(
            folder, "causal-lm", tmp_path / f"a{i}", train_file=whole, validation_split_percentage=20, **evaluated
        )
        assert split == results(
            folder, "causal-lm", tmp_path / f"b{i}", train_file=other, validation_file=first, **evaluated
        )


def test_a_run_is_not_resumed_with_other_samples(folder, tmp_path):
    flags = {"train_file": folder / "train.csv", "save_strategy": "steps", "save_steps": 1, "max_seq_length": 40}
    task = "sequence-classification"
    results(folder, task, tmp_path / "out", max_train_samples=20, **flags)
    flags |= {"resume_from_checkpoint": "true", "max_steps": 4}
    outcome = run(command("train", **flags_of(folder, task, tmp_path / "out", max_train_samples=19, **flags)))
    assert outcome.code == USAGE, outcome.err
    assert "train_sequences = 20, now it is 19" in outcome.err
    results(folder, task, tmp_path / "out", max_train_samples=20, **flags)


@pytest.mark.parametrize(
    ("task", "changes", "refusal"),
    [
        ("causal-lm", {"max_train_samples": -1}, (USAGE, "--max_train_samples -1 is negative")),
        ("causal-lm", {"max_eval_samples": -2}, (USAGE, "--max_eval_samples -2 is negative")),
        (
            "causal-lm",
            {"validation_split_percentage": 5},
            (USAGE, "--validation_split_percentage and the default --eval_strategy no"),
        ),
        ("causal-lm", SPLIT | {"validation_split_percentage": 100}, (USAGE, "_percentage 100 is not in [0, 99]")),
        ("causal-lm", SPLIT | {"validation_split_percentage": 1}, (DATA, "_percentage 1 of the 30 rows of")),
        ("sequence-classification", SPLIT, (USAGE, "_percentage 5 belongs to --task causal-lm")),
    ],
)
def test_what_makes_no_sense_is_refused(folder, tmp_path, task, changes, refusal):
    code, said = refusal
    flags = {"train_file": folder / "train.csv"} | changes
    outcome = run(command("train", **flags_of(folder, task, tmp_path / "out", **flags)))
    assert outcome.code == code, outcome.err
    assert said in outcome.err
    assert not (tmp_path / "out").exists()


def test_flags_without_an_effect_are_told(folder, tmp_path):
    flags = {"train_file": folder / "train.csv", "max_eval_samples": 3}
    told = strake("train", **flags_of(folder, "causal-lm", tmp_path / "none", **flags)).err
    assert "--max_eval_samples 3 has no effect: nothing is evaluated" in told
    flags |= {"validation_file": folder / "first6.csv", "eval_strategy": "epoch", "validation_split_percentage": 5}
    told = strake("train", **flags_of(folder, "causal-lm", tmp_path / "both", **flags)).err
    assert "--validation_split_percentage 5 has no effect: there is a --validation_file" in told
    assert "--max_eval_samples" not in told
