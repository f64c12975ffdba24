"""The end of tools/demo.sh: shows predictions and compares their accuracy with the baseline's.

Run:  .venv/bin/python tools/demo_report.py PREDICTIONS.parquet BASELINE.json TRAIN_SECONDS PREDICT_SECONDS

PREDICTIONS.parquet has the test file's columns (text, label) plus strake's prediction and probabilities; BASELINE.json
is what tools/tfidf_baseline.py printed for the same test file. Exit status 1 if strake is not the more accurate.
"""

import json
import pathlib
import sys

import pyarrow.parquet as pq

ROWS_SHOWN = 6
TEXT_WIDTH = 64
SIZES = {"train_rows": "training rows", "test_rows": "test rows", "classes": "classes"}


def print_table(rows):
    """Columns as wide as their widest cell; the first row is the head."""
    widths = [max(len(str(row[column])) for row in rows) for column in range(len(rows[0]))]
    for number, row in enumerate(rows):
        print("  " + "  ".join(str(cell).ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        if number == 0:
            print("  " + "  ".join("-" * width for width in widths))


def show_predictions(path, table):
    print(f"\nFirst rows of {path} ({table.num_rows} rows: {', '.join(table.column_names)}):\n")
    rows = [("text", "label", "prediction", "probability")]
    for row in table.slice(0, ROWS_SHOWN).to_pylist():
        text = row["text"] if len(row["text"]) <= TEXT_WIDTH else row["text"][: TEXT_WIDTH - 3] + "..."
        rows.append((text, row["label"], row["prediction"], f"{max(row['probabilities']):.2f}"))
    print_table(rows)


def show_comparison(baseline, accuracy, seconds):
    facts = [f"{baseline[key]} {what}" for key, what in SIZES.items()]
    print(f"\n{', '.join(facts)}\n")
    train, predict = seconds
    print_table(
        [
            ("on the test rows", "accuracy", "seconds"),
            ("always the largest class", f"{baseline['majority']:.3f}", ""),
            ("TF-IDF and a linear classifier", f"{baseline['tfidf']:.3f}", baseline["seconds"]),
            ("strake, fine-tuned encoder", f"{accuracy:.3f}", f"{train} to train, {predict} to score"),
        ]
    )


def main():
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    path, baseline = sys.argv[1], json.loads(pathlib.Path(sys.argv[2]).read_text())
    table = pq.read_table(path)
    labels, predictions = table["label"].to_pylist(), table["prediction"].to_pylist()
    if len(labels) != baseline["test_rows"]:
        sys.exit(f"demo: {path} has {len(labels)} rows, the test file has {baseline['test_rows']}")
    right = sum(str(label) == str(prediction) for label, prediction in zip(labels, predictions, strict=True))
    accuracy = right / len(labels)
    show_predictions(path, table)
    show_comparison(baseline, accuracy, sys.argv[3:])
    if accuracy <= baseline["tfidf"]:
        sys.exit(f"\ndemo: FAILED: strake's accuracy {accuracy:.4f} does not beat TF-IDF's {baseline['tfidf']:.4f}")
    fewer = 1 - (1 - accuracy) / (1 - baseline["tfidf"])
    print(f"\nstrake makes {fewer:.0%} fewer errors than TF-IDF.")


if __name__ == "__main__":
    main()
