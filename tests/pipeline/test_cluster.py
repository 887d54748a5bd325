"""Sources and sinks on a real master and worker by spark-submit, and over Spark Connect, all as processes.

The jobs start with the code of docs/cluster.md. Other programs (pika, deltalake, pyiceberg, pyarrow) read the
results.
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

import pika
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

import recado.feeds
from recado.pipeline.java import find_java_home
from recado.pipeline.worker_python import worker_python
from tests.pipeline.making import filled, quotes, stored, truth
from tests.pipeline.steps.messages import rows_of
from workshop import peers
from workshop.time_limit import scale

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

PATIENCE = 280.0
SMALL = ("--driver-memory", "512m", "--conf", "spark.ui.enabled=false")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "cluster.md"
SUBMITTED, PIPELINE, REMOTE = re.findall(r"```py\n(.*?)```", PAGE.read_text(), re.DOTALL)
FILE = """
name = "quotes"
checkpoint = "state"
trigger = "available-now"
sources.feed = {{ format = "recado", path = "{path}", startingOffsets = "earliest", {few} }}
sinks.found = {{ format = "parquet", path = "{folder}/found" }}
"""
ORDERS = """
name = "orders"
checkpoint = "state"
trigger = "available-now"
sources.queue = {{ format = "amqp", url = "{url}", queue = "orders" }}
sinks.delta = {{ format = "delta", path = "delta" }}
sinks.iceberg = {{ format = "iceberg", table = "shop.orders", warehouse = "warehouse" }}
sinks.exchange = {{ format = "amqp", url = "{url}", exchange = "", routingKey = "out" }}
sinks.feed = {{ format = "recado", url = "{url}", feed = "out" }}
"""
AFTER = """
    rows = quotes.sparkSession.read.format("recado").option("minPartitions", "3").load({path!r})
    assert rows.count() == 150, rows.count()
    assert spark.sparkContext.master.startswith("spark://")
    spark.stop()
"""
CONNECTED = """
    import os, shutil, sys
    from pathlib import Path
    import recado.feeds
    from recado.pipeline import Pipeline, InvalidPipelineError, run

    def started(rows, form, place, **options):
        options["checkpointLocation"] = f"{folder}/state of {form}"
        writer = rows.writeStream.format(form).options(**options)
        return writer.trigger(availableNow=True).start(place)

    path, folder, url = sys.argv[1:]
    assert recado.table(spark, path=path).count() == 100
    reader = spark.readStream.format("recado").option("startingOffsets", "earliest")
    quotes = reader.load(path).select("offset", "headers")
    reader = spark.readStream.format("amqp").options(url=url, queue="orders")
    orders = reader.option("spool", f"{folder}/spool").load()
    queries = [
        started(quotes, "parquet", f"{folder}/found"),
        started(orders, "amqp", None, url=url, exchange="", routingKey="out"),
    ]
    for query in queries:
        query.awaitTermination()
    found = spark.read.parquet(f"{folder}/found")
    assert found.selectExpr("sum(offset)").first()[0] == sum(range(150))

    pipeline = (
        Pipeline("quotes", checkpoint=f"{folder}/state", trigger="available-now")
        .read("quotes", "recado", path=path, startingOffsets="earliest")
        .filter("offset >= 0")
        .write("delta", "delta", path=f"{folder}/delta")
        .write("iceberg", "iceberg", table="shop.orders", warehouse=f"{folder}/warehouse")
        .write("feed", "recado", url=url, feed="out")
    )
    assert run(pipeline, spark, batch=True).sinks == {"delta": 150, "iceberg": 150, "feed": 150}
    try:
        run(pipeline, spark)
    except InvalidPipelineError as error:
        print(error, flush=True)
    try:
        run(pipeline.filter("lenght(body) > 1").filter("offset > > 1"), spark, batch=True)
    except InvalidPipelineError as error:
        print(error, flush=True)
    spark.stop()
    assert "JAVA_HOME" not in os.environ and shutil.which("java") is None
    children = [each.read_text() for each in Path("/proc/self/task").glob("*/children")]
    assert not any(children), "it has started no other program either"
"""
BODIES = sorted(b"%d" % number for number in range(150))


def program(name: str) -> str:
    import pyspark

    return str(Path(pyspark.__file__).parent / "bin" / name)


def environment() -> dict[str, str]:
    return {
        **os.environ,
        "JAVA_HOME": str(find_java_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_MASTER_HOST": "127.0.0.1",
        "PYSPARK_PYTHON": worker_python("local"),
        "SPARK_DAEMON_MEMORY": "512m",
        "JAVA_TOOL_OPTIONS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",  # six start, and none lives long
    }


def no_java(folder: Path) -> dict[str, str]:
    """An environment in which nothing is found that could run Java."""
    kept = {name: value for name, value in os.environ.items() if "JAVA" not in name}
    return {**kept, "PATH": str(folder / "empty")}


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
    too_late = threading.Timer(scale(PATIENCE), process.kill)
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


def run(command: list[str], variables: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command,
        env=variables or environment(),
        capture_output=True,
        text=True,
        timeout=scale(PATIENCE),
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-5000:]
    return done.stdout


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return filled(tmp_path / "archive", [[quotes(1, 1, 100)]], [quotes(1, 101, 50)])


@dataclass(frozen=True)
class Orders:
    """A queue with messages, and where they are to go: a queue, and a feed with an archive."""

    url: str
    channel: pika.adapters.blocking_connection.BlockingChannel
    archive: Path

    def in_the_queue(self) -> list[bytes]:
        """The bodies of what went out; the queue is empty then."""
        return sorted(iter(lambda: self.channel.basic_get("out", auto_ack=True)[2], None))

    def on_the_feed(self) -> list[bytes]:
        return sorted(stored(self.archive, len(BODIES)))


@pytest.fixture
def orders(tmp_path: Path) -> Iterator[Orders]:
    with (
        peers.recado() as server,
        pika.BlockingConnection(pika.URLParameters(f"{server.url}?heartbeat=0")) as connection,
        recado.feeds.connect_blocking(server.url) as link,
        link.archive("out", tmp_path / "out"),
    ):
        made = Orders(server.url, connection.channel(), tmp_path / "out")
        made.channel.confirm_delivery()
        for queue in ("orders", "out"):
            made.channel.queue_declare(queue, durable=True)
        for body in BODIES:
            named = pika.BasicProperties(message_id=f"id-{body.decode()}", headers={"of": "ana"})
            made.channel.basic_publish("", "orders", body, named)
        yield made


def in_the_lake(folder: Path) -> tuple[list[bytes], list[bytes]]:
    """The bodies of the Delta and of the Iceberg table."""
    delta = DeltaTable(folder / "delta").to_pyarrow_table()
    warehouse = folder / "warehouse"
    catalogue = SqlCatalog(
        "recado", uri=f"sqlite:///{warehouse}/catalogue.db", warehouse=str(warehouse)
    )
    iceberg = catalogue.load_table("shop.orders").scan().to_arrow()
    catalogue.close()
    return sorted(delta["body"].to_pylist()), sorted(iceberg["body"].to_pylist())


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


def test_a_standalone_cluster(cluster: Cluster, orders: Orders, tmp_path: Path, path: Path) -> None:
    file = tmp_path / "orders.toml"
    file.write_text(ORDERS.format(url=orders.url))
    pipeline = PIPELINE.replace("quotes.toml", str(file))
    submitted = SUBMITTED.replace("/data/quotes", str(path))
    run(cluster.submit(script(tmp_path, pipeline + submitted, AFTER.format(path=str(path)))))
    assert list(cluster.work.glob("app-*/0")), "an executor of the worker has done it"
    assert in_the_lake(tmp_path) == (BODIES, BODIES)
    assert orders.in_the_queue() == BODIES
    assert orders.on_the_feed() == BODIES


def test_an_executor_that_is_killed(cluster: Cluster, tmp_path: Path, path: Path) -> None:
    """Spark starts another, and repeats the tasks; what is in the lake is there once."""
    file, before = tmp_path / "quotes.toml", set(cluster.work.iterdir())
    few = "maxRowsPerTrigger = 10, minPartitions = 2"  # 15 batches, and it is killed among them
    file.write_text(FILE.format(path=path, folder=tmp_path, few=few))
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


def test_spark_connect(orders: Orders, tmp_path: Path, path: Path) -> None:
    server = [
        *(program("spark-submit"), "--master", "local[2]", *SMALL),
        *("--conf", "spark.connect.grpc.binding.port=0"),
        *("--conf", "spark.connect.grpc.binding.address=127.0.0.1"),
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"),
    ]
    with started(server, r"Spark Connect server started at: \S*?:(\d+)") as (port, _):
        job = script(tmp_path, REMOTE.replace("cluster:15002", f"127.0.0.1:{port}"), CONNECTED)
        client = [sys.executable, job, str(path), str(tmp_path), orders.url]
        told = run(client, no_java(tmp_path))
    assert "a stream needs a Spark session in this process" in told
    assert "step 2 (filter): there is no function lenght" in told
    assert "step 3 (filter): Syntax error at or near '>'" in told
    bodies = sorted(row["body"] for row in truth(path))
    assert in_the_lake(tmp_path) == (bodies, bodies)
    assert orders.on_the_feed() == bodies
    assert orders.in_the_queue() == BODIES
