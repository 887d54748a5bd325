"""The witness: a well-behaved client in its own process that must be served during the attack.

It publishes a numbered message to itself and waits for it, repeatedly, and measures how long that takes;
sometimes it logs in again, as other clients would. Before the attack it leaves messages in a queue, and at the
end it checks whether all are there. It ends when its input ends, and prints a line of JSON.

It is a process, because the work of the attackers in the same one would be measured as a delay of the broker.
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Final

import pika
from pika.adapters.blocking_connection import BlockingChannel

from bench.book import NotMeasuredError
from workshop.peers import Server

USER: Final = "witness"
PASSWORD: Final = "as-seen-from-outside"
TREASURE: Final = 1_000
PAUSE: Final = 0.005
TRIPS_PER_LOGIN: Final = 100
PATIENCE_S: Final = 30.0


@dataclass
class Testimony:
    trips: int = 0
    slowest: float = 0.0
    """Seconds, of a round trip."""
    slowest_login: float = 0.0
    lost: int = 0
    """Messages that were not received, received twice, or changed."""


class Witness:
    def __init__(self, host: str, port: int) -> None:
        credentials = pika.PlainCredentials(USER, PASSWORD)
        self._parameters = pika.ConnectionParameters(host, port, credentials=credentials)
        self._connection = pika.BlockingConnection(self._parameters)
        self._channel = self._connection.channel()
        self._channel.confirm_delivery()
        self._queue = self._declare()
        self._treasure = self._declare()
        self._channel.basic_consume(self._queue, self._received)
        self._arrived: list[bytes] = []
        self.testimony = Testimony()
        for number in range(TREASURE):
            self._publish(self._treasure, b"treasure %d" % number)

    def _declare(self) -> str:
        queue: str = self._channel.queue_declare("", exclusive=True).method.queue
        return queue

    def _publish(self, queue: str, body: bytes) -> None:
        self._channel.basic_publish("", queue, body, mandatory=True)

    def _received(
        self, channel: BlockingChannel, method: object, properties: object, body: bytes
    ) -> None:
        channel.basic_ack(method.delivery_tag)  # type: ignore[attr-defined]
        self._arrived.append(body)

    def round_trip(self) -> None:
        seen = self.testimony
        sent = b"trip %d" % seen.trips
        begun = time.monotonic()
        self._publish(self._queue, sent)
        while not self._arrived and time.monotonic() - begun < PATIENCE_S:
            self._connection.process_data_events(PATIENCE_S)
        seen.slowest = max(seen.slowest, time.monotonic() - begun)
        seen.trips += 1
        seen.lost += self._arrived != [sent]
        self._arrived.clear()

    def log_in(self) -> None:
        begun = time.monotonic()
        pika.BlockingConnection(self._parameters).close()
        seen = self.testimony
        seen.slowest_login = max(seen.slowest_login, time.monotonic() - begun)

    def finish(self) -> None:
        """The messages from before the attack must be there, in order, and no others."""
        wanted: list[bytes | None] = [b"treasure %d" % number for number in range(TREASURE)]
        for body in (*wanted, None):
            found = self._channel.basic_get(self._treasure, auto_ack=True)[2]
            self.testimony.lost += found != body
        self._connection.close()


def main() -> None:
    witness = Witness(sys.argv[1], int(sys.argv[2]))
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], PAUSE)[0]:
        if witness.testimony.trips % TRIPS_PER_LOGIN == 0:
            witness.log_in()
        witness.round_trip()
    witness.finish()
    print(json.dumps(asdict(witness.testimony)), flush=True)


class Watching:
    """The process of the witness, from outside."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self) -> Testimony:
        """End the witness, and return its report."""
        try:
            said, complaint = self._process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise NotMeasuredError("the witness was not served any more") from None
        if self._process.returncode:
            raise NotMeasuredError(f"the witness failed: {complaint.strip().splitlines()[-1:]}")
        return Testimony(**json.loads(said))


@contextmanager
def watching(server: Server) -> Iterator[Watching]:
    """Run a witness during the block."""
    with subprocess.Popen(
        [sys.executable, "-m", "bench.fuzz.witness", server.host, str(server.port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout
        try:
            if process.stdout.readline() != "ready\n":
                raise NotMeasuredError("the witness could not begin")
            yield Watching(process)
        finally:
            process.kill()


if __name__ == "__main__":
    main()
