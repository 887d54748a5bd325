"""`recado top`: the busiest queues and the rates of a server, live.

A screen is built from two requests: the overview, and one page of queues that the server has sorted, so that what
is transferred does not grow with the number of queues. Into a pipe or a file it writes one table of queues, without
the overview.
"""

from __future__ import annotations

import argparse
import os
import select
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from recado.cli.terminal import Colour, cut_text, width_of

from .api import UnreachableError, path_of
from .command import Command, Invocation
from .output import Form, JsonObject, TableColumn, count, format_count, key, plural, rate, text

INTERVAL_S: Final = 2.0
INTERVAL_MIN_S: Final = 0.2
HEADING_COUNT: Final = 6
"""Lines above the queues."""
FOOTER_COUNT: Final = 3
"""Lines below the queues: how many more there are, an empty one, and the keys."""
HEIGHT_DEFAULT_COUNT: Final = 24
PAGE_MAX_COUNT: Final = 500
"""The largest page that the server accepts."""
ENTER_SCREEN: Final = "\x1b[?1049h\x1b[?25l"
LEAVE_SCREEN: Final = "\x1b[?25h\x1b[?1049l"
HOME: Final = "\x1b[H"
CLEAR_LINE: Final = "\x1b[K"
CLEAR_BELOW: Final = "\x1b[J"


class Order(NamedTuple):
    """A key of the keyboard, the column it sorts by, and the field that the server sorts by."""

    key: str
    title: str
    field: str


ORDERS: Final = (
    Order("m", "messages", "messages"),
    Order("r", "ready", "messages_ready"),
    Order("u", "unacked", "messages_unacknowledged"),
    Order("i", "in", "message_stats.publish_details.rate"),
    Order("o", "out", "message_stats.deliver_get_details.rate"),
    Order("c", "consumers", "consumers"),
    Order("n", "name", "name"),
)
COLUMNS: Final = (
    text("vhost", "vhost"),
    key("name", "name"),
    text("type", "type"),
    count("messages", "messages"),
    count("ready", "messages_ready"),
    count("unacked", "messages_unacknowledged"),
    count("consumers", "consumers"),
    rate("in", "message_stats.publish_details.rate"),
    rate("out", "message_stats.deliver_get_details.rate"),
)
HELP: Final = "keys: q quit, space pause, sort by " + ", ".join(
    f"{order.key} {order.title}" for order in ORDERS
)


def find_order(key: str) -> Order | None:
    return next((order for order in ORDERS if order.key == key), None)


class Reading(NamedTuple):
    """One reading of a server."""

    overview: dict[str, Any]
    queues: list[dict[str, Any]]
    queue_count: int


def read_server(call: Invocation, order: Order, row_count: int) -> Reading:
    overview = call.api.get(path_of("overview"))
    vhost = [] if call.args.vhost is None else [call.args.vhost]
    query = {
        "page": "1",
        "page_size": str(max(1, min(row_count, PAGE_MAX_COUNT))),
        "sort": order.field,
        "sort_reverse": "false" if order.field == "name" else "true",
    }
    answer = call.api.get(path_of("queues", *vhost), query)
    return Reading(overview, answer["items"], answer["total_count"])


def render(
    call: Invocation, reading: Reading, order: Order, *, row_count: int, note: str
) -> Iterator[str]:
    """Yield the lines of a screen, none wider than it."""
    output, overview, width = call.output, reading.overview, width_of(sys.stdout)
    totals, lengths = overview.get("object_totals", {}), overview.get("queue_totals", {})
    heading = f"{call.api.address}  {time.strftime('%H:%M:%S')}  {note}"
    yield output.paint(cut_text(heading, width), Colour.BOLD)
    objects = (
        plural(totals.get(f"{noun}s", 0), noun)
        for noun in ("connection", "channel", "consumer", "queue")
    )
    ready = f"{format_count(lengths.get('messages_ready', 0))} ready"
    unacked = f"{format_count(lengths.get('messages_unacknowledged', 0))} unacked"
    rates = (f"{title} {shown}" for title, shown in _rates(overview))
    for parts in (objects, (ready, unacked), rates):
        yield cut_text("  ".join(parts), width)
    yield ""
    titled = [_mark(column, order) for column in COLUMNS]
    shown = reading.queues[:row_count]
    yield from output.render(titled, shown, width, is_screen=True)
    if reading.queue_count > len(shown):
        hidden = reading.queue_count - len(shown)
        yield output.paint(f"… {hidden:,} more", Colour.DIM)


def _rates(overview: JsonObject) -> Iterator[tuple[str, str]]:
    fields = (
        ("publish", "publish"),
        ("confirm", "confirm"),
        ("deliver", "deliver_get"),
        ("ack", "ack"),
    )
    for title, field in fields:
        column = rate(title, f"message_stats.{field}_details.rate")
        yield title, column.show(column.read(overview) or 0)


def _mark(column: TableColumn, order: Order) -> TableColumn:
    return column._replace(title=f"{column.title}▾") if column.title == order.title else column


@contextmanager
def raw_keys(descriptor: int) -> Iterator[None]:
    """Deliver key presses at once and without an echo; Ctrl-C still interrupts."""
    import termios
    import tty

    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def read_key(descriptor: int, timeout_s: float) -> str:
    """Return the pressed key, empty after the timeout."""
    ready, _, _ = select.select([descriptor], [], [], timeout_s)
    return os.read(descriptor, 1).decode("ascii", "replace") if ready else ""


def _show_live(call: Invocation, order: Order) -> None:
    """Redraw until `q`. Keys for the order and the pause redraw at once; other keys do not."""
    stream, keyboard = sys.stdout, sys.stdin.fileno()
    is_paused = False
    reading: Reading | None = None
    stream.write(ENTER_SCREEN)
    try:
        with raw_keys(keyboard):
            while True:
                due_at = time.monotonic() + call.args.interval
                row_count = _height() - HEADING_COUNT - FOOTER_COUNT
                note = "paused" if is_paused else f"every {call.args.interval:g} s"
                if not is_paused or reading is None:
                    try:
                        reading = read_server(call, order, row_count)
                    except UnreachableError as error:
                        note = f"unreachable, trying again: {error}"
                lines = []
                if reading is not None:
                    lines = list(render(call, reading, order, row_count=row_count, note=note))
                _draw(stream, [*lines, "", HELP] if reading is not None else [note, "", HELP])
                while (wait_s := due_at - time.monotonic()) > 0:
                    key = read_key(keyboard, wait_s)
                    if key == "q":
                        return
                    if key == " ":
                        is_paused = not is_paused
                        break
                    if (chosen := find_order(key)) is not None:
                        order = chosen
                        is_paused = False
                        break
    finally:
        stream.write(LEAVE_SCREEN)
        stream.flush()


def _draw(stream: Any, lines: Sequence[str]) -> None:
    *above, keys = lines
    lines = [*above, cut_text(keys, width_of(stream))]
    body = "\n".join(f"{line}{CLEAR_LINE}" for line in lines)
    stream.write(f"{HOME}{body}{CLEAR_BELOW}")
    stream.flush()


def _height() -> int:
    try:
        return os.get_terminal_size(sys.stdout.fileno()).lines or HEIGHT_DEFAULT_COUNT
    except (OSError, ValueError):
        return HEIGHT_DEFAULT_COUNT


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-V", "--vhost", metavar="NAME", help="only this vhost; default: all")
    parser.add_argument(
        "--interval",
        type=float,
        default=INTERVAL_S,
        metavar="SECONDS",
        help=f"between two screens; default: {INTERVAL_S:g}",
    )
    titles = [order.title for order in ORDERS]
    parser.add_argument("--sort", choices=titles, default="messages", help="default: messages")
    parser.add_argument("--once", action="store_true", help="print one screen and exit")


def _top(call: Invocation) -> None:
    args = call.args
    if args.interval < INTERVAL_MIN_S:
        raise ValueError(f"--interval: at least {INTERVAL_MIN_S:g} s, not {args.interval:g}")
    order = next(order for order in ORDERS if order.title == args.sort)
    is_live = call.output.form is Form.TABLE and sys.stdin.isatty() and not args.once
    if is_live:
        _show_live(call, order)
        return
    reading = read_server(call, order, PAGE_MAX_COUNT)
    if call.output.form is Form.JSON:
        call.output.json({"overview": reading.overview, "queues": reading.queues})
    elif call.output.form is Form.PLAIN:
        call.output.table(COLUMNS, reading.queues, "no queues")
    else:
        for line in render(call, reading, order, row_count=PAGE_MAX_COUNT, note=""):
            call.output.line(line)


COMMAND = Command("Show the busiest queues of a server, live.", _add, _top, epilog=HELP)
