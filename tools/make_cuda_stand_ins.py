"""Makes empty stand-ins for the GPU libraries that `import torch` wants to see, on a machine without a GPU.

The torch wheel's Python module is linked to some 2.7 GB of CUDA libraries that are never called on a CPU. The parity
tests need Transformers only on the CPU, so each missing library is replaced by one whose functions do nothing.
Never used by strake itself, which links libtorch_cpu alone.

Run:  .venv/bin/python tools/make_cuda_stand_ins.py OUT_DIR
then  LD_LIBRARY_PATH=OUT_DIR .venv/bin/python ...
"""

import collections
import pathlib
import re
import subprocess
import sys
import sysconfig


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def missing_libraries(torch_libraries, site):
    needed = set()
    for library in torch_libraries:
        needed |= set(re.findall(r"NEEDED.*\[(lib(?:cu|nccl|nv)[^\]]*)\]", output("readelf", "-d", str(library))))
    present = {path.name for path in site.glob("nvidia/**/*.so*")}
    return sorted(needed - present)


def undefined_symbols(torch_libraries):
    """Symbols that the torch libraries expect from elsewhere, by version name ("" if they have none)."""
    by_version = collections.defaultdict(set)
    for library in torch_libraries:
        for symbol, version in re.findall(
            r" U ((?:cu|cudnn|nccl|nvshmem)\w*)(?:@(\S+))?$",
            output("nm", "-D", "--undefined-only", "--with-symbol-versions", str(library)),
            re.MULTILINE,
        ):
            by_version[version].add(symbol)
    return by_version


def version_of(name, by_version):
    stem = re.match(r"lib(nvshmem|\w+)", name).group(1)
    exact = [v for v in by_version if v and (v == name or v.lower() == stem)]
    return exact[0] if exact else ""


def build(name, version, symbols, out):
    source = out / f"{name}.c"
    source.write_text("".join(f"void {symbol}(void) {{}}\n" for symbol in sorted(symbols)))
    command = ["gcc", "-shared", "-w", "-fno-builtin", "-o", str(out / name), f"-Wl,-soname,{name}", str(source)]
    if version:
        script = out / f"{name}.map"
        script.write_text(f"{version} {{ global: *; }};\n")
        command.append(f"-Wl,--version-script={script}")
    subprocess.run(command, check=True)


def main():
    out = pathlib.Path(sys.argv[1]).resolve()
    out.mkdir(parents=True, exist_ok=True)
    site = pathlib.Path(sysconfig.get_paths()["purelib"])
    torch_libraries = sorted((site / "torch/lib").glob("lib*.so"))
    if not torch_libraries:
        sys.exit(f"{site / 'torch/lib'} has no libraries: install torch first (tools/setup.sh build)")
    by_version = undefined_symbols(torch_libraries)
    libraries = missing_libraries(torch_libraries, site)
    unversioned_home = next((name for name in libraries if name.startswith("libnccl")), None)
    for name in libraries:
        version = version_of(name, by_version)
        symbols = by_version[version] if version else (by_version[""] if name == unversioned_home else set())
        build(name, version, symbols, out)


if __name__ == "__main__":
    main()
