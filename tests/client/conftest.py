"""How Hypothesis runs here, and the two brokers that the end-to-end tests of the client talk to."""

from hypothesis import HealthCheck, settings

from tests.e2e.conftest import authority, certificates, name, server, start

__all__ = ["authority", "certificates", "name", "server", "start"]

settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")
