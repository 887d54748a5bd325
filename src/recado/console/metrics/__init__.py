"""Prometheus metrics: those of RabbitMQ's plugin, with its names, and recado's own (`recado_…`)."""
