"""Fails where a linked program could not start: pages that the loader makes read-only (GNU_RELRO) belong to no segment.

mold 1.10 lets them begin at .tbss, which takes no space in a segment and may end just before one. Whether it does
depends on the length of the path of the build; such a program ends with "cannot apply additional memory protection
after relocation".
Usage: check_programs.py BUILD_DIRECTORY
"""

import pathlib
import struct
import sys

LOAD, RELRO = 1, 0x6474E552


def segments(path):
    """(type, first address, address behind the last) of the program headers of a 64-bit little-endian ELF file."""
    with path.open("rb") as file:
        header = file.read(64)
        if header[:6] != b"\x7fELF\x02\x01":
            return []
        offset = struct.unpack_from("<Q", header, 32)[0]
        size, count = struct.unpack_from("<HH", header, 54)
        file.seek(offset)
        table = file.read(size * count)
    found = []
    for begin in range(0, size * count, size):
        kind, _, _, address, _, _, in_memory, _ = struct.unpack_from("<IIQQQQQQ", table, begin)
        found.append((kind, address, address + in_memory))
    return found


def is_protectable(found):
    """Whether the first address of every GNU_RELRO lies in a LOAD."""
    loads = [(begin, end) for kind, begin, end in found if kind == LOAD]
    return all(any(a <= begin < b for a, b in loads) for kind, begin, _ in found if kind == RELRO)


def main():
    programs = 0
    bad = []
    for path in sorted(pathlib.Path(sys.argv[1]).rglob("*")):
        if "CMakeFiles" in path.parts or not path.is_file() or not path.stat().st_mode & 0o100:
            continue
        found = segments(path)
        programs += bool(found)
        if not is_protectable(found):
            bad.append(path)
    for path in bad:
        print(f"{path}: GNU_RELRO begins outside of every LOAD segment; link with -Wl,-z,separate-code")
    if not programs:
        print(f"{sys.argv[1]}: no program found")
    return 1 if bad or not programs else 0


if __name__ == "__main__":
    sys.exit(main())
