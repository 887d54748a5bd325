"""What carries packets: AMQP brokers, UDP multicast, and a twin of both in memory."""
