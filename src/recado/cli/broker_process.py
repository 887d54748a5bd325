"""The broker process of `recado serve`: from its first line of output to the signal that stops it."""

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
from recado.cli import EXIT_FAILED, describe_os_error, print_error
from recado.cli.flags import suggest_journal_check
from recado.journal.record import CorruptJournalError, UnknownFormatError
from recado.node.address import format_address
from recado.node.assembly import ListenError
from recado.node.broker import Broker
from recado.node.event_loop import new_runner
from recado.node.garbage_collection import GarbageCollector
from recado.node.settings import Settings

WELCOME_TEMPLATE = """\
Keep this running, and send and receive a first message in another terminal:

  {python} -c '
import pika
channel = pika.BlockingConnection(pika.URLParameters("{url}")).channel()
channel.queue_declare("hello")
channel.basic_publish("", "hello", b"recado!")
print(channel.basic_get("hello", auto_ack=True)[2])'

Ctrl-C stops the broker."""


FLAGS = {
    "server.port": "--port",
    "server.tls_port": "--tls-port",
    "management.port": "--management-port",
}


def run_broker(settings: Settings, *, welcome: bool) -> int:
    try:
        with new_runner(settings, polling=True) as runner:
            reason = runner.run(serve_until_signal(settings, welcome))
    except OSError as error:
        return print_error(explain_error(error), EXIT_FAILED)
    except CorruptJournalError as error:
        return print_error(f"{error}; {suggest_journal_check(settings)}", EXIT_FAILED)
    except UnknownFormatError as error:
        return print_error(f"{settings.node.data}: {error}", EXIT_FAILED)
    return 0 if reason is None else print_error(reason, EXIT_FAILED)


async def serve_until_signal(settings: Settings, welcome: bool) -> str | None:
    """Start, announce, and stop at the first SIGTERM or SIGINT; return the reason if the broker failed."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    async with Broker.from_settings(settings) as broker, garbage_collection(settings):
        if settings.uses_tls:  # otherwise SIGHUP ends the process, as when its terminal closes
            loop.add_signal_handler(signal.SIGHUP, broker.reload_certificates)
        announce(f"recado {__version__} listening on amqp://{broker.address}")
        if broker.management_port is not None:
            address = format_address(broker.management_host, broker.management_port)
            scheme = "https" if settings.management.tls else "http"
            url = f"{scheme}://{address}{settings.management.path_prefix or ''}"
            announce(f"management API on {url}/api/overview, web console on {url}/")
        if broker.metrics_port is not None:
            address = format_address(broker.management_host, broker.metrics_port)
            announce(f"metrics on http://{address}/metrics")
        if broker.tls_port is not None:
            announce(
                f"listening with TLS on amqps://{format_address(broker.host, broker.tls_port)}"
            )
        announce(describe_storage(settings))
        # With configured users this is not a first try.
        if welcome and not settings.access.users:
            announce(WELCOME_TEMPLATE.format(python=sys.executable, url=broker.url))
        stop_task = asyncio.create_task(stopped.wait())
        await asyncio.wait((stop_task, broker.failure), return_when=asyncio.FIRST_COMPLETED)
        failure = broker.failure
    reason = failure.result() if failure.done() else None  # it may also fail while closing
    print("recado stopped", file=sys.stderr)
    return reason


@asynccontextmanager
async def garbage_collection(settings: Settings) -> AsyncIterator[None]:
    """Enable garbage collection, which is disabled during the start.

    An archive in the same process creates reference cycles, so it needs Python's own collection.
    """
    if settings.feeds.archives:
        gc.freeze()  # modules are not garbage
        gc.enable()
        yield
        return
    collector = GarbageCollector()
    collector.start(asyncio.get_running_loop())
    try:
        yield
    finally:
        collector.stop()


def describe_storage(settings: Settings) -> str:
    if settings.node.data is None:
        return "data in memory only (--data DIR stores durable data on disk)"
    return f"durable data in {settings.node.data}"


def announce(text: str) -> None:
    """Print a line immediately, because the parent process may wait for it."""
    try:
        print(text, flush=True)
    except OSError as error:
        message = f"cannot write to standard output: {error.strerror}"
        raise OSError(error.errno, message) from error


def explain_error(error: OSError) -> str:
    """Return the system's error message and what to do about it."""
    if not isinstance(error, ListenError):
        return describe_os_error(error)
    address = format_address(error.host, error.port)
    match error.errno:
        case errno.EADDRINUSE:
            setting = FLAGS.get(error.key, error.key)
            return (
                f"{address} is in use, perhaps by another broker; {setting} 0 selects a free port"
            )
        case errno.EADDRNOTAVAIL | socket.EAI_NONAME | socket.EAI_AGAIN | socket.EAI_NODATA:
            return f"this machine has no address {error.host!r}; --host 127.0.0.1 always works"
        case errno.EACCES:
            return f"user {os.getuid()} may not listen on {address}; use a port above 1023"
        case _:
            return str(error)
