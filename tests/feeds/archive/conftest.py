"""How Hypothesis runs here: on a busy machine slow is not wrong, so no test has a deadline."""

from hypothesis import HealthCheck, settings

settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")
