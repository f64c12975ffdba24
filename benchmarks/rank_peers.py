"""Peers on two ranks, measured as benchmarks/peers.py does: one row, once, two processes of one thread by gloo.

Run:  python benchmarks/rank_peers.py ROW WORKLOAD_DIR

"train" rows take the workload of fine-tuning, half of each batch a rank; the others sum or exchange 500 MB of fp32.
DeepSpeed compiles its operators at first use, which is not timed.
"""

import functools
import os
import socket
import subprocess
import sys
import time

import peers

BATCHES = functools.partial(peers.sorted_batches, count=4)


def join_ranks():
    """This process's share of a batch's rows."""
    import torch

    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    return slice(torch.distributed.get_rank(), None, torch.distributed.get_world_size())


def ddp(model):
    import torch

    return torch.nn.parallel.DistributedDataParallel(model)


def fsdp1(model):
    import torch
    from torch.distributed import fsdp

    layer = type(model.roberta.encoder.layer[0])
    policy = functools.partial(fsdp.wrap.transformer_auto_wrap_policy, transformer_layer_cls={layer})
    return fsdp.FullyShardedDataParallel(
        model, device_id=torch.device("cpu"), use_orig_params=True, auto_wrap_policy=policy
    )


def fsdp2(model):
    """Every layer a unit of its own, parameters gathered for each pass (ZeRO-3)."""
    from torch.distributed.fsdp import fully_shard

    for layer in model.roberta.encoder.layer:
        fully_shard(layer)
    return fully_shard(model)


def train(spread, products="fp32"):
    import torch

    mine = join_ranks()

    def make_step(model):
        step = peers.plain_step(spread(model), products)
        torch.set_num_threads(1)
        return step

    return peers.train(BATCHES, make_step, mine=mine)


def deepspeed_step(model, stage, products):
    import torch

    peers.prepare_deepspeed()
    import deepspeed

    if products == "onednn":
        torch.backends.mkldnn.matmul.fp32_precision = "bf16"
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    optimizer = deepspeed.ops.adam.DeepSpeedCPUAdam(model.parameters(), lr=peers.LEARNING_RATE, weight_decay=0.01)
    config = {
        "train_micro_batch_size_per_gpu": peers.BATCH // torch.distributed.get_world_size(),
        "gradient_clipping": 1.0,
        "steps_per_print": 10**9,
        "zero_optimization": {"stage": stage},
    }
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / 1000)
    torch.set_num_threads(1)

    def step(inputs):
        loss = engine(**inputs).loss
        engine.backward(loss)
        engine.step()
        schedule.step()
        return loss.item()

    return step


def train_zero(stage, products="fp32"):
    return peers.train(BATCHES, lambda model: deepspeed_step(model, stage, products), mine=join_ranks())


def exchange(make_collective):
    """GB/s of the whole buffer of 500 MB; the median of several calls."""
    import torch

    join_ranks()
    full = torch.ones(125_000_000)
    shard = torch.ones(full.numel() // 2)
    run = make_collective(full, shard)
    run()
    seconds = []
    for _ in range(5):
        torch.distributed.barrier()
        start = time.perf_counter()
        run()
        torch.distributed.barrier()
        seconds.append(time.perf_counter() - start)
    torch.distributed.destroy_process_group()  # gloo's threads may not outlive the interpreter
    middle = sorted(seconds)[2]
    return {"rate": 0.5 / middle, "tokens": 0, "seconds": middle}


def train_fp32_ddp():
    return train(ddp)


def train_fp32_ddp_onednn():
    return train(ddp, "onednn")


def train_fp32_fsdp1():
    return train(fsdp1)


def train_fp32_fsdp1_onednn():
    return train(fsdp1, "onednn")


def train_fp32_fsdp2():
    return train(fsdp2)


def train_fp32_fsdp2_onednn():
    return train(fsdp2, "onednn")


def train_fp32_zero1():
    return train_zero(1)


def train_fp32_zero2():
    return train_zero(2)


def train_fp32_zero3():
    return train_zero(3)


def train_fp32_zero1_onednn():
    return train_zero(1, "onednn")


def train_fp32_zero2_onednn():
    return train_zero(2, "onednn")


def train_fp32_zero3_onednn():
    return train_zero(3, "onednn")


def gloo_all_reduce():
    import torch

    return exchange(lambda full, _: lambda: torch.distributed.all_reduce(full))


def gloo_reduce_scatter():
    import torch

    return exchange(lambda full, shard: lambda: torch.distributed.reduce_scatter_tensor(shard, full))


def gloo_all_gather():
    import torch

    def make(full, _):
        mine = full.chunk(2)[torch.distributed.get_rank()]  # in its place, as strake's is
        return lambda: torch.distributed.all_gather_into_tensor(full, mine)

    return exchange(make)


def deepspeed_all_reduce():
    """Through shared memory, which DeepSpeed has for inference only."""
    peers.prepare_deepspeed()
    import deepspeed

    def make(full, _):
        deepspeed.init_distributed(dist_backend="gloo", verbose=False)
        return lambda: deepspeed.comm.inference_all_reduce(full)

    return exchange(make)


ROWS = [train_fp32_ddp, train_fp32_fsdp1, train_fp32_fsdp2, train_fp32_zero1, train_fp32_zero2, train_fp32_zero3]
ROWS += [train_fp32_ddp_onednn, train_fp32_fsdp1_onednn, train_fp32_fsdp2_onednn]
ROWS += [train_fp32_zero1_onednn, train_fp32_zero2_onednn, train_fp32_zero3_onednn]
ROWS += [gloo_all_reduce, gloo_reduce_scatter, gloo_all_gather, deepspeed_all_reduce]


def start_ranks():
    """Runs this program again as two ranks, whose first one prints."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    job = {"WORLD_SIZE": "2", "LOCAL_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    ranks = [
        subprocess.Popen(
            [sys.executable, *sys.argv],
            env={**os.environ, **job, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=None if rank == 0 else subprocess.DEVNULL,
        )
        for rank in range(2)
    ]
    sys.exit(max(abs(rank.wait()) for rank in ranks))


if __name__ == "__main__":
    if "RANK" not in os.environ:
        start_ranks()
    peers.run_row(ROWS, __doc__)
