"""What is published on the feed: every single ask, and behind them the run that they are of.

A run is told last, so one that was not finished has asks and no run, and is left out of all tables. Both are
JSON, for every other program that reads the archive:

    key     body
    asked   {"run":"9f2c…","client":3,"number":17,"began":1843220,"nanoseconds":402511}
    run     {"run":"9f2c…","transport":"amqp","broker":"recado","latency_us":2000,"clients":4,"asks":30000,…}
"""

from __future__ import annotations

from typing import Final

import msgspec

from .figures import TransportKind

FEED_NAME: Final = "trading"
ASK_KEY: Final = "asked"
RUN_KEY: Final = "run"


class AskTiming(msgspec.Struct, frozen=True):
    """One ask, timed around it by the client's own clock."""

    run: str
    client: int
    number: int
    began: int
    """ns, since the clients of the run were told to begin."""
    nanoseconds: int


class RunSummary(msgspec.Struct, frozen=True, kw_only=True):
    run: str
    transport: TransportKind
    broker: str | None
    """Over which the asks went; None point to point."""
    latency_us: int
    """By which a round trip between any two processes was made longer, in µs."""
    clients: int
    asks: int
    at: int
    """When it ended, in µs since 1970."""
    traded: int
    """Shares, in all books together."""
    processor: dict[str, float]
    """Seconds of processor time of each process: clients, server, broker, network."""


def encode(measurement: AskTiming | RunSummary) -> bytes:
    return _encoder.encode(measurement)


def decode_run(body: bytes) -> RunSummary:
    return _run_decoder.decode(body)


_encoder = msgspec.json.Encoder()
_run_decoder = msgspec.json.Decoder(RunSummary)
