"""Fails on what no reviewer should have to look for: long files, hidden branches, stray output, loose ends, tests that
nobody runs.

Prints one `file:line: message` per finding. What a rule does not apply to is listed in ALLOWED with its reason.
Usage: check_sizes.py [REPOSITORY_ROOT]
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1]).resolve()
FOLDERS = ["strake", "tests", "benchmarks", "tools", "examples", "python", "cmake", "docs"]
CPP = {".h", ".cpp", ".cu"}
SOURCES = CPP | {".py", ".sh", ".cmake"}
MAX_LINES = 600

ALLOWED = {  # rule -> {file: reason}
    "exit": {
        "strake/comm/rank_guard.cpp": "a process of its own, split off without exec",
        "strake/comm/rank_watch.cpp": "ends a process that does not come back from MPI when a rank is gone",
        "strake/comm/thread_comm.cpp": "ends a process with a rank that does not come back when another has failed",
    },
    "output": {
        "strake/tasks/run_log.cpp": "prints the closing table and plan of train, which a rank knows only while it runs",
    },
    "conditional": {},
}

CONDITIONAL = re.compile(r"\s*#\s*(if|ifdef|ifndef|elif|else)\b")
OUTPUT = re.compile(r"\bstd::(cout|cerr)\b|\b(std::)?(f?printf|puts)\(|\bfmt::print\(")
EXIT = re.compile(r"(?<![\w.>])(std::)?(exit|_exit|_Exit|quick_exit)\(")
SWALLOW = re.compile(r"catch \(\.\.\.\) \{\s*\}")
LOOSE_END = re.compile(r"\b(TODO|FIXME|XXX)\b(?!\(#\d+\))")
TEST = re.compile(r"[\w/]*_test\.(?:cpp|py)\b")
NAMESPACE = re.compile(r"namespace (strake[\w:]*) \{")
VAGUE_NAME = re.compile(r"(^|_)(utils?|common|helpers?|misc|manager)(_|$)")


def without_text(line):
    """The line without string literals and // comments."""
    return re.sub(r'"(?:[^"\\]|\\.)*"', '""', line).split("//")[0]


def is_program(path):
    """True where output and exit codes belong: the command line, tests, benchmarks, examples."""
    return path.parts[0] != "strake" or path.parts[1] == "cli" or path.stem.endswith("_test")


def file_findings(path, lines):
    """Findings of one file as (line number, rule, message)."""
    if len(lines) > MAX_LINES:
        yield MAX_LINES + 1, "size", f"the file has {len(lines)} lines, more than {MAX_LINES}: two ideas in one file?"
    for part in (*path.parts[:-1], path.stem):
        if VAGUE_NAME.search(part):
            yield 1, "name", f"'{part}' says nothing about what is in it"
    for number, line in enumerate(lines, 1):
        if not line.isascii():
            yield number, "ascii", "a character outside ASCII"
        if LOOSE_END.search(line) and path.name != "check_sizes.py":
            yield number, "loose_end", "a loose end without an issue: write TODO(#123), or do it now"
    if path.suffix in CPP:
        yield from cpp_findings(path, lines)


def cpp_findings(path, lines):
    code = [without_text(line) for line in lines]
    for number, line in enumerate(code, 1):
        if CONDITIONAL.match(line):
            yield number, "conditional", "conditional compilation: let CMake choose between files instead"
        if not is_program(path):
            if OUTPUT.search(line):
                yield number, "output", "output outside strake/cli: log with strake/core/log.h or return the result"
            if EXIT.search(line):
                yield number, "exit", "ends the process: throw an Error instead"
        namespace = NAMESPACE.match(line)
        if namespace and path.name.endswith("_test.cpp") and not namespace[1].endswith(f"::{path.stem}"):
            yield number, "namespace", f"tests are compiled together: expected {namespace[1]}::{path.stem}"
    text = "\n".join(code)
    for match in SWALLOW.finditer(text):
        yield text.count("\n", 0, match.start()) + 1, "swallow", "swallows every error without a word"


def tests_named_by(cmake):
    """Paths of tests: beside the list, or in their group's folder, as of strake_program_test(cli heads_test.py)."""
    text = re.sub("#.*", "", cmake.read_text())
    for group, name in re.findall(r"strake_program_test\((\w+) (\S+?)[ )]", text):
        yield cmake.parent / group / name
    for name in TEST.findall(re.sub(r"strake_program_test\(.*", "", text)):
        yield cmake.parent / name
    for name in re.findall(r"\$\{PROJECT_SOURCE_DIR\}/(\S+_test\.cpp)", text):
        yield ROOT / name


def tests_without_cmake(paths):
    registered = {test for path in paths if path.name == "CMakeLists.txt" for test in tests_named_by(path)}
    for path in paths:
        if TEST.fullmatch(path.name) and path not in registered:
            yield f"{path.relative_to(ROOT)}:1: no CMakeLists.txt names this test: nobody runs it"


def main():
    paths = [p for folder in FOLDERS for p in sorted((ROOT / folder).rglob("*"))]
    paths += [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    checked, problems = 0, []
    for file in paths:
        if not file.is_file() or not (file.suffix in SOURCES | {".md"} or file.name == "CMakeLists.txt"):
            continue
        path = file.relative_to(ROOT)
        checked += 1
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
        for number, rule, message in file_findings(path, lines):
            if str(path) not in ALLOWED.get(rule, {}):
                problems.append(f"{path}:{number}: {message}")
    problems += tests_without_cmake(paths)
    if checked == 0:
        problems.append(f"{ROOT}:1: no sources found")
    for rule, files in ALLOWED.items():
        problems += [
            f"tools/check_sizes.py:1: {file} ({rule}) does not exist" for file in files if not (ROOT / file).exists()
        ]
    sys.exit("\n".join(problems) or 0)


if __name__ == "__main__":
    main()
