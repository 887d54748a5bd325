"""`recado bench`: load any AMQP broker for some seconds, and print rates and latencies.

As `nats bench` and RabbitMQ's PerfTest do. The names of the queues begin with `recado-bench.`. They are deleted at
the end, also after Ctrl-C; queues of a program that was killed expire, streams stay. Without `--amqp-url` the address
is found by the HTTP API of the context.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlsplit

from recado.cli.management.amqp_address import find_amqp_url
from recado.cli.management.api import AccessDeniedError, ManagementError, UnreachableError
from recado.cli.management.command import Command, Invocation, add_vhost
from recado.cli.management.output import (
    Form,
    TableColumn,
    count,
    format_bytes,
    plural,
    read_path,
    text,
)
from recado.cli.management.server_address import DEFAULT_URL, parse_url
from recado.cli.progress import StatusLine, format_bar
from recado.cli.terminal import escape_unprintable

if TYPE_CHECKING:
    from .measurement import Load, Measurement, Progress

DEFAULT_AMQP_URL: Final = "amqp://guest:guest@127.0.0.1:5672"
STAMP_BYTES: Final = 8  # as in `workers`, whose import would delay `--help`
BUSY_RATIO: Final = 0.9
"""With more than this share of a core, the client may be what limits the rates."""
LIMITS: Final = {
    "publishers": (1, 1_000),
    "consumers": (0, 1_000),
    "queues": (1, 1_000),
    "size": (STAMP_BYTES, 16 << 20),
    "seconds": (0.1, 3_600),
    "confirm_window": (0, 1_000_000),
    "prefetch": (0, 65_535),
}


def _add(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--amqp-url", metavar="URL", help="default: found by the HTTP API")
    add_vhost(parser)
    add("--publishers", type=int, default=1, metavar="N", help="default: 1")
    add("--consumers", type=int, default=1, metavar="N", help="default: 1")
    add("--queues", type=int, default=1, metavar="N", help="default: 1")
    add(
        "--queue-type",
        choices=["classic", "quorum", "stream"],
        default="classic",
        help="default: classic",
    )
    add("--size", type=int, default=16, metavar="BYTES", help="of a body; default: 16")
    add("--seconds", type=float, default=5.0, metavar="S", help="default: 5")
    add("--persistent", action="store_true", help="durable queues, messages on disk")
    add(
        "--confirm-window",
        type=int,
        default=1_000,
        metavar="N",
        help="unconfirmed messages of a publisher; 0: no confirms; default: 1000",
    )
    add(
        "--prefetch",
        type=int,
        default=1_000,
        metavar="N",
        help="unacknowledged messages of a consumer; 0: no acknowledgements; default: 1000",
    )
    add(
        "--rate",
        type=float,
        metavar="N",
        help="messages a second of each publisher, to measure latencies; default: as many as possible",
    )


def _bench(call: Invocation) -> None:
    # Imported here: `--help` and wrong flags must not wait for them.
    import asyncio

    from recado.client import (
        AuthenticationError,
        CannotConnectError,
        ClientError,
        VhostRefusedError,
    )

    load = _read_load(call.args)
    url = find_url(call)
    try:
        result = asyncio.run(_run(url, load))
    except (AuthenticationError, VhostRefusedError) as error:
        raise AccessDeniedError(0, str(error)) from error
    except CannotConnectError as error:
        raise UnreachableError(str(error)) from error
    except ClientError as error:
        raise ManagementError(0, f"bench: {error}") from error
    _print(call, url, result)


def _read_load(args: argparse.Namespace) -> Load:
    """Return the load that the flags describe. Raises `ValueError`."""
    for name, (least, most) in LIMITS.items():
        if not least <= getattr(args, name) <= most:
            flag = name.replace("_", "-")
            raise ValueError(f"--{flag}: from {least:,} to {most:,}, not {getattr(args, name):,}")
    if args.rate is not None and args.rate <= 0:
        raise ValueError(f"--rate: more than 0, not {args.rate:g}")
    if args.queue_type == "stream" and args.consumers and not args.prefetch:
        raise ValueError("--prefetch: streams need acknowledgements, so at least 1")
    from .measurement import Load

    return Load(
        publishers=args.publishers,
        consumers=args.consumers,
        queues=args.queues,
        queue_type=args.queue_type,
        size_bytes=args.size,
        seconds=args.seconds,
        is_persistent=args.persistent,
        confirm_window=args.confirm_window,
        prefetch=args.prefetch,
        rate=args.rate,
    )


def find_url(call: Invocation) -> str:
    """Return the AMQP URL: of the flag, of the server of the context, or that of this machine."""
    if call.args.amqp_url:
        return str(call.args.amqp_url)
    try:
        return find_amqp_url(call.api, call.vhost)
    except UnreachableError:
        # A broker on this machine may run without the HTTP API.
        if call.api.address != parse_url(DEFAULT_URL):
            raise
        return f"{DEFAULT_AMQP_URL}/{quote(call.vhost, safe='')}"


async def _run(url: str, load: Load) -> Measurement:
    """Measure; the first SIGINT or SIGTERM ends the run early."""
    import asyncio
    import signal

    from .measurement import measure

    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    line = StatusLine(sys.stderr)

    def show(progress: Progress) -> None:
        line.show(
            f"{format_bar(progress.share)}  {progress.published:,} published"
            f"  {progress.consumed:,} consumed"
        )

    try:
        return await measure(url, load, stopped, show)
    finally:
        line.clear()


def format_rate(value: Any) -> str:
    return f"{value:,.0f}"


def format_megabytes(value: Any) -> str:
    return f"{value / 1e6:,.2f}"


def format_ms(value: Any) -> str:
    """Return milliseconds with three digits."""
    if not isinstance(value, int | float):
        return ""
    decimals = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:,.{decimals}f} ms"


def latency(percentile: str) -> TableColumn:
    return TableColumn(percentile, read_path(f"latency_ms.{percentile}"), format_ms, is_number=True)


COLUMNS: Final = (
    text("", "name"),
    count("messages", "messages"),
    TableColumn("msg/s", read_path("messages_per_s"), format_rate, is_number=True),
    TableColumn("MB/s", read_path("bytes_per_s"), format_megabytes, is_number=True),
    *map(latency, ("p50", "p95", "p99", "max")),
)


def describe(load: Load) -> str:
    """Return the load in one line."""
    parts = [
        plural(load.publishers, "publisher"),
        plural(load.consumers, "consumer"),
        plural(load.queues, f"{load.queue_type} queue"),
        format_bytes(load.size_bytes),
        "persistent" if load.is_persistent else "transient",
        f"{load.confirm_window:,} unconfirmed" if load.confirm_window else "no confirms",
        f"prefetch {load.prefetch:,}" if load.prefetch else "no acknowledgements",
    ]
    if load.rate is not None:
        parts.append(f"{load.rate:,g} msg/s each")
    return ", ".join(parts)


def _print(call: Invocation, url: str, result: Measurement) -> None:
    import msgspec

    output = call.output
    parts = urlsplit(url)
    address = f"{parts.scheme}://{parts.hostname}:{parts.port or ''}{parts.path}".rstrip(":")
    if output.form is Form.JSON:
        output.json({"address": address, **msgspec.to_builtins(result)})
        return
    rows = [
        {"name": name, **msgspec.to_builtins(flow)}
        for name, flow in (("published", result.published), ("consumed", result.consumed))
    ]
    if output.form is Form.TABLE:
        output.line(f"{escape_unprintable(result.server)} at {address}, {result.elapsed_s:.1f} s")
        output.line(describe(result.load))
        output.line("")
    output.table(COLUMNS, rows, "")
    if result.nacked:
        print(f"{plural(result.nacked, 'message')} nacked by the broker", file=sys.stderr)
    if result.client_cpu_share > BUSY_RATIO:
        share = f"{result.client_cpu_share:.0%}"
        print(
            f"this program used {share} of a core: the broker may be able to do more",
            file=sys.stderr,
        )


COMMAND = Command(
    "Load a broker for some seconds on temporary queues; print rates and latencies.",
    _add,
    _bench,
    epilog="The latency of `published` is the time until the confirm, that of `consumed` the time until a"
    " consumer receives the message. Without --rate both include the time in full queues. Ctrl-C ends"
    " the run early and prints the results.",
)
