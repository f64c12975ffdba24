"""The function of the how-to "score many rows" in Spark, if there is one (pip install pyspark; Java)."""

import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pyarrow.parquet as parquet
import pytest
from program import BINARY, environment, strake
from tiny_models import make_model, reviews, write_table

HOWTO = pathlib.Path(__file__).parents[2] / "docs" / "howto" / "score_many_rows.md"
COLUMNS = ["number", "prediction", "probabilities"]
JOB = """
import subprocess
from pyspark.sql import SparkSession
from scored import scored

spark = (SparkSession.builder.master("local-cluster[2,1,1024]").config("spark.ui.enabled", "false")
         .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
         .config("spark.sql.execution.arrow.maxRecordsPerBatch", "7").getOrCreate())
spark.sparkContext.addPyFile("scored.py")
rows = spark.read.parquet("test.parquet").repartition(3)
types = "number long, prediction string, probabilities array<float>"
rows.select("number", "text").mapInArrow(scored, types).write.parquet("spark")
assert len(rows.select("number", "text").mapInArrow(scored, types).limit(3).collect()) == 3
rows.selectExpr("text", "number", "timestamp'9999-12-31 00:00:00' AS time").write.parquet("by_spark")
subprocess.run(["strake", "predict", "--model_name_or_path", "out", "--max_seq_length", "64", "--input", "by_spark",
                "--output", "of_its_files/"], check=True)
found = spark.read.parquet("of_its_files")
assert found.columns == ["text", "number", "time", "prediction", "probabilities"], found.columns
assert found.filter("time = timestamp'9999-12-31 00:00:00'").count() == 100
try:
    rows.select("number").mapInArrow(scored, types).collect()
except Exception as error:
    print(error)
"""


@pytest.fixture
def folder(tmp_path):
    if importlib.util.find_spec("pyspark") is None or shutil.which("java") is None:
        pytest.skip("there is no Spark")
    make_model(tmp_path / "out", head=True)
    write_table(tmp_path / "test.parquet", reviews(100))
    code = re.search(r"cat > scored.py <<'END'\n(.*?)END\n", HOWTO.read_text(), re.S)[1]
    (tmp_path / "scored.py").write_text(code.replace('"out"', f'"{tmp_path}/out"'))  # executors have other folders
    return tmp_path


def by_number(path):
    rows = parquet.read_table(path, columns=COLUMNS).sort_by("number")
    return [rows[name].to_pylist() for name in COLUMNS]


def test_spark_gets_the_bits_of_predict_reads_its_files_and_hears_of_failures(folder):
    path = f"{pathlib.Path(BINARY).parent}{os.pathsep}{os.environ['PATH']}"
    job = subprocess.run(
        [sys.executable, "-c", JOB],
        cwd=folder,
        env=environment(PATH=path, PYSPARK_PYTHON=sys.executable),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert job.returncode == 0, job.stderr
    assert "strake worker ended with exit code 3" in job.stdout, job.stdout
    assert "standard input: there is no column 'text'; the columns are number" in job.stdout, job.stdout
    flags = {"model_name_or_path": folder / "out", "input": folder / "test.parquet", "max_seq_length": 64}
    strake("predict", **flags, keep_columns="number", output=folder / "direct.parquet")
    assert by_number(folder / "spark") == by_number(folder / "direct.parquet")
