"""Model folders that are damaged, hostile or do not fit, and training that leaves the finite numbers."""

import json
import re
import struct

import numpy
import pytest
from program import files_in, metrics, predict, run
from refusals import FILE, NUMERIC, USAGE
from safetensors.numpy import load_file
from tiny_models import change_config, change_weights, make_model, read_config


def header_of(entries, data=b""):
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text + data


def refused_by_all(place, model, *named, code=USAGE):
    """Training starts from this model, and scoring uses it."""
    place.refuses(code, place.train(model_name_or_path=model), *named)
    place.refuses(code, place.predict(model_name_or_path=model), *named)
    place.refuses(code, place.evaluate(model_name_or_path=model), *named)


# config.json


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"model_type": "t5"}, ["'t5'", "bert", "roberta", "distilbert"]),
        ({"auto_map": {"AutoModel": "evil.Model"}}, ["auto_map", "never run"]),
        ({"is_decoder": True}, ["is_decoder = true is not supported"]),
        ({"position_embedding_type": "relative_key"}, ["position_embedding_type 'relative_key'"]),
        ({"hidden_act": "quick_gelu"}, ["'quick_gelu'", "gelu_new"]),
        ({"problem_type": "ranking"}, ["'ranking'", "single_label_classification"]),
        ({"hidden_size": 33}, ["hidden_size = 33 is not a multiple of num_attention_heads = 4"]),
        ({"hidden_size": 2**40}, ["hidden_size", "not in [1, 65536]"]),
        ({"vocab_size": -1}, ["vocab_size = -1"]),
        ({"num_hidden_layers": "2"}, ["'num_hidden_layers'", '"2"']),
        ({"hidden_dropout_prob": 1.0}, ["hidden_dropout_prob = 1 is not in [0, 1)"]),
        ({"id2label": {"0": "a", "2": "b"}}, ["id2label entry '2'"]),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_configuration_that_is_not_supported(place, changes, named):
    model = place.model("classifier")
    change_config(model, **changes)
    refused_by_all(place, model, model / "config.json", *named)


def test_an_adapter_beside_the_weights(place):
    """Transformers would load it, too."""
    model = place.model("classifier")
    (model / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    refused_by_all(place, model, f"{model} holds an adapter (adapter_config.json)", "merge_and_unload()")


def test_configuration_without_a_needed_key(place):
    model = place.model("classifier")
    change_config(model, remove=["hidden_size"])
    refused_by_all(place, model, model / "config.json", "'hidden_size' is missing")


def test_configuration_that_is_not_json(place):
    model = place.model("classifier")
    text = (model / "config.json").read_text()
    (model / "config.json").write_text(text[: len(text) // 2])
    refused_by_all(place, model, model / "config.json", "not valid JSON")


def test_configuration_nested_without_end(place):
    model = place.model("classifier")
    (model / "config.json").write_text("[" * 100_000)
    refused_by_all(place, model, model / "config.json", "nested deeper than 64 levels")


def test_missing_model_folder(place):
    missing = place.path / "none"
    refused_by_all(place, missing, missing, "No such file or directory", code=FILE)


# Weights


def test_weights_that_do_not_fit_the_configuration(place):
    model = place.model("classifier")
    change_config(model, intermediate_size=128)
    name = "bert.encoder.layer.0.intermediate.dense.weight"
    refused_by_all(place, model, model, name, "[64, 32]", "[128, 32]")


def test_a_configuration_larger_than_memory_is_refused_by_its_shapes(place):
    model = place.model("classifier")
    change_config(model, vocab_size=4_000_000, hidden_size=16_384, num_attention_heads=16)  # 260 GB
    outcome = run(place.predict(model_name_or_path=model))
    assert outcome.code == USAGE, outcome.err
    assert "word_embeddings.weight' has shape" in outcome.err
    assert "[4000000, 16384]" in outcome.err


def test_weights_with_fewer_layers_than_configured(place):
    model = place.model("classifier")
    change_config(model, num_hidden_layers=3)
    refused_by_all(place, model, model, "no tensor 'bert.encoder.layer.2.attention.self.query.weight'")


def test_overwriting_waits_until_the_model_is_sound(place):
    assert run(place.train(save_steps=1)).code == 0
    model = place.model("classifier")
    change_config(model, intermediate_size=128)
    line = place.train(model_name_or_path=model, overwrite_output_dir=True)
    place.refuses(USAGE, line, "[128, 32]")


def test_more_labels_than_the_head_has(place):
    model = place.model("classifier")
    change_config(model, id2label={"0": "negative", "1": "positive", "2": "neutral"})
    refused_by_all(place, model, model, "classifier.weight", "[2, 32]", "[3, 32]")


def test_scoring_without_a_trained_head(place):
    base = place.shared / "base"
    named = [base, "classifier.weight"]
    place.refuses(USAGE, place.predict(model_name_or_path=base), *named)
    place.refuses(USAGE, place.evaluate(model_name_or_path=base), *named)


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"", ["0 bytes are too few"]),
        (b"1234", ["4 bytes are too few"]),
        (struct.pack("<Q", 2**62), ["header of 4611686018427387904 bytes is over the limit"]),
        (struct.pack("<Q", 90_000_000) + b"{}", ["header of 90000000 bytes is longer than the file"]),
        (header_of({"a": {"dtype": "F32", "shape": [2**62, 8], "data_offsets": [0, 0]}}), ["'a'", "overflows"]),
        (header_of({"a": {"dtype": "F32", "shape": [2**20], "data_offsets": [0, 2**22]}}), ["4194304 bytes of data"]),
        (header_of({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}, bytes(4)), ["do not hold shape [2]"]),
        (header_of({"a": {"dtype": "X9", "shape": [1], "data_offsets": [0, 4]}}, bytes(4)), ["dtype 'X9'"]),
        (header_of({"a": {"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]}}, bytes(4)), ["-4"]),
        (struct.pack("<Q", 200_000) + b'{"a":' + b"[" * 199_995, ["nested deeper"]),
    ],
    ids=["empty", "short", "long", "longer", "overflow", "absent", "range", "dtype", "negative", "nested"],
)
def test_safetensors_bombs(place, content, named):
    model = place.model("classifier")
    (model / "model.safetensors").write_bytes(content)
    refused_by_all(place, model, model / "model.safetensors", *named)


def test_weights_cut_in_half(place):
    model = place.model("classifier")
    whole = (model / "model.safetensors").read_bytes()
    (model / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    refused_by_all(place, model, model / "model.safetensors", "bytes of data, the file has")


@pytest.mark.parametrize("name", ["../secret.safetensors", "/etc/passwd", "a/b.safetensors", ".hidden", ""])
def test_index_with_a_path_that_climbs_out(place, name):
    model = place.model("classifier")
    (model / "model.safetensors").rename(place.path / "secret.safetensors")
    index = model / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"bert.pooler.dense.weight": name}}))
    refused_by_all(place, model, index, f"'{name}' must be one plain name")


def test_weights_behind_a_link_that_climbs_out(place):
    model = place.model("classifier")
    (model / "model.safetensors").rename(place.path / "secret.safetensors")
    (model / "model.safetensors").symlink_to(place.path / "secret.safetensors")
    refused_by_all(place, model, "'model.safetensors' is a symbolic link that leaves", model)


def test_pickled_weights_only(place):
    model = place.model("classifier")
    (model / "model.safetensors").rename(model / "pytorch_model.bin")
    named = "import AutoTokenizer, BertForSequenceClassification; BertForSequenceClassification.from_pretrained"
    refused_by_all(place, model, model, "pytorch_model.bin", "can run code", f"{named}('{model}')")


def test_no_weights(place):
    model = place.model("classifier")
    (model / "model.safetensors").unlink()
    refused_by_all(place, model, f"{model} has neither model.safetensors nor model.safetensors.index.json")


# Tokenizer


def test_no_tokenizer(place):
    model = place.model("classifier")
    for name in ("vocab.txt", "tokenizer.json"):
        (model / name).unlink(missing_ok=True)
    refused_by_all(place, model, model, "no tokenizer.json, no vocab.txt", code=FILE)


def test_tokenizer_of_a_larger_vocabulary(place):
    model = place.model("classifier")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (model / name).unlink(missing_ok=True)
    words = [*(place.shared / "base" / "vocab.txt").read_text().split()[:5], *(f"word{i}" for i in range(200)), "film"]
    (model / "vocab.txt").write_text("\n".join(words) + "\n")
    refused_by_all(place, model, "token id 205 is not in the model's vocabulary of 120", "does not belong to the model")


# Numbers


def test_training_that_diverges_keeps_the_last_good_checkpoint(place):
    output = place.path / "run"
    flags = {
        "output_dir": output,
        "max_steps": 20,
        "learning_rate": 1e30,
        "save_steps": 1,
        "logging_steps": 1,
        "max_grad_norm": 0,
    }
    outcome = run(place.train(**flags))
    assert outcome.code == NUMERIC, outcome.err
    message = outcome.err.splitlines()[-1]
    step = int(message.split("step ")[1].split(":")[0])
    assert step > 1
    assert "--learning_rate" in message
    assert [entry["step"] for entry in metrics(output)] == list(range(1, step))
    saved = load_file(output / f"checkpoint-{step - 1}" / "model.safetensors")
    assert all(numpy.isfinite(array).all() for array in saved.values())
    assert not (output / f"checkpoint-{step}").exists()
    assert not (output / "model.safetensors").exists()
    assert [path.name for path in output.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_last_step_that_leaves_the_finite_numbers_is_told(place, ranks):
    output = place.path / "run"
    flags = {"max_steps": 1, "learning_rate": 1e30, "weight_decay": 1e30, "save_strategy": "no", "ranks": ranks}
    evaluated = {"validation_file": place.shared / "train.parquet", "eval_strategy": "epoch"}
    outcome = run(place.train(output_dir=output, **flags, **evaluated))
    assert outcome.code == 0, outcome.err
    assert "eval_loss nan" in outcome.err and re.search(r"eval_loss += +nan", outcome.out), "without a sign"
    told = [line for line in outcome.err.splitlines() if "has numbers that are not finite" in line]
    saved = load_file(output / "model.safetensors")
    broken = [name for name, array in saved.items() if not numpy.isfinite(array).all()]
    assert broken and len(told) == len(broken) < len(saved)
    assert all(any(f"model.safetensors: '{name}'" in line for line in told) for name in broken)


@pytest.mark.parametrize(("ranks", "value"), [(1, "nan"), (1, "-nan"), (2, "nan")])
def test_training_from_weights_that_are_not_numbers(place, ranks, value):
    model = place.model("classifier")
    change_weights(model, lambda name, array: array * numpy.float32(value) if "layer.1.output.dense" in name else array)
    outcome = run(place.train(model_name_or_path=model, output_dir=place.path / "run", ranks=ranks))
    assert outcome.code == NUMERIC
    assert "step 1: loss is nan" in outcome.err.splitlines()[-1]
    assert set(files_in(place.path / "run")) == {"metrics.jsonl"}


def test_scoring_with_weights_that_leave_the_finite_numbers(place):
    model = place.model("classifier")
    huge = "layer.1.output.dense.weight"
    change_weights(model, lambda name, array: numpy.sign(array) * numpy.float32(3e38) if huge in name else array)
    place.refuses(NUMERIC, place.predict(model_name_or_path=model), "train.parquet, row 0: the model's output is nan")
    place.refuses(NUMERIC, place.evaluate(model_name_or_path=model), "train.parquet, row 0", "nan")


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
@pytest.mark.parametrize(
    ("tensor", "named"),
    [
        ("layer.1.intermediate.dense.weight", "feed_forward.in"),
        ("layer.1.output.LayerNorm.bias", "feed_forward.norm.bias"),
        ("pooler.dense.bias", "dense.bias"),
    ],
)
def test_scoring_with_an_infinite_weight(place, precision, tensor, named):
    model = place.model("classifier")

    def spoil(name, array):
        if tensor in name:
            array.flat[3] = numpy.inf
        return array

    change_weights(model, spoil)
    line = place.predict(model_name_or_path=model, precision=precision)
    place.refuses(NUMERIC, line, named, "holds infinity or NaN", model)


@pytest.mark.parametrize("packed_weights", ["auto", "off"])
def test_tensors_that_nothing_is_done_with_are_told(place, packed_weights):
    model = place.model("classifier")
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 1}))
    outcome = run(place.predict(model_name_or_path=model, packed_weights=packed_weights))
    assert outcome.code == 0, outcome.err
    assert f"{model}: 16 tensors that config.json has no use for: bert.encoder.layer.1." in outcome.err


def test_a_regression_with_several_outputs(place):
    model = place.model("classifier")
    change_config(model, problem_type="regression")
    for line in (place.predict(model_name_or_path=model), place.evaluate(model_name_or_path=model)):
        place.refuses(USAGE, line, "regression with 2 labels is not supported")


def test_labels_of_one_name(place):
    model = place.model("classifier")
    change_config(model, id2label={"0": "same", "1": "same"}, label2id={"same": 1})
    place.refuses(USAGE, place.evaluate(model_name_or_path=model), "the name 'same' to two labels")


def test_weights_that_are_a_link_to_themselves(place):
    model = place.model("classifier")
    (model / "model.safetensors").unlink()
    (model / "model.safetensors").symlink_to("model.safetensors")
    place.refuses(USAGE, place.predict(model_name_or_path=model), f"{model} has neither model.safetensors nor")


def test_texts_are_cut_at_the_side_that_the_tokenizer_names(place):
    model = place.model("classifier")
    words = ["film"] * 5 + ["good"] * 5
    table = place.table("long.parquet", [{"text": " ".join(words)}, {"text": " ".join(words[5:])}])
    config = json.loads((model / "tokenizer_config.json").read_text())
    (model / "tokenizer_config.json").write_text(json.dumps(config | {"truncation_side": "left"}))
    rows = predict(model, table, place.output, max_seq_length=7, output_columns="logits")
    assert rows["logits"][0] == rows["logits"][1]
    rows = predict(place.shared / "classifier", table, place.path / "right.parquet", max_seq_length=7)
    assert rows["probabilities"][0] != rows["probabilities"][1]


def test_classifier_asked_to_be_a_regressor(place):
    for wanted, model in (("regression", "classifier"), ("single_label_classification", "regressor")):
        line = place.train(model_name_or_path=place.shared / model, problem_type=wanted, label_column="score")
        place.refuses(USAGE, line, f"--problem_type {wanted} contradicts the trained head", place.shared / model)
    assert read_config(place.shared / "regressor")["problem_type"] == "regression"


@pytest.mark.parametrize("flags", [{}, {"dry_run": True}])
def test_a_model_without_a_type_for_second_texts(place, flags):
    model = place.model()
    change_config(model, type_vocab_size=1)
    change_weights(model, lambda name, array: array[:1] if "token_type_embeddings" in name else array)
    line = place.train(model_name_or_path=model, text_pair_column="text", **flags)
    place.refuses(USAGE, line, "token type 1", "type_vocab_size of its config.json is 1")


def test_scoring_pairs_by_a_model_without_a_type_for_second_texts(place):
    model = make_model(place.path / "trained", head=True)
    change_config(model, type_vocab_size=1)
    change_weights(model, lambda name, array: array[:1] if "token_type_embeddings" in name else array)
    line = place.predict(model_name_or_path=model, text_pair_column="text")
    place.refuses(USAGE, line, f"{model}: the tokenizer gives the second of two texts token type 1")
