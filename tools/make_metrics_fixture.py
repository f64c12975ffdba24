"""Writes strake/monitor/testdata/evaluation_metrics.json: metrics of scikit-learn and SciPy for seeded random rows,
and strake/monitor/testdata/trainer_state.json as Transformers' TrainerState saves it.

Usage: make_metrics_fixture.py [REPOSITORY_ROOT]    (needs numpy, scipy, scikit-learn and transformers 5.23)
"""

import json
import pathlib
import sys
import warnings

import numpy
import scipy.stats
import sklearn
import sklearn.metrics
from transformers.trainer_callback import TrainerControl, TrainerState

ROOT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1])
TESTDATA = ROOT / "strake/monitor/testdata"


def classification(num_classes, predicted, actual):
    average = "binary" if num_classes == 2 else "macro"
    precision, recall, f1, _ = sklearn.metrics.precision_recall_fscore_support(
        actual, predicted, average=average, zero_division=0
    )
    return {
        "num_classes": num_classes,
        "predicted": predicted,
        "actual": actual,
        "accuracy": sklearn.metrics.accuracy_score(actual, predicted),
        "f1": f1,
        "precision": precision,
        "recall": recall,
        "matthews_correlation": sklearn.metrics.matthews_corrcoef(actual, predicted),
    }


def several_labels(predicted, actual):
    """Indicator matrices, [rows, labels]."""
    precision, recall, f1, _ = sklearn.metrics.precision_recall_fscore_support(
        actual, predicted, average="micro", zero_division=0
    )
    return {
        "num_labels": len(actual[0]),
        "predicted": numpy.ravel(predicted).tolist(),
        "actual": numpy.ravel(actual).tolist(),
        "accuracy": sklearn.metrics.accuracy_score(actual, predicted),
        "f1": f1,
        "precision": precision,
        "recall": recall,
    }


def regression(predicted, actual):
    correlation = {"pearson": None, "spearmanr": None}  # what JSON has for NaN
    if len(predicted) > 1:
        correlation = {
            "pearson": scipy.stats.pearsonr(predicted, actual).statistic,
            "spearmanr": scipy.stats.spearmanr(predicted, actual).statistic,
        }
    return {
        "predicted": predicted,
        "actual": actual,
        "mse": sklearn.metrics.mean_squared_error(actual, predicted),
        "mae": sklearn.metrics.mean_absolute_error(actual, predicted),
        **{name: None if value is None or numpy.isnan(value) else value for name, value in correlation.items()},
    }


def metrics():
    random = numpy.random.default_rng(20)

    def ids(low, high, rows):
        return random.integers(low, high, rows).tolist()

    def mostly(actual, noise):
        return numpy.where(random.random(len(actual)) < 0.7, actual, noise).tolist()

    classifications = [
        classification(2, ids(0, 2, 60), ids(0, 2, 60)),
        classification(2, [0] * 10, ids(0, 2, 10)),  # class 1 never predicted
        classification(2, [0] * 5, [0] * 5),  # class 1 nowhere
        classification(2, [1] * 5, [1] * 5),
        classification(5, ids(0, 5, 80), ids(0, 5, 80)),
        classification(9, ids(2, 6, 40), ids(1, 5, 40)),  # most classes nowhere, some only on one side
        classification(3, [0, 1, 2], [1, 2, 0]),  # all wrong
    ]
    actual = ids(0, 4, 100)
    classifications.append(classification(4, mostly(actual, ids(0, 4, 100)), actual))
    values = random.normal(size=50)
    tied = random.integers(0, 5, 40)
    regressions = [
        regression((values + random.normal(size=50) * 0.5).tolist(), values.tolist()),
        regression(tied.astype(float).tolist(), (tied + random.integers(0, 3, 40)).astype(float).tolist()),  # ties
        regression([0.1, 0.1, 0.1], [1.0, 2.0, 3.0]),  # constant
        regression([1.5], [2.0]),
        regression([1.0, 2.0, 3.0], [10.0, 20.0, 30.0]),
        regression([1e8 + 1, 1e8 + 2, 1e8 + 4], [3.0, 2.0, -7.0]),
    ]
    random = numpy.random.default_rng(21)
    actual = random.integers(0, 2, (50, 6))
    label_lists = [
        several_labels(numpy.where(random.random(actual.shape) < 0.9, actual, 1 - actual), actual),
        several_labels(random.integers(0, 2, (1, 4)), random.integers(0, 2, (1, 4))),
        several_labels(numpy.zeros((5, 3), int), random.integers(0, 2, (5, 3))),  # none predicted
        several_labels(numpy.zeros((5, 3), int), numpy.zeros((5, 3), int)),  # none anywhere
        several_labels(numpy.ones((4, 2), int), numpy.ones((4, 2), int)),
    ]
    return classifications, regressions, label_lists


def save_trainer_state():
    control = TrainerControl(should_save=True)
    state = TrainerState(
        epoch=1.5,
        global_step=30,
        max_steps=60,
        logging_steps=10,
        eval_steps=20,
        save_steps=30,
        train_batch_size=8,
        num_train_epochs=3,
        total_flos=123456789012.0,
        best_metric=0.925,
        best_global_step=20,
        best_model_checkpoint="out/checkpoint-20 \u00e9",
        log_history=[
            {"epoch": 0.5, "grad_norm": 1.25, "learning_rate": 1.8e-05, "loss": 0.6931471805599453, "step": 10},
            {"epoch": 1.0, "eval_accuracy": 0.925, "step": 20},
        ],
        stateful_callbacks=[control],
    )
    state.save_to_json(TESTDATA / "trainer_state.json")


def main():
    warnings.simplefilter("ignore")  # scikit-learn warns of 0/0, SciPy of constant input; both are meant here
    classifications, regressions, label_lists = metrics()

    def lines(cases):
        return ",\n    ".join(json.dumps(case) for case in cases)

    text = (
        f'{{\n  "made_by": "tools/make_metrics_fixture.py, scikit-learn {sklearn.__version__}, '
        f'scipy {scipy.__version__}",\n  "classification": [\n    {lines(classifications)}\n  ],\n'
        f'  "regression": [\n    {lines(regressions)}\n  ],\n'
        f'  "several_labels": [\n    {lines(label_lists)}\n  ]\n}}\n'
    )
    (TESTDATA / "evaluation_metrics.json").write_text(text)
    save_trainer_state()


if __name__ == "__main__":
    main()
