"""Writes tests/fixtures/tokenizers: two small tokenizers trained on the text below, and what pip tokenizers makes of
nasty strings with them. The C++ tests compare with these records. (Training breaks ties at random: each run gives
another vocabulary, and the records that go with it.)

usage: python3 tools/make_tokenizer_fixtures.py   (needs pip tokenizers 0.23)
"""

import json
import pathlib
import random

from tokenizers import (
    AddedToken,
    BertWordPieceTokenizer,
    Tokenizer,
    decoders,
    models,
    pre_tokenizers,
    processors,
    trainers,
)

OUT = pathlib.Path(__file__).parents[1] / "tests/fixtures/tokenizers"
TEXT = """The ferry left the harbour before the fog had lifted, and nobody on board could see the other side.
"Don't worry," the captain said, "we've crossed in worse weather; it's only an hour, and I'll whistle."
She counted 12 crates, 7 barrels and 1,250 letters. They're heavier than they look, he'd answered.
Unbelievable! Un caf\u00e9 cr\u00e8me, zwei Br\u00f6tchen, \u00e9t\u00e9 na\u00efve co\u00f6peration; \u0416\u0443\u0440\u043d\u0430\u043b \u4f60\u597d\u4e16\u754c.
Lights were lighting the lighter lighthouse; the keeper keeps keeping what keepers kept.
"""  # noqa: E501
STRINGS = [
    "",
    " ",
    "  ",
    "\n",
    "\r\n",
    "a",
    " a ",
    "a  b",
    "a \n b",
    "the lighthouse keeper",
    "The LIGHTHOUSE keeper's caf\u00e9!",
    "don't they're I'll we've he'd it's I'm DON'T",
    "''s 'sa 't",
    "1,250 letters 12",
    "lighthouses unbelievable",
    "zzz qqq",
    "e\u0301te\u0301",
    "\u00e9t\u00e9",
    "\u0130stanbul \u1e9e \u03a3\u03c2",
    "a\u0300\u0301\u0316b",
    "\u0344 \u0f73",
    "\u4f60\u597dab\u4e16\u754c",
    "\U0002b820\U0002b920 \u3400",
    "\ud55c\uad6d\uc5b4",
    "\u00a0x\u3000y\u2028z",
    "a\u200bb\ufeffc\u00add",
    "a\x00b\x1cc\x85d\ufffde",
    "\u226e \u037e \u1fef",
    "\U0001f600 \U0001f468\u200d\U0001f469",
    "\U0001d15e\u0316 \u302e\u0334",
    "[CLS] the [SEP]",
    "a[MASK]b [mask]",
    "<s>the</s>",
    "the <mask> harbour<mask>",
    "  <mask>  ",
    "<mask",
    "fog" * 40,
    "e\u0301" * 101,
    "x" * 101,
    "the " * 30,
    "harbour " * 3 + "!?.,;:",
    "-" * 30,
    "##ing # ##",
    "\u0120the \u2581x",
    "tab\tand\x0bvertical",
    "line one\r\nline two\r\n",
    "trailing   ",
    "   leading",
    "\u0967\u0968 \u00bd \u2167",
    "\u166d\u1734\u20bf\u2e52",
    "word fogbank fog word",
    "fog",
    " fog  fogs",
]


def word_piece():
    tok = BertWordPieceTokenizer(lowercase=True)
    tok.train_from_iterator(TEXT.splitlines(), vocab_size=190, min_frequency=1, show_progress=False)
    tok.add_tokens([AddedToken("fog", single_word=True, lstrip=True), AddedToken("Caf\u00e9", normalized=True)])
    sep, cls = (("[SEP]", tok.token_to_id("[SEP]")), ("[CLS]", tok.token_to_id("[CLS]")))
    tok._tokenizer.post_processor = processors.BertProcessing(sep, cls)
    return tok._tokenizer


def byte_level():
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    specials = ["<s>", "<pad>", "</s>", "<unk>"]
    trainer = trainers.BpeTrainer(
        vocab_size=380,
        special_tokens=specials,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tok.train_from_iterator(TEXT.splitlines(), trainer)
    tok.add_special_tokens([AddedToken("<mask>", lstrip=True, normalized=True, special=True)])
    tok.post_processor = processors.RobertaProcessing(
        ("</s>", 2), ("<s>", 0), trim_offsets=True, add_prefix_space=False
    )
    return tok


def encoding(e):
    keys = ("ids", "type_ids", "attention_mask", "special_tokens_mask", "offsets", "tokens")
    none = -1
    words = zip(e.sequence_ids, e.word_ids, strict=True)
    record = {key: getattr(e, key) for key in keys}
    return record | {"words": [[none, none] if text is None else [text, word] for text, word in words]}


def record(tok, text, pair=None, truncation=None, padding=None):
    tok.no_truncation(), tok.no_padding()
    if truncation:
        tok.enable_truncation(**truncation)
    if padding:
        tok.enable_padding(**{k: v for k, v in padding.items() if v is not None})
    out = {"text": text, "text_pair": pair, "truncation": truncation, "padding": padding}
    try:
        first = tok.encode(text, pair)
        out["encodings"] = [encoding(e) for e in [first, *first.overflowing]]
    except Exception as error:
        out["error"] = str(error)
    tok.no_truncation(), tok.no_padding()
    return out


def records(tok, pad_token):
    out = [record(tok, text) for text in STRINGS]
    pad = {"pad_id": tok.token_to_id(pad_token), "pad_type_id": 0, "pad_token": pad_token}
    for strategy in ("longest_first", "only_first", "only_second"):
        for side, stride in (("right", 0), ("left", 2)):
            cut = {"max_length": 13, "stride": stride, "strategy": strategy, "direction": side}
            fill = {"length": 16, "direction": side, "pad_to_multiple_of": None, **pad}
            out.append(
                record(tok, "the keeper keeps lighting lights before the fog", "an hour, and I'll whistle", cut, fill)
            )
            out.append(record(tok, "a", "the ferry left the harbour", cut))
            out.append(
                record(tok, "the ferry left the harbour", None, cut, {**fill, "length": None, "pad_to_multiple_of": 8})
            )
    return out


def decodes(tok):
    rng, size = random.Random(7), tok.get_vocab_size()
    lists = (
        [tok.encode(text).ids for text in STRINGS[::3]]
        + [[rng.randrange(size) for _ in range(8)] for _ in range(20)]
        + [[], [size + 5]]
    )
    return [
        {"ids": ids, "skip_special_tokens": skip, "text": tok.decode(ids, skip_special_tokens=skip)}
        for ids in lists
        for skip in (True, False)
    ]


def write(path, rows):
    path.write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows))


def main():
    for name, tok, pad_token in (("word_piece", word_piece(), "[PAD]"), ("byte_level", byte_level(), "<pad>")):
        folder = OUT / name
        folder.mkdir(parents=True, exist_ok=True)
        tok.save(str(folder / "tokenizer.json"))
        write(folder / "records.jsonl", records(tok, pad_token))
        write(folder / "decode.jsonl", decodes(tok))


if __name__ == "__main__":
    main()
