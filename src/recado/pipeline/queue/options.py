"""The options of `format("amqp")`, as a source and as a sink."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from recado.client.parameters import ConnectionParameters, parse_url
from recado.pipeline.options import OptionError

Positive = Annotated[int, Meta(gt=0)]
Seconds = Annotated[float, Meta(gt=0)]


class QueueReadOptions(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Options of a queue as a source."""

    url: str
    queue: str
    spool: str
    """A folder for this query only; on a cluster on storage that the driver and the workers share."""
    prefetch: Annotated[int, Meta(gt=0, le=65_535)] = 10_000
    """Unacknowledged messages that the broker delivers at most."""
    max_rows_per_trigger: Positive | None = None
    max_spool_bytes: Positive = 1 << 30
    """Consuming pauses while rows of this size are not yet in a batch."""
    dedup_window: Annotated[int, Meta(ge=0)] = 100_000
    """Message ids to remember for deduplication; 0 disables it."""
    declare: bool = False
    """Declare the queue as durable if it does not exist."""


class QueueWriteOptions(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Options of an exchange as a sink."""

    url: str
    exchange: str | None = None
    """For all rows; by default the column `exchange` of each row."""
    routing_key: str | None = None
    """For all rows; by default the column `routing_key` of each row."""
    mandatory: bool = True
    """Whether an unroutable message is an error."""
    id_columns: str | None = None
    """Columns that make the message id, separated by commas; `none`: no ids."""
    confirm_timeout: Seconds = 300.0
    """Seconds without a connection or without any confirm before the task fails."""


def parse_broker_url(url: str) -> ConnectionParameters:
    """Return the address of the broker. Raises OptionError."""
    try:
        return parse_url(url)
    except ValueError as error:
        raise OptionError(f'option url of format("amqp"): {error}') from None
