"""Messages as the HTTP API renders them: the options of commands that read them, and their output."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from .command import Invocation, parse_size
from .output import JsonObject, TableColumn, format_value, read_path, text

PAYLOAD_SHOWN_COUNT = 60
"""Characters of a payload in a table."""


def show_payload(value: Any) -> str:
    shown = str(value)
    return shown if len(shown) <= PAYLOAD_SHOWN_COUNT else f"{shown[: PAYLOAD_SHOWN_COUNT - 1]}…"


COLUMNS = (
    text("exchange", "exchange"),
    text("routing key", "routing_key"),
    text("redelivered", "redelivered"),
    TableColumn("properties", read_path("properties"), format_value),
    TableColumn("bytes", read_path("payload_bytes"), str, is_number=True),
    TableColumn("payload", read_path("payload"), show_payload),
)


def add_rendering(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--truncate", type=parse_size, metavar="BYTES", help="show at most this much of a payload"
    )
    parser.add_argument("--base64", action="store_true", help="payloads in base64")


def render_request(args: argparse.Namespace) -> dict[str, Any]:
    """Return the fields of a request that say how payloads are rendered."""
    request: dict[str, Any] = {"encoding": "base64" if args.base64 else "auto"}
    if args.truncate is not None:
        request["truncate"] = args.truncate
    return request


def print_messages(call: Invocation, messages: Sequence[JsonObject]) -> None:
    call.output.table(COLUMNS, messages, "no messages")
