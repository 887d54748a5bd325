"""The AMQP 0-9-1 protocol without I/O, for clients and servers: bytes in, events out. No sockets, no clocks."""
