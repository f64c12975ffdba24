"""Writes strake/tokenizers/unicode_tables.cpp: what pip `tokenizers` does with every single code point.

Hugging Face's tokenizers mix several versions of Unicode (8.0 for categories, 9.0 for normalization, the current one
for letter case and white space, that of their regular expression engine for letters and numbers). So no one edition
of the Unicode database gives the same answers; the library itself is asked, one code point at a time. Canonical
combining classes cannot be asked for directly: they come from Python's unicodedata, for those code points that the
library reorders.

usage: python3 tools/make_unicode_tables.py > strake/tokenizers/unicode_tables.cpp   (needs pip tokenizers; 30 seconds)
"""

import textwrap
import unicodedata

from tokenizers import __version__, normalizers, pre_tokenizers

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
HANGUL = range(0xAC00, 0xD7A4)  # decomposed by arithmetic

# The order of the bits of CharClass in unicode.h.
FLAGS = [
    "space",
    "cleaned",
    "chinese",
    "nonspacing",
    "mark",
    "punctuation",
    "letter",
    "number",
    "regex_space",
    "word",
    "numeric",
]

HEADER = """\
// Made by tools/make_unicode_tables.py from the answers of pip tokenizers {version}; do not edit.
// Derived from the Unicode Character Database: Copyright 1991-2023 Unicode, Inc., https://www.unicode.org/license.txt
// (Unicode License V3: the data may be copied and changed as long as this notice stays with it).
#include "strake/tokenizers/unicode_tables.h"

// clang-format off
namespace strake::tokenizers {{
"""


def pieces(splitter, text):
    return len(splitter.pre_tokenize_str(text))


def flag_words():
    """One integer per code point; bit i is FLAGS[i]."""

    def cleaner(chinese):
        return normalizers.BertNormalizer(
            clean_text=not chinese, handle_chinese_chars=chinese, strip_accents=False, lowercase=False
        )

    clean, chinese, mark = cleaner(False), cleaner(True), normalizers.StripAccents()
    accents = normalizers.BertNormalizer(
        clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False
    )
    spaces, words = pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Whitespace()
    punctuation, digits = pre_tokenizers.Punctuation(), pre_tokenizers.Digits(individual_digits=True)
    gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False)
    for code in CODE_POINTS:
        c = chr(code)
        found = [
            pieces(spaces, "a" + c + "a") == 2,
            clean.normalize_str("a" + c + "a") == "aa",
            chinese.normalize_str(c) == f" {c} ",
            accents.normalize_str(c) == "",
            mark.normalize_str(c) == "",
            pieces(punctuation, "a" + c + "a") == 3,
            pieces(gpt2, "a" + c + "a") == 1,
            pieces(gpt2, "1" + c + "1") == 1,
            pieces(gpt2, "!" + c + "!") != 1 and pieces(gpt2, "a" + c + "a") != 1 and pieces(gpt2, "1" + c + "1") != 1,
            pieces(words, "a" + c + "a") == 1,
            pieces(digits, "a" + c + "a") == 3,
        ]
        yield code, sum(1 << i for i, yes in enumerate(found) if yes)


def runs(words):
    """(length, flags) of maximal runs; the surrogates count as flags 0."""
    out, expected = [], 0
    for code, flags in words:
        if code != expected:
            out.append([code - expected, 0])
        if out and out[-1][1] == flags:
            out[-1][0] += 1
        else:
            out.append([1, flags])
        expected = code + 1
    return out


def combining_classes(nfd):
    for code in CODE_POINTS:
        c = chr(code)
        reordered = nfd.normalize_str(c + "\u0334") == "\u0334" + c or nfd.normalize_str("\u0300" + c) == c + "\u0300"
        if len(nfd.normalize_str(c)) == 1 and reordered:
            yield code, unicodedata.combining(c)


def class_ranges(classes):
    out = []
    for code, value in classes:
        assert value > 0, hex(code)
        if out and out[-1][1] + 1 == code and out[-1][2] == value:
            out[-1][1] = code
        else:
            out.append([code, code, value])
    return out


def mapping_ranges(mapped):
    """(first, last, step, delta) for one-to-one mappings with a common difference."""
    out = []
    for code, target in mapped:
        delta = target - code
        if out and out[-1][3] == delta and code - out[-1][1] in (1, 2) and out[-1][2] in (0, code - out[-1][1]):
            out[-1][2] = code - out[-1][1]
            out[-1][1] = code
        else:
            out.append([code, code, 0, delta])
    return [[first, last, step or 1, delta] for first, last, step, delta in out]


def emit(kind, name, values):
    body = textwrap.fill(
        ", ".join(values), 118, initial_indent="    ", subsequent_indent="    ", break_long_words=False
    )
    print(f"\nconst {kind} {name}[] = {{\n{body}}};\nconst size_t {name}_size = {len(values)};")


def main():
    nfd, lower = normalizers.NFD(), normalizers.Lowercase()
    print(HEADER.format(version=__version__), end="")
    emit("uint32_t", "kClassRuns", [f"0x{length << len(FLAGS) | flags:x}" for length, flags in runs(flag_words())])
    decomposed, previous = [], 0  # (distance from the previous code point << 3 | length), then the decomposition
    for code in CODE_POINTS:
        target = nfd.normalize_str(chr(code))
        if code not in HANGUL and target != chr(code):
            decomposed += [str((code - previous) << 3 | len(target)), *(str(ord(c)) for c in target)]
            previous = code
    emit("uint32_t", "kDecompositions", decomposed)
    classes = class_ranges(combining_classes(nfd))
    emit(
        "uint32_t", "kCombiningRanges", [str(v) for first, last, value in classes for v in (first, last - first, value)]
    )
    single, several = [], []
    for code in CODE_POINTS:
        target = lower.normalize_str(chr(code))
        if len(target) == 1 and ord(target) != code:
            single.append((code, ord(target)))
        elif len(target) > 1:
            several.append((code, target))
    assert several == [(0x130, "i\u0307")], several  # written out in unicode.cpp
    emit("int32_t", "kLowercaseRanges", [str(v) for row in mapping_ranges(single) for v in row])
    print("\n}  // namespace strake::tokenizers")


if __name__ == "__main__":
    main()
