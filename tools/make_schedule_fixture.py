"""Writes strake/optim/testdata/learning_rates.json: learning rates of Transformers' schedules, step by step.

Usage: make_schedule_fixture.py [REPOSITORY_ROOT]    (needs torch and transformers 5.23)
"""

import json
import pathlib
import sys
import types

import torch
import transformers

ROOT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1])
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
    text = (
        f'{{\n  "made_by": "tools/make_schedule_fixture.py, transformers {transformers.__version__}",\n'
        f'  "schedules": [\n    {cases}\n  ],\n  "warmups": [\n    {warmups}\n  ]\n}}\n'
    )
    (ROOT / "strake/optim/testdata/learning_rates.json").write_text(text)


if __name__ == "__main__":
    main()
