"""`format("amqp_transport")`: the queues of any AMQP 0-9-1 broker as a source of streams, and its exchanges as a sink."""
