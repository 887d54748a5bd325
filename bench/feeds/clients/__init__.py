"""Programs that use a broker as their users would, if they knew its client well.

    work.py           what all of them do: the bodies, the command line, the figures
    jetstream.py      NATS JetStream by nats-py
    rabbit_stream.py  a RabbitMQ stream by pika
    feed.py           a feed of recado

Each publishes with persistence, until everything is acknowledged, or replays all of it from the beginning. Each
runs as a process of its own, because that is where a client spends its time.
"""
