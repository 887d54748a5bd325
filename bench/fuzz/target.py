"""The broker under attack: its start, its log and memory, and the removal of leftovers."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Final

import pika
from argon2 import PasswordHasher

from bench.fuzz import handshakes, values, witness
from bench.processes import resident_megabytes
from workshop import peers
from workshop.peers import Server

CONFIG: Final = """\
[access.users.{witness}]
password = "{witness_password}"
permissions."/" = {{configure = ".*", write = ".*", read = ".*"}}

[access.users.fuzz]
password = "{password}"
permissions."/" = {{configure = '{permitted}', write = '{permitted}', read = '{permitted}'}}
topic_permissions."/".fuzz-2 = {{write = "^a", read = "^[a#*]"}}

[access.users.argon]
password_hash = "{password_hash}"
permissions."/" = {{configure = '{permitted}', write = '{permitted}', read = '{permitted}'}}
"""

# Messages in a queue; without a limit the attackers' publishers would be a load.
KEPT: Final = 100

SETTLING_S: Final = 0.5

# An unexpected exception in the log: a heading, indented lines, a class name.
TRACE: Final = re.compile(r"^Traceback \(most recent call last\):\n(?:[ \t].*\n)*.*", re.MULTILINE)


@contextmanager
def target(*, keeps: bool = False) -> Iterator[Server]:
    """Start recado with users for the attackers and for the witness, all in one vhost.

    With `keeps` it has a data folder.
    """
    config = CONFIG.format(
        witness=witness.USER,
        witness_password=witness.PASSWORD,
        password=handshakes.PASSWORD.decode(),
        password_hash=PasswordHasher().hash(handshakes.PASSWORD),
        permitted=values.PERMITTED,
    )
    with ExitStack() as stack:
        data = stack.enter_context(peers.temporary_folder("fuzz")) if keeps else None
        yield stack.enter_context(peers.recado(config=config, data=data))


def serves(server: Server) -> bool:
    """Whether the process that was started still speaks AMQP: it is never restarted."""
    return peers.speaks_amqp(server.port)


def traces(server: Server) -> list[str]:
    """The exceptions in its log."""
    return TRACE.findall(server.log.read_text(errors="replace"))


def sweep(server: Server, *, renew: bool) -> None:
    """Delete everything that the attackers may have left behind; declare it again for the next ones."""
    credentials = pika.PlainCredentials(witness.USER, witness.PASSWORD)
    parameters = pika.ConnectionParameters(server.host, server.port, credentials=credentials)
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()
    for name in values.NAMES:
        channel.exchange_delete(name)
        # An exclusive queue is deleted with its connection, and by no other.
        with suppress(pika.exceptions.ChannelClosedByBroker):
            channel.queue_delete(name)
            if renew:
                channel.exchange_declare(name, values.kind_of(name))
                channel.queue_declare(name, arguments={"x-max-length": KEPT})
        if channel.is_closed:
            channel = connection.channel()
    connection.close()


def memory_when_swept(server: Server) -> float:
    """Return the megabytes when the memory does not shrink any more.

    The verification of a password takes as much memory as a thousand attackers.
    """
    sweep(server, renew=False)
    least = resident_megabytes(server.pid)
    until = time.monotonic() + SETTLING_S
    while time.monotonic() < until:
        time.sleep(0.02)
        now = resident_megabytes(server.pid)
        if now < least:
            least, until = now, time.monotonic() + SETTLING_S
    return least
