"""The formats on a real master and worker by spark-submit, and over Spark Connect: processes of their own.

The jobs begin with what docs/cluster.md says that they begin with. That of spark-submit runs a pipeline first.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from recado.pipeline.java import java_home
from recado.pipeline.python import worker_python
from tests.pipeline.making import filled, quotes

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

PATIENCE = 280.0
SMALL = ("--driver-memory", "512m", "--conf", "spark.ui.enabled=false")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "cluster.md"
SUBMITTED, PIPELINE, REMOTE = re.findall(r"```py\n(.*?)```", PAGE.read_text(), re.DOTALL)
FILE = """
name = "quotes"
checkpoint = "state"
trigger = "available-now"
sources.feed = {{ format = "recado", path = "{path}", startingOffsets = "earliest" }}
sinks.found = {{ format = "parquet", path = "{folder}/found" }}
"""
AFTER = """
    rows = quotes.sparkSession.read.format("recado").option("minPartitions", "3").load({path!r})
    assert rows.count() == 150, rows.count()
    assert spark.sparkContext.master.startswith("spark://")
    found = spark.read.parquet({folder!r} + "/found")
    print("found", found.selectExpr("sum(offset)").first()[0], flush=True)
    spark.stop()
"""
CONNECTED = """
    import sys
    import recado

    path, folder = sys.argv[1:3]
    assert recado.table(spark, path=path).count() == 100
    reader = spark.readStream.format("recado").option("startingOffsets", "earliest")
    writer = reader.load(path).select("offset", "headers").writeStream.format("parquet")
    query = (
        writer.option("checkpointLocation", folder + "/checkpoint")
        .trigger(availableNow=True)
        .start(folder + "/found")
    )
    query.awaitTermination()
    found = spark.read.parquet(folder + "/found")
    print("found", found.selectExpr("sum(offset)").first()[0], flush=True)
    spark.stop()
"""
FOUND = f"found {sum(range(150))}"


def program(name: str) -> str:
    import pyspark

    return str(Path(pyspark.__file__).parent / "bin" / name)


def environment() -> dict[str, str]:
    return {
        **os.environ,
        "JAVA_HOME": str(java_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_MASTER_HOST": "127.0.0.1",
        "PYSPARK_PYTHON": worker_python("local"),
        "SPARK_DAEMON_MEMORY": "512m",
        "JAVA_TOOL_OPTIONS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",  # six start, and none lives long
    }


@contextmanager
def started(command: list[str], sign: str) -> Iterator[str]:
    """A process that tells in its log where it is; ended by us, with all that it has started."""
    process = subprocess.Popen(
        command,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    too_late = threading.Timer(PATIENCE, process.kill)
    too_late.start()
    lines: list[str] = []
    found = None
    try:
        for line in process.stdout:
            lines.append(line)
            found = re.search(sign, line)
            if found is not None:
                break
        assert found is not None, "".join(lines)
        rest = threading.Thread(target=process.stdout.read, daemon=True)
        rest.start()  # or it would stop when the pipe is full
        yield found[1]
    finally:
        too_late.cancel()
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if found is not None:
            rest.join()
        process.stdout.close()


def script(folder: Path, beginning: str, rest: str) -> str:
    file = folder / "job.py"
    file.write_text(beginning + textwrap.dedent(rest))
    return str(file)


def run(command: list[str]) -> str:
    done = subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr[-5000:]
    return done.stdout


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return filled(tmp_path / "archive", [[quotes(1, 1, 100)]], [quotes(1, 101, 50)])


def test_a_standalone_cluster(tmp_path: Path, path: Path) -> None:
    file, names = tmp_path / "quotes.toml", {"path": str(path), "folder": str(tmp_path)}
    file.write_text(FILE.format(**names))
    pipeline = PIPELINE.replace("quotes.toml", str(file))
    submitted = SUBMITTED.replace("/data/quotes", str(path))
    job = script(tmp_path, pipeline + submitted, AFTER.format(**names))
    spark_class = program("spark-class")
    deploy = "org.apache.spark.deploy"
    ports = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    work = ["--cores", "2", "--memory", "1g", "--work-dir", str(tmp_path / "work")]
    with started(
        [spark_class, f"{deploy}.master.Master", *ports], r"Starting Spark master at (spark://\S+)"
    ) as master:
        worker = [spark_class, f"{deploy}.worker.Worker", *ports, *work, master]
        with started(worker, r"Successfully registered with master (\S+)"):
            limits = ["--executor-memory", "512m", "--conf", "spark.driver.host=127.0.0.1"]
            submit = [program("spark-submit"), "--master", master, *SMALL, *limits]
            assert FOUND in run([*submit, job])
    assert list((tmp_path / "work").glob("app-*")), "an executor of the worker has done it"


def test_spark_connect(tmp_path: Path, path: Path) -> None:
    server = [
        *(program("spark-submit"), "--master", "local[2]", *SMALL),
        *("--conf", "spark.connect.grpc.binding.port=0"),
        *("--conf", "spark.connect.grpc.binding.address=127.0.0.1"),
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"),
    ]
    with started(server, r"Spark Connect server started at: \S*?:(\d+)") as port:
        job = script(tmp_path, REMOTE.replace("cluster:15002", f"127.0.0.1:{port}"), CONNECTED)
        assert FOUND in run([sys.executable, job, str(path), str(tmp_path)])
