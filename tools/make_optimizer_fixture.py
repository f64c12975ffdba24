"""Writes strake/kernels/testdata/optimizers.json: a few steps of torch's optimizers, and of LAMB and Lion in float64.

Usage: make_optimizer_fixture.py [REPOSITORY_ROOT]    (needs torch)
"""

import json
import pathlib
import sys

import torch

ROOT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1])
SIZE = 5  # elements of each of two tensors
DECAY = [0.1, 0.0]  # weight decay of the tensors
RATES = [0.01, 0.02, 0.005]  # learning rate of every step
SCALE = 0.5  # what multiplies the gradients

CASES = [  # (rule, arguments)
    ("adamw", {"betas": [0.9, 0.98], "eps": 1e-6}),
    ("adam", {"betas": [0.9, 0.98], "eps": 1e-6}),
    ("adamw", {"betas": [0.9, 0.5], "eps": 1e-6, "amsgrad": True}),
    ("adam", {"betas": [0.9, 0.5], "eps": 1e-6, "amsgrad": True}),
    ("adagrad", {"eps": 1e-6, "lr_decay": 0.1, "initial_accumulator_value": 0.2}),
    ("sgd", {}),
    ("sgd", {"momentum": 0.9}),
    ("sgd", {"momentum": 0.8, "dampening": 0.3}),
    ("sgd", {"momentum": 0.9, "nesterov": True}),
    ("lion", {"betas": [0.9, 0.98]}),
    ("lamb", {"betas": [0.9, 0.98], "eps": 1e-6, "bias_correction": True, "max_coeff": 10.0, "min_coeff": 0.01}),
    ("lamb", {"betas": [0.9, 0.98], "eps": 1e-6, "bias_correction": False, "max_coeff": 0.3, "min_coeff": 0.2}),
]


def torch_optimizer(rule, groups, kwargs):
    kinds = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam}
    kinds |= {"adagrad": torch.optim.Adagrad, "sgd": torch.optim.SGD}
    return kinds[rule](groups, lr=RATES[0], foreach=False, **kwargs)


def lion_step(tensors, states, rate, kwargs):
    """Chen et al. 2023, algorithm 2."""
    beta1, beta2 = kwargs["betas"]
    for p, m, decay in zip(tensors, states, DECAY, strict=True):
        direction = torch.sign(beta1 * m + (1 - beta1) * p.grad)
        p -= rate * (direction + decay * p)
        m.mul_(beta2).add_((1 - beta2) * p.grad)


def lamb_step(tensors, states, rate, kwargs, step):
    """deepspeed/ops/lamb/fused_lamb.py with eps_inside_sqrt=False."""
    beta1, beta2 = kwargs["betas"]
    correction = (1 - beta2**step) ** 0.5 / (1 - beta1**step) if kwargs["bias_correction"] else 1.0
    for p, (m, v), decay in zip(tensors, states, DECAY, strict=True):
        m.mul_(beta1).add_((1 - beta1) * p.grad)
        v.mul_(beta2).add_((1 - beta2) * p.grad**2)
        update = m / (v.sqrt() + kwargs["eps"]) + decay * p
        coefficient = 1.0
        if p.norm() != 0 and update.norm() != 0:
            coefficient = min(max((p.norm() / update.norm()).item(), kwargs["min_coeff"]), kwargs["max_coeff"])
        p -= rate * correction * coefficient * update


def run(rule, kwargs, parameters, gradients):
    tensors = [torch.nn.Parameter(p.double()) for p in parameters]
    optimizer = None
    states = []
    if rule == "lion":
        states = [torch.zeros_like(p) for p in tensors]
    elif rule == "lamb":
        states = [(torch.zeros_like(p), torch.zeros_like(p)) for p in tensors]
    else:
        groups = [{"params": [p], "weight_decay": d} for p, d in zip(tensors, DECAY, strict=True)]
        optimizer = torch_optimizer(rule, groups, kwargs)
    for step, rate in enumerate(RATES, 1):
        for p, g in zip(tensors, gradients[step - 1], strict=True):
            p.grad = SCALE * g.double()
        with torch.no_grad():
            if rule == "lion":
                lion_step(tensors, states, rate, kwargs)
            elif rule == "lamb":
                lamb_step(tensors, states, rate, kwargs, step)
            else:
                for group in optimizer.param_groups:
                    group["lr"] = rate
                optimizer.step()
    return [value for p in tensors for value in p.tolist()]


def main():
    torch.manual_seed(7)
    parameters = [torch.randn(SIZE) for _ in DECAY]
    gradients = [[torch.randn(SIZE) for _ in DECAY] for _ in RATES]
    flat = [[value for g in step for value in g.tolist()] for step in gradients]
    cases = ",\n    ".join(
        json.dumps({"rule": rule, "arguments": kwargs, "parameters": run(rule, kwargs, parameters, gradients)})
        for rule, kwargs in CASES
    )
    text = (
        f'{{\n  "made_by": "tools/make_optimizer_fixture.py, torch {torch.__version__.split("+")[0]}",\n'
        f'  "tensor_size": {SIZE},\n  "weight_decay": {DECAY},\n  "learning_rates": {RATES},\n  "scale": {SCALE},\n'
        f'  "parameters": {json.dumps([v for p in parameters for v in p.tolist()])},\n'
        f'  "gradients": {json.dumps(flat)},\n  "cases": [\n    {cases}\n  ]\n}}\n'
    )
    folder = ROOT / "strake/kernels/testdata"
    folder.mkdir(exist_ok=True)
    (folder / "optimizers.json").write_text(text)


if __name__ == "__main__":
    main()
