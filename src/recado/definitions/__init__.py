"""Definitions: users, vhosts, policies, exchanges, queues and bindings as one document, in RabbitMQ's JSON."""
