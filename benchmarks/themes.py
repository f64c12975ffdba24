"""What the benchmarks compare: a theme is a table of rows, each the command of strake or of a peer."""

import collections.abc
import dataclasses
import json
import os
import pathlib
import re
import shutil
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
WORK = ROOT / ".cache/bench"
STRAKE = os.environ.get("STRAKE", str(ROOT / "build/strake"))
COLLECTIVES = ROOT / "build/benchmarks/collectives_bench"
MPI_COLLECTIVES = ROOT / "build/benchmarks/mpi_collectives"
STATES = ROOT / "build/benchmarks/states_bench"
LATENCY = ROOT / "build/benchmarks/latency_bench"
MATMUL = ROOT / "build/benchmarks/matmul_bench"
TRAINING_STEPS = 12
SKIPPED_STEPS = 2


@dataclasses.dataclass
class Row:
    name: str
    command: list
    group: str  # strake's row of a group is what the ratios of its peers' rows refer to
    is_strake: bool = False
    metrics: pathlib.Path | None = None  # strake train: where the steps are logged; else the last line of stdout counts
    counts: str = "sequences"  # what the rate of logged steps counts
    threads: int | None = None  # of the process, if not the theme's
    read: collections.abc.Callable | None = None  # of stdout to the measurement, if not its last line tells


@dataclasses.dataclass
class Theme:
    title: str
    unit: str
    threads: int
    rows: list
    notes: list
    extra: dict = dataclasses.field(default_factory=dict)  # more columns: heading and key of the measurements
    same_tokens: bool = False  # both sides must count the same tokens, or they did different work


def peer(name, function, group, program="peers.py"):
    return Row(name, [sys.executable, str(ROOT / "benchmarks" / program), function, str(WORK)], group)


def processor():
    """Name and interesting flags. Cloud providers hide the name's number: family and model tell generations apart."""
    text = pathlib.Path("/proc/cpuinfo").read_text()
    fields = dict(re.findall(r"^([\w ]+?)\s*: (.*)$", text, re.MULTILINE))
    interesting = {"avx2", "avx512f", "avx512_bf16", "avx512_vnni", "amx_bf16", "amx_int8"}
    name = fields.get("model name", "unknown CPU")
    if "cpu family" in fields:
        name += f" family {fields['cpu family']} model {fields['model']}"
    return name, sorted(interesting & set(fields.get("flags", "").split()))


def has_cpu_feature(name):
    return name in processor()[1]


def onednn_peer(name, function, program="peers.py"):
    """In fp32; where there is AMX, its setting asks for bf16, and the row is left out."""
    return [] if has_cpu_feature("amx_bf16") else [peer(name, function, "fp32", program)]


def zentorch_peer(name, function, group):
    """It hands the model to PyTorch as it is without AVX-512, and says so: then the row is left out."""
    return [engine_peer(name, function, group)] if has_cpu_feature("avx512f") else []


def engine_peer(name, function, group):
    return peer(name, function, group, "engine_peers.py")


def strake(name, group, arguments, metrics=None):
    return Row(name, [STRAKE, *map(str, arguments)], group, True, metrics)


def strake_train(name, group, *more, batch=32):
    out = WORK / f"train-{group}"
    arguments = ["train", "--model_name_or_path", WORK / "roberta-base", "--train_file", WORK / "train.parquet"]
    arguments += ["--text_column", "text", "--label_column", "label", "--output_dir", out, "--overwrite_output_dir"]
    arguments += ["--max_seq_length", 128, "--per_device_train_batch_size", batch, "--learning_rate", "2e-5"]
    arguments += ["--weight_decay", "0.01", "--max_steps", TRAINING_STEPS, "--save_strategy", "no"]
    arguments += ["--logging_steps", 1, "--seed", 0, "--disable_tqdm", *more]
    return strake(name, group, arguments, out / "metrics.jsonl")


def strake_predict(name, group, *more, model="roberta-base", file="test.parquet"):
    arguments = ["predict", "--model_name_or_path", WORK / model, "--input", WORK / file]
    arguments += ["--output", WORK / f"predictions-{group}.parquet", "--text_column", "text", "--summary_json", *more]
    return strake(name, group, arguments)


def strake_prepare(tokenizer, file, group):
    arguments = ["prepare", "--tokenizer", WORK / tokenizer, "--input", WORK / file, "--text_column", "text"]
    arguments += ["--output", WORK / "tokens.parquet", "--max_seq_length", 1 << 20, "--summary_json"]
    return strake("strake", group, arguments)


def training():
    rows = [
        peer("Transformers, padded to 128", "train_fp32_pad128", "fp32"),
        peer("Transformers, sorted", "train_fp32_sorted", "fp32"),
        *onednn_peer("Transformers, sorted, oneDNN products", "train_fp32_sorted_onednn"),
        strake_train("strake", "fp32"),
        peer("Transformers, sorted, autocast", "train_bf16_sorted", "bf16"),
        peer("Transformers, sorted, autocast, torch.compile", "train_bf16_compiled", "bf16"),
        peer("Transformers' Trainer, sorted, bf16", "train_bf16_trainer", "bf16"),
        strake_train("strake", "bf16", "--bf16"),
    ]
    notes = [
        "RoBERTa-base shape, random weights, batch 32, at most 128 tokens, dropout 0.1, AdamW (peer: fused), clip 1.0.",
        "Peer: 8 steps after a warm-up step (padded to 128: 2 steps); sorted = batches of nearly equal lengths, a"
        " sample spread evenly over all lengths, padded to the longest; torch.compile with dynamic shapes and three"
        " warm-up steps, which compile. The oneDNN row sets"
        " `torch.backends.mkldnn.matmul.fp32_precision`; with AMX it would compute in bf16, and there is none.",
        f"strake: `strake train` on raw text in its usual random order, {TRAINING_STEPS} steps of which the first"
        f" {SKIPPED_STEPS} do not count. Behind the attention of the last layer it computes the first token of each"
        " text, the only one that the classifier reads; losses and gradients are the same. Peak memory is the whole"
        " process's, start and saving the model included.",
    ]
    return Theme("Fine-tuning", "reviews/s", 2, rows, notes)


def inference():
    rows = [
        peer("Transformers, padded to 128", "infer_fp32_pad128", "fp32"),
        peer("Transformers, sorted", "infer_fp32_sorted", "fp32"),
        *onednn_peer("Transformers, sorted, oneDNN products", "infer_fp32_sorted_onednn"),
        engine_peer("OpenVINO, sorted", "texts_openvino_fp32", "fp32"),
        strake_predict("strake", "fp32"),
        peer("Transformers, sorted, model in bf16", "infer_bf16_sorted", "bf16"),
        engine_peer("OpenVINO, sorted", "texts_openvino_bf16", "bf16"),
        *zentorch_peer("zentorch, sorted", "texts_zentorch_bf16", "bf16"),
        strake_predict("strake", "bf16", "--precision", "bf16"),
        engine_peer("ONNX Runtime, dynamic int8, sorted", "texts_onnx_runtime_int8", "int8"),
        engine_peer("OpenVINO, static int8 and bf16, sorted", "texts_openvino_int8", "int8"),
        strake_predict("strake", "int8", "--precision", "int8"),
    ]
    notes = [
        "1,066 reviews (padded to 128: 256 of them), RoBERTa-base shape, random weights, batch 32.",
        "Peer: padding, forward and collecting logits are timed, after two warm-up batches (OpenVINO, zentorch, ONNX"
        " Runtime: after a whole pass); tokenizing is not.",
        "int8: scales of activations are found while running, but for OpenVINO's, which are calibrated on some of these"
        " reviews.",
        "strake: `strake predict` from a Parquet file of text to a Parquet file of predictions is timed: reading,"
        " tokenizing and writing included, loading the model not; no warm-up.",
    ]
    return Theme("Scoring", "reviews/s", 2, rows, notes)


def long():
    def row(precision):
        flags = ["--precision", precision, "--max_seq_length", 512]
        return strake_predict("strake", precision, *flags, file="long.parquet")

    rows = [
        engine_peer("OpenVINO", "long_openvino_fp32", "fp32"),
        row("fp32"),
        engine_peer("OpenVINO", "long_openvino_bf16", "bf16"),
        row("bf16"),
        engine_peer("ONNX Runtime, dynamic int8", "long_onnx_runtime_int8", "int8"),
        engine_peer("OpenVINO, static int8 and bf16", "long_openvino_int8", "int8"),
        row("int8"),
    ]
    notes = [
        "64 texts, reviews one after the other, cut to 512 tokens each; RoBERTa-base shape, random weights, batch 32.",
        "What is timed is as in scoring (`inference`).",
    ]
    return Theme("Scoring of long texts", "texts/s", 2, rows, notes)


def perplexity():
    rows = []
    # PyTorch takes minutes for the row in bf16 where it has no instructions for it.
    for precision in ("fp32", "bf16") if has_cpu_feature("avx512f") else ("fp32",):
        name = "Transformers, sorted" + (", model in bf16" if precision == "bf16" else "")
        rows.append(peer(name, f"perplexity_{precision}", precision))
        rows.append(strake_predict("strake", precision, "--precision", precision, model="gpt2", file="test256.parquet"))
    notes = [
        "The perplexity of each of 256 reviews by GPT-2 124M, random weights, batch 32.",
        "Peer: padding, forward, softmax and each text's mean loss are timed, after two warm-up batches; tokenizing is"
        " not. strake: as in scoring (`inference`).",
    ]
    return Theme("Perplexity of each text", "texts/s", 2, rows, notes, same_tokens=True)


def latency():
    def row(precision):
        return Row("strake", [str(LATENCY), precision, str(WORK)], precision, is_strake=True)

    rows = [
        engine_peer("ONNX Runtime", "latency_onnx_runtime_fp32", "fp32"),
        engine_peer("OpenVINO", "latency_openvino_fp32", "fp32"),
        row("fp32"),
        engine_peer("OpenVINO", "latency_openvino_bf16", "bf16"),
        row("bf16"),
        engine_peer("ONNX Runtime, dynamic int8", "latency_onnx_runtime_int8", "int8"),
        engine_peer("OpenVINO, static int8 and bf16", "latency_openvino_int8", "int8"),
        row("int8"),
    ]
    notes = [
        "200 reviews, one after the other, RoBERTa-base shape, two threads, after a first pass over them. Token ids in,"
        " logits out. The rate is that of the median time."
    ]
    return Theme("Latency of one text", "texts/s", 2, rows, notes, extra={"p50 ms": "p50_ms", "p99 ms": "p99_ms"})


def prepare():
    rows = []
    for tokenizer, short in (("roberta-base", "roberta"), ("bert-base-uncased", "bert")):
        if not (WORK / tokenizer).is_dir():
            continue
        for file, texts, suffix in (
            ("mixed.parquet", "mixed text", ""),
            ("all8.parquet", "all reviews 8 times", "_8x"),
        ):
            group = f"{tokenizer}, {texts}"
            rows.append(peer("tokenizers encode_batch_fast", f"encode_{short}{suffix}", group))
            rows.append(strake_prepare(tokenizer, file, group))
    notes = [
        "Mixed text: all reviews, and what there is of the paragraphs of articles (WikiText-2) and bills (BillSum).",
        "MB/s of UTF-8 text, one thread (`RAYON_NUM_THREADS=1`, `STRAKE_NUM_THREADS=1`). Peer: only the call, on a list"
        " of strings, after 500 warm-up texts.",
        "strake: `strake prepare` from Parquet to Parquet is timed: reading, tokenizing and writing. As with the peer,"
        " loading the tokenizer is not. Repeated text favours both sides' word caches.",
    ]
    return Theme("Tokenizing", "MB/s", 1, rows, notes, same_tokens=True)


def zero(stage):
    return json.dumps({"zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0}})


def mpi_launcher():
    return next(filter(shutil.which, ("mpiexec.mpich", "mpiexec")), None)


def ranks():
    one = strake_train("strake, 1 rank of 2 threads", "one")
    rows = []
    for name, function in (
        ("DDP", "ddp"),
        ("FSDP1, full shard", "fsdp1"),
        ("FSDP2, full shard", "fsdp2"),
        ("DeepSpeed ZeRO-1", "zero1"),
        ("DeepSpeed ZeRO-2", "zero2"),
        ("DeepSpeed ZeRO-3", "zero3"),
    ):
        rows.append(peer(name, f"train_fp32_{function}", "fp32", "rank_peers.py"))
        rows += onednn_peer(f"{name}, oneDNN products", f"train_fp32_{function}_onednn", "rank_peers.py")
    rows += [
        strake_train("strake, 2 thread ranks", "fp32", "--ranks", 2, batch=16),
        dataclasses.replace(one, is_strake=False, group="fp32"),
    ]
    for stage in (0, 3):
        row = strake_train(f"strake, 2 thread ranks, stage {stage}", f"stage{stage}", "--ranks", 2, batch=16)
        row.command += ["--deepspeed", zero(stage)]
        rows.append(dataclasses.replace(row, is_strake=False, group="fp32"))
    processes = strake_train("strake, 2 processes, stage 3", "processes", "--deepspeed", zero(3), batch=16)
    launcher = mpi_launcher()
    if launcher:
        command = [launcher, "-n", "2", *processes.command]
        rows.append(dataclasses.replace(processes, command=command, is_strake=False, group="fp32"))
    for row in rows:
        row.threads = 2 if row.name == one.name else 1
    notes = [
        "The workload of fine-tuning, fp32, two ranks of one thread with 16 reviews each. Peers: two processes, gloo,"
        " batches sorted by length; DeepSpeed with DeepSpeedCPUAdam.",
        "Peak memory is that of the largest process: thread ranks are both in one.",
    ]
    return Theme("Fine-tuning on two ranks", "reviews/s", 2, rows, notes)


def language():
    rows = []
    for precision, flags in (("fp32", []), ("bf16", ["--bf16"])):
        out = WORK / f"gpt2-{precision}"
        arguments = ["train", "--task", "causal-lm", "--model_type", "gpt2", "--tokenizer_name", WORK / "roberta-base"]
        arguments += ["--config_overrides", "vocab_size=50265,resid_pdrop=0,embd_pdrop=0,attn_pdrop=0"]
        arguments += ["--train_file", WORK / "documents.parquet", "--text_column", "text", "--block_size", 256]
        arguments += ["--per_device_train_batch_size", 4, "--max_steps", SKIPPED_STEPS + 4, "--save_strategy", "no"]
        arguments += ["--logging_steps", 1, "--output_dir", out, "--overwrite_output_dir", "--disable_tqdm", *flags]
        rows.append(peer("plain PyTorch", f"gpt2_{precision}", precision))
        rows.append(strake("strake", precision, arguments, out / "metrics.jsonl"))
        rows[-1].counts = "tokens"
    notes = [
        "GPT-2 124M, random weights, 4 sequences of 256 tokens, no dropout, AdamW (peer: fused), clip 1.0, tied head."
    ]
    return Theme("Language model", "tokens/s", 2, rows, notes)


def masked():
    rows = []
    for precision, flags in (("fp32", []), ("bf16", ["--bf16"])):
        out = WORK / f"masked-{precision}"
        arguments = ["train", "--task", "masked-lm", "--model_name_or_path", WORK / "roberta-base"]
        arguments += ["--train_file", WORK / "train.parquet", "--text_column", "text", "--max_seq_length", 128]
        arguments += ["--per_device_train_batch_size", 32, "--max_steps", TRAINING_STEPS, "--save_strategy", "no"]
        arguments += ["--logging_steps", 1, "--output_dir", out, "--overwrite_output_dir", "--disable_tqdm", *flags]
        name = "Transformers, sorted" + (", autocast" if flags else "")
        rows.append(peer(name, f"masked_{precision}", precision, "masked_peers.py"))
        rows.append(strake("strake", precision, arguments, out / "metrics.jsonl"))
    notes = [
        "RoBERTa-base shape, random weights, 32 reviews of at most 128 tokens, 15 % of which are predicted, dropout"
        " 0.1, AdamW (peer: fused), clip 1.0.",
        f"Peer: 8 steps after a warm-up step, batches of nearly equal lengths. strake: {TRAINING_STEPS} steps in its"
        f" usual random order, of which the first {SKIPPED_STEPS} do not count.",
    ]
    return Theme("Masked language model", "reviews/s", 2, rows, notes)


def collectives():
    rows = []
    for name in ("all_reduce", "reduce_scatter", "all_gather"):
        rows.append(peer("gloo, 2 processes", f"gloo_{name}", name, "rank_peers.py"))
        if mpi_launcher():
            command = [mpi_launcher(), "-n", "2", str(MPI_COLLECTIVES), "500", name]
            rows.append(Row("MPI, 2 processes", command, name))
        if name == "all_reduce":
            label = "DeepSpeed, shared memory (inference only)"
            rows.append(peer(label, "deepspeed_all_reduce", name, "rank_peers.py"))
        rows.append(Row("strake, 2 thread ranks", [str(COLLECTIVES), "2", "500", name], name, True))
    notes = ["500 MB of fp32 over two ranks; GB/s of the whole buffer."]
    return Theme("Collectives", "GB/s", 1, rows, notes)


def states():
    def row(what, name, group, is_strake=True):
        return Row(name, [str(STATES), what, str(WORK)], group, is_strake)

    rows = [
        peer("torch AdamW, fused", "adam_fused", "update"),
        peer("DeepSpeedCPUAdam", "adam_deepspeed", "update"),
        row("adam", "strake", "update"),
        peer("torch: clip, fused AdamW, zero_grad, cast", "adam_whole_step", "whole step"),
        row("adam_step", "strake", "whole step"),
        row("disk", "pread and pwrite alone, in the same order", "on disk", is_strake=False),
        row("adam_threads", "strake, AdamW on states on disk, threads", "on disk", is_strake=False),
        row("adam_io_uring", "strake, AdamW on states on disk, io_uring", "on disk"),
    ]
    notes = [
        "124.6 M parameters in one flat fp32 buffer; GB/s counts 28 bytes a parameter, whatever else is done. Whole"
        " step: norm, clipping, update, reset of the gradient, bf16 copy of the parameters.",
        "On disk: 64 M parameters, 24 bytes each (weight and moments, read and written), past the page cache.",
    ]
    return Theme("Optimizer states", "GB/s", 2, rows, notes)


def read_benchmark(output):
    """What Google Benchmark prints of one product."""
    (product,) = json.loads(output)["benchmarks"]
    shares = {name: product[name] for name in ("percent", "percent_alone")}
    return {"rate": product["GFLOPS"], **shares, "tokens": 0, "seconds": product["real_time"]}


def linears():
    def row(name, group, test, is_strake):
        command = [str(MATMUL), f"--benchmark_filter=^{test}/", "--benchmark_format=json", "--benchmark_min_time=1"]
        return Row(name, command, group, is_strake, read=read_benchmark)

    rows = []
    for precision in ("fp32", "bf16", "int8"):
        for layer in ("qkv", "out", "ffn1", "ffn2"):
            group = f"{precision}, {layer}"
            # oneDNN has no products of bf16 without AVX-512.
            if precision == "fp32" or (precision == "bf16" and has_cpu_feature("avx512f")):
                test = "forward_gelu" if layer == "ffn1" else "forward"
                rows.append(row("oneDNN, by torch", group, f"{test}/{layer}/{precision}/onednn", False))
            rows.append(row("strake", group, f"packed_forward/{layer}/{precision}/strake", True))
        rows.append(row("strake", f"{precision}, all four", f"packed_forward/layer/{precision}/strake", True))
    notes = [
        "Linear layers of RoBERTa-base at 864 tokens, with bias, in ffn1 also GELU; int8 with the quantization of its"
        " input: ffn2's in the product, the others' of rows that have just been written, as in an engine. All four: one"
        " after the other, ffn2 on what ffn1 gave.",
        "Share of the peak: of a loop of the same instruction on registers. The clock of a processor falls under its"
        " widest instructions and with what its neighbours do, so all threads run that loop for 0.2 ms behind each"
        " product, and the share is the median of these. strake's threads take rows, as an engine's do, and both are"
        " rated by each thread's own clock. Of the loop alone: the product's mean rate beside the best"
        " milliseconds of the loop on one thread before, times the threads; products of AMX never have that clock.",
        "strake: weights are packed before, as for scoring. oneDNN packs them in each call.",
    ]
    return Theme(
        "Linear layers",
        "GFLOP/s",
        2,
        rows,
        notes,
        extra={"% of the peak": "percent", "% of the loop alone": "percent_alone"},
    )


THEMES = {
    "training": training,
    "ranks": ranks,
    "language": language,
    "masked": masked,
    "collectives": collectives,
    "states": states,
    "linears": linears,
    "inference": inference,
    "long": long,
    "latency": latency,
    "perplexity": perplexity,
    "prepare": prepare,
}
