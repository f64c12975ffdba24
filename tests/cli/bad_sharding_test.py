"""--deepspeed, --fsdp and --fsdp_config that are wrong: refused by file and key before anything is written."""

import json

import pytest
from program import environment, files_in, run, run_mpi
from refusals import FILE, USAGE

# What is wrong whatever the model: (ds_config.json, flags, what the message says after the file's name).
BAD_FILES = [
    ({"zero_optimisation": {"stage": 3}}, ["key 'zero_optimisation': unknown; did you mean 'zero_optimization'?"]),
    ({"zero_optimization": {"stagee": 3}}, ["key 'zero_optimization.stagee': unknown; did you mean 'stage'?"]),
    (
        {"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "pin_memry": True}}},
        ["key 'zero_optimization.offload_optimizer.pin_memry': unknown; did you mean 'pin_memory'?"],
    ),
    ({"stage": 3}, ["key 'stage': unknown here; it belongs at 'zero_optimization.stage'"]),
    ({"zero_optimization.stage": 3}, ["key 'zero_optimization.stage': unknown; levels are nested objects, not dots"]),
    ({"max_grad_norm": 1.0}, ["key 'max_grad_norm': unknown; the key is 'gradient_clipping'"]),
    ({"zero_optimization": {"stage": 4}}, ["key 'zero_optimization.stage': 4 is not in [0, 3]"]),
    ({"train_batch_size": "8"}, ["key 'train_batch_size': found the text \"8\"", "write 8 without quotes"]),
    ({"train_batch_size": 8.5}, ["key 'train_batch_size': 8.5 is not a whole number"]),
    ({"train_batch_size": 0}, ["key 'train_batch_size': 0 is not in [1, "]),
    ({"bf16": {"enabled": "true"}}, ["key 'bf16.enabled': found the text \"true\"", "write true without quotes"]),
    ({"bf16": True}, ["key 'bf16': found true, expected an object"]),
    (
        {"zero_optimization": {"offload_param": {"device": "disk"}}},
        ['offload_param.device\': "disk" is none of none, c'],
    ),
    ({"optimizer": {"type": "AdanW"}}, ["key 'optimizer.type': no optimizer is called 'AdanW'; did you mean 'AdamW'?"]),
    ({"optimizer": {"type": "Muon"}}, ["key 'optimizer.type': Muon"]),
    ({"scheduler": {"type": "WarmupLr2"}}, ["key 'scheduler.type': \"WarmupLr2\" is none of"]),
    ({"gradient_clipping": -1}, ["key 'gradient_clipping': -1 is below 0"]),
    (
        {"zero_optimization": {"zero_quantized_weights": True}},
        ["key 'zero_optimization.zero_quantized_weights': quant"],
    ),
    ({"pipeline": {"stages": 2}}, ["key 'pipeline.stages': pipeline stages are not there yet"]),
    ({"tensor_parallel": {"autotp_size": 2}}, ["key 'tensor_parallel.autotp_size': "]),
    ({"elasticity": {"enabled": True}}, ["key 'elasticity.enabled': "]),
]
# What shows once ranks, flags and model are known.
BAD_TOGETHER = [
    (
        {"train_batch_size": 6, "train_micro_batch_size_per_gpu": 4},
        {},
        ["train_batch_size=6 is not a multiple of train_micro_batch_size_per_gpu=4 * 1 ranks"],
    ),
    (
        {"train_batch_size": 6, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2},
        {"ranks": 2},
        ["train_batch_size=6 is not", "gradient_accumulation_steps=2 * 2 ranks = 16"],
    ),
    ({"train_batch_size": 9}, {"ranks": 2}, ["train_batch_size=9 is not a multiple of", "2 ranks"]),
    ({"gradient_accumulation_steps": 4}, {}, ["gradient_accumulation_steps alone", "train_micro_batch_size_per_gpu"]),
    ({"fp16": {"enabled": True}, "bf16": {"enabled": True}}, {}, ["fp16 (file) and bf16 (file) cannot both be on"]),
    ({"fp16": {"enabled": True}}, {"bf16": True}, ["fp16 (file) and bf16 (--bf16) cannot both be on"]),
    (
        {"bf16": {"enabled": True}, "data_types": {"param_dtype": "fp16"}},
        {},
        ["data_types.param_dtype fp16 with a computation in bf16 is not there yet"],
    ),
    (
        {"bf16": {"enabled": True, "bf16_optimizer_states": True}},
        {},
        ["bf16.bf16_optimizer_states needs bf16.bf16_master_weights_and_grads"],
    ),
    (
        {"bf16": {"enabled": True, "bf16_master_weights_and_grads": True}},
        {},
        ["bf16.bf16_master_weights_and_grads needs bf16.bf16_optimizer_states"],
    ),
    (
        {"bf16": {"bf16_master_weights_and_grads": True, "bf16_optimizer_states": True}},
        {},
        ["bf16.bf16_master_weights_and_grads needs bf16.enabled, which is off"],
    ),
    (
        {
            "bf16": {"enabled": True, "bf16_master_weights_and_grads": True, "bf16_optimizer_states": True},
            "data_types": {"grad_accum_dtype": "fp32"},
        },
        {},
        ["data_types.grad_accum_dtype=fp32 contradicts bf16.bf16_master_weights_and_grads"],
    ),
    (
        {"fp16": {"fp16_master_weights_and_grads": True}},
        {},
        ["fp16.fp16_master_weights_and_grads needs fp16.enabled, which is off"],
    ),
    (
        {"fp16": {"enabled": True, "fp16_master_weights_and_grads": True}, "data_types": {"grad_accum_dtype": "bf16"}},
        {},
        ["data_types.grad_accum_dtype=bf16 contradicts fp16.fp16_master_weights_and_grads, which adds gradients up in"],
    ),
    (
        {"fp16": {"enabled": True, "fp16_master_weights_and_grads": True}},
        {"optim": "lion"},
        ["fp16_master_weights_and_grads is there for Adam and AdamW, as in DeepSpeed, and the optimizer is lion"],
    ),
    (
        {"fp16": {"enabled": True, "fp16_master_weights_and_grads": True}, "optimizer": {"type": "Lamb"}},
        {},
        ["fp16_master_weights_and_grads is there for Adam and AdamW, as in DeepSpeed, and the optimizer is lamb"],
    ),
    ({"bf16": {"enabled": True}}, {"fp16": True}, ["fp16 (--fp16) and bf16 (file) cannot both be on"]),
    ({"fp16": {"enabled": False}}, {"fp16": True}, ["ds fp16.enabled=false vs --fp16=true"]),
    (
        {"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme"}}},
        {},
        ["offload_param.device=nvme needs zero_optimization.offload_param.nvme_path"],
    ),
    (
        {"zero_optimization": {"stage": 1, "offload_optimizer": {"device": "nvme"}}},
        {},
        ["offload_optimizer.device=nvme needs zero_optimization.offload_optimizer.nvme_path"],
    ),
    (
        {"zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}},
        {},
        ["zero_optimization.offload_param.device=cpu needs stage 3, not 2"],
    ),
    (
        {"zero_optimization": {"stage": 3, "mics_shard_size": 3}},
        {"ranks": 4},
        ["zero_optimization.mics_shard_size=3 does not divide 4 ranks"],
    ),
    (
        {"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 2, "mics_shard_size": 2}},
        {"ranks": 4},
        ["mics_shard_size=2 and zero_optimization.zero_hpz_partition_size=2 contradict each other"],
    ),
    (
        {"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "/no/such/folder"}}},
        {"dry_run": True},
        ["offload_optimizer.nvme_path: /no/such/folder does not exist, expected a folder on the disk to use"],
    ),
    (
        {"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "/" + "n" * 300}}},
        {},
        ["offload_optimizer.nvme_path: /nnn", "File name too long, expected a folder on the disk to use"],
    ),
    (
        {"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": __file__}}},
        {},
        [f"offload_optimizer.nvme_path: {__file__} is no folder, expected a folder on the disk to use"],
    ),
    (
        {"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 4}},
        {"ranks": 2},
        ["zero_optimization.zero_hpz_partition_size=4 does not divide 2 ranks"],
    ),
    (
        {"optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}},
        {"learning_rate": 1e-4},
        ["ds optimizer.params.lr=0.001 vs --learning_rate=0.0001", 'leave these flags out, or write "auto"'],
    ),
    (
        {"train_micro_batch_size_per_gpu": 4},
        {"per_device_train_batch_size": 8},
        ["ds train_micro_batch_size_per_gpu=4 vs --per_device_train_batch_size=8"],
    ),
    ({"bf16": {"enabled": False}}, {"bf16": True}, ["ds bf16.enabled=false vs --bf16=true"]),
    ({"gradient_clipping": 0.5}, {"max_grad_norm": 1}, ["ds gradient_clipping=0.5 vs --max_grad_norm=1"]),
    (
        {"scheduler": {"type": "WarmupLR"}},
        {"lr_scheduler_type": "cosine"},
        ['ds scheduler.type="WarmupLR" vs --lr_scheduler_type="cosine"'],
    ),
    (
        {"scheduler": {"type": "WarmupLR"}},
        {"lr_scheduler_kwargs": '{"num_cycles": 2}'},
        ["scheduler.params and --lr_scheduler_kwargs contradict each other"],
    ),
    (
        {"dataloader_drop_last": True},
        {"dataloader_drop_last": "false"},
        ["ds dataloader_drop_last=true vs --dataloader_drop_last=false", "leave these flags out, or the keys"],
    ),
    ({"optimizer": {"type": "AdamW"}}, {"optim": "sgd"}, ["optimizer.type is AdamW and --optim is sgd"]),
    ({"optimizer": {"type": "SGD"}}, {"optim": "lion"}, ["optimizer.type is SGD and --optim is lion"]),
    (
        {"optimizer": {"type": "SGD"}},
        {"optim": "sgd", "optim_args": "momentum=0.9"},
        ["optimizer.params and --optim_args"],
    ),
    (
        {
            "optimizer": {"type": "AdamW"},
            "scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 0, "cycle_max_lr": 1, "cycle_max_mom": 1}},
        },
        {},
        ["scheduler.params of schedule 'OneCycle': cycle_min_mom=0.8 and cycle_max_mom=1 must be below 1"],
    ),
    (
        {"optimizer": {"type": "Lamb", "params": {"momentum": 0.9}}},
        {},
        ["optimizer.params.momentum: Lamb has no such parameter; it has: lr, betas, eps"],
    ),
    ({"optimizer": {"params": {"lr": 1e-3}}}, {}, ["optimizer.params is without optimizer.type"]),
    ({"optimizer": {"type": "AdamW", "params": {"betas": [0.9, 1]}}}, {}, ["optimizer: beta2=1 is not in [0, 1)"]),
    ({"scheduler": {"type": "WarmupDecayLR"}}, {}, ["WarmupDecayLR needs scheduler.params.total_num_steps"]),
    (
        {"optimizer": {"type": "AdamW"}, "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 0}}},
        {},
        ["scheduler.params.warmup_num_steps"],
    ),
]
BAD_FSDP = [
    ("full_shart", None, ["--fsdp: unknown option 'full_shart'; did you mean 'full_shard'?"]),
    (" ", None, ["--fsdp is blank; options are: offload, auto_wrap, full_shard"]),
    ("full_shard no_shard", None, ["--fsdp: full_shard and no_shard contradict each other"]),
    ("full_shard", {"min_num_param": 3}, ["fsdp.json: key 'min_num_param': unknown; did you mean 'min_num_params'?"]),
    ("full_shard", {"fsdp_min_num_params": "3"}, ["fsdp.json: key 'min_num_params'", "write 3 without quotes"]),
    ("full_shard", {"xla": True}, ["fsdp.json: key 'xla': there is no XLA"]),
    ("full_shard", {"sharding_strategy": "FULL_SHARD"}, ["fsdp.json: key 'sharding_strategy'", "give it to --fsdp"]),
    ("full_shard", {"reshard_after_forward": False}, ["--fsdp full_shard contradicts reshard_after_forward=false"]),
    ("full_shard", {"fsdp_xla": True, "xla": True}, ["fsdp.json: key 'xla' is there with and without 'fsdp_'"]),
]


def case_name(value):
    return json.dumps(value).translate({ord(c): None for c in ' "{}'}) if isinstance(value, dict) else None


@pytest.fixture
def ds_config(place):
    return lambda content: place.file("ds_config.json", json.dumps(content))


@pytest.mark.parametrize(("content", "named"), BAD_FILES, ids=case_name)
def test_keys_and_values_that_do_not_exist(place, ds_config, content, named):
    """The file is looked at before model and data, which are not there."""
    path = ds_config(content)
    missing = {"model_name_or_path": "none", "train_file": "none.parquet"}
    place.refuses(USAGE, place.train(deepspeed=path, **missing), f"{path}: ", *named)


@pytest.mark.parametrize(("content", "flags", "named"), BAD_TOGETHER, ids=case_name)
def test_values_that_do_not_fit_together(place, ds_config, content, flags, named):
    path = ds_config(content)
    place.refuses(USAGE, place.train(deepspeed=path, **flags), path, *named)


def test_every_problem_of_a_file_is_listed(place, ds_config):
    path = ds_config({"zero_optimization": {"stage": 7, "overlap_com": True}, "train_batch_size": "8"})
    before = files_in(place.output_dir)
    line = place.train(deepspeed=path)
    for outcome in (run(line), run_mpi(2, line)):
        assert outcome.code == USAGE, outcome.err
        assert f"{path}: 3 problems:\n" in outcome.err
        for named in (
            "'zero_optimization.stage': 7 is not in [0, 3]",
            "'zero_optimization.overlap_com': unknown; did you mean 'overlap_comm'?",
            "'train_batch_size': found the text \"8\", expected an integer; write 8 without quotes",
        ):
            assert f"- key {named}" in outcome.err
        assert files_in(place.output_dir) == before


@pytest.mark.parametrize("verb_flags", [{}, {"dry_run": True}], ids=["run", "dry_run"])
def test_a_dry_run_refuses_the_same(place, ds_config, verb_flags):
    path = ds_config({"train_batch_size": 7})
    place.refuses(USAGE, place.train(deepspeed=path, ranks=2, **verb_flags), path, "train_batch_size=7 is not")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("{", "line 1, column 1: '{' has no '}'"),
        ("[1]", "found array, expected an object"),
        ('{"train_batch_size": 8, "train_batch_size": 8}', "train_batch_size"),
        ('{"gradient_clipping": 1e400}', "line 1, column 23: number 1e400 is out of range"),
        ('{"a":' * 2000 + "1" + "}" * 2000, ""),
    ],
    ids=["cut", "list", "duplicate", "overflow", "deep"],
)
def test_files_that_are_no_configuration(place, text, named):
    for flag, path in (("deepspeed", place.file("ds.json", text)), ("fsdp_config", place.file("fsdp.json", text))):
        other = {"fsdp": "full_shard"} if flag == "fsdp_config" else {}
        place.refuses(USAGE, place.train(**{flag: path}, **other), path, named)


def test_files_that_are_not_there(place):
    missing = place.path / "none.json"
    named = [f"'{missing}' is neither a file that exists nor a JSON object"]
    place.refuses(USAGE, place.train(deepspeed=missing), "--deepspeed", *named)
    place.refuses(USAGE, place.train(fsdp="full_shard", fsdp_config=missing), "--fsdp_config", *named)
    place.refuses(FILE, place.train(deepspeed=place.path), f"{place.path} is not a regular file")


def test_a_long_text_is_not_taken_for_a_file(place):
    place.refuses(
        USAGE, place.train(deepspeed="x" * 5000), "--deepspeed", "neither a file that exists nor a JSON object"
    )


# --fsdp


@pytest.mark.parametrize(("words", "config", "named"), BAD_FSDP)
def test_fsdp_that_makes_no_sense(place, words, config, named):
    path = None if config is None else place.file("fsdp.json", json.dumps(config))
    missing = {"model_name_or_path": "none", "train_file": "none.parquet"}
    place.refuses(USAGE, place.train(fsdp=words, fsdp_config=path, **missing), *named)


def test_flags_that_exclude_each_other(place, ds_config):
    path = ds_config({})
    place.refuses(USAGE, place.train(deepspeed=path, fsdp="full_shard"), "--deepspeed and --fsdp contradict each other")
    place.refuses(USAGE, place.train(fsdp_config=path), "--fsdp_config needs --fsdp")


@pytest.mark.parametrize(
    ("variables", "flags", "flag"),
    [
        ({"ACCELERATE_USE_DEEPSPEED": "true"}, {"bf16": True}, "--deepspeed ds_config.json"),
        ({"ACCELERATE_USE_FSDP": "true"}, {}, "--fsdp full_shard"),
        ({"ACCELERATE_MIXED_PRECISION": "bf16"}, {"fsdp": "full_shard"}, "--bf16 true"),
    ],
)
def test_a_configuration_that_accelerate_hands_on_is_not_dropped(place, variables, flags, flag):
    env = environment(**variables)
    place.refuses(USAGE, place.train(**flags), f"{next(iter(variables))}", "set by accelerate launch", flag, env=env)
    given = {"ACCELERATE_USE_DEEPSPEED": "false", "ACCELERATE_MIXED_PRECISION": "no"} | variables
    flags |= {"deepspeed": "{}"} if "--deepspeed" in flag else {"fsdp": "full_shard"} if "--fsdp" in flag else {}
    assert run(place.train(dry_run=True, **(flags | {"bf16": True})), env=environment(**given)).code == 0


def test_a_file_of_accelerate_is_told_from_its_section(place):
    path = place.file("accelerate.json", json.dumps({"distributed_type": "FSDP", "fsdp_config": {"fsdp_version": 2}}))
    line = place.train(fsdp="full_shard", fsdp_config=path)
    place.refuses(USAGE, line, f"{path}", "a configuration of Accelerate, whose section fsdp_config is what")
