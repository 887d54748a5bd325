"""The records that are published on the feed: every ask, and after them the run that they belong to.

The record of a run is published last. So a run that was not finished has asks and no record, and is left out of
all tables. Both records are JSON, for other programs that read the archive:

    key     body
    asked   {"run":"9f2c…","client":3,"number":17,"began":1843220,"nanoseconds":402511}
    run     {"run":"9f2c…","transport":"amqp","broker":"recado","latency_us":2000,"clients":4,"asks":30000,…}

The field names are part of the format.
"""

from __future__ import annotations

from typing import Final

import msgspec

from .figures import TransportKind

FEED_NAME: Final = "trading"
ASK_KEY: Final = "asked"
RUN_KEY: Final = "run"


class AskTiming(msgspec.Struct, frozen=True):
    """The timing of one ask, by the clock of the client."""

    run: str
    client: int
    number: int
    """The number of the ask among those of its client."""
    began: int
    """When the ask began, in ns since the start of the run."""
    nanoseconds: int
    """From the ask to its reply."""


class RunSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The options and totals of one run."""

    run: str
    transport: TransportKind
    broker: str | None
    """The broker that the asks went through; None over TCP."""
    latency_us: int
    """The latency that was added to round trips between any two processes, in µs."""
    clients: int
    asks: int
    at: int
    """The end of the run, in µs since 1970."""
    traded: int
    """The traded volume of all books."""
    processor: dict[str, float]
    """CPU time in seconds by kind of process: clients, server, broker, network."""


def encode(measurement: AskTiming | RunSummary) -> bytes:
    return _encoder.encode(measurement)


def decode_run(body: bytes) -> RunSummary:
    """Decode the record of a run. Raises msgspec.DecodeError."""
    return _run_decoder.decode(body)


_encoder = msgspec.json.Encoder()
_run_decoder = msgspec.json.Decoder(RunSummary)
