"""Transports: AMQP brokers, UDP multicast, and an in-memory twin for tests."""
