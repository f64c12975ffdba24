"""Runs the commands that README.md and docs/howto/*.md show, and looks for the files that all Markdown files name.

A block marked ```sh is run by bash as it stands; of a block without a language, the lines that begin with "$ " are. The
blocks of one document share a shell, in an empty folder of their own. ```console marks what is shown but not run. A
hidden <!-- setup ... --> comment is run like a block: it makes the inputs. Plans of `strake estimate` must be what is
shown. Prints `file:line: message` per finding.
Usage: run_docs.py STRAKE_BINARY [DOCUMENT...]
"""

import itertools
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$|^<!-- setup\n(.*?)^-->$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")
CODE = re.compile(r"`((?:strake|tests|tools|docs|cmake|benchmarks|examples)/[\w./-]+)`")


def line_of(text, position):
    return text.count("\n", 0, position) + 1


def commands(text):
    """(line, script) of every block that is to be run."""
    for match in BLOCK.finditer(text):
        language, body, setup = match.groups()
        if setup is None and language == "":
            body = "".join(line[2:] + "\n" for line in body.splitlines() if line.startswith("$ "))
        script = setup if setup is not None else body if language in {"", "sh"} else ""
        if script.strip():
            yield line_of(text, match.start()) + 1, script


def stale_outputs(path, text, binary):
    """What `strake estimate` shows depends on its flags alone, if it measures nothing and uses one library of products.

    A last line ... stands for more.
    """
    for match in BLOCK.finditer(text):
        command, _, shown = (match[2] or "").partition("\n")
        if match[1] or not command.startswith("$ ") or " estimate " not in command:
            continue
        variables = environment(binary) | {"STRAKE_MATMUL": "strake"}
        done = subprocess.run(["bash", "-c", command[2:]], env=variables, stdout=subprocess.PIPE, text=True, check=True)
        lines, found = shown.splitlines(), done.stdout.splitlines()
        if lines[-1] == "...":
            lines.pop()
            del found[len(lines) :]
        for number, (line, instead) in enumerate(itertools.zip_longest(lines, found)):
            if line != instead:
                place = line_of(text, match.start()) + 2 + number
                yield f"{path.relative_to(ROOT)}:{place}: {line!r} is shown, and the program says {instead!r}"
                break


def missing_files(path, text):
    for pattern, base in ((LINK, path.parent), (CODE, ROOT)):
        for match in pattern.finditer(text):
            if not (base / match[1]).exists():
                yield f"{path.relative_to(ROOT)}:{line_of(text, match.start())}: there is no {match[1]}"


def environment(binary):
    paths = [str(binary.parent), str(pathlib.Path(sys.executable).parent), os.environ["PATH"]]
    return os.environ | {"PATH": ":".join(paths), "STRAKE_SOURCE_DIR": str(ROOT), "STRAKE_NUM_THREADS": "1"}


def run(path, text, binary):
    """Findings of one document; a shell with all its blocks says on the way which line it is at."""
    blocks = list(commands(text))
    script = "\n".join(f"echo '@@ {line}' >&3\n{body}" for line, body in blocks)
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as progress:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", f"exec 3>&{progress.fileno()}\n{script}"],
            cwd=folder,
            env=environment(binary),
            pass_fds=[progress.fileno()],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=240,
        )
        progress.seek(0)
        line = (progress.read().split("@@ ")[-1]).strip() or "1"
    print(f"{path.relative_to(ROOT)}: ran {len(blocks)} blocks")
    if done.returncode != 0:
        yield f"{path.relative_to(ROOT)}:{line}: exit code {done.returncode}\n{done.stdout[-3000:]}"


def main():
    binary = pathlib.Path(sys.argv[1]).resolve()
    howtos = [ROOT / "README.md", *sorted((ROOT / "docs/howto").glob("*.md"))]
    documents = [pathlib.Path(name).resolve() for name in sys.argv[2:]] or howtos
    others = [] if sys.argv[2:] else [ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"]
    problems = []
    for path in [*documents, *others]:
        text = path.read_text()
        problems += missing_files(path, text)
        if path in documents:
            problems += run(path, text, binary)
            problems += stale_outputs(path, text, binary)
    sys.exit("\n".join(problems) or 0)


if __name__ == "__main__":
    main()
