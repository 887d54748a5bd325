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
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from recado.pipeline.java import java_home
from recado.pipeline.python import worker_python
from tests.pipeline.making import filled, quotes, truth
from tests.pipeline.steps.messages import rows_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

PATIENCE = 280.0
SMALL = ("--driver-memory", "512m", "--conf", "spark.ui.enabled=false")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "cluster.md"
SUBMITTED, PIPELINE, REMOTE = re.findall(r"```py\n(.*?)```", PAGE.read_text(), re.DOTALL)
FILE = """
name = "quotes"
checkpoint = "state"
trigger = "available-now"
sources.feed = {{ format = "recado", path = "{path}", startingOffsets = "earliest"{more} }}
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
def started(command: list[str], sign: str) -> Iterator[tuple[str, int]]:
    """A process that tells in its log where it is, and its id; ended by us, with all that it has started."""
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
        yield found[1], process.pid
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


@dataclass(frozen=True)
class Cluster:
    master: str
    worker: int
    """The id of its process."""
    work: Path
    """A folder for each application, and in it for each executor."""

    def submit(self, job: str) -> list[str]:
        limits = ["--executor-memory", "512m", "--conf", "spark.driver.host=127.0.0.1"]
        return [program("spark-submit"), "--master", self.master, *SMALL, *limits, job]

    def executors(self) -> list[int]:
        """The ids of the processes that the worker has started as executors."""
        children = Path(f"/proc/{self.worker}/task").glob("*/children")
        found = [int(child) for each in children for child in each.read_text().split()]
        backend = b"CoarseGrainedExecutorBackend"
        return [each for each in found if backend in Path(f"/proc/{each}/cmdline").read_bytes()]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    spark_class, deploy = program("spark-class"), "org.apache.spark.deploy"
    ports = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    folder = tmp_path_factory.mktemp("work")
    work = ["--cores", "2", "--memory", "1g", "--work-dir", str(folder)]
    with started(
        [spark_class, f"{deploy}.master.Master", *ports], r"Starting Spark master at (spark://\S+)"
    ) as (master, _):
        worker = [spark_class, f"{deploy}.worker.Worker", *ports, *work, master]
        with started(worker, r"Successfully registered with master (\S+)") as (_, pid):
            yield Cluster(master, pid, folder)


def test_a_standalone_cluster(cluster: Cluster, tmp_path: Path, path: Path) -> None:
    file, names = tmp_path / "quotes.toml", {"path": str(path), "folder": str(tmp_path)}
    file.write_text(FILE.format(**names, more=""))
    pipeline = PIPELINE.replace("quotes.toml", str(file))
    submitted = SUBMITTED.replace("/data/quotes", str(path))
    job = script(tmp_path, pipeline + submitted, AFTER.format(**names))
    assert FOUND in run(cluster.submit(job))
    assert list(cluster.work.glob("app-*/0")), "an executor of the worker has done it"


def test_an_executor_that_is_killed(cluster: Cluster, tmp_path: Path, path: Path) -> None:
    """Spark starts another, and repeats the tasks; what is in the lake is there once."""
    file, before = tmp_path / "quotes.toml", set(cluster.work.iterdir())
    few = ", maxRowsPerTrigger = 10, minPartitions = 2"  # fifteen batches, and it is killed among them
    file.write_text(FILE.format(path=path, folder=tmp_path, more=few))
    job = script(tmp_path, PIPELINE.replace("quotes.toml", str(file)), "")
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(run, cluster.submit(job))
        commits = tmp_path / "state" / "commits"
        while not (commits / "1").exists() and not done.done():
            wait([done], timeout=0.02)
        assert not done.done(), done.result()
        [executor] = cluster.executors()
        os.kill(executor, signal.SIGKILL)
        assert not (commits / "14").exists(), "there was more to be done"
        done.result()
    [application] = set(cluster.work.iterdir()) - before
    assert {each.name for each in application.iterdir()} == {"0", "1"}, "the killed one and another"
    found = [(row["offset"], row["body"]) for row in rows_of(tmp_path / "found")]
    assert sorted(found) == [(row["offset"], row["body"]) for row in truth(path)]
    assert len(found) == 150


def test_spark_connect(tmp_path: Path, path: Path) -> None:
    server = [
        *(program("spark-submit"), "--master", "local[2]", *SMALL),
        *("--conf", "spark.connect.grpc.binding.port=0"),
        *("--conf", "spark.connect.grpc.binding.address=127.0.0.1"),
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"),
    ]
    with started(server, r"Spark Connect server started at: \S*?:(\d+)") as (port, _):
        job = script(tmp_path, REMOTE.replace("cluster:15002", f"127.0.0.1:{port}"), CONNECTED)
        assert FOUND in run([sys.executable, job, str(path), str(tmp_path)])
