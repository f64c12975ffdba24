"""Flags that do not exist, make no sense or contradict each other, on the command line and in a --config file."""

import pathlib
import re

import pytest
from program import BINARY, environment, files_in, run
from refusals import FILE, USAGE

TRAIN = {"model_name_or_path": "m", "train_file": "t.parquet", "output_dir": "o"}
PREDICT = {"model_name_or_path": "m", "input": "t.parquet", "output": "o.parquet"}
WORKER = {"model_name_or_path": "nowhere"}
EVALUATE = {"model_name_or_path": "m", "input": "t.parquet"}
PREPARE = {"tokenizer": "m", "input": "t.parquet", "output": "o.parquet"}
TOKENIZE = {"tokenizer": "m", "input": "t.jsonl"}


def line(verb, flags):
    words = [BINARY, verb]
    for name, value in flags.items():
        words += [f"--{name}"] if value is True else [f"--{name}", str(value)]
    return words


def refuses(folder, words, *named, code=USAGE, **changes):
    outcome = run(words, cwd=folder, env=environment(**changes))
    assert outcome.code == code, outcome.err
    message = outcome.err.splitlines()[-1]
    for text in named:
        assert str(text) in message
    assert outcome.out == ""


# Verbs


def test_no_verb_lists_the_verbs(tmp_path):
    outcome = run([BINARY])
    assert outcome.code == USAGE
    assert all(verb in outcome.err for verb in ("train", "predict", "worker", "evaluate", "prepare", "tokenize"))


def test_version_is_that_of_the_project():
    project = (pathlib.Path(__file__).parents[2] / "CMakeLists.txt").read_text()
    (version,) = re.findall(r"project\(strake VERSION ([\d.]+)", project)
    assert run([BINARY, "--version"]).out == f"strake {version}\n"


@pytest.mark.parametrize(("verb", "nearest"), [("trian", "train"), ("predicts", "predict"), ("evalute", "evaluate")])
def test_misspelt_verb(tmp_path, verb, nearest):
    refuses(tmp_path, [BINARY, verb], f"unknown verb '{verb}'", f"did you mean '{nearest}'?")


def test_unknown_verb(tmp_path):
    refuses(tmp_path, [BINARY, "quantize"], "unknown verb 'quantize'")


# Names


@pytest.mark.parametrize(
    ("verb", "flag", "nearest"),
    [
        ("train", "--learning_rat", "--learning_rate"),
        ("train", "--num_train_epoch", "--num_train_epochs"),
        ("train", "--per_device_batch_size", "--per_device_eval_batch_size"),
        ("train", "--output-dir", "--output_dir"),
        ("predict", "--imput", "--input"),
        ("predict", "--max_token_per_batch", "--max_tokens_per_batch"),
        ("evaluate", "--label_colum", "--label_column"),
        ("prepare", "--tokeniser", "--tokenizer"),
        ("tokenize", "--skip_specials_token", "--skip_special_tokens"),
    ],
)
def test_misspelt_flag(tmp_path, verb, flag, nearest):
    refuses(tmp_path, [BINARY, verb, flag, "1"], f"unknown flag {flag}", f"did you mean '{nearest}'?")


@pytest.mark.parametrize(
    ("flag", "hint"),
    [
        ("--do_train", "strake train always trains"),
        ("--evaluation_strategy", "--eval_strategy"),
        ("--pad_to_max_length", "never pads"),
        ("--dataset_name", "--train_file"),
        ("--push_to_hub", "nothing is uploaded"),
        ("--no_cuda", "--device cuda"),
        ("--max_predict_samples", "give a file of those that you want"),
        ("--neftune_noise_alpha", "strake does not have this"),
        ("--remove_unused_columns", "columns that no flag names are not read"),
        ("--shuffle_train_dataset", "shuffled anew in every epoch"),
        ("--metric_name", "--metric_for_best_model"),
        ("--task_name", "--train_file"),
        ("--test_file", "strake predict"),
        ("--do_regression", "--problem_type regression"),
        ("--logging_nan_inf_filter", "the mean of those before it"),
        ("--label_names", "--label_column"),
        ("--include_num_input_tokens_seen", "trainer_state.json"),
        ("--average_tokens_across_devices", "the same on any number of ranks"),
        ("--dtype", "--bf16 or --fp16"),
        ("--attn_implementation", "kernels are chosen"),
        ("--use_liger_kernel", "kernels are chosen"),
        ("--activation_checkpointing_kwargs", "every block is computed again"),
        ("--num_gpus", "--ranks"),
        ("--hostfile", "mpirun"),
    ],
)
def test_flags_of_other_programs_say_what_to_do(tmp_path, flag, hint):
    refuses(tmp_path, [BINARY, "train", flag, "x"], f"{flag}: ", hint)


def test_words_that_are_no_flags(tmp_path):
    refuses(tmp_path, [BINARY, "train", "data.parquet"], "'data.parquet' is not expected")


# Values

BAD_VALUES = [
    ("train", {"learning_rate": "fast"}, ["--learning_rate", "fast"]),
    ("train", {"learning_rate": -1}, ["--learning_rate -1 is negative"]),
    ("train", {"learning_rate": "nan"}, ["--learning_rate nan"]),
    ("train", {"num_train_epochs": 0}, ["--num_train_epochs 0"]),
    ("train", {"num_train_epochs": "inf"}, ["--num_train_epochs inf"]),
    ("train", {"max_steps": 0}, ["--max_steps 0 is neither positive nor -1"]),
    ("train", {"max_steps": 1.5}, ["--max_steps", "'1.5' is not a whole number"]),
    ("train", {"seed": -1}, ["--seed", "'-1' is not a whole number in [0, "]),
    ("train", {"seed": 2**64}, ["--seed", "'18446744073709551616'"]),
    ("train", {"data_seed": -1}, ["--data_seed", "'-1'"]),
    ("train", {"per_device_train_batch_size": 0}, ["--per_device_train_batch_size 0"]),
    ("train", {"per_device_eval_batch_size": -1}, ["--per_device_eval_batch_size -1"]),
    ("train", {"gradient_accumulation_steps": 0}, ["--gradient_accumulation_steps 0"]),
    ("train", {"max_tokens_per_batch": -1}, ["--max_tokens_per_batch -1"]),
    ("train", {"logging_steps": 0}, ["--logging_steps 0"]),
    ("train", {"save_steps": 0}, ["--save_steps 0"]),
    ("train", {"eval_steps": -1}, ["--eval_steps -1"]),
    ("train", {"save_total_limit": -1}, ["--save_total_limit -1"]),
    ("train", {"early_stopping_patience": -3}, ["--early_stopping_patience -3 is negative"]),
    ("train", {"label_column": "text"}, ["--label_column and --text_column are both 'text'"]),
    ("prepare", {"label_column": "text"}, ["--label_column and --text_column are both 'text'"]),
    ("train", {"weight_decay": -0.1}, ["--weight_decay -0.1"]),
    ("train", {"weight_decay": "inf"}, ["--weight_decay inf is not a finite number"]),
    ("train", {"max_grad_norm": "nan"}, ["--max_grad_norm nan is not a finite number"]),
    ("train", {"max_grad_norm": -1}, ["--max_grad_norm -1"]),
    ("train", {"label_smoothing_factor": -0.1}, ["--label_smoothing_factor -0.1 is not in [0, 1]"]),
    ("train", {"label_smoothing_factor": 1.5}, ["--label_smoothing_factor 1.5 is not in [0, 1]"]),
    ("train", {"eval_delay": -1}, ["--eval_delay -1 is negative"]),
    ("train", {"adam_beta1": 1}, ["--adam_beta1 1 is not in [0, 1)"]),
    ("train", {"adam_beta2": -0.1}, ["--adam_beta2 -0.1 is not in [0, 1)"]),
    ("train", {"adam_epsilon": 0}, ["--adam_epsilon 0"]),
    ("train", {"warmup_ratio": 1.5}, ["--warmup_ratio 1.5 is not in [0, 1]"]),
    ("train", {"warmup_ratio": -0.1}, ["--warmup_ratio -0.1 is not in [0, 1]"]),
    ("train", {"warmup_steps": -1}, ["--warmup_steps -1"]),
    ("train", {"max_seq_length": 0}, ["--max_seq_length 0"]),
    ("train", {"ranks": 0}, ["--ranks 0 is not in [1, 4096]"]),
    ("train", {"ddp_timeout": 0}, ["--ddp_timeout 0 is not in [1, 1000000000]"]),
    ("train", {"bf16": "maybe"}, ["--bf16 maybe: neither true nor false"]),
    ("train", {"bf16=": True}, ["--bf16= has an empty value"]),
    ("predict", {"overwrite_output": ""}, ["--overwrite_output '' has an empty value; expected true or false"]),
    ("predict", {"normalize": ""}, ["--normalize : neither true nor false"]),
    ("train", {"fsdp_transformer_layer_cls_to_wrap": "BertLayer"}, ["_to_wrap: every layer is a block of its own"]),
    ("train", {"device": "tpu"}, ["--device tpu is neither cpu nor cuda"]),
    (
        "train",
        {"eval_strategy": "epochs", "validation_file": "v"},
        ["--eval_strategy epochs is none of no, steps, epoch"],
    ),
    ("train", {"save_strategy": "best"}, ["--save_strategy best is not there yet", "--load_best_model_at_end"]),
    ("train", {"save_strategy": "x"}, ["--save_strategy x is none of"]),
    ("train", {"logging_strategy": "best"}, ["--logging_strategy best is none of"]),
    ("train", {"logging_strategy": "x"}, ["--logging_strategy x is none of"]),
    ("train", {"report_to": "wandb"}, ["--report_to wandb", "tensorboard", "metrics.jsonl"]),
    ("train", {"logging_dir": "runs"}, ["--logging_dir is of --report_to tensorboard, which is none"]),
    ("train", {"problem_type": "multi_label"}, ["--problem_type multi_label is none of", "multi_label_classification"]),
    ("train", {"label_column": ""}, ["--label_column is empty"]),
    ("train", {"log_level": "loud"}, ["loud", "debug"]),
    ("train", {"lr_scheduler_type": "quadratic"}, ["lr_scheduler_type", "'quadratic'", "cosine"]),
    ("predict", {"max_seq_length": 0}, ["--max_seq_length 0"]),
    ("predict", {"device": "cuda:one"}, ["--device cuda:one is neither cpu nor cuda"]),
    ("predict", {"device": "cuda:-1"}, ["--device cuda:-1 is neither cpu nor cuda"]),
    ("predict", {"device": "cuda", "precision": "int8"}, ["--precision int8 with --device cuda", "GPUs have bf16"]),
    ("evaluate", {"device": "cuda", "calibrate": True}, ["--calibrate with --device cuda"]),
    ("predict", {"max_tokens_per_batch": 0}, ["--max_tokens_per_batch 0"]),
    ("predict", {"max_tokens_per_batch": 10**12}, ["--max_tokens_per_batch 1000000000000", "at most 1048576"]),
    ("evaluate", {"label_column": ""}, ["--label_column is empty"]),
    ("prepare", {"max_seq_length": -4}, ["--max_seq_length -4"]),
    ("tokenize", {"max_seq_length": -1}, ["--max_seq_length -1"]),
    ("tokenize", {"max_seq_length": 8, "stride": -1}, ["--stride -1"]),
]
CONTRADICTIONS = [
    ("train", {"validation_file": "v.parquet"}, ["--validation_file", "--eval_strategy no"]),
    ("train", {"eval_strategy": "epoch"}, ["--validation_file", "--eval_strategy epoch", "needs a file"]),
    (
        "train",
        {"overwrite_output_dir": True, "resume_from_checkpoint": "true"},
        ["--overwrite_output_dir", "--resume_from_checkpoint true"],
    ),
    ("train", {"bf16": True, "fp16": True}, ["--bf16 and --fp16 contradict each other"]),
    ("train", {"warmup_steps": 5, "warmup_ratio": 0.1}, ["--warmup_steps 5", "--warmup_ratio 0.1"]),
    (
        "train",
        {"load_best_model_at_end": True},
        ["--load_best_model_at_end", "--save_strategy", "--eval_strategy (no)"],
    ),
    (
        "train",
        {"load_best_model_at_end": True, "eval_strategy": "epoch", "validation_file": "v"},
        ["--save_strategy (steps)", "--eval_strategy (epoch)"],
    ),
    (
        "train",
        {
            "load_best_model_at_end": True,
            "eval_strategy": "steps",
            "validation_file": "v",
            "eval_steps": 3,
            "save_steps": 4,
        },
        ["--save_steps 4", "--eval_steps 3"],
    ),
    ("train", {"early_stopping_patience": 2}, ["--early_stopping_patience 2 needs --eval_strategy"]),
    ("predict", {"label_column": "label"}, ["--label_column label", "strake evaluate"]),
    ("prepare", {"problem_type": "regression"}, ["--problem_type regression needs a --label_column"]),
    ("worker", {"output_columns": "x"}, ["--output_columns x"]),
    ("worker", {"max_tokens_per_batch": 0}, ["--max_tokens_per_batch 0"]),
    ("tokenize", {"stride": 2}, ["--stride 2 needs --max_seq_length"]),
    ("tokenize", {"skip_special_tokens": True}, ["--skip_special_tokens needs --decode"]),
    ("tokenize", {"decode": True, "max_seq_length": 8}, ["--decode and --max_seq_length 8"]),
]
NEEDED = {
    "train": TRAIN,
    "predict": PREDICT,
    "evaluate": EVALUATE,
    "prepare": PREPARE,
    "tokenize": TOKENIZE,
    "worker": WORKER,
}


def name_of(value):
    return "_".join(value) if isinstance(value, dict) else value if isinstance(value, str) else ""


@pytest.mark.parametrize(("verb", "flags", "named"), BAD_VALUES + CONTRADICTIONS, ids=name_of)
def test_values_that_make_no_sense(tmp_path, verb, flags, named):
    """None of the files exist: flags are looked at first."""
    refuses(tmp_path, line(verb, NEEDED[verb] | flags), *named)
    assert files_in(tmp_path) == {}


@pytest.mark.parametrize(("verb", "flag"), [(verb, flag) for verb, flags in NEEDED.items() for flag in flags])
def test_flags_that_are_needed(tmp_path, verb, flag):
    flags = {name: value for name, value in NEEDED[verb].items() if name != flag}
    refuses(tmp_path, line(verb, flags), f"--{flag} names no")


def test_flag_without_its_value(tmp_path):
    refuses(tmp_path, [BINARY, "train", "--learning_rate"], "--learning_rate")
    refuses(tmp_path, [BINARY, "train", "--train_file"], "--train_file")


# --config


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("group_by_length = true\n", ["run.toml:1: group_by_length: strake never pads"]),
        ("learnin_rate = 3\n", ["unknown key 'learnin_rate'", "did you mean 'learning_rate'?"]),
        ("[training]\nlearning_rate = 1e-3\n", ["section [training]"]),
        ("bf16 = 'maybe'\n", ["--bf16", "maybe"]),
        ("seed = -1\n", ["--seed", "'-1'"]),
        ("learning_rate = 1e-3 2\n", ["run.toml:1: ", "expected a comment or whitespace, saw '2'", "lists in [ ]"]),
        ("learning_rate = [1e-3, 2]\n", ["run.toml:1: --learning_rate takes one value, and here are 2"]),
        ("max_steps = 2\nmax_steps = 3\n", ["run.toml:2: ", "cannot redefine existing integer 'max_steps'"]),
        (
            "max_steps = 2\nseed = 1\n\nmax_steps = 2\n",
            ["run.toml:4: ", "cannot redefine existing integer 'max_steps'"],
        ),
        (
            "activation_checkpointing = true\ngradient_checkpointing = true\n",
            ["run.toml:2: key 'gradient_checkpointing' is there already, by its other name 'activation_checkpointing'"],
        ),
        ("train_file = 'a'\ntrain_file = 'b'\n", ["run.toml:2: ", "cannot redefine existing string 'train_file'"]),
        ("max_steps: 2\n", ["run.toml:1: ", "expected '=', saw ':'", "lines of TOML are key = value"]),
        ("max_steps =\n", ["run.toml:1: ", "expected value"]),
        ("freeze = 'a\n", ["run.toml:1: ", "parsing literal string"]),
        ("eval_strategy = epoch\n", ["run.toml:1: ", "could not determine value type", "strings in quotes"]),
        ("bf16 = True\n", ["run.toml:1: ", "expected 'true', saw 'T'"]),
        ("seed = 99999999999999999999\n", ["run.toml:1: ", "'99999999999999999999' is not representable"]),
        ("run_name = 2026-11-25\n", ["run.toml:1: 'run_name' holds a date or a time; expected a string"]),
        ("train_file = [['a']]\n", ["run.toml:1: 'train_file' holds a list in a list"]),
        ('freeze = "a" b\n', ["run.toml:1: ", "expected a comment or whitespace, saw 'b'"]),
        ('output_dir = "C:\\out"\n', ["run.toml:1: ", "unknown escape sequence '\\o'", "double each \\"]),
        ("bf16\n", ["run.toml:1: ", "expected '='", "lines of TOML are key = value"]),
        ("train_file = ['a'\n", ["run.toml:", "parsing array", "end-of-file"]),
        ("train_file = []\n", ["run.toml:1: the list of 'train_file' is empty"]),
        ("train_file = ['a' 'b']\n", ["run.toml:1: ", "expected comma or closing ']'"]),
        (
            "lr_scheduler_kwargs = {num_cycles = 2}\n",
            ["run.toml:1: 'lr_scheduler_kwargs' is a table", "JSON in quotes"],
        ),
        ("[lr_scheduler_kwargs]\nnum_cycles = 2\n", ["section [lr_scheduler_kwargs]", "tables as JSON in quotes"]),
    ],
)
def test_bad_configuration_file(tmp_path, text, named):
    (tmp_path / "run.toml").write_text(text)
    refuses(tmp_path, line("train", TRAIN | {"config": "run.toml"}), *named)


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("run.json", '{"max_steps": 2}', "JSON"),
        ("run.json", "max_steps = 2", "JSON"),
        ("run.toml", '\n {\n"max_steps": 2}', "JSON"),
        ("run.yaml", "max_steps: 2\n", "YAML"),
        ("run.yml", "", "YAML"),
        ("run", '{"max_steps": 2}', "JSON"),
    ],
)
def test_configuration_in_another_language(tmp_path, name, text, kind):
    (tmp_path / name).write_text(text)
    named = [f"--config {name}: a TOML file is expected", "key = value", f"this is {kind}"]
    refuses(tmp_path, line("train", TRAIN | {"config": name}), *named)


@pytest.mark.parametrize("name", ["run.json", "run.yaml", "run.toml"])
def test_configuration_without_its_flag(tmp_path, name):
    refuses(tmp_path, [BINARY, "train", name], f"'{name}' is not expected here", "TOML file", "--config run.toml")


def test_missing_configuration_file(tmp_path):
    refuses(tmp_path, line("train", TRAIN | {"config": "none.toml"}), "none.toml")


@pytest.mark.parametrize(
    ("device", "code", "named"),
    [("/dev/zero", USAGE, "more than 16777216 bytes"), ("/proc/self/mem", FILE, "cannot be read")],
)
def test_configuration_without_an_end(tmp_path, device, code, named):
    refuses(tmp_path, line("train", TRAIN | {"config": device}), f"--config {device}: {named}", code=code)


# Environment


def test_ranks_flag_under_a_launcher(tmp_path):
    launcher = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29999"}
    refuses(tmp_path, line("train", TRAIN | {"ranks": 2}), "--ranks 2 and 2 ranks started by torchrun", **launcher)


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({"RANK": "2", "WORLD_SIZE": "2"}, ["RANK=2", "WORLD_SIZE=2"]),
        ({"RANK": "x", "WORLD_SIZE": "2"}, ["RANK=x"]),
        ({"RANK": "0", "WORLD_SIZE": "2"}, ["MASTER_ADDR", "MASTER_PORT"]),
        ({"STRAKE_NUM_THREADS": "many"}, ["STRAKE_NUM_THREADS=many"]),
    ],
    ids=["rank", "number", "address", "threads"],
)
def test_environment_that_makes_no_sense(tmp_path, variables, named):
    refuses(tmp_path, line("train", TRAIN), *named, **variables)


def test_seconds_to_start_in_that_are_no_number(tmp_path):
    launcher = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29997"}
    told = "STRAKE_START_SECONDS=5m is not a number of seconds"
    refuses(tmp_path, line("train", TRAIN), told, STRAKE_START_SECONDS="5m", **launcher)


def test_instruction_set_that_is_not_known(place):
    place.refuses(USAGE, place.train(), "STRAKE_ISA", "mmx", env=environment(STRAKE_ISA="mmx"))


def test_missing_model_is_a_file_error(tmp_path):
    refuses(tmp_path, line("train", TRAIN), "m/config.json", "No such file", code=FILE)
    assert files_in(tmp_path) == {}
