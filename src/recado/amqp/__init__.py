"""AMQP 0-9-1 as computation, either side: bytes in, events out. No sockets, no clocks."""
