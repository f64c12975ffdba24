"""Measures what each ZeRO stage takes on four processes, beside the plan and the formulas; writes a dated report.

Run:  .venv/bin/python benchmarks/memory.py [--ranks N]      (`make bench BENCH=memory`)

The model is the RoBERTa-base shape of benchmarks/workload.py in fp32 with AdamW: 16 bytes a parameter of states
(weight, gradient, two moments). By the formulas of ZeRO (Rajbhandari et al., SC 2020) a rank of N keeps 16 P at stage
0, 4 P + 12 P / N at stages 1 and 2 (gradients are reduced block by block in both), 16 P / N at stage 3, and with
parameters in common on one machine 16 P / N from stage 1 on; what is gathered, reduced and active at the moment of the
peak comes on top: `strake estimate` plans it, the closing table of a run tells the peak of rank 0.
"""

import argparse
import itertools
import re
import subprocess
import sys

import run as bench
import themes

STAGES = (0, 1, 2, 3)
MEMORY = {"apart": "0", "in common": "1"}  # of processes as on different machines, and on one: STRAKE_SHARED_MEMORY
MIB = 2**20


def model_flags(stage, recompute):
    flags = ["--model_name_or_path", themes.WORK / "roberta-base", "--max_seq_length", 128]
    flags += ["--per_device_train_batch_size", 8, "--deepspeed", themes.zero(stage)]
    if recompute:
        flags.append("--gradient_checkpointing")
    return list(map(str, flags))


def number(text, name):
    return float(re.search(rf"^ *{name} +([\d.,]+)", text, re.MULTILINE)[1].replace(",", ""))


def measured_peak(stage, recompute, ranks, memory):
    """MiB of tensors of rank 0 at their highest, and GiB of its process."""
    train = [themes.STRAKE, "train", *model_flags(stage, recompute), "--max_steps", "2", "--save_strategy", "no"]
    train += ["--train_file", str(themes.WORK / "train.parquet"), "--text_column", "text", "--label_column", "label"]
    train += ["--output_dir", str(themes.WORK / "train-memory"), "--overwrite_output_dir", "--disable_tqdm"]
    launcher = themes.mpi_launcher()
    variables = bench.environment(1, is_python=False) | {"STRAKE_SHARED_MEMORY": MEMORY[memory]}
    plan, *_ = bench.run_process([launcher, "-n", str(ranks), *train, "--dry_run"], variables)
    output, resident, _ = bench.run_process([launcher, "-n", str(ranks), *train], variables)
    return number(output, "peak_tracked_bytes +=") / MIB, number(plan, "total of a rank"), resident


def parameters(ranks):
    told = subprocess.run(
        [themes.STRAKE, "estimate", *model_flags(0, False), "--ranks", str(ranks), "--processes"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return int(re.search(r"with ([\d,]+) parameters", told)[1].replace(",", ""))


def formula(stage, count, ranks, memory):
    if stage == 0:
        return 16 * count
    if stage == 3 or memory == "in common":
        return 16 * count / ranks
    return 4 * count + 12 * count / ranks


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4, help="processes (default 4)")
    ranks = parser.parse_args().ranks
    if themes.mpi_launcher() is None:
        sys.exit("there is no mpiexec: install mpich")
    bench.make_workload()
    count = parameters(ranks)
    heads = [
        "memory",
        "stage",
        "recompute",
        "states by formula, MiB",
        "planned peak of a rank, MiB",
        "measured peak of a rank, MiB",
    ]
    heads += ["measured / planned", "peak of the process, GiB"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for memory, recompute, stage in itertools.product(MEMORY, (False, True), STAGES):
        measured, planned, resident = measured_peak(stage, recompute, ranks, memory)
        states = formula(stage, count, ranks, memory) / MIB
        again = "yes" if recompute else "no"
        line = f"| {memory} | {stage} | {again} | {states:.0f} | {planned:.0f} | {measured:.0f} |"
        lines.append(line + f" {measured / planned:.4f} | {resident:.2f} |")
        print(lines[-1], file=sys.stderr, flush=True)
    notes = [
        f"RoBERTa-base shape, {count:,} parameters, fp32, AdamW, {ranks} processes with 8 reviews each.",
        "Memory apart: as on different machines. In common: the parameters once on the machine; a rank counts its part,"
        " the kernel (last column) all of it for every process.",
    ]
    theme = themes.Theme(f"Memory on {ranks} ranks", "MiB", 1, [], notes)
    bench.write_report("memory", theme, "\n".join(lines), f"benchmarks/memory.py --ranks {ranks}")


if __name__ == "__main__":
    main()
