"""Writes strake/optim/testdata/learning_rates.json: learning rates of Transformers' and DeepSpeed's schedules.

Usage: make_schedule_fixture.py DEEPSPEED_SOURCE [REPOSITORY_ROOT]    (needs torch, transformers 5.23 and DeepSpeed's
source tree 0.19.8, of which only runtime/lr_schedules.py is run)
"""

import importlib.util
import json
import logging
import pathlib
import sys
import types

import torch
import transformers

DEEPSPEED = pathlib.Path(sys.argv[1])
ROOT = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else pathlib.Path(__file__).parents[1])
STEPS = 24  # beyond total_steps: the rate after the last update is logged too

CASES = [  # (type, learning rate, warm-up steps, total steps, lr_scheduler_kwargs)
    ("linear", 5e-5, 0, 20, {}),
    ("linear", 2e-5, 6, 20, {}),
    ("linear", 2e-5, 20, 20, {}),
    ("cosine", 2e-5, 3, 20, {}),
    ("cosine", 3e-4, 0, 17, {"num_cycles": 1.5}),
    ("cosine_with_restarts", 2e-5, 2, 20, {}),
    ("cosine_with_restarts", 1e-3, 2, 20, {"num_cycles": 3}),
    ("polynomial", 2e-5, 4, 20, {}),
    ("polynomial", 1e-4, 0, 19, {"power": 2.5, "lr_end": 1e-6}),
    ("constant", 2e-5, 5, 20, {}),
    ("constant_with_warmup", 2e-5, 5, 20, {}),
    ("inverse_sqrt", 1e-3, 4, 20, {}),
    ("inverse_sqrt", 1e-3, 0, 20, {}),
    ("inverse_sqrt", 1e-3, 4, 20, {"timescale": 50}),
    ("cosine_with_min_lr", 2e-5, 3, 20, {"min_lr": 1e-6}),
    ("cosine_with_min_lr", 2e-5, 3, 20, {"min_lr_rate": 0.1, "num_cycles": 1}),
    ("cosine_warmup_with_min_lr", 2e-5, 3, 20, {"min_lr": 1e-6}),
    ("cosine_warmup_with_min_lr", 2e-5, 5, 20, {"min_lr_rate": 0.2, "warmup_lr_rate": 0.05}),
    ("cosine_warmup_with_min_lr", 2e-5, 1, 20, {"min_lr_rate": 0.2, "warmup_lr_rate": 0.05, "num_cycles": 1.5}),
    ("warmup_stable_decay", 2e-5, 4, 20, {"num_decay_steps": 8}),
    (
        "warmup_stable_decay",
        2e-5,
        4,
        20,
        {
            "num_decay_steps": 6,
            "num_stable_steps": 5,
            "min_lr_ratio": 0.1,
            "warmup_type": "cosine",
            "decay_type": "linear",
        },
    ),
    ("warmup_stable_decay", 2e-5, 4, 20, {"num_decay_steps": 16, "warmup_type": "1-sqrt", "decay_type": "1-sqrt"}),
    ("warmup_stable_decay", 2e-5, 0, 20, {"num_decay_steps": 10, "num_cycles": 1.5}),
]
CYCLE = {"cycle_min_lr": 1e-4, "cycle_max_lr": 1e-3, "cycle_first_step_size": 6}
DEEPSPEED_CASES = [  # (type, learning rate, params)
    ("WarmupLR", 2e-5, {"warmup_num_steps": 8}),
    ("WarmupLR", 2e-5, {"warmup_num_steps": 8, "warmup_type": "linear", "warmup_min_lr": 1e-6, "warmup_max_lr": 1e-3}),
    ("WarmupLR", 2e-5, {"warmup_num_steps": 1}),
    ("WarmupLR", 2e-5, {}),
    ("WarmupDecayLR", 2e-5, {"total_num_steps": 20, "warmup_num_steps": 5}),
    ("WarmupDecayLR", 2e-5, {"total_num_steps": 20, "warmup_num_steps": 5, "warmup_type": "linear"}),
    ("WarmupDecayLR", 2e-5, {"total_num_steps": 3, "warmup_num_steps": 5, "warmup_max_lr": 1e-4}),
    ("WarmupCosineLR", 2e-5, {"total_num_steps": 20, "warmup_num_steps": 5}),
    (
        "WarmupCosineLR",
        3e-4,
        {
            "total_num_steps": 18,
            "warmup_num_steps": 4,
            "warmup_min_ratio": 0.1,
            "cos_min_ratio": 0.2,
            "warmup_type": "linear",
        },
    ),
    ("OneCycle", 2e-5, CYCLE),
    ("OneCycle", 2e-5, CYCLE | {"cycle_second_step_size": 9, "cycle_momentum": False}),
    ("OneCycle", 2e-5, CYCLE | {"decay_step_size": 3, "decay_lr_rate": 0.5, "decay_mom_rate": 0.01}),
    (
        "OneCycle",
        2e-5,
        CYCLE
        | {"cycle_second_step_size": 7, "cycle_first_stair_count": 3, "cycle_min_mom": 0.7, "cycle_max_mom": 0.95},
    ),
    ("OneCycle", 2e-5, CYCLE | {"cycle_first_stair_count": 3, "cycle_second_stair_count": 2}),
    ("OneCycle", 2e-5, CYCLE | {"cycle_second_step_size": 0}),
    ("LRRangeTest", 2e-5, {"lr_range_test_step_size": 5}),
    (
        "LRRangeTest",
        2e-5,
        {
            "lr_range_test_step_size": 5,
            "lr_range_test_min_lr": 1e-4,
            "lr_range_test_step_rate": 3,
            "lr_range_test_staircase": True,
        },
    ),
]
WARMUPS = [(0, 100), (7, 100), (7.9, 100), (0.06, 1000), (0.06, 1001), (0.1, 3), (1, 50), (0.999999, 50)]


def learning_rates(case):
    name, peak, warmup, total, kwargs = case
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=peak)
    schedule = transformers.get_scheduler(name, optimizer, warmup, total, scheduler_specific_kwargs=dict(kwargs))
    rates = []
    for _ in range(STEPS):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return {
        "type": name,
        "learning_rate": peak,
        "warmup_steps": warmup,
        "total_steps": total,
        "kwargs": kwargs,
        "rates": rates,
    }


def deepspeed_schedules():
    """deepspeed/runtime/lr_schedules.py without the rest of the package."""
    stand_in = types.ModuleType("deepspeed.utils")
    stand_in.logger = logging.getLogger("deepspeed")
    stand_in.logger.setLevel(logging.ERROR)
    sys.modules |= {"deepspeed": types.ModuleType("deepspeed"), "deepspeed.utils": stand_in}
    path = DEEPSPEED / "deepspeed/runtime/lr_schedules.py"
    spec = importlib.util.spec_from_file_location("lr_schedules", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def deepspeed_rates(schedules, case):
    """As DeepSpeed's engine: the scheduler steps after the optimizer."""
    name, peak, params = case
    optimizer = torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))], lr=peak)
    schedule = getattr(schedules, name)(optimizer, **params)
    rates, betas = [], []
    for _ in range(STEPS):
        rates.append(optimizer.param_groups[0]["lr"])
        betas.append(optimizer.param_groups[0]["betas"])
        optimizer.step()
        schedule.step()
    cycles = name == "OneCycle" and params.get("cycle_momentum", True)
    result = {"type": name, "learning_rate": peak, "kwargs": params, "rates": rates}
    return result | ({"betas": betas} if cycles else {})


def warmup_steps(value, total):
    arguments = types.SimpleNamespace(warmup_steps=value)
    return {
        "warmup_steps": value,
        "total_steps": total,
        "result": transformers.TrainingArguments.get_warmup_steps(arguments, total),
    }


def main():
    cases = ",\n    ".join(json.dumps(learning_rates(case)) for case in CASES)
    warmups = ",\n    ".join(json.dumps(warmup_steps(*case)) for case in WARMUPS)
    schedules = deepspeed_schedules()
    deepspeed = ",\n    ".join(json.dumps(deepspeed_rates(schedules, case)) for case in DEEPSPEED_CASES)
    version = (DEEPSPEED / "version.txt").read_text().strip()
    text = (
        '{\n  "made_by": "tools/make_schedule_fixture.py,'
        f' transformers {transformers.__version__}, deepspeed {version}",\n'
        f'  "schedules": [\n    {cases}\n  ],\n  "deepspeed": [\n    {deepspeed}\n  ],\n'
        f'  "warmups": [\n    {warmups}\n  ]\n}}\n'
    )
    (ROOT / "strake/optim/testdata/learning_rates.json").write_text(text)


if __name__ == "__main__":
    main()
