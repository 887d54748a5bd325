"""Hypothesis settings for a busy machine. The Spark session is that of `tests/spark.py`."""

from hypothesis import HealthCheck, settings

settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")
