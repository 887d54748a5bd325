"""A broker as a process of its own: from its first line on standard output to the signal that ends it."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from recado import __version__
from recado.cli import FAILED, complain, told
from recado.cli.flags import damage_hint
from recado.journal.record import Corrupt, Unknown
from recado.node.assembly import CannotListen, at
from recado.node.broker import Broker
from recado.node.garbage import Collector
from recado.node.loop import new_runner
from recado.node.settings import Settings

WELCOME = """\
Leave this running, and send and fetch a first message from another terminal:

  {python} -c '
import pika
channel = pika.BlockingConnection(pika.URLParameters("{url}")).channel()
channel.queue_declare("hello")
channel.basic_publish("", "hello", b"recado!")
print(channel.basic_get("hello", auto_ack=True)[2])'

Ctrl-C stops the broker."""


def run(settings: Settings, *, welcome: bool) -> int:
    try:
        with new_runner(settings, attentive=True) as runner:
            reason = runner.run(until_signal(settings, welcome))
    except OSError as error:
        return complain(explain(error), FAILED)
    except Corrupt as error:
        return complain(f"{error}; {damage_hint(settings)}", FAILED)
    except Unknown as error:
        return complain(f"{settings.node.data}: {error}", FAILED)
    return 0 if reason is None else complain(reason, FAILED)


async def until_signal(settings: Settings, welcome: bool) -> str | None:
    """Start, say so, and stop in order at the first SIGTERM or SIGINT; gives why, if it had to end itself."""
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with Broker.of(settings) as broker, garbage_collection(settings):
        announce(f"recado {__version__} listening on amqp://{broker.address}")
        if broker.tls_port is not None:
            announce(f"and with TLS on amqps://{at(broker.host, broker.tls_port)}")
        announce(kept_where(settings))
        if welcome and not settings.access.users:  # who names users knows how to go on
            announce(WELCOME.format(python=sys.executable, url=broker.url))
        ending = asyncio.create_task(stopped.wait())
        await asyncio.wait((ending, broker.failure), return_when=asyncio.FIRST_COMPLETED)
        failure = broker.failure
    reason = failure.result() if failure.done() else None  # it may also fail as it closes
    print("recado stopped", file=sys.stderr)
    return reason


@asynccontextmanager
async def garbage_collection(settings: Settings) -> AsyncIterator[None]:
    """Enable it, until now disabled. An archive in the same process makes reference cycles of its own."""
    if settings.feeds.archives:
        gc.freeze()  # modules are no garbage
        gc.enable()
        yield
        return
    collector = Collector()
    collector.start(asyncio.get_running_loop())
    try:
        yield
    finally:
        collector.stop()


def kept_where(settings: Settings) -> str:
    if settings.node.data is None:
        return "keeping nothing on disk (--data DIR keeps what is durable)"
    return f"keeping what is durable in {settings.node.data}"


def announce(text: str) -> None:
    """To standard output and at once: whoever started us may be waiting for it."""
    try:
        print(text, flush=True)
    except OSError as error:
        told = f"cannot write to standard output: {error.strerror}"
        raise OSError(error.errno, told) from error


def explain(error: OSError) -> str:
    """What the system said, and what to do about it."""
    if not isinstance(error, CannotListen):
        return told(error)
    where = at(error.host, error.port)
    match error.errno:
        case errno.EADDRINUSE:
            flag = f"--{error.key.replace('_', '-')}"
            return f"{where} is in use, perhaps by another broker; {flag} 0 takes a free port"
        case errno.EADDRNOTAVAIL | socket.EAI_NONAME | socket.EAI_AGAIN | socket.EAI_NODATA:
            return f"this machine has no address {error.host!r}; --host 127.0.0.1 always works"
        case errno.EACCES:
            return f"user {os.getuid()} may not listen on {where}; ports above 1023 are free to all"
        case _:
            return str(error)
