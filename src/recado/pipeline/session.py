"""Create a Spark session with defaults for one machine, and register recado's formats in any session.

    spark = spark_session()            # local, listening on loopback only
    spark = spark_session(ui=True)     # with Spark's web interface
    register(spark)                    # for a session of your own, Spark Connect included

A registered session knows `format("recado")`, `format("amqp")` and the SQL functions `recado_headers(bytes)`
and `recado_properties(bytes)`. In a job of spark-submit, `spark_session` uses the master and settings of the
job.
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
    "spark.sql.variant.allowDuplicateKeys": "true",  # required by selectors on JSON
}
LOCAL_SETTINGS: Final[dict[str, str]] = {
    UI_ENABLED_KEY: "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "4",  # Spark's default of 200 is for clusters
    # With Unix sockets the tasks of a worker start 10 ms apart, with TCP 90 ms: a stream reads 1.8 M rows/s
    # instead of 1.2 M.
    "spark.python.unix.domain.socket.enabled": "true",
}
"""For one machine; executors elsewhere could not reach a driver on loopback."""
SOCKET_DIR_KEY: Final = "spark.python.unix.domain.socket.dir"
_STREAM_VARIABLES: Final = (
    "SPARK_LOCAL_DIRS",
    "SPARK_AUTH_SOCKET_TIMEOUT",
    "SPARK_BUFFER_SIZE",
    "SPARK_PYTHON_RUNTIME",
)
"""Environment variables that Spark sets when a stream starts (see `register_sources`)."""
_GATEWAY_PORT_VARIABLE: Final = "PYSPARK_GATEWAY_PORT"
"""Set in a job of spark-submit: the port of the Java process that spark-submit has started."""


def spark_session(
    app_name: str = "recado",
    *,
    master: str | None = None,
    ui: bool = False,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return the Spark session of this process, creating it if necessary, with recado's formats registered.

    Args:
        app_name: the application name in Spark's web interface and logs.
        master: Spark's master URL. By default that of spark-submit or PYSPARK_SUBMIT_ARGS, else this machine.
        ui: start Spark's web interface, at `spark.sparkContext.uiWebUrl`. By default it is off with a local
            master; with other masters Spark's own configuration decides.
        settings: Spark settings, which override the defaults.

    Raises:
        JavaNotFoundError: there is no Java that Spark can use.
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
    """A directory for Spark's Unix sockets that only its owner can enter, removed when the process ends.

    Spark does not authenticate the processes that connect to its sockets. The directory is in /tmp, not in
    TMPDIR, because the path of a socket has at most about 100 bytes.
    """
    return TemporaryDirectory(prefix="recado-", dir="/tmp")


def read_submit_settings(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the settings of spark-submit; outside of such a job, those in PYSPARK_SUBMIT_ARGS."""
    if _GATEWAY_PORT_VARIABLE in environment:
        from pyspark import SparkConf, SparkContext

        SparkContext._ensure_initialized()  # loads the settings from the running Java process
        return dict(SparkConf().getAll())
    words: list[str] = []
    for word in shlex.split(environment.get("PYSPARK_SUBMIT_ARGS", "")):
        option, _, value = word.partition("=")
        words += [option, value] if option in ("--conf", "--master") and value else [word]
    settings = {}
    for option, value in pairwise(words):
        if option in ("--conf", "-c"):
            key, _, settings[key] = value.partition("=")
        elif option == "--master":
            settings["spark.master"] = value
    return settings


def register_sources(spark: SparkSession, *sources: type[DataSource]) -> None:
    """Register data sources so that several streams of one format can start concurrently.

    This works around a race in Spark. All streams of a format share one Java map, the environment of its
    Python workers. Each starting stream puts `_STREAM_VARIABLES` into the map, while another thread may
    serialise it for a task. Two threads that add keys at once corrupt the map, and tasks fail with an
    `OptionalDataException`. Adding the keys before the registration avoids that, because replacing the value
    of an existing key does not change the structure of the map.
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
    """The environment of the Python workers; empty over Spark Connect, where the server has it."""
    from pyspark.sql import SparkSession

    return spark.sparkContext.environment if isinstance(spark, SparkSession) else {}


def register(spark: SparkSession) -> None:
    """Register the formats `recado` and `amqp` and the SQL functions of recado in a session."""
    from .feed.source import FeedDataSource
    from .functions import recado_headers, recado_properties
    from .queue.source import QueueSource

    register_sources(spark, FeedDataSource, QueueSource)
    spark.udf.register("recado_headers", recado_headers)
    spark.udf.register("recado_properties", recado_properties)
