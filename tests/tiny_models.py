"""Model folders and texts small enough that a training run takes a second.

Weights and config.json are those of tests/fixtures/parity (hidden size 32, two layers); the tokenizer is a WordPiece
vocabulary of letters and a few words, for RoBERTa the byte-level one of tests/fixtures/tokenizers.
"""

import csv
import json
import pathlib
import random
import shutil
import string

import numpy
import pyarrow
import pyarrow.parquet as parquet
from safetensors.numpy import load_file, save_file

FIXTURES = pathlib.Path(__file__).parent / "fixtures"
GOOD = ["good", "great", "fine", "happy", "love"]
BAD = ["bad", "poor", "sad", "awful", "hate"]
PLAIN = ["the", "film", "was", "a", "we", "it", "and", "book", "this", "day"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
DROPOUTS = [
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "dropout",
    "attention_dropout",
    "qa_dropout",
    "seq_classif_dropout",
]


def word_piece_vocabulary():
    letters = list(string.ascii_lowercase)
    return (
        SPECIAL
        + GOOD
        + BAD
        + PLAIN
        + [x for x in letters if x not in PLAIN]
        + [f"##{x}" for x in letters]
        + list(".,!?0123456789")
    )


def write_tokenizer(folder, family):
    if family == "roberta":
        shutil.copy(FIXTURES / "tokenizers/byte_level/tokenizer.json", folder)
        (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "RobertaTokenizer"}))
        return
    (folder / "vocab.txt").write_text("\n".join(word_piece_vocabulary()) + "\n")
    name = "DistilBertTokenizer" if family == "distilbert" else "BertTokenizer"
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": name, "do_lower_case": True}))


def read_config(folder):
    return json.loads((folder / "config.json").read_text())


def change_config(folder, remove=(), **changes):
    config = read_config(folder) | changes
    for key in remove:
        config.pop(key, None)
    (folder / "config.json").write_text(json.dumps(config))


def change_weights(folder, change):
    """Rewrites model.safetensors with `change(name, array)`; None removes the tensor."""
    changed = {name: change(name, array) for name, array in load_file(folder / "model.safetensors").items()}
    kept = {name: array for name, array in changed.items() if array is not None}
    save_file(kept, folder / "model.safetensors", {"format": "pt"})


def make_model(folder, family="bert", dropout=0.0, head=False):
    """A model folder; with `head` a trained classifier of LABEL_0 to LABEL_2, else the encoder alone."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True)
    for name in ("config.json", "model.safetensors"):
        shutil.copy(FIXTURES / "parity" / family / name, folder)
    write_tokenizer(folder, family)
    config = read_config(folder)
    change_config(folder, **{key: dropout for key in DROPOUTS if key in config})
    if not head:
        # RoBERTa's and BERT's pooler are trained anew as well, so that the head is small and learns fast.
        change_weights(folder, lambda name, array: None if name.startswith(("classifier", "pre_classifier")) else array)
        change_config(folder, remove=["id2label", "label2id"])
    if family == "roberta":
        widen_vocabulary(folder)
    return folder


ARCHITECTURES = {"bert": "Bert", "roberta": "Roberta", "distilbert": "DistilBert"}


def add_token_head(folder, family, name, outputs, spread):
    """A last linear layer, `name`, over every token."""
    size = read_config(folder)["dim" if family == "distilbert" else "hidden_size"]
    source = numpy.random.default_rng(11)
    weights = load_file(folder / "model.safetensors")
    weights[f"{name}.weight"] = source.normal(0, spread, (outputs, size)).astype(numpy.float32)
    weights[f"{name}.bias"] = source.normal(0, spread, outputs).astype(numpy.float32)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def make_reader(folder, family="bert"):
    """A model folder that finds answers: a linear layer gives every token a logit to begin one and to end it."""
    folder = make_model(folder, family)
    add_token_head(folder, family, "qa_outputs", 2, 0.5)
    change_config(folder, architectures=[f"{ARCHITECTURES[family]}ForQuestionAnswering"])
    return folder


def make_tagger(folder, family="bert", labels=("O", "B-PER", "I-PER", "B-LOC", "I-LOC")):
    """A model folder whose last linear layer gives every token a label."""
    folder = make_model(folder, family)
    add_token_head(folder, family, "classifier", len(labels), 0.2)
    change_config(
        folder,
        architectures=[f"{ARCHITECTURES[family]}ForTokenClassification"],
        id2label={str(i): label for i, label in enumerate(labels)},
        label2id={label: i for i, label in enumerate(labels)},
    )
    return folder


MASKED_HEADS = {
    "bert": [f"cls.predictions.{x}" for x in ("transform.dense", "transform.LayerNorm", "decoder", "bias")],
    "roberta": ["lm_head.dense", "lm_head.layer_norm", "lm_head.decoder", "lm_head.bias"],
    "distilbert": ["vocab_transform", "vocab_layer_norm", "vocab_projector", "vocab_projector.bias"],
}


def make_masked_model(folder, family="bert", dropout=0.0, tied=True):
    """A model folder that predicts masked tokens."""
    folder = make_model(folder, family, dropout)
    config = read_config(folder)
    words, size = config["vocab_size"], config["dim" if family == "distilbert" else "hidden_size"]
    source = numpy.random.default_rng(12)
    dense, norm, decoder, bias = MASKED_HEADS[family]
    head = {
        f"{dense}.weight": source.normal(0, 0.2, (size, size)),
        f"{dense}.bias": source.normal(0, 0.2, size),
        f"{norm}.weight": source.normal(1, 0.2, size),
        f"{norm}.bias": source.normal(0, 0.2, size),
        bias: source.normal(0, 0.5, words),
    }
    if not tied:
        head[f"{decoder}.weight"] = source.normal(0, 0.2, (words, size))
        head[f"{decoder}.bias"] = source.normal(0, 0.5, words)  # Transformers computes with this one then
    weights = {name: array for name, array in load_file(folder / "model.safetensors").items() if "pooler" not in name}
    weights |= {name: array.astype(numpy.float32) for name, array in head.items()}
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    architecture = f"{ARCHITECTURES[family]}ForMaskedLM"
    change_config(folder, architectures=[architecture], tie_word_embeddings=tied)
    return folder


def write_gpt2_tokenizer(folder):
    """The byte-level tokenizer without RoBERTa's special tokens around a text."""
    text = (FIXTURES / "tokenizers/byte_level/tokenizer.json").read_text().replace('"<s>"', '"<|endoftext|>"')
    tokenizer = json.loads(text)
    tokenizer["post_processor"] = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "GPT2Tokenizer"}))


def make_language_model(folder, dropout=0.0, tied=True):
    """A GPT-2 folder of 64 positions with a language head."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True)
    for name in ("config.json", "model.safetensors"):
        shutil.copy(FIXTURES / "parity" / ("gpt2" if tied else "gpt2_untied") / name, folder)
    write_gpt2_tokenizer(folder)
    change_config(folder, embd_pdrop=dropout, attn_pdrop=dropout, resid_pdrop=dropout)
    widen_vocabulary(folder)
    return folder


def widen_vocabulary(folder):
    vocabulary = json.loads((folder / "tokenizer.json").read_text())
    size = 1 + max([*vocabulary["model"]["vocab"].values(), *(token["id"] for token in vocabulary["added_tokens"])])

    def widen(name, array):
        if not name.endswith(("word_embeddings.weight", "wte.weight", "lm_head.weight")):
            return array
        more = numpy.random.default_rng(5).normal(0, 0.2, (size - len(array), array.shape[1]))
        return numpy.concatenate([array, more.astype(array.dtype)])

    change_weights(folder, widen)
    change_config(folder, vocab_size=size)


def widen_layers(folder, width=1024):
    """Gives a BERT and its layers more weights than four ranks have pieces for: 16384 are the smallest piece."""
    size = read_config(folder)["hidden_size"]
    source = numpy.random.default_rng(6)

    def widen(name, array):
        if "intermediate.dense" in name:
            shape = (width, size) if array.ndim == 2 else (width,)
        elif name.endswith("output.dense.weight") and array.shape[1] != size:
            shape = (size, width)
        elif name.endswith("word_embeddings.weight"):
            shape = (2 * width, size)
        else:
            return array
        return source.normal(0, 0.05, shape).astype(array.dtype)

    change_weights(folder, widen)
    change_config(folder, intermediate_size=width, vocab_size=2 * width)
    return folder


def reviews(count, seed=1, longest=20):
    """Texts with labels that a tiny model can learn: good words or bad words among plain ones."""
    source = random.Random(seed)
    rows = []
    for i in range(count):
        label = source.randrange(2)
        words = source.choices(PLAIN, k=source.randint(1, longest)) + source.choices(BAD if label == 0 else GOOD, k=3)
        source.shuffle(words)
        rows.append(
            {"text": " ".join(words), "label": ["negative", "positive"][label], "number": i, "score": label - 0.25}
        )
    return rows


def tagged_reviews(count, seed=1, longest=20):
    """The words of reviews, with labels: runs of good or of bad words are entities."""
    rows = []
    for review in reviews(count, seed, longest):
        words, tags, before = review["text"].split(), [], ""
        for word in words:
            kind = "GOOD" if word in GOOD else "BAD" if word in BAD else ""
            tags.append(f"{'I' if kind == before else 'B'}-{kind}" if kind else "O")
            before = kind
        rows.append({"words": words, "tags": tags})
    return rows


def asked_reviews(count, seed=1, longest=20):
    """Questions about reviews, with answers as of SQuAD: the first run of good or of bad words, where there is one."""
    rows = []
    for i, review in enumerate(tagged_reviews(count, seed, longest)):
        kind = ("GOOD", "BAD")[i % 3 == 0]
        places, begin = [], 0
        for word, tag in zip(review["words"], review["tags"], strict=True):
            if tag == f"B-{kind}":
                places.append([begin, begin + len(word)])
            elif tag == f"I-{kind}":
                places[-1][1] = begin + len(word)
            begin += len(word) + 1
        context = " ".join(review["words"])
        answers = {"text": [context[a:b] for a, b in places], "answer_start": [a for a, _ in places]}
        rows.append({"question": f"was it {kind.lower()}?", "context": context, "answers": answers})
    return rows


def training_inputs(folder, validation_rows=9, wide=True):
    """Flags that name a new BERT with dropout, 38 reviews to train on and some to evaluate."""
    model = make_model(folder / "model", dropout=0.1)
    return {
        "model_name_or_path": widen_layers(model) if wide else model,
        "train_file": write_table(folder / "train.parquet", reviews(38)),
        "validation_file": write_table(folder / "validation.parquet", reviews(validation_rows, seed=2)),
    }


def write_table(path, rows):
    """Writes rows as the kind of file that the name says."""
    path = pathlib.Path(path)
    if path.suffix == ".parquet":
        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif path.suffix == ".txt":
        path.write_text("".join(row["text"] + "\n" for row in rows))
    else:
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0], delimiter="\t" if path.suffix == ".tsv" else ",")
            writer.writeheader()
            writer.writerows(rows)
    return path
