"""Runs of strake train that are drawn at random: what they compute, and how they are spread over ranks."""

import json
import random

from program import metrics
from tiny_models import (
    asked_reviews,
    make_language_model,
    make_masked_model,
    make_model,
    reviews,
    tagged_reviews,
    widen_layers,
    write_table,
)

AUTO = {"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "gradient_clipping": "auto"}


class Draw(random.Random):
    def maybe(self, chance, **flags):
        """Flags with one of their values each, or nothing."""
        chosen = {name: self.choice(values) for name, values in flags.items()}
        return chosen if self.random() < chance else {}


def make_inputs(folder):
    """Models and data that drawn runs use."""
    for family in ("roberta", "distilbert"):
        make_model(folder / family, family, dropout=0.1)
    widen_layers(make_model(folder / "wide", dropout=0.1))
    make_masked_model(folder / "masked", dropout=0.1)
    make_language_model(folder / "tied", dropout=0.1)
    make_language_model(folder / "untied", dropout=0.1, tied=False)
    write_table(folder / "train.parquet", reviews(47))
    write_table(folder / "check.parquet", reviews(13, seed=2))
    write_table(folder / "train.jsonl", tagged_reviews(50))
    write_table(folder / "check.jsonl", tagged_reviews(14, seed=2))
    write_table(folder / "answers.jsonl", asked_reviews(45))
    write_table(folder / "check_answers.jsonl", asked_reviews(14, seed=2))
    write_table(folder / "train.txt", reviews(90))
    write_table(folder / "check.txt", reviews(20, seed=3))
    return folder


def model_and_data(draw, folder):
    if draw.random() < 0.3:
        texts = {"task": "causal-lm", "train_file": folder / "train.txt", "validation_file": folder / "check.txt"}
        texts |= {
            "model_name_or_path": folder / draw.choice(["tied", "untied"]),
            "block_size": draw.choice([8, 32, 64]),
        }
        return texts | draw.maybe(0.3, freeze=["*wte*", "*.h.0.*", "*bias", "*ln_*"])
    if draw.random() < 0.2:
        texts = {"task": "masked-lm", "train_file": folder / "train.txt", "validation_file": folder / "check.txt"}
        texts |= {"model_name_or_path": folder / "masked", "max_seq_length": draw.choice([4, 16, 64])}
        texts |= draw.maybe(0.5, mlm_probability=[0.05, 0.4, 1], label_smoothing_factor=[0.1])
        return texts | draw.maybe(0.3, freeze=["*word_embeddings*", "*.layer.0.*", "*bias", "*predictions*"])
    if draw.random() < 0.2:
        words = {"task": "token-classification", "text_column": "words", "label_column": "tags"}
        words |= {"train_file": folder / "train.jsonl", "validation_file": folder / "check.jsonl"}
        words |= {"model_name_or_path": folder / draw.choice(["roberta", "distilbert", "wide"])}
        words |= {"max_seq_length": draw.choice([4, 16, 32])} | draw.maybe(0.3, label_all_tokens=[True])
        return words | draw.maybe(0.3, freeze=["*embeddings*", "*.layer.0.*", "*bias"])
    if draw.random() < 0.2:
        asked = {"task": "question-answering", "max_seq_length": draw.choice([32, 40])}
        asked |= {"train_file": folder / "answers.jsonl", "validation_file": folder / "check_answers.jsonl"}
        asked |= {"model_name_or_path": folder / draw.choice(["roberta", "distilbert", "wide"])}
        asked |= draw.maybe(0.5, doc_stride=[0, 2], version_2_with_negative=[True])
        return asked | draw.maybe(0.3, freeze=["*embeddings*", "*.layer.0.*", "*bias"])
    labelled = {"train_file": folder / "train.parquet", "validation_file": folder / "check.parquet"}
    labelled |= {"model_name_or_path": folder / draw.choice(["roberta", "distilbert", "wide", "wide"])}
    labelled |= {"max_seq_length": draw.choice([8, 32])}
    targets = draw.choice([{"label_column": "score"}, {"label_smoothing_factor": draw.choice([0, 0.1])}])
    frozen = draw.maybe(0.3, freeze=["*embeddings*", "*.layer.0.*", "*bias", "*.layer.1.*bias,*embeddings*"])
    return labelled | targets | frozen


def settings(draw, folder):
    """What a run computes. All of these may change its numbers."""
    flags = model_and_data(draw, folder) | draw.choice(
        [{"max_steps": draw.choice([2, 5, 8])}, {"num_train_epochs": 1.5}]
    )
    flags |= {"learning_rate": draw.choice([3e-4, 1e-3, 1e-2]), "logging_steps": 1}
    flags |= draw.choice([{"per_device_train_batch_size": draw.choice([1, 2, 5])}, {"max_tokens_per_batch": 40}])
    flags |= {"optim": draw.choice(["adamw_torch", "adamw_torch", "sgd", "adagrad", "lion", "lamb"])}
    flags |= {"lr_scheduler_type": draw.choice(["linear", "cosine_with_restarts", "inverse_sqrt", "WarmupLR"])}
    flags |= draw.maybe(0.4, weight_decay=[0.01, 0.1], warmup_steps=[1, 2], seed=[1, 7])
    flags |= draw.maybe(0.5, max_grad_norm=[0, 0.05, 100])
    flags |= draw.maybe(0.3, max_train_samples=[20, 33])
    every = draw.choice([1, 2, 3])
    flags |= draw.choice(
        [
            {"eval_strategy": "steps", "save_strategy": "steps", "eval_steps": every, "save_steps": every},
            {"eval_strategy": "epoch", "save_strategy": "epoch"},
        ]
    )
    return flags | draw.maybe(0.3, eval_on_start=[True], per_device_eval_batch_size=[1, 3, 16])


def offload(draw, stage, nvme):
    device = draw.choice(["cpu", "nvme"])
    states = {"device": device} | ({"nvme_path": str(nvme)} if device == "nvme" else {})
    zero = {"offload_optimizer": states}
    if stage == 3:
        zero |= draw.maybe(0.5, offload_param=[states])
    return zero


def deepspeed(draw, ranks, precision, nvme):
    stage = draw.choice([0, 1, 2, 3, 3])
    zero = {"stage": stage} | draw.maybe(0.4, reduce_bucket_size=[1000, 50_000], overlap_comm=[True, False])
    if stage > 0 and draw.random() < 0.5:
        zero |= offload(draw, stage, nvme)
    if stage == 3:
        zero |= draw.maybe(0.5, stage3_param_persistence_threshold=[0, 100, 10**6], sub_group_size=[1000, 10**9])
        zero |= draw.maybe(
            0.6, **{draw.choice(["zero_hpz_partition_size", "mics_shard_size"]): [max(1, ranks // 2), ranks]}
        )
    config = AUTO | {"zero_optimization": zero}
    if precision:
        config[precision] = {"enabled": True} | ({"initial_scale_power": 12} if precision == "fp16" else {})
    config |= draw.maybe(0.2, activation_checkpointing=[{"cpu_checkpointing": True}])
    flags = {"deepspeed": json.dumps(config)}
    return flags if "nvme" in flags["deepspeed"] else flags | draw.maybe(0.3, async_save=[True])


def fsdp(draw):
    stages = [
        "full_shard auto_wrap",
        "shard_grad_op auto_wrap",
        "hybrid_shard auto_wrap",
        "full_shard auto_wrap offload",
    ]
    details = [{"backward_prefetch": "backward_pre"}, {"activation_checkpointing": True}, {"limit_all_gathers": True}]
    return {"fsdp": draw.choice(stages)} | draw.maybe(0.5, fsdp_config=[json.dumps(draw.choice(details))])


def layout(draw, numbers, nvme):
    """How a run is spread, which may change none of its numbers."""
    micro_batches, precision = numbers
    ranks = draw.choice([x for x in (1, 2, 4) if micro_batches % x == 0])
    flags = {"ranks": ranks, "gradient_accumulation_steps": micro_batches // ranks}
    flags |= draw.maybe(0.3, gradient_checkpointing=[True])
    if precision == "fp16" or draw.random() < 0.6:  # only a ds_config.json has the first loss scale
        return flags | deepspeed(draw, ranks, precision, nvme)
    flags |= {"bf16": True} if precision else {}
    return flags | draw.choice([fsdp(draw), {"async_save": draw.choice([True, False])}])


def outcome_of(output):
    """The weights, and all that is logged but times."""
    logged = [
        {name: value for name, value in entry.items() if "second" not in name and "runtime" not in name}
        for entry in metrics(output)
    ]
    return (output / "model.safetensors").read_bytes(), logged
