"""Steps of Transformers on a GPU, on the shapes of tests/gpu/step_time_test.cpp: 16384 tokens a step, no padding,
dropout on, PyTorch's scaled dot product attention, fused AdamW, clipping. A batch lies on the GPU before the peer's
clock starts; strake's steps put theirs together and copy it. All shapes of one come before those of the other.

Run:  python benchmarks/gpu_peers.py [OUTPUT]      (tools/gpu_check.sh bench does)

With the output of the tests, a table of both; alone, a line for each peer.
"""

import pathlib
import re
import statistics
import sys
import time

import torch
import transformers

TOKENS, WARM_UPS, STEPS = 16384, 5, 11
SHAPES = {  # as the tests call them: length of a sequence, whether in bf16
    "bert_base_128_fp32": (128, False),
    "bert_base_128_bf16": (128, True),
    "bert_base_512_bf16": (512, True),
    "gpt2_1024_fp32": (1024, False),
    "gpt2_1024_bf16": (1024, True),
}
LINE = re.compile(r"(\w+): .* ms a step, (\d+) tokens/s, ([\d.]+) TFLOP/s in products, peak ([\d.]+) GiB")


def make_model(name):
    torch.manual_seed(0)
    if name.startswith("gpt2"):
        return transformers.GPT2LMHeadModel(transformers.GPT2Config())
    return transformers.BertForSequenceClassification(transformers.BertConfig(num_labels=2))


def measure(name, length, bf16):
    """Tokens a second by the median step, and peak memory in GiB."""
    model = make_model(name).cuda().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.01, fused=True)
    ids = torch.randint(0, 30000, (TOKENS // length, length), device="cuda")
    labels = ids if name.startswith("gpt2") else torch.randint(0, 2, (len(ids),), device="cuda")
    torch.cuda.reset_peak_memory_stats()
    seconds = []
    for _ in range(WARM_UPS + STEPS):
        start = time.perf_counter()
        with torch.autocast("cuda", torch.bfloat16, enabled=bf16):
            loss = model(input_ids=ids, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
        seconds.append(time.perf_counter() - start)
    return TOKENS / statistics.median(seconds[WARM_UPS:]), torch.cuda.max_memory_allocated() / 2**30


def main():
    ours = {}
    if len(sys.argv) > 1:
        found = map(LINE.match, pathlib.Path(sys.argv[1]).read_text().splitlines())
        ours = {match[1]: tuple(map(float, match.groups()[1:])) for match in found if match}
    print(f"{torch.cuda.get_device_name(0)}, torch {torch.__version__}, transformers {transformers.__version__}\n")
    print("| step | tokens/s | TFLOP/s in products | peak GiB | Transformers: tokens/s | peak GiB | ratio |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, (length, bf16) in SHAPES.items():
        speed, memory = measure(name, length, bf16)
        own = [f"{value:.0f}" for value in ours[name][:2]] + [str(ours[name][2])] if name in ours else [""] * 3
        ratio = f"{ours[name][0] / speed:.2f}" if name in ours else ""
        print("|", " | ".join([name, *own, f"{speed:.0f}", f"{memory:.1f}", ratio]), "|", flush=True)


if __name__ == "__main__":
    main()
