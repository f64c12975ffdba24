"""How flags and --config files may be written, as --print_config shows what they come to."""

import json

from program import strake


def shown(verb, *words):
    return json.loads(strake(verb, *words, "--print_config").out)


def test_of_a_flag_given_twice_the_last_one_holds(tmp_path):
    needed = ["--model_name_or_path", "m", "--output_dir", "o", "--train_file", "a", "b"]
    (tmp_path / "first.toml").write_text("seed = 1\nmax_steps = 9\n")
    (tmp_path / "last.toml").write_text("seed = 2\nmax_steps = 9\n")
    files = ["--config", str(tmp_path / "first.toml"), "--config", str(tmp_path / "last.toml")]
    first = ["--max_steps", "2", "--bf16", "--data_seed=5"]
    last = ["--max_steps=10", "--bf16", "False", "--data_seed", "6", "--train_file", "c"]
    config = shown("train", *needed, *files, *first, *last)
    assert config["max_steps"] == 10 and config["bf16"] is False and config["data_seed"] == 6
    assert config["train_file"] == ["c"] and config["seed"] == 2
    scored = ["--model_name_or_path", "m", "--input", "a", "--output", "o.parquet", "--keep_columns", "x", "y"]
    config = shown("predict", *scored, "--input", "b", "c", "--keep_columns", "z", "--max_seq_length", "5")
    assert config["input"] == ["b", "c"] and config["keep_columns"] == ["z"] and config["max_seq_length"] == 5


def test_newer_name_of_gradient_checkpointing(tmp_path):
    needed = ["--model_name_or_path", "m", "--output_dir", "o", "--train_file", "a"]
    (tmp_path / "run.toml").write_text("activation_checkpointing = true\n")
    in_file = ["--config", str(tmp_path / "run.toml")]
    for words, expected in [
        (["--activation_checkpointing"], True),
        (in_file, True),
        ([*in_file, "--gradient_checkpointing", "false"], False),
        (["--gradient_checkpointing", "--activation_checkpointing=False"], False),
    ]:
        assert shown("train", *needed, *words)["gradient_checkpointing"] is expected


def test_what_a_configuration_file_may_be_written_like(tmp_path):
    (tmp_path / "run.toml").write_text(
        r"""# strings, lists and a comment behind each
"output_dir" = "a \"#1\" \u00fc"   # a comment
model_name_or_path = 'C:\#1'\t# a comment
train_file = [  # a comment
    "a, b.csv",
    'c].csv',   # another
]
validation_file = ['v.csv']
eval_strategy = epoch
seed=7
lr_scheduler_type = "cosine_with_restarts"
lr_scheduler_kwargs = '{"num_cycles": 2}'""".replace(r"\t", "\t").replace("\n", "\r\n")
    )
    config = shown("train", "--config", str(tmp_path / "run.toml"))
    assert config["output_dir"] == 'a "#1" \u00fc' and config["model_name_or_path"] == r"C:\#1"
    assert config["train_file"] == ["a, b.csv", "c].csv"] and config["validation_file"] == ["v.csv"]
    assert config["eval_strategy"] == "epoch" and config["seed"] == 7
    assert config["lr_scheduler_kwargs"] == '{"num_cycles": 2}'
