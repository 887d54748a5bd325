"""The journal: an append-only log of opaque records. It knows no AMQP; who appends gives them a meaning."""
