"""Fails if Transformers, loading a checkpoint folder, does not compute the logits that strake says it computes.

Run:  .venv/bin/python tools/check_exported_checkpoint.py MODEL_DIR TOKENS.safetensors      (after tools/setup.sh test)

TOKENS.safetensors holds flat int32 `input_ids` (and optionally `token_type_ids`), `offsets` and float32 `logits`
[sequences, labels]. If MODEL_DIR has tokenizer files they must load, and make no id that the model has not.
Exit status: 0 if all agree to 1e-5, 1 if not, 77 (skipped) where Transformers is not installed.
"""

import pathlib
import sys

try:
    import torch
    from safetensors.torch import load_file
    from transformers import AutoModelForSequenceClassification, AutoTokenizer
except ImportError as error:
    print(f"skipped: {error}; tools/setup.sh test installs it", file=sys.stderr)
    sys.exit(77)

TOLERANCE = 1e-5
TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "vocab.json")


def load_model(folder):
    model, report = AutoModelForSequenceClassification.from_pretrained(folder, output_loading_info=True)
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if report.get(kind):
            sys.exit(f"{folder}: {kind}: {sorted(map(str, report[kind]))}")
    return model.float().eval()


def check_tokenizer(folder, vocabulary):
    if not any((folder / name).exists() for name in TOKENIZER_FILES):
        return
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer("A checkpoint that was exported, with its tokenizer.")["input_ids"]
    if not ids or max(ids) >= vocabulary or len(tokenizer) > vocabulary:
        sys.exit(f"{folder}: a tokenizer of {len(tokenizer)} entries gives {ids} to a model of {vocabulary}")


def compute_logits(model, tokens):
    """One sequence at a time, so that padding plays no part."""
    rows = []
    offsets = tokens["offsets"].tolist()
    for begin, end in zip(offsets, offsets[1:], strict=False):
        inputs = {"input_ids": tokens["input_ids"][None, begin:end].long()}
        if "token_type_ids" in tokens and getattr(model.config, "type_vocab_size", 0) > 1:
            inputs["token_type_ids"] = tokens["token_type_ids"][None, begin:end].long()
        with torch.no_grad():
            rows.append(model(**inputs).logits[0])
    return torch.stack(rows)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    folder, tokens = pathlib.Path(sys.argv[1]), load_file(sys.argv[2])
    model = load_model(folder)
    check_tokenizer(folder, model.config.vocab_size)
    logits = compute_logits(model, tokens)
    if logits.shape != tokens["logits"].shape:
        sys.exit(f"logits have shape {list(tokens['logits'].shape)}, Transformers computes {list(logits.shape)}")
    difference = (logits - tokens["logits"]).abs().max().item()
    print(f"{folder}: {len(logits)} sequences, largest difference {difference:.2e}")
    if not difference <= TOLERANCE:  # also when it is not a number
        sys.exit(f"{folder}: logits differ by {difference:.2e}, more than {TOLERANCE}")


if __name__ == "__main__":
    main()
