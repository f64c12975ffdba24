"""How flags and --config files may be written, as --print_config shows what they come to."""

import json
import re

import pytest
from program import command, environment, run, strake
from refusals import USAGE
from tiny_models import make_model, reviews, write_table


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


def test_the_home_folder_is_meant_by_its_short_name(tmp_path):
    (tmp_path / "run.toml").write_text('output_dir = "~/out"\ntrain_file = ["~/a", "b~/c"]\n')
    words = ["--config", tmp_path / "run.toml", "--model_name_or_path=~/m", "--tokenizer_name", "~", "--print_config"]
    outcome = run(command("train", *words), env=environment(HOME="/home/ada"))
    config = json.loads(outcome.out)
    assert config["output_dir"] == "/home/ada/out" and config["train_file"] == ["/home/ada/a", "b~/c"]
    assert config["model_name_or_path"] == "/home/ada/m" and config["tokenizer_name"] == "/home/ada"
    homeless = run(command("train", *words), env={"PATH": "/bin"})
    assert homeless.code == USAGE and "HOME" in homeless.err


def test_a_character_of_code_zero_is_refused(tmp_path):
    """Of a path the system sees what stands before it: a run found out at its first save."""
    (tmp_path / "run.toml").write_text('seed = 1\noutput_dir = "a\\u0000b"\n')
    outcome = run(command("train", "--config", tmp_path / "run.toml"))
    assert outcome.code == USAGE and "run.toml:2: 'output_dir' holds a character of code 0" in outcome.err


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


def test_fsdp_may_stand_alone(tmp_path):
    needed = ["--model_name_or_path", "m", "--output_dir", "o", "--train_file", "a"]
    (tmp_path / "run.toml").write_text("fsdp = true\n")
    for words, expected in [
        (["--fsdp"], "true"),
        (["--fsdp", "--bf16"], "true"),
        (["--config", str(tmp_path / "run.toml")], "true"),
        (["--fsdp", "full_shard auto_wrap"], "full_shard auto_wrap"),
        (["--fsdp=shard_grad_op"], "shard_grad_op"),
        (["--fsdp", ""], ""),
        ([], ""),
    ]:
        config = shown("train", *needed, *words)
        assert config["fsdp"] == expected and config["bf16"] is ("--bf16" in words)


def test_what_a_configuration_file_may_be_written_like(tmp_path):
    text = r"""# strings, lists and a comment behind each
"output_dir" = "a \"#1\" \u00fc"   # a comment
model_name_or_path = 'C:\#1'# a comment
train_file = [  # a comment
    "a, b.csv",
    'c].csv',   # another
]
validation_file = ['v.csv']
eval_strategy = 'epoch'
seed=7
max_steps = 1_000
learning_rate = 3e-4
bf16 = true
lr_scheduler_type = "cosine_with_restarts"
lr_scheduler_kwargs = '{"num_cycles": 2}'"""
    # As editors on Windows write it.
    (tmp_path / "run.toml").write_text(text, encoding="utf-8-sig", newline="\r\n")
    config = shown("train", "--config", str(tmp_path / "run.toml"))
    assert config["output_dir"] == 'a "#1" \u00fc' and config["model_name_or_path"] == r"C:\#1"
    assert config["train_file"] == ["a, b.csv", "c].csv"] and config["validation_file"] == ["v.csv"]
    assert config["eval_strategy"] == "epoch" and config["seed"] == 7
    assert config["max_steps"] == 1000 and config["learning_rate"] == 3e-4 and config["bf16"] is True
    assert config["lr_scheduler_kwargs"] == '{"num_cycles": 2}'


@pytest.fixture(scope="module")
def needed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("configuration")
    make_model(folder / "base")
    write_table(folder / "train.parquet", reviews(24))
    return {
        "model_name_or_path": folder / "base",
        "train_file": folder / "train.parquet",
        "output_dir": folder / "out",
        "max_seq_length": 32,
        "max_steps": 2,
        "dry_run": True,
    }


BY_EPOCH = {"eval_strategy": "epoch", "validation_file": True}
NO_EVALUATION = "nothing is evaluated without --validation_file and --eval_strategy"


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ({"metric_for_best_model": "f1"}, [f"--metric_for_best_model f1 has no effect: {NO_EVALUATION}"]),
        ({"greater_is_better": "true"}, [f"--greater_is_better true has no effect: {NO_EVALUATION}"]),
        ({"eval_steps": 5}, [f"--eval_steps 5 has no effect: {NO_EVALUATION}"]),
        ({"eval_delay": 5}, [f"--eval_delay 5 has no effect: {NO_EVALUATION}"]),
        ({"eval_on_start": True}, [f"--eval_on_start true has no effect: {NO_EVALUATION}"]),
        ({"eval_steps": 5} | BY_EPOCH, ["--eval_steps 5 has no effect: --eval_strategy is epoch"]),
        ({"metric_for_best_model": "f1", "greater_is_better": "true"} | BY_EPOCH, []),
        ({"eval_steps": 5} | BY_EPOCH | {"eval_strategy": "steps"}, []),
        ({"optim": "sgd", "adam_beta1": 0.5}, ["--adam_beta1 0.5 has no effect: --optim sgd has no betas"]),
        (
            {"optim": "adagrad", "adam_beta2": 0.5, "adam_epsilon": 1e-6},
            [
                "--adam_beta2 0.5 has no effect: --optim adagrad has no betas",
                "--adam_epsilon 1e-06 has no effect: --optim adagrad has its own, eps of --optim_args",
            ],
        ),
        ({"optim": "lion", "adam_beta1": 0.5, "adam_epsilon": 1e-6}, ["--adam_epsilon 1e-06 has no effect"]),
        ({"optim": "lamb", "adam_beta1": 0.5, "adam_epsilon": 1e-6}, []),
        ({"optim": "sgd"}, []),
        ({"save_strategy": "no", "save_steps": 5}, ["--save_steps 5 has no effect: --save_strategy is no"]),
        ({"save_strategy": "no", "async_save": True}, ["--async_save true has no effect: --save_strategy is no"]),
        ({"save_strategy": "epoch", "save_steps": 5}, ["--save_steps 5 has no effect: --save_strategy is epoch"]),
        ({"logging_strategy": "epoch", "logging_steps": 5}, ["--logging_steps 5 has no effect: --logging_strategy is"]),
        ({"logging_strategy": "epoch", "logging_steps": 5, "validation_file": True, "eval_strategy": "steps"}, []),
        ({"lr_scheduler_type": "constant", "warmup_steps": 2}, ["--warmup_steps 2 has no effect: --lr_scheduler_type"]),
        ({"lr_scheduler_type": "constant_with_warmup", "warmup_steps": 2}, []),
        (
            {"deepspeed": '{"optimizer": {"type": "SGD"}}', "adam_beta1": 0.5, "adam_epsilon": 1e-6},
            [
                "--adam_beta1 has no effect: the optimizer of --deepspeed has no betas",
                "--adam_epsilon has no effect: the optimizer of --deepspeed has no epsilon",
            ],
        ),
        ({"deepspeed": '{"optimizer": {"type": "Adagrad"}}', "adam_epsilon": 1e-6}, []),
        ({"adam_beta1": 0.5, "adam_epsilon": 1e-6}, []),
    ],
    ids=lambda value: "_".join(value) if isinstance(value, dict) else "",
)
def test_flags_that_change_nothing_are_told(needed, flags, told):
    if "validation_file" in flags:
        flags = flags | {"validation_file": needed["train_file"]}
    err = strake("train", **needed, **flags).err
    warnings = re.findall(r" warning r0\] (.*has no effect.*)", err)
    assert len(warnings) == len(told) and all(map(str.startswith, warnings, told)), err
