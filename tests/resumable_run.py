"""A small training run that evaluates and saves often, so that it can be stopped and go on."""

from program import command

MICRO_BATCHES = 4
STEPS = 60


def train_command(inputs, output, num_ranks=1, **flags):
    defaults = {
        "ranks": num_ranks,
        "gradient_accumulation_steps": MICRO_BATCHES // num_ranks,
        "max_seq_length": 32,
        "per_device_train_batch_size": 3,
        "max_steps": STEPS,
        "learning_rate": 1e-3,
        "warmup_steps": 5,
        "logging_steps": 1,
        "eval_strategy": "steps",
        "eval_steps": 4,
        "save_steps": 4,
        "save_total_limit": 3,
        "load_best_model_at_end": True,
    }
    return command("train", output_dir=output, **(inputs | defaults | flags))
