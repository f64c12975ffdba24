"""Makes the demo's data: long descriptions of Debian packages, to be sorted into their archive sections.

Run:  .venv/bin/python tools/make_demo_data.py OUT_DIR [--full]

Needs a system with apt (Debian, Ubuntu), but not root: the lists are fetched into OUT_DIR/lists and apt's own state is
left alone. Writes OUT_DIR/{train,validation,test}.parquet (columns package, text, label). By default 200
training rows from each of 6 sections: few examples are where a pretrained encoder helps most, and training takes
minutes. --full takes all 15 sections with all their rows.

Packages of one source share much of their text, so a random split would leak the test part into training. The split
goes by a hash of the stem of the package name (without prefixes like "python3-", cut to 6 letters), and texts of one
part that also occur in an earlier part are dropped. The validation part is for choosing among epochs, so that the test
part is used once.
"""

import argparse
import collections
import hashlib
import pathlib
import re
import shutil
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq

ALL_SECTIONS = "games net science text sound graphics math web editors mail database video electronics fonts admin"
DEFAULT_SECTIONS = "games net science text sound graphics"
ROWS_PER_SECTION = {"train": 200, "validation": 50}
STEM_PREFIX = re.compile(r"^(lib|python3-|golang-|node-|ruby-|r-cran-|r-bioc-)")
STEM_LETTERS = 6
STEM_SHARES = 9  # of which one is for testing, one for validation
APT_HELPER = "/usr/lib/apt/apt-helper"
NO_APT = """{reason}
The demo's text comes from apt's package lists, so it needs Debian, Ubuntu or a relative. With text of your own, in
Parquet files with string columns `text` and `label`, run:  tools/demo.sh --train TRAIN.parquet --test TEST.parquet"""


def fail(reason):
    sys.exit("make_demo_data: " + NO_APT.format(reason=reason))


def fetch_lists(folder):
    """Brings package lists and English descriptions into `folder`; what is there already is only brought up to date."""
    if not shutil.which("apt-get"):
        fail("apt-get is not installed.")
    (folder / "partial").mkdir(parents=True, exist_ok=True)
    command = ["apt-get", "-qq", "-o", f"Dir::State::Lists={folder}", "-o", "Acquire::Languages=en", "update"]
    status = subprocess.run(command).returncode
    if status != 0:
        print(f"make_demo_data: apt-get update ended with {status}; going on with what it fetched", file=sys.stderr)


def stanzas(path):
    """The fields of each paragraph of an apt list, whatever its compression."""
    content = subprocess.run([APT_HELPER, "cat-file", str(path)], check=True, capture_output=True).stdout
    for paragraph in content.decode("utf-8", "replace").split("\n\n"):
        fields = re.split(r"^([A-Za-z0-9-]+):[ \t]*", paragraph, flags=re.MULTILINE)
        if len(fields) > 2:
            yield dict(zip(fields[1::2], fields[2::2], strict=True))


def read_sections(folder):
    """Section by package name; Ubuntu's "universe/games" counts as "games"."""
    sections = {}
    for path in sorted(folder.glob("*_Packages*")):
        for fields in stanzas(path):
            sections[fields.get("Package", "").strip()] = fields.get("Section", "").strip().rpartition("/")[2]
    return sections


def read_descriptions(folder):
    """(package, text) with the short description first, one line each; "." alone is how apt writes an empty line."""
    seen = set()
    for path in sorted(folder.glob("*_Translation-en*")):
        for fields in stanzas(path):
            package = fields.get("Package", "").strip()
            lines = [line.strip() for line in fields.get("Description-en", "").split("\n")]
            text = " ".join(line for line in lines if line and line != ".")
            if package and text and package not in seen:
                seen.add(package)
                yield package, text


def digest(text):
    return int.from_bytes(hashlib.md5(text.encode()).digest()[:8], "big")


def part_of(package):
    stem = STEM_PREFIX.sub("", package)[:STEM_LETTERS]
    return {0: "test", 1: "validation"}.get(digest(stem) % STEM_SHARES, "train")


def choose_rows(folder, wanted, limits):
    """Rows (package, text, label) by part, in an order that depends on nothing but the package names.

    `limits` bounds the rows per section in some parts.
    """
    sections = read_sections(folder)
    rows = [(package, text, sections.get(package)) for package, text in read_descriptions(folder)]
    rows = sorted((row for row in rows if row[2] in wanted), key=lambda row: (digest(row[0]), row[0]))
    parts, texts = {}, set()
    for part in ("train", "validation", "test"):
        chosen, count = [], collections.Counter()
        for row in rows:
            if part_of(row[0]) == part and row[1] not in texts and count[row[2]] < limits.get(part, len(rows)):
                count[row[2]] += 1
                chosen.append(row)
        parts[part] = chosen
        texts |= {text for _, text, _ in chosen}
    return parts


def write(path, rows):
    columns = dict(zip(("package", "text", "label"), map(list, zip(*rows, strict=True)), strict=True))
    partial = path.with_suffix(".partial")
    pq.write_table(pa.table(columns), partial, compression="zstd")
    partial.rename(path)
    counts = collections.Counter(columns["label"])
    characters = sum(map(len, columns["text"]))
    detail = ", ".join(f"{label} {number}" for label, number in counts.most_common())
    print(f"{path}: {len(rows)} rows, {characters / 1e6:.1f} million characters ({detail})")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path, metavar="OUT_DIR")
    parser.add_argument("--full", action="store_true", help="all 15 sections and all their rows")
    args = parser.parse_args()
    lists = args.out.resolve() / "lists"
    fetch_lists(lists)
    wanted = (ALL_SECTIONS if args.full else DEFAULT_SECTIONS).split()
    parts = choose_rows(lists, wanted, {} if args.full else ROWS_PER_SECTION)
    if not all(parts.values()):
        fail(f"{lists} holds too few descriptions (*_Translation-en*) of the sections {', '.join(wanted)}.")
    for part, rows in parts.items():
        write(args.out / f"{part}.parquet", rows)


if __name__ == "__main__":
    main()
