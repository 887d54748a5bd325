"""The options of `format("amqp_transport")`, as a source and as a sink, and what they mean."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from recado.client.parameters import ConnectionParameters, parse_url
from recado.pipeline.options import OptionError

Positive = Annotated[int, Meta(gt=0)]
Seconds = Annotated[float, Meta(gt=0)]


class QueueReadOptions(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    url: str
    queue: str
    spool: str
    """A folder of this query's own; on a cluster on storage that the driver and the workers share."""
    prefetch: Annotated[int, Meta(gt=0, le=65_535)] = 10_000
    """Messages that the broker gives out before one of them is acknowledged."""
    max_rows_per_trigger: Positive | None = None
    max_spool_bytes: Positive = 1 << 30
    """With that much in no batch yet, nothing more is taken from the queue."""
    dedup_window: Annotated[int, Meta(ge=0)] = 100_000
    """Ids of messages that are remembered, to tell repeats; 0: none."""
    declare: bool = False
    """Declare the queue, durable, if it is not there."""


class QueueWriteOptions(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    url: str
    exchange: str | None = None
    """For all rows; else each row's own, in a column of that name."""
    routing_key: str | None = None
    """For all rows; else each row's own, in the column `routing_key`."""
    mandatory: bool = True
    """Whether a message that no queue wants is an error."""
    id_columns: str | None = None
    """Columns, with commas between them, that make a row's id; `none`: messages have no ids."""
    confirm_timeout: Seconds = 300.0
    """How long the broker may be away, or confirm nothing, before the task fails."""


def parse_broker_url(url: str) -> ConnectionParameters:
    """The broker that an option names; raises OptionError."""
    try:
        return parse_url(url)
    except ValueError as error:
        raise OptionError(f'option url of format("amqp"): {error}') from None
