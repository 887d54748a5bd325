"""Spark settings for thousands of expressions that are used once; Hypothesis settings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")

# To compile an expression takes longer than to walk it once.
WALKING = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@pytest.fixture(scope="module", name="spark")
def walking_spark(spark: SparkSession) -> Iterator[SparkSession]:
    for key, value in WALKING.items():
        spark.conf.set(key, value)
    yield spark
    for key in WALKING:
        spark.conf.unset(key)
