"""The outside observer: `python -m bench.patterns_siege.collector PORT FOLDER`.

It notes what arrives in the queues at the end, by a client that is not the one under siege (pika). A message is
acknowledged when its note is on disk, so it may be noted twice, but never lost.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path
from typing import Any, Final

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError

from bench.patterns_siege.roles import COLLECTED, COLLECTED_FILE, Notes
from workshop.peers import HOST

RECONNECT_S: Final = 0.2
PREFETCH_COUNT: Final = 100


def note(
    notes: Notes,
    queue: str,
    channel: BlockingChannel,
    method: Any,
    properties: pika.BasicProperties,
    body: bytes,
) -> None:
    headers = properties.headers or {}
    notes.add(
        queue=queue,
        id=properties.message_id,
        body=body.decode(),
        attempt=headers.get("x-attempt"),
        reason=headers.get("x-failure-reason"),
        history=len(headers.get("x-failure-history", ())),
    )
    channel.basic_ack(method.delivery_tag)


def collect(port: int, notes: Notes) -> None:
    with pika.BlockingConnection(pika.ConnectionParameters(HOST, port)) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=PREFETCH_COUNT)
        for queue in COLLECTED:
            channel.basic_consume(queue, partial(note, notes, queue))
        channel.start_consuming()


def main() -> None:
    port, folder = sys.argv[1:]
    notes = Notes(Path(folder) / COLLECTED_FILE)
    while True:
        try:
            collect(int(port), notes)
        except (AMQPError, OSError):
            time.sleep(RECONNECT_S)


if __name__ == "__main__":
    main()
