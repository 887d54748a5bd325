"""HTTP management: the API of RabbitMQ's management plugin, metrics and probes."""
