"""Makes tests/fixtures/heads: what sentence-transformers and Transformers' pipelines compute with the tests' models.

Run:  python tools/make_head_fixtures.py      (needs torch, transformers and sentence-transformers)

embeddings.json: `texts`, and per family, pooling and normalization `embeddings`, one vector per text, and `files`: what
sentence-transformers writes beside the encoder, by name.
entities.json: `texts`, and per family and aggregation strategy `entities`, per text [label, score, start, end].
The models are those of tests/tiny_models.py.
"""

import json
import pathlib
import sys
import tempfile

import sentence_transformers
import torch
import transformers
from sentence_transformers.sentence_transformer import modules

ROOT = pathlib.Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))
import tiny_models  # noqa: E402

FAMILIES = ["bert", "roberta", "distilbert"]
TEXTS = [
    "we love this great film",
    "a",
    "the book was sad, awful and poor!",
    "Caf\u00e9 na\u00efve \u2014 \U0001f600 great film 42?",
    "it was a good day and a bad day and a fine film and we love it and hate it and the book",
]
VERSIONS = {
    "torch": torch.__version__,
    "transformers": transformers.__version__,
    "sentence_transformers": sentence_transformers.__version__,
}


def rounded(numbers):
    return [float(f"{number:.8g}") for number in numbers]


def make_sentence_transformer(source, pooling, normalize):
    encoder = modules.Transformer(str(source))
    parts = [encoder, modules.Pooling(encoder.get_embedding_dimension(), pooling)]
    return sentence_transformers.SentenceTransformer(
        modules=parts + ([modules.Normalize()] if normalize else []), device="cpu"
    )


def embeddings(folder):
    cases = []
    for family in FAMILIES:
        source = tiny_models.make_model(folder / family, family, head=True)
        for pooling, normalize in [("mean", False), ("mean", True), ("cls", False)]:
            model = make_sentence_transformer(source, pooling, normalize)
            saved = folder / f"{family}-{pooling}-{normalize}"
            model.save(str(saved))
            written = ["modules.json", "1_Pooling/config.json", "sentence_bert_config.json"]
            cases.append(
                {
                    "family": family,
                    "pooling": pooling,
                    "normalize": normalize,
                    "files": {name: (saved / name).read_text() for name in written if (saved / name).exists()},
                    "embeddings": [rounded(vector.tolist()) for vector in model.encode(TEXTS)],
                }
            )
    return cases


def entities(folder):
    cases = []
    for family in FAMILIES:
        source = tiny_models.make_tagger(folder / f"{family}-tagger", family)
        pipeline = transformers.pipeline("token-classification", str(source), device="cpu")
        for strategy in ("simple", "none", "first", "average", "max"):
            found = pipeline(TEXTS, aggregation_strategy=strategy)
            label = "entity" if strategy == "none" else "entity_group"
            rows = [[[e[label], *rounded([e["score"]]), e["start"], e["end"]] for e in row] for row in found]
            cases.append({"family": family, "aggregation_strategy": strategy, "entities": rows})
    return cases


def write(name, expectations):
    lines = [json.dumps(case) for case in expectations]
    text = f'{{"made_with": {json.dumps(VERSIONS)},\n"texts": {json.dumps(TEXTS)},\n"cases": [\n'
    path = ROOT / "tests/fixtures/heads" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text + ",\n".join(lines) + "\n]}\n")
    print(f"{path.relative_to(ROOT)}: {len(lines)} cases")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        write("embeddings.json", embeddings(pathlib.Path(temporary)))
        write("entities.json", entities(pathlib.Path(temporary)))
