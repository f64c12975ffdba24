"""Makes tests/fixtures/parity/{bert,gpt2}/sharded.json: losses of the same run under DDP, FSDP2 and DeepSpeed.

Run:  python tools/make_sharded_parity_fixtures.py [bert|gpt2]     (after make_parity_fixtures.py, with deepspeed, too)

Two processes of one thread, connected by gloo, train the model of the folder for 50 steps on the training sequences of
its expected.safetensors, without dropout. `steps` holds the micro-batches of each step as lists of rows; number m is
taken by rank m % 2. The loss of a step is the sum over its targets divided by their number; `losses` has them by peer.
"""

import json
import os
import pathlib
import sys
import tempfile

import make_parity_fixtures as parity
import torch
import transformers
from safetensors.torch import load_file
from torch import distributed, multiprocessing
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

RANKS, STEPS, ACCUMULATION = 2, 50, 2
ROWS_OF_MICRO_BATCHES = [3, 2, 1, 2]
RUN = parity.RUN | {"warmup_steps": 5, "max_steps": STEPS}
CLASSES = {"bert": transformers.BertForSequenceClassification, "gpt2": transformers.GPT2LMHeadModel}
ROOT = pathlib.Path(__file__).resolve().parents[1] / "tests/fixtures/parity"


class Sequences:
    def __init__(self, folder):
        tensors = load_file(folder / "expected.safetensors")
        self.offsets = tensors["train.offsets"].tolist()
        self.ids = tensors["train.input_ids"].long()
        self.types = tensors.get("train.token_type_ids")
        self.labels = tensors.get("train.labels")

    def padded(self, flat, rows):
        pieces = [flat[self.offsets[row] : self.offsets[row + 1]].long() for row in rows]
        return torch.nn.utils.rnn.pad_sequence(pieces, batch_first=True)

    def num_targets(self, rows):
        if self.labels is not None:
            return len(rows)
        return sum(self.offsets[row + 1] - self.offsets[row] - 1 for row in rows)

    def loss_sum(self, model, rows):
        ids = self.padded(self.ids, rows)
        mask = self.padded(torch.ones_like(self.ids), rows)
        if self.labels is not None:
            types = self.padded(self.types, rows)
            logits = model(input_ids=ids, attention_mask=mask, token_type_ids=types).logits
            return cross_entropy(logits, self.labels[rows].long(), reduction="sum")
        logits = model(input_ids=ids, attention_mask=mask).logits[:, :-1]
        return cross_entropy(logits[mask[:, 1:] == 1], ids[:, 1:][mask[:, 1:] == 1], reduction="sum")


def steps_of_run():
    return parity.micro_batches(torch.Generator().manual_seed(50), STEPS, ROWS_OF_MICRO_BATCHES)


def schedule_of(optimizer):
    return transformers.get_linear_schedule_with_warmup(optimizer, RUN["warmup_steps"], STEPS)


class PyTorchPeer:
    def __init__(self, model, shards):
        optimizer_model = model
        if shards:
            for layer in model.base_model.encoder.layer if hasattr(model, "bert") else model.transformer.h:
                fully_shard(layer)
            fully_shard(model)
            self.model = model
        else:
            self.model = DistributedDataParallel(model)
        self.optimizer = parity.optimizer_of(optimizer_model)
        self.schedule = schedule_of(self.optimizer)

    def backward(self, loss):
        (loss * RANKS).backward()  # gradients are averaged over ranks

    def step(self):
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), RUN["max_grad_norm"])
        self.optimizer.step()
        self.schedule.step()
        self.optimizer.zero_grad()


class DeepSpeedPeer:
    def __init__(self, model, stage):
        import deepspeed

        optimizer = parity.optimizer_of(model)
        self.model, *_ = deepspeed.initialize(
            model=model,
            optimizer=optimizer,
            lr_scheduler=schedule_of(optimizer),
            config={
                "train_micro_batch_size_per_gpu": 1,
                "gradient_accumulation_steps": ACCUMULATION,
                "gradient_clipping": RUN["max_grad_norm"],
                "zero_optimization": {"stage": stage},
                "zero_allow_untested_optimizer": True,
            },
        )

    def backward(self, loss):
        self.model.backward(loss * RANKS * ACCUMULATION)  # averaged over ranks and micro-batches
        self.model.step()  # updates after the last micro-batch

    def step(self):
        pass


PEERS = {
    "ddp": lambda model: PyTorchPeer(model, shards=False),
    "fsdp2": lambda model: PyTorchPeer(model, shards=True),
    "deepspeed_zero2": lambda model: DeepSpeedPeer(model, 2),
    "deepspeed_zero3": lambda model: DeepSpeedPeer(model, 3),
}


def run(rank, name, peer_name, folder, out):
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(RANKS), "DS_ACCELERATOR": "cpu"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29517"}
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    sequences = Sequences(folder)
    model = CLASSES[name].from_pretrained(folder, attn_implementation="eager").train()
    peer = PEERS[peer_name](model)
    losses = []
    for batches in steps_of_run():
        divisor = sum(map(sequences.num_targets, batches))
        total = torch.zeros(1, dtype=torch.float64)
        for rows in batches[rank::RANKS]:
            loss = sequences.loss_sum(peer.model, rows) / divisor
            peer.backward(loss)
            total += loss.item()
        distributed.all_reduce(total)
        peer.step()
        losses.append(total.item())
    if rank == 0:
        pathlib.Path(out).write_text(json.dumps(losses))
    distributed.destroy_process_group()


def main():
    for name in sys.argv[1:] or CLASSES:
        folder = ROOT / name
        losses = {}
        for peer in PEERS:
            with tempfile.TemporaryDirectory() as scratch:
                out = f"{scratch}/losses.json"
                multiprocessing.spawn(run, (name, peer, folder, out), nprocs=RANKS)
                losses[peer] = json.loads(pathlib.Path(out).read_text())
            print(f"{name}, {peer}: {losses[peer][0]:.6f} -> {losses[peer][-1]:.6f}")
        facts = {**RUN, "ranks": RANKS, "gradient_accumulation_steps": ACCUMULATION}
        facts |= {"steps": steps_of_run(), "made_with": {"torch": torch.__version__}}
        lines = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in {**facts, "losses": losses}.items()]
        (folder / "sharded.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
