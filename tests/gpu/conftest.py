import pytest
from gpu_runs import TRAINING
from tiny_models import make_language_model, reviews, training_inputs, write_table


@pytest.fixture(scope="module", params=["bert", "gpt2"])
def inputs(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "bert":
        return training_inputs(folder) | TRAINING | {"max_seq_length": 32}
    texts = [{"text": review["text"]} for review in reviews(60)]
    return TRAINING | {
        "task": "causal-lm",
        "model_name_or_path": make_language_model(folder / "model", dropout=0.1),
        "train_file": write_table(folder / "train.jsonl", texts[:50]),
        "validation_file": write_table(folder / "validation.jsonl", texts[50:]),
    }
