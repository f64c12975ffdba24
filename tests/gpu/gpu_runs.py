"""What the tests of training on a GPU have in common."""

import os
import pathlib

import pytest
from program import strake

HAS_GPU = pathlib.Path("/dev/nvidiactl").exists() or "STRAKE_REQUIRE_GPU" in os.environ
NEEDS_GPU = pytest.mark.skipif(not HAS_GPU, reason="skipped: no GPU")
DEVICE = os.environ.get("STRAKE_GPU_TEST_DEVICE", "cuda")  # cpu, to try the tests themselves

TRAINING = {
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 2,
    "max_steps": 12,
    "save_steps": 6,
    "logging_steps": 1,
    "eval_strategy": "steps",
    "eval_steps": 6,
    "learning_rate": 1e-3,
}
OFFLOAD = {
    "zero_optimization": {
        "stage": 3,
        "offload_optimizer": {"device": "cpu", "pin_memory": True},
        "offload_param": {"device": "cpu", "pin_memory": True},
    }
}


def train(inputs, output, device=DEVICE, **flags):
    strake("train", output_dir=output, device=device, **(inputs | flags))
    return output


def weights(folder):
    return (folder / "model.safetensors").read_bytes()
