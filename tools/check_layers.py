"""Fails if a file includes a module that its CMakeLists.txt does not list under DEPENDS, if no file includes a listed
one, if modules form a cycle, or if the table of ARCHITECTURE.md says otherwise.

Also: Arrow headers only in strake/data, ATen nowhere in core, tokenizers and kernels, and <torch/torch.h> nowhere.
Usage: check_layers.py [REPOSITORY_ROOT]
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1])
FORBIDDEN = [  # (pattern, modules where it is allowed or None, modules where it is refused or None)
    (r"#include <(arrow|parquet)/", {"data"}, None),
    (r"#include <(ATen|c10|torch)/", None, {"core", "tokenizers", "kernels", "cli"}),
    (r"#include <torch/torch\.h>", set(), None),
    (r"#include <mpi\.h>", {"comm"}, None),
]


def declared_dependencies(root):
    allowed = {}
    for cmake in sorted(root.glob("*/CMakeLists.txt")):
        depends = re.search(r"DEPENDS((?:\s+[a-z_]+)*)", cmake.read_text())
        allowed[cmake.parent.name] = {cmake.parent.name, *(depends.group(1).split() if depends else [])}
    return allowed


def include_problems(root, allowed):
    for path in sorted(p for p in root.rglob("*") if p.suffix in {".h", ".cpp", ".cu"}):
        module = path.relative_to(root).parts[0]
        for number, line in enumerate(path.read_text().splitlines(), 1):
            place = f"{path.relative_to(root.parent)}:{number}"
            used = re.match(r'#include "strake/(\w+)/', line)
            if used and used[1] not in allowed.get(module, set()):
                yield f"{place}: {module} may not include {used[1]} (see DEPENDS in strake/{module}/CMakeLists.txt)"
            for pattern, only_in, never_in in FORBIDDEN:
                if re.match(pattern, line) and (
                    (only_in is not None and module not in only_in) or (never_in is not None and module in never_in)
                ):
                    yield f"{place}: {line} is not allowed in module {module}"


def unused_edges(root, allowed):
    for module, modules in sorted(allowed.items()):
        text = "".join(p.read_text() for p in (root / module).rglob("*") if p.suffix in {".h", ".cpp", ".cu"})
        for other in sorted(modules - {module}):
            if f'#include "strake/{other}/' not in text:
                yield f"strake/{module}/CMakeLists.txt:1: DEPENDS names {other}, which no file of it includes"


def cycles(allowed):
    found = []

    def visit(module, trail):
        if module in trail:
            found.append(f"strake/{module}/CMakeLists.txt:1: cycle: " + " -> ".join((*trail, module)))
            return
        for used in sorted(allowed.get(module, set()) - {module}):
            visit(used, (*trail, module))

    for module in sorted(allowed):
        visit(module, ())
    return found


def untrue_rows(document, allowed):
    rows = dict(re.findall(r"^\| `(\w+)` \|.*\| ([a-z -]+) \|$", document.read_text(), re.MULTILINE))
    for module in sorted({*rows, *allowed}):
        said = set(rows.get(module, "no row").replace("-", "").split())
        if said != allowed.get(module, set()) - {module}:
            yield f"{document.name}:1: the table says that {module} may include {sorted(said)}, unlike its DEPENDS"


def main():
    modules = declared_dependencies(ROOT / "strake")
    problems = [
        *include_problems(ROOT / "strake", modules),
        *unused_edges(ROOT / "strake", modules),
        *cycles(modules),
        *untrue_rows(ROOT / "ARCHITECTURE.md", modules),
    ]
    if not modules:
        problems.append(f"{ROOT}:1: no modules found under {ROOT / 'strake'}")
    sys.exit("\n".join(problems) or 0)


if __name__ == "__main__":
    main()
