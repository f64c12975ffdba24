"""Makes what the benchmarks run on, once: texts as Parquet, and a classifier of the shape of RoBERTa-base and a GPT-2
with random weights.

Run:  python benchmarks/workload.py OUT_DIR      (benchmarks/run.py does)

Texts are the Rotten Tomatoes reviews of STRAKE_TEST_DATA (default ../shared/data beside the checkout): the last 533 of
each class for scoring, the others for training. Without that folder they are pseudo-words with the same numbers of rows
and, nearly, of tokens a row, and the tokenizer is a byte-level BPE trained on them.

OUT_DIR/train.parquet, test.parquet, test256.parquet, all8.parquet: columns text (string), label (string)
OUT_DIR/mixed.parquet: text (string); all reviews and, from STRAKE_TEST_DATA, paragraphs of articles and bills
OUT_DIR/documents.parquet: one long text (string) for language models
OUT_DIR/long.parquet: 64 texts (string) of more than 512 tokens each
OUT_DIR/roberta-base, OUT_DIR/gpt2: models with their tokenizer
OUT_DIR/bert-base-uncased: a tokenizer (not for synthetic text)
OUT_DIR/facts.json: {"texts": what they are, "source": folder}; written last, so it says that the rest is complete
"""

import csv
import itertools
import json
import os
import pathlib
import random
import shutil
import sys

import pyarrow as pa
import pyarrow.parquet as pq

ROOT = pathlib.Path(__file__).resolve().parents[1]
CLASSES = ("neg", "pos")
TEST_ROWS = 533  # of each class
REVIEWS = 5331  # of each class
LONG_TEXTS = 64
LONG_REVIEWS = 40  # in a long text
WORDS = 20_000
WORDS_A_REVIEW = (23.0, 10.0)  # mean and standard deviation
SPECIAL_TOKENS = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]  # in the order of RoBERTa's ids


def data_folder():
    return pathlib.Path(os.environ.get("STRAKE_TEST_DATA", ROOT.parent / "shared/data")).resolve()


def read_reviews(folder):
    """Reviews by class. The files are cp1252 and hold U+0085, so only a newline ends a review."""
    texts = {}
    for name in CLASSES:
        content = (folder / f"rotten_tomatoes/rt-polarity.{name}").read_text("cp1252", "replace")
        texts[name] = [line.strip() for line in content.split("\n") if line.strip()]
    return texts


def make_reviews():
    """Pseudo-words drawn with Zipf's frequencies."""
    generator = random.Random(0)
    syllables = [a + b + c for a, b, c in itertools.product("bcdfgklmnprst", "aeiou", ["", "n", "r", "s"])]
    lexicon = ["".join(generator.choices(syllables, k=generator.randint(1, 3))) for _ in range(WORDS)]
    weights = list(itertools.accumulate(1 / rank for rank in range(1, WORDS + 1)))

    def review():
        length = max(1, round(generator.gauss(*WORDS_A_REVIEW)))
        return " ".join(generator.choices(lexicon, cum_weights=weights, k=length)) + " ."

    return {name: [review() for _ in range(REVIEWS)] for name in CLASSES}


def write_texts(path, texts):
    rows = [(text, name) for name in CLASSES for text in texts[name]]
    columns = {"text": [text for text, _ in rows], "label": [name for _, name in rows]}
    pq.write_table(pa.table(columns), path, compression="zstd")


def write_all_texts(out, texts):
    test = {name: rows[-TEST_ROWS:] for name, rows in texts.items()}
    write_texts(out / "train.parquet", {name: rows[:-TEST_ROWS] for name, rows in texts.items()})
    write_texts(out / "test.parquet", test)
    write_texts(out / "test256.parquet", {name: rows[: TEST_ROWS // 4 * 4 : 4][:128] for name, rows in test.items()})
    write_texts(out / "all8.parquet", {name: rows * 8 for name, rows in texts.items()})


def read_lines(folder):
    """Articles and bills, a paragraph a line."""
    for path in sorted((folder / "wikitext2").glob("*.txt")):
        yield from path.read_text("utf-8").split("\n")
    for path in sorted((folder / "summarization").glob("*.csv")):
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                yield from row["text"].split("\n")


def write_mixed(path, reviews, lines):
    texts = [text for rows in reviews.values() for text in rows]
    texts += [line.strip() for line in lines if line.strip()]
    pq.write_table(pa.table({"text": texts}), path, compression="zstd")


def write_document(path, texts):
    """All reviews in one text, so that it is cut into pieces of the same length."""
    pq.write_table(pa.table({"text": [" ".join(text for rows in texts.values() for text in rows[:1000])]}), path)


def write_long_texts(path, texts):
    """Reviews one after the other, each text of others."""
    reviews = [text for rows in texts.values() for text in rows]
    pieces = [" ".join(reviews[first : first + LONG_REVIEWS]) for first in range(0, len(reviews), LONG_REVIEWS)]
    pq.write_table(pa.table({"text": pieces[:LONG_TEXTS]}), path, compression="zstd")


def train_tokenizer(path, texts):
    from tokenizers import ByteLevelBPETokenizer
    from tokenizers.processors import RobertaProcessing

    tokenizer = ByteLevelBPETokenizer()
    lines = [line for rows in texts.values() for line in rows]
    tokenizer.train_from_iterator(lines, vocab_size=16_000, special_tokens=SPECIAL_TOKENS, show_progress=False)
    tokenizer._tokenizer.post_processor = RobertaProcessing(("</s>", 2), ("<s>", 0))  # end, start
    tokenizer.save(str(path))


def write_model(folder):
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.RobertaConfig(
        vocab_size=50265, max_position_embeddings=514, type_vocab_size=1, layer_norm_eps=1e-5
    )
    config.id2label = dict(enumerate(CLASSES))
    config.label2id = {name: number for number, name in enumerate(CLASSES)}
    transformers.utils.logging.disable_progress_bar()
    transformers.RobertaForSequenceClassification(config).save_pretrained(folder)


def write_language_model(folder):
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=50265)
    transformers.GPT2LMHeadModel(config).save_pretrained(folder)


def main():
    out, source = pathlib.Path(sys.argv[1]), data_folder()
    real = (source / "rotten_tomatoes").is_dir()
    facts = {"version": 5, "texts": "Rotten Tomatoes" if real else "synthetic text", "source": str(source)}
    if (out / "facts.json").exists() and json.loads((out / "facts.json").read_text()) == facts:
        return
    (out / "facts.json").unlink(missing_ok=True)
    print(f"benchmarks: preparing {facts['texts']} and a random RoBERTa-base in {out}", file=sys.stderr)
    (out / "roberta-base").mkdir(parents=True, exist_ok=True)
    texts = read_reviews(source) if real else make_reviews()
    write_all_texts(out, texts)
    write_mixed(out / "mixed.parquet", texts, read_lines(source) if real else [])
    write_document(out / "documents.parquet", texts)
    write_long_texts(out / "long.parquet", texts)
    if real:
        shutil.copyfile(source / "tokenizers/roberta-base/tokenizer.json", out / "roberta-base/tokenizer.json")
        (out / "bert-base-uncased").mkdir(exist_ok=True)
        shutil.copyfile(source / "tokenizers/bert-base-uncased/vocab.txt", out / "bert-base-uncased/vocab.txt")
    else:
        shutil.rmtree(out / "bert-base-uncased", ignore_errors=True)
        train_tokenizer(out / "roberta-base/tokenizer.json", texts)
    write_model(out / "roberta-base")
    (out / "gpt2").mkdir(exist_ok=True)
    shutil.copyfile(out / "roberta-base/tokenizer.json", out / "gpt2/tokenizer.json")
    write_language_model(out / "gpt2")
    (out / "facts.json").write_text(json.dumps(facts))


if __name__ == "__main__":
    main()
