"""The peers that strake is compared with, each a small function that runs once and returns its measurement.

Run:  python benchmarks/peers.py ROW WORKLOAD_DIR      (benchmarks/run.py does, one process for each measurement)

Prints one JSON line: "rate" in the unit of its theme, "tokens" (real ones) and "seconds" of the timed part.
Training times batch assembly, forward, backward, clipping, optimizer and schedule, after WARM_UPS steps
(torch.compile: two more), with STRAKE_PEERS_DEVICE=cuda on a GPU; inference times padding, forward and collecting
logits, after two warm-up batches; neither times tokenizing or loading.
"""

import functools
import json
import os
import pathlib
import random
import sys
import time

import pyarrow.parquet as pq

BATCH, LONGEST, PADDING, LEARNING_RATE = 32, 128, 1, 2e-5
FOLDER = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else None
THREADS = int(os.environ.get("STRAKE_NUM_THREADS", "2"))
DEVICE = os.environ.get("STRAKE_PEERS_DEVICE", "cpu")
STEPS, WARM_UPS = (8, 1) if DEVICE == "cpu" else (90, 10)  # of training; on a GPU they are short
# Transformers imports them where it finds them, which costs memory; rows that use one take it out again.
sys.modules.update(dict.fromkeys(("accelerate", "deepspeed")))


def read_column(file, column="text"):
    return pq.read_table(FOLDER / file, columns=[column])[column].to_pylist()


def tokenize(texts, longest=LONGEST):
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(FOLDER / "roberta-base/tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(longest)
    return [encoding.ids for encoding in tokenizer.encode_batch_fast(texts)]


def load_model():
    import torch
    import transformers

    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    return transformers.RobertaForSequenceClassification.from_pretrained(FOLDER / "roberta-base").to(DEVICE)


def padded(sequences, width=None):
    """Model inputs as a rectangle, as wide as the longest sequence unless `width` says otherwise."""
    import torch

    width = width or max(map(len, sequences))
    ids = torch.full((len(sequences), width), PADDING)
    mask = torch.zeros_like(ids)
    for row, sequence in enumerate(sequences):
        ids[row, : len(sequence)] = torch.tensor(sequence)
        mask[row, : len(sequence)] = 1
    return {"input_ids": ids, "attention_mask": mask}


def sorted_batches(sequences, count):
    """A warm-up batch, then `count` batches, each of nearly equal lengths, spread over all lengths, in random order."""
    order = sorted(range(len(sequences)), key=lambda row: len(sequences[row]))
    full = len(order) // BATCH
    picks = [int((number + 0.5) * full / count) for number in range(count)]
    batches = [order[pick * BATCH : (pick + 1) * BATCH] for pick in picks]
    return [batches[-1], *random.Random(1).sample(batches, count)]


def random_batches(sequences, count):
    order = random.Random(0).sample(range(len(sequences)), BATCH * (count + 1))
    return [order[first : first + BATCH] for first in range(0, len(order), BATCH)]


def train(batches_of, make_step, width=None, warm_ups=WARM_UPS, mine=slice(None)):
    """`make_step(model)` gives what takes a step on inputs and returns the loss; of a batch it gets `mine`."""
    import torch

    texts, names = read_column("train.parquet"), read_column("train.parquet", "label")
    sequences, labels = tokenize(texts), torch.tensor([int(name == "pos") for name in names])
    step = make_step(load_model().train())

    def run(rows):
        rows = rows[mine]
        inputs = {**padded([sequences[row] for row in rows], width), "labels": labels[rows]}
        return step({name: tensor.to(DEVICE) for name, tensor in inputs.items()})

    return timed(run, batches_of(sequences), warm_ups, sequences)


def timed(run, batches, warm_ups, sequences):
    """Of `run`, which takes a step on rows and returns the loss, on all batches behind the first `warm_ups`."""
    for rows in batches[:warm_ups]:
        run(rows)
    batches = batches[warm_ups:]
    start = time.perf_counter()
    losses = [run(rows) for rows in batches]
    seconds = time.perf_counter() - start
    tokens = sum(len(sequences[row]) for rows in batches for row in rows)
    return {
        "rate": BATCH * len(batches) / seconds,
        "tokens": tokens,
        "seconds": seconds,
        "loss": sum(losses) / len(batches),
    }


def plain_step(model, products="fp32", compiled=False):
    import torch

    if products == "onednn":
        torch.backends.mkldnn.matmul.fp32_precision = "bf16"
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.01, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / 1000)
    forward = torch.compile(model, dynamic=True) if compiled else model
    sharded_clip = getattr(model, "clip_grad_norm_", None)  # of FSDP1, whose parameters hold a shard's gradients only

    def step(inputs):
        with torch.autocast(DEVICE, torch.bfloat16, enabled=products == "bf16"):
            loss = forward(**inputs).loss
        loss.backward()
        if sharded_clip:
            sharded_clip(1.0)
        else:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    return step


def train_by_trainer(steps, bf16):
    """The Trainer of Transformers on the batches that the other rows have, in their order."""
    del sys.modules["accelerate"]
    import torch
    import transformers

    texts, names = read_column("train.parquet"), read_column("train.parquet", "label")
    sequences = tokenize(texts)
    rows = [row for batch in sorted_batches(sequences, steps) for row in batch]
    marks = []

    class Trainer(transformers.Trainer):
        def _get_train_sampler(self, *_):
            return torch.utils.data.SequentialSampler(rows)

    class Clock(transformers.TrainerCallback):
        def on_step_end(self, *_, **__):
            marks.append(time.perf_counter())

    model = load_model()
    examples = [{"input_ids": sequences[row], "labels": int(names[row] == "pos")} for row in rows]
    arguments = transformers.TrainingArguments(
        output_dir=str(FOLDER / "trainer"),
        per_device_train_batch_size=BATCH,
        learning_rate=LEARNING_RATE,
        max_steps=steps + 1,
        use_cpu=DEVICE == "cpu",
        bf16=bf16,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
    )

    def collate(batch):
        labels = torch.tensor([example["labels"] for example in batch])
        return {**padded([example["input_ids"] for example in batch]), "labels": labels}

    Trainer(model, arguments, train_dataset=examples, data_collator=collate, callbacks=[Clock()]).train()
    seconds = marks[-1] - marks[WARM_UPS - 1]
    timed = rows[BATCH * WARM_UPS :]
    tokens = sum(len(sequences[row]) for row in timed)
    return {"rate": len(timed) / seconds, "tokens": tokens, "seconds": seconds}


def plain_gpt2():
    """GPT-2 124M in plain PyTorch: one product for q, k and v, fused attention, tied head, no dropout."""
    import torch
    from torch import nn

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(768), nn.LayerNorm(768)
            self.qkv, self.out = nn.Linear(768, 2304), nn.Linear(768, 768)
            self.up, self.down = nn.Linear(768, 3072), nn.Linear(3072, 768)

        def forward(self, x):
            heads = self.qkv(self.norm1(x)).unflatten(-1, (3, 12, 64)).permute(2, 0, 3, 1, 4)
            attended = nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
            x = x + self.out(attended.transpose(1, 2).flatten(2))
            return x + self.down(nn.functional.gelu(self.up(self.norm2(x)), approximate="tanh"))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.positions = nn.Embedding(50265, 768), nn.Embedding(1024, 768)
            self.layers, self.norm = nn.Sequential(*(Layer() for _ in range(12))), nn.LayerNorm(768)
            for parameter in self.parameters():
                if parameter.dim() > 1:
                    nn.init.normal_(parameter, std=0.02)

        def forward(self, ids):
            x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
            logits = self.norm(self.layers(x)) @ self.tokens.weight.T
            return nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten())

    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    return Model()


def train_language_model(steps, bf16=False):
    import torch
    from tokenizers import Tokenizer

    ids = (
        Tokenizer.from_file(str(FOLDER / "roberta-base/tokenizer.json"))
        .encode(read_column("documents.parquet")[0], add_special_tokens=False)
        .ids
    )
    pieces = torch.tensor(ids[: len(ids) // 1024 * 1024]).view(-1, 4, 256).to(DEVICE)
    steps = steps if DEVICE == "cpu" else len(pieces) - WARM_UPS
    model = plain_gpt2().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.01, fused=True)

    def step(batch):
        with torch.autocast(DEVICE, torch.bfloat16, enabled=bf16):
            loss = model(batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    for number in range(WARM_UPS):
        step(pieces[number])
    start = time.perf_counter()
    for number in range(steps):
        step(pieces[WARM_UPS + number])
    seconds = time.perf_counter() - start
    return {"rate": 1024 * steps / seconds, "tokens": 1024 * steps, "seconds": seconds}


def prepare_deepspeed():
    """It compiles its operators at first use, with the ninja beside this Python."""
    del sys.modules["deepspeed"]
    os.environ["DS_ACCELERATOR"] = "cpu"
    os.environ["PATH"] = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"


def adam(whole_step=False, deepspeed=False):
    """One flat tensor of the size of RoBERTa-base; GB/s, counting 28 bytes a parameter."""
    import torch

    torch.set_num_threads(THREADS)
    parameter = torch.nn.Parameter(torch.ones(124_647_424))
    parameter.grad = torch.ones_like(parameter)
    rounded = torch.empty_like(parameter, dtype=torch.bfloat16)
    if deepspeed:
        prepare_deepspeed()
        from deepspeed.ops.adam import DeepSpeedCPUAdam

        optimizer = DeepSpeedCPUAdam([parameter], lr=1e-3, weight_decay=0.01)
    else:
        optimizer = torch.optim.AdamW([parameter], lr=1e-3, weight_decay=0.01, fused=True)

    def step():
        if whole_step:
            torch.nn.utils.clip_grad_norm_([parameter], 1.0)
        optimizer.step()
        if whole_step:
            optimizer.zero_grad(set_to_none=False)
            with torch.no_grad():
                rounded.copy_(parameter)

    step()
    seconds = []
    for _ in range(9):
        start = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - start)
    middle = sorted(seconds)[4]
    return {"rate": 28e-9 * parameter.numel() / middle, "tokens": 0, "seconds": middle}


def time_sorted(sequences, forward):
    """`forward` of some rows gives a result for each of them; batches of similar lengths, after two to warm up."""
    import torch

    order = sorted(range(len(sequences)), key=lambda row: -len(sequences[row]))
    batches = [order[first : first + BATCH] for first in range(0, len(order), BATCH)]
    with torch.no_grad():
        for rows in (batches[0], batches[-1]):
            forward(rows)
        start = time.perf_counter()
        results = [forward(rows) for rows in batches]
        seconds = time.perf_counter() - start
    return {"rate": sum(map(len, results)) / seconds, "tokens": sum(map(len, sequences)), "seconds": seconds}


def infer(file, width=None, bf16=False, onednn=False):
    import torch

    sequences = tokenize(read_column(file))
    model = load_model().eval()
    if bf16:
        model = model.bfloat16()
    if onednn:
        torch.backends.mkldnn.matmul.fp32_precision = "bf16"

    def forward(rows):
        return model(**padded([sequences[row] for row in rows], width)).logits.float().numpy()

    return time_sorted(sequences, forward)


def perplexity(bf16=False):
    """Of each text, as Hugging Face's metric computes it, but sorted by length."""
    import torch
    import transformers

    torch.set_num_threads(THREADS)
    sequences = tokenize(read_column("test256.parquet"), longest=1024)
    model = transformers.GPT2LMHeadModel.from_pretrained(FOLDER / "gpt2").eval()
    if bf16:
        model = model.bfloat16()

    def forward(rows):
        inputs = padded([sequences[row] for row in rows])
        logits = model(**inputs).logits[:, :-1].float().transpose(1, 2)
        mask = inputs["attention_mask"][:, 1:]
        losses = torch.nn.functional.cross_entropy(logits, inputs["input_ids"][:, 1:], reduction="none")
        return ((losses * mask).sum(1) / mask.sum(1)).exp().numpy()

    return time_sorted(sequences, forward)


def encode(name, file):
    from tokenizers import BertWordPieceTokenizer, Tokenizer

    folder = FOLDER / name
    if (folder / "tokenizer.json").exists():
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    else:
        tokenizer = BertWordPieceTokenizer(str(folder / "vocab.txt"), lowercase=True)._tokenizer
    tokenizer.no_truncation()
    tokenizer.no_padding()
    texts = read_column(file)
    tokenizer.encode_batch_fast(texts[:500])
    start = time.perf_counter()
    encodings = tokenizer.encode_batch_fast(texts)
    seconds = time.perf_counter() - start
    size = sum(len(text.encode()) for text in texts)
    tokens = sum(len(encoding.ids) for encoding in encodings)
    return {"rate": size / 1e6 / seconds, "tokens": tokens, "seconds": seconds}


def train_fp32_pad128():
    count = 2 if DEVICE == "cpu" else STEPS
    return train(functools.partial(random_batches, count=count), plain_step, width=LONGEST)


def train_fp32_sorted():
    return train(functools.partial(sorted_batches, count=STEPS), plain_step)


def train_fp32_sorted_onednn():
    """Stock torch gives fp32 products to MKL, which is slow on some CPUs. Without AMX this only swaps the library."""
    return train(functools.partial(sorted_batches, count=STEPS), lambda model: plain_step(model, "onednn"))


def train_bf16_sorted():
    return train(functools.partial(sorted_batches, count=STEPS), lambda model: plain_step(model, "bf16"))


def train_bf16_compiled():
    return train(
        lambda sequences: [*sorted_batches(sequences, 2)[:2], *sorted_batches(sequences, STEPS)],
        lambda model: plain_step(model, "bf16", compiled=True),
        warm_ups=WARM_UPS + 2,
    )


def train_bf16_trainer():
    return train_by_trainer(STEPS, bf16=True)


def gpt2_fp32():
    return train_language_model(steps=3)


def gpt2_bf16():
    return train_language_model(steps=4, bf16=True)


def adam_fused():
    return adam()


def adam_whole_step():
    return adam(whole_step=True)


def adam_deepspeed():
    return adam(deepspeed=True)


def infer_fp32_pad128():
    return infer("test256.parquet", width=LONGEST)


def infer_fp32_sorted():
    return infer("test.parquet")


def infer_fp32_sorted_onednn():
    return infer("test.parquet", onednn=True)


def infer_bf16_sorted():
    return infer("test.parquet", bf16=True)


def perplexity_fp32():
    return perplexity()


def perplexity_bf16():
    return perplexity(bf16=True)


def encode_roberta():
    return encode("roberta-base", "mixed.parquet")


def encode_roberta_8x():
    return encode("roberta-base", "all8.parquet")


def encode_bert():
    return encode("bert-base-uncased", "mixed.parquet")


def encode_bert_8x():
    return encode("bert-base-uncased", "all8.parquet")


ROWS = [train_fp32_pad128, train_fp32_sorted, train_fp32_sorted_onednn]
ROWS += [train_bf16_sorted, train_bf16_compiled, train_bf16_trainer]
ROWS += [gpt2_fp32, gpt2_bf16, adam_fused, adam_whole_step, adam_deepspeed]
ROWS += [infer_fp32_pad128, infer_fp32_sorted, infer_fp32_sorted_onednn, infer_bf16_sorted]
ROWS += [perplexity_fp32, perplexity_bf16]
ROWS += [encode_roberta, encode_roberta_8x, encode_bert, encode_bert_8x]


def run_row(rows, usage):
    named = {row.__name__: row for row in rows}
    if len(sys.argv) != 3 or sys.argv[1] not in named:
        sys.exit(usage)
    print(json.dumps(named[sys.argv[1]]()), flush=True)


if __name__ == "__main__":
    run_row(ROWS, __doc__)
