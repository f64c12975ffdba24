"""Scoring on a GPU: `strake predict --device cuda`, from Parquet to Parquet, beside Transformers' forward pass alone.

Run:  python benchmarks/gpu_scoring.py STRAKE      (tools/gpu_check.sh bench_score does)

Models of random weights score pseudo-words, as many a text as reviews or articles have. Of Transformers (PyTorch's
scaled dot product attention, the whole model in the dtype) only copying to the GPU, the forward pass and collecting the
logits are timed, in batches of 16384 padded tokens of texts sorted by length, which lie padded in page-locked memory;
of strake everything but loading the model. Rounds of one come after those of the other.
"""

import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

import pyarrow
import pyarrow.parquet
import torch
import transformers

MODELS = {"bert-base": (768, 12, 12), "MiniLM, 6 layers": (384, 6, 12)}  # hidden size, layers, heads
TEXTS = {"reviews": (23, 10), "articles": (380, 150)}  # words: mean and standard deviation
TOKENS = {"bf16": 6_000_000, "fp32": 1_000_000}
BATCH_TOKENS, MAX_TOKENS, ROUNDS = 16384, 512, 3
WORDS = 20_000
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def make_model(folder, shape):
    hidden, layers, heads = shape
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(SPECIAL) + WORDS,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * hidden,
        num_labels=2,
    )
    transformers.BertForSequenceClassification(config).save_pretrained(folder)
    vocabulary = folder / "vocab.txt"
    vocabulary.write_text("".join(f"{word}\n" for word in [*SPECIAL, *(f"w{i}" for i in range(WORDS))]))
    transformers.BertTokenizerFast(str(vocabulary)).save_pretrained(folder)


def make_texts(words, tokens):
    generator = random.Random(0)
    lexicon = [f"w{i}" for i in range(WORDS)]
    texts = []
    while tokens > 0:
        length = max(1, round(generator.gauss(*words)))
        texts.append(" ".join(generator.choices(lexicon, k=length)))
        tokens -= length + 2
    return texts


def strake_rate(binary, model, texts, precision):
    with tempfile.TemporaryDirectory() as folder:
        table = pathlib.Path(folder) / "in.parquet"
        pyarrow.parquet.write_table(pyarrow.table({"text": texts}), table)
        line = [binary, "predict", "--model_name_or_path", model, "--input", table, "--text_column", "text"]
        line += ["--output", table.with_name("out.parquet"), "--max_seq_length", MAX_TOKENS, "--device", "cuda"]
        line += ["--precision", precision, "--summary_json", "--overwrite_output"]
        rounds = []
        for _ in range(ROUNDS):
            done = subprocess.run(list(map(str, line)), capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            rounds.append(json.loads(done.stdout))
        rounds.sort(key=lambda found: found["rows_per_second"])
        return rounds[ROUNDS // 2]


def batches_of(encoded):
    """Of sequences sorted by length: at most BATCH_TOKENS with their padding."""
    batch = []
    for ids in sorted(encoded, key=len, reverse=True):
        if batch and (len(batch) + 1) * len(batch[0]) > BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(ids)
    yield batch


@torch.inference_mode()
def transformers_rate(folder, encoded, precision):
    dtype = {"bf16": torch.bfloat16, "fp32": torch.float32}[precision]
    model = transformers.BertForSequenceClassification.from_pretrained(folder, attn_implementation="sdpa")
    model = model.to(dtype).cuda().eval()

    def padded(batch):  # which loaders do in processes of their own
        longest = len(batch[0])
        ids = torch.tensor([row + [0] * (longest - len(row)) for row in batch])
        mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in batch])
        return ids.pin_memory(), mask.pin_memory()

    batches = [padded(batch) for batch in batches_of(encoded)]

    def score():
        logits = []
        for ids, mask in batches:
            ids, mask = ids.cuda(non_blocking=True), mask.cuda(non_blocking=True)
            logits.append(model(input_ids=ids, attention_mask=mask).logits)
        return torch.cat(logits).float().cpu()

    seconds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        score()
        seconds.append(time.perf_counter() - start)
    return len(encoded) / statistics.median(seconds)


def main():
    binary = sys.argv[1]
    print(f"{torch.cuda.get_device_name(0)}, torch {torch.__version__}, transformers {transformers.__version__}\n")
    print(
        "| model | texts | precision | strake: texts/s | tokens/s | waiting for texts | Transformers: texts/s | ratio |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as root:
        for name, shape in MODELS.items():
            folder = pathlib.Path(root) / str(shape[0])
            folder.mkdir()
            make_model(folder, shape)
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
            for kind, words in TEXTS.items():
                for precision, tokens in TOKENS.items():
                    texts = make_texts(words, tokens)
                    own = strake_rate(binary, folder, texts, precision)
                    encoded = tokenizer(texts, truncation=True, max_length=MAX_TOKENS)["input_ids"]
                    rate = transformers_rate(folder, encoded, precision)
                    waited = own["seconds_waiting_for_input"] / own["seconds"]
                    cells = [name, kind, precision, f"{own['rows_per_second']:.0f}", f"{own['tokens_per_second']:.0f}"]
                    cells += [f"{waited:.0%}", f"{rate:.0f}", f"{own['rows_per_second'] / rate:.2f}"]
                    print("|", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
