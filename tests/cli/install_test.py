"""An installed strake: its program, and examples/ built against its headers and libraries."""

import pathlib
import subprocess

import pyarrow.parquet as parquet
import pytest
from program import BINARY, SANITIZE, strake
from tiny_models import make_model, write_table

BUILD = pathlib.Path(BINARY).resolve().parent
EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"
TEXTS = ["a good film", "this was sad", "we love the book and it was a great day"]


def call(*line):
    done = subprocess.run([str(word) for word in line], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prefix")
    call("cmake", "--install", BUILD, "--prefix", folder)
    return folder


def test_the_installed_program_runs(prefix):
    assert "Verbs:" in call(prefix / "bin" / "strake", "--help")
    kernels = "libstrake_cuda.so"  # where nvcc was there
    assert (prefix / "bin" / kernels).exists() == (BUILD / kernels).exists()


def test_the_example_gives_the_logits_of_predict(prefix, tmp_path):
    model = make_model(tmp_path / "model", head=True)
    flags = "-Wall -Wextra -Werror" + (f" -fsanitize={SANITIZE}" if SANITIZE else "")  # as the libraries
    call(
        "cmake", "-S", EXAMPLES, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={prefix}", f"-DCMAKE_CXX_FLAGS={flags}"
    )
    call("cmake", "--build", tmp_path / "build")
    found = call(tmp_path / "build" / "score_texts", model, *TEXTS)
    strake(
        "predict",
        model_name_or_path=model,
        input=write_table(tmp_path / "texts.parquet", [{"text": text} for text in TEXTS]),
        output=tmp_path / "scored.parquet",
        max_seq_length=64,
        output_columns="logits",
    )
    expected = parquet.read_table(tmp_path / "scored.parquet").column("logits").to_pylist()
    for line, logits in zip(found.splitlines(), expected, strict=True):
        # The stream prints six digits.
        assert [float(word) for word in line.split()] == pytest.approx(logits, rel=1e-5)
