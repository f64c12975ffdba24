"""Runs strake and its peers in turn, and writes a dated report of the comparison.

Run:  .venv/bin/python benchmarks/run.py [THEME] [--repeat N] [--group GROUP ...]      (`make bench BENCH=THEME`)
THEME: all, training, ranks, language, masked, collectives, states, linears, inference, long, latency, perplexity or
prepare.

Each measurement is a process of its own; one round measures every row of a theme once, so that a machine that slows
down slows all of them, and the table holds medians over the rounds. Both sides get two threads (one for `prepare`).
The texts and the model come from benchmarks/workload.py, the peers are the functions of benchmarks/*peers.py.
Environment: STRAKE (default build/strake), STRAKE_TEST_DATA (default ../shared/data).

This process imports only the standard library: what it holds would count towards the peak memory of its children.
"""

import argparse
import datetime
import importlib.metadata
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

from themes import ROOT, SKIPPED_STEPS, STRAKE, THEMES, WORK, processor

STAND_INS = pathlib.Path(sys.prefix) / ".strake/cuda_stand_ins"  # for `import torch` without a GPU: tools/setup.sh
CONTENDED = 0.05  # share of the machine used by other programs from which on the table marks a row


def busy_seconds():
    """CPU time that the whole machine has spent working."""
    ticks = [int(value) for value in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")


def environment(threads, is_python):
    names = ("STRAKE_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS")
    quiet = {"TOKENIZERS_PARALLELISM": "true", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    result = {**os.environ, **dict.fromkeys(names, str(threads)), **quiet}
    if is_python and STAND_INS.is_dir():
        result["LD_LIBRARY_PATH"] = f"{STAND_INS}:{os.environ.get('LD_LIBRARY_PATH', '')}".rstrip(":")
    return result


def run_process(command, variables):
    """Standard output, peak memory in GiB, and the share of the machine that other programs used meanwhile."""
    with tempfile.TemporaryFile("w+") as errors, tempfile.TemporaryFile("w+") as output:
        before, start = busy_seconds(), datetime.datetime.now()
        process = subprocess.Popen(command, env=variables, stdout=output, stderr=errors, cwd=ROOT)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        wall = (datetime.datetime.now() - start).total_seconds()
        others = busy_seconds() - before - usage.ru_utime - usage.ru_stime
        for file in (output, errors):
            file.seek(0)
        if process.returncode != 0:
            raise RuntimeError(f"exit status {process.returncode}: {' '.join(command)}\n{errors.read()[-2000:]}")
        return output.read(), usage.ru_maxrss / 2**20, max(0.0, others / wall / os.cpu_count())


def read_steps(path, counts):
    """Rate of the logged training steps but for the first, which also allocate memory and touch new weights."""
    steps = [entry for entry in map(json.loads, path.read_text().splitlines()) if "step_seconds" in entry]
    steps = steps[SKIPPED_STEPS:]
    if not steps:
        raise RuntimeError(f"{path} has no more than {SKIPPED_STEPS} training steps")
    seconds = sum(step["step_seconds"] for step in steps)
    rate = sum(step[counts] for step in steps) / seconds
    return {"rate": rate, "tokens": sum(step["tokens"] for step in steps), "seconds": seconds}


def read_summary(output):
    """The last line of standard output: a peer's measurement or strake's --summary_json."""
    lines = output.strip().splitlines()
    if not lines:
        raise RuntimeError("nothing on standard output")
    summary = json.loads(lines[-1])
    if "rate" not in summary:
        amount = summary["text_bytes"] / 1e6 if "text_bytes" in summary else summary["rows"]
        summary["rate"] = amount / summary["seconds"]
    return summary


def measure(row, threads):
    if row.metrics:
        row.metrics.unlink(missing_ok=True)
    is_python = row.command[0] == sys.executable
    output, memory, others = run_process(row.command, environment(row.threads or threads, is_python))
    result = read_steps(row.metrics, row.counts) if row.metrics else (row.read or read_summary)(output)
    return {**result, "memory": memory, "others": others}


def measure_all(theme, repeat):
    """Measurements by row, or what went wrong with it."""
    results = [[] for _ in theme.rows]
    for turn in range(repeat):
        for row, measured in zip(theme.rows, results, strict=True):
            label = f"{theme.title} {turn + 1}/{repeat}: {row.name}, {row.group}"
            try:
                measured.append(measure(row, theme.threads))
                print(f"{label}: {measured[-1]['rate']:.2f} {theme.unit}", file=sys.stderr, flush=True)
            except (RuntimeError, OSError, ValueError, KeyError) as error:
                print(f"{label}: FAILED: {error}", file=sys.stderr, flush=True)
    return results


def different_work(theme, results):
    """Groups whose rows count different tokens although the theme says that they must not."""
    counts = {}
    for row, measured in zip(theme.rows, results, strict=True):
        counts.setdefault(row.group, set()).update(result["tokens"] for result in measured)
    return [f"{group}: {sorted(tokens)} tokens" for group, tokens in counts.items() if len(tokens) > 1]


def median(measured, key):
    return statistics.median(result[key] for result in measured)


def table(theme, results):
    own = {
        row.group: median(measured, "rate")
        for row, measured in zip(theme.rows, results, strict=True)
        if row.is_strake and measured
    }
    heads = ["what", "group", f"{theme.unit}, median", "range", "tokens/s", "peak memory GiB", "strake / this row"]
    heads += theme.extra
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for row, measured in zip(theme.rows, results, strict=True):
        if not measured:
            lines.append(f"| {row.name} | {row.group} | failed {'| ' * (len(heads) - 3)}|")
            continue
        rates = [result["rate"] for result in measured]
        rate = statistics.median(rates)
        tokens = statistics.median(result["tokens"] / result["seconds"] for result in measured)
        ratio = f"{own[row.group] / rate:.2f}x" if row.group in own and not row.is_strake else ""
        mark = " *" if median(measured, "others") > CONTENDED else ""
        lines.append(
            f"| {row.name}{mark} | {row.group} | {rate:.2f} | {min(rates):.2f} to {max(rates):.2f} | {tokens:.0f} |"
            f" {median(measured, 'memory'):.2f} | {ratio} |"
            + "".join(f" {median(measured, key):.2f} |" for key in theme.extra.values())
        )
    return "\n".join(lines)


def machine():
    name, flags = processor()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{name}, {os.cpu_count()} CPUs, {memory:.0f} GiB, {' '.join(flags)}"


def versions():
    names = ("torch", "transformers", "tokenizers", "pyarrow", "openvino", "onnxruntime", "zentorch", "deepspeed")
    packages = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in names)
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, cwd=ROOT)
    return f"strake {commit.stdout.strip()}, Python {sys.version.split()[0]}, {packages}"


def write_report(name, theme, body, command):
    date = datetime.date.today().isoformat()
    cpu = re.sub(r"[^a-z0-9]+", "-", processor()[0].lower()).strip("-")
    facts = json.loads((WORK / "facts.json").read_text())
    notes = [f"Texts: {facts['texts']}.", *theme.notes]
    lines = [f"# {theme.title}, {date}", "", f"Machine: {machine()}  ", f"Versions: {versions()}  "]
    lines += [f"Command: `{command}`", "", body, "", *(f"- {note}" for note in notes), ""]
    path = ROOT / "benchmarks/reports" / f"{date}-{name}-{cpu}.md"
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(lines))
    print(f"\n{theme.title}\n\n{body}\n\nwritten to {path.relative_to(ROOT)}", flush=True)


def rows_of(theme, groups):
    """All rows, or those of the groups that were asked for."""
    known = sorted({row.group for row in theme.rows})
    for group in groups:
        if group not in known:
            sys.exit(f"benchmarks: --group {group}: {theme.title} has {', '.join(known)}")
    return [row for row in theme.rows if not groups or row.group in groups]


def make_workload():
    workload = [sys.executable, str(ROOT / "benchmarks/workload.py"), str(WORK)]
    subprocess.run(workload, env=environment(2, is_python=True), check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("theme", nargs="?", default="all", choices=["all", *THEMES])
    parser.add_argument("--repeat", type=int, default=3, help="rounds (default 3)")
    group_help = "only rows of these groups of the theme, as fp32: where the CPU has no bf16, peers emulate it for long"
    parser.add_argument("--group", nargs="+", default=[], help=group_help)
    args = parser.parse_args()
    if not os.access(STRAKE, os.X_OK):
        sys.exit(f"benchmarks: {STRAKE} is not there: run `make build`, or set STRAKE to the program")
    themes = {name: THEMES[name]() for name in (THEMES if args.theme == "all" else [args.theme])}
    for theme in themes.values():
        theme.rows = rows_of(theme, args.group)
    make_workload()
    if "synthetic" in json.loads((WORK / "facts.json").read_text())["texts"]:
        print("benchmarks: STRAKE_TEST_DATA has no reviews: using synthetic text of similar lengths", file=sys.stderr)
    failed = False
    for name, theme in themes.items():
        repeat = max(1, args.repeat)
        results = measure_all(theme, repeat)
        theme.notes.append(f"Rounds: {repeat}; {theme.threads} thread(s). tokens/s counts real tokens, never padding.")
        theme.notes.append(f"* other programs used more than {CONTENDED:.0%} of the CPUs: take the row with care.")
        groups = f" --group {' '.join(args.group)}" if args.group else ""
        write_report(name, theme, table(theme, results), f"benchmarks/run.py {name} --repeat {repeat}{groups}")
        differences = different_work(theme, results) if theme.same_tokens else []
        for difference in differences:
            print(f"{theme.title}: FAILED: the sides disagree, {difference}", file=sys.stderr)
        failed |= bool(differences) or not all(results)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
