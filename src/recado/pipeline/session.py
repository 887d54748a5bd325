"""A Spark with defaults for one machine, and the one call that teaches any Spark our formats.

    spark = spark_session()            # made by us: local, no web page, nothing listens but on loopback
    register(spark)                    # any other one, of Spark Connect as well

After it `format("recado")` and `format("amqp")` are known to the session, and to SQL `recado_headers(bytes)`
and `recado_properties(bytes)`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from .java import java_home
from .python import worker_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULTS: Final[dict[str, str]] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",  # 200, Spark's own, are for a cluster
    "spark.sql.variant.allowDuplicateKeys": "true",  # selectors on JSON ask for it
}


def spark_session(
    app: str = "recado", *, master: str = "local[*]", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """The session of this process, with our formats: the one that is there already, or else a new one.

    Raises NoJava.
    """
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", worker_python(master))
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(app).master(master)
    for key, value in {**DEFAULTS, **(settings or {})}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark


def register(spark: SparkSession) -> None:
    """Make our formats and functions known to a session."""
    from .feed.source import FeedSource
    from .functions import recado_headers, recado_properties
    from .queue.source import QueueSource

    spark.dataSource.register(FeedSource)
    spark.dataSource.register(QueueSource)
    spark.udf.register("recado_headers", recado_headers)
    spark.udf.register("recado_properties", recado_properties)
