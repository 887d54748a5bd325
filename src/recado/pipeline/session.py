"""A Spark with defaults for one machine, and the one call that teaches any Spark our formats.

    spark = spark_session()            # made by us: local, nothing listens but on loopback
    spark = spark_session(ui=True)     # with Spark's web interface
    register(spark)                    # any other one, of Spark Connect as well

After it `format("recado")` and `format("amqp_transport")` are known to the session, and to SQL `recado_headers(bytes)`
and `recado_properties(bytes)`.

In a job of spark-submit it is the Spark that this was told: its master and its settings stay as they are.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from .java import find_java_home
from .worker_python import worker_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

DEFAULT_MASTER: Final = "local[*]"
UI_ENABLED_KEY: Final = "spark.ui.enabled"
DEFAULT_SETTINGS: Final[dict[str, str]] = {
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.variant.allowDuplicateKeys": "true",  # selectors on JSON ask for it
}
LOCAL_SETTINGS: Final[dict[str, str]] = {
    UI_ENABLED_KEY: "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "4",  # 200, Spark's own, are for a cluster
    # By TCP tasks of a worker begin 90 ms after each other, so 10: a stream of 1.2 M rows/s has 1.8 M.
    "spark.python.unix.domain.socket.enabled": "true",
}
"""For one machine; executors elsewhere could not reach such a driver."""
SOCKET_DIR_KEY: Final = "spark.python.unix.domain.socket.dir"
_STREAM_VARIABLES: Final = (
    "SPARK_LOCAL_DIRS",
    "SPARK_AUTH_SOCKET_TIMEOUT",
    "SPARK_BUFFER_SIZE",
    "SPARK_PYTHON_RUNTIME",
)
_GATEWAY_PORT_VARIABLE: Final = "PYSPARK_GATEWAY_PORT"
"""In the environment of a job of spark-submit: where the Java is that it has started."""


def spark_session(
    app_name: str = "recado",
    *,
    master: str | None = None,
    ui: bool = False,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """The session of this process, with our formats: the one that is there already, or else a new one.

    Without a `master` it is that of spark-submit, or of PYSPARK_SUBMIT_ARGS, or this machine. `ui` starts
    Spark's web interface, at `spark.sparkContext.uiWebUrl`. On one machine it is off by default, elsewhere as
    Spark is configured. `settings` are Spark's, and take precedence. Raises NoJava.
    """
    submit_settings = read_submit_settings()
    effective_master = master or submit_settings.get("spark.master") or DEFAULT_MASTER
    if _GATEWAY_PORT_VARIABLE not in os.environ:
        os.environ["JAVA_HOME"] = str(find_java_home())
    defaults = DEFAULT_SETTINGS
    if effective_master.startswith("local"):
        defaults = DEFAULT_SETTINGS | LOCAL_SETTINGS | {SOCKET_DIR_KEY: _socket_directory().name}
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", worker_python(effective_master))
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(app_name).master(effective_master)
    effective_defaults = {
        key: value for key, value in defaults.items() if key not in submit_settings
    }
    ui_setting = {UI_ENABLED_KEY: "true"} if ui else {}
    for key, value in {**effective_defaults, **ui_setting, **(settings or {})}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark


@cache
def _socket_directory() -> TemporaryDirectory[str]:
    """Only its owner can enter it, for whoever reaches Spark's sockets is not asked for a secret. It goes when
    the process ends. Not where TMPDIR says: the name of a socket has a hundred bytes at most."""
    return TemporaryDirectory(prefix="recado-", dir="/tmp")


def read_submit_settings(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What spark-submit was told, if this is a job of it; or is to be told when Spark starts."""
    if _GATEWAY_PORT_VARIABLE in environment:
        from pyspark import SparkConf, SparkContext

        SparkContext._ensure_initialized()  # its settings are in Java, which is up
        return dict(SparkConf().getAll())
    words: list[str] = []
    for word in shlex.split(environment.get("PYSPARK_SUBMIT_ARGS", "")):
        option, _, value = word.partition("=")
        words += [option, value] if option in ("--conf", "--master") and value else [word]
    found = {}
    for option, value in pairwise(words):
        if option in ("--conf", "-c"):
            key, _, found[key] = value.partition("=")
        elif option == "--master":
            found["spark.master"] = value
    return found


def register_sources(spark: SparkSession, *sources: type[DataSource]) -> None:
    """So that streams of one format may begin at the same time, which Spark itself does not bear.

    All streams of a format share a Java map, the environment of its Python, and each puts these names into it
    when it begins, while the map of others is on its way to tasks. Two that add names at once break it for
    good: tasks fail with an `OptionalDataException`. Where a name is there already, nothing is added.
    """
    environment = _worker_environment(spark)
    added = [name for name in _STREAM_VARIABLES if name not in environment]
    environment.update(dict.fromkeys(added, ""))
    try:
        for source in sources:
            spark.dataSource.register(source)
    finally:
        for name in added:
            del environment[name]


def _worker_environment(spark: object) -> dict[str, str]:
    """Of the Python of a Spark in this process; over Spark Connect the server has it."""
    from pyspark.sql import SparkSession

    return spark.sparkContext.environment if isinstance(spark, SparkSession) else {}


def register(spark: SparkSession) -> None:
    """Make our formats and functions known to a session."""
    from .feed.source import FeedSource
    from .functions import recado_headers, recado_properties
    from .queue.source import QueueSource

    register_sources(spark, FeedSource, QueueSource)
    spark.udf.register("recado_headers", recado_headers)
    spark.udf.register("recado_properties", recado_properties)
