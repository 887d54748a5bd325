"""One Spark for all tests that need it, as it takes ten seconds to start; and Hypothesis on a busy machine."""

from __future__ import annotations

import gc
import importlib.util
import os
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from workshop.java import java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.variant.allowDuplicateKeys": "true",  # as docs/selector.md asks for
    "spark.driver.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    # Thousands of expressions, each used once: to compile them takes longer than to walk them.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    if importlib.util.find_spec("pyspark") is None:
        pytest.fail(
            "pyspark is missing: `./dev setup` installs it, or `pip install 'recado[spark]'`"
        )
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[1]")
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    yield session
    session.stop()
    with warnings.catch_warnings():
        # PySpark leaves the sockets of its answers to the collector, which would complain in a later test.
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
