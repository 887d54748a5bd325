"""Enterprise integration patterns for any AMQP 0-9-1 broker."""
