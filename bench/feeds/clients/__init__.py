"""Programs that use a broker as experienced users of its client would.

    work.py           common parts: the bodies, the command line, the figures
    jetstream.py      NATS JetStream with nats-py
    rabbit_stream.py  a RabbitMQ stream with pika
    feed.py           a feed of recado

Each publishes persistent messages until all are acknowledged, or replays all of them from the beginning. Each
runs in its own process, because a client needs most of the processor time.
"""
