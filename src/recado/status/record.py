"""Status records as JSON, and the exchange to which they are published.

    exchange     `recado.status`, a durable topic exchange
    routing key  `actors.NAME` or `pipeline.NAME`; the name in the record is the same
    body         one JSON object; its field `kind` is `actors` or `pipeline`. Nodes ignore records that are longer
                 than RECORD_MAX_BYTES

Any AMQP broker carries them. A node of recado that has `management.status` keeps the latest record of each
source. Every text and list has a limit, because the node does not trust the sources. A record with 500 actors and
500 peers of short names has about 90 KiB. Times are milliseconds since 1970, by the clock of the publisher.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

STATUS_EXCHANGE: Final = "recado.status"
RECORD_MAX_BYTES: Final = 256 * 1024
NAME_MAX_BYTES: Final = 240
"""A routing key has at most 255 bytes, and begins with the kind and a dot."""
ACTORS_MAX_COUNT: Final = 500
DEPTH_MAX_COUNT: Final = 16
FAILURES_MAX_COUNT: Final = 20
PEERS_MAX_COUNT: Final = 500
PARTS_MAX_COUNT: Final = 100
ERROR_MAX_COUNT: Final = 1_000  # characters of the text of an exception
TEXT_MAX_COUNT: Final = 255  # characters of any other text
INTERVAL_DEFAULT_S: Final = 5.0
INTERVAL_MIN_S, INTERVAL_MAX_S = 0.1, 3_600.0

Text = Annotated[str, Meta(max_length=TEXT_MAX_COUNT)]
Name = Annotated[str, Meta(min_length=1, max_length=TEXT_MAX_COUNT)]
ErrorText = Annotated[str, Meta(max_length=ERROR_MAX_COUNT)]
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Number = Annotated[float, Meta(ge=0, le=1e18)]
Interval = Annotated[float, Meta(ge=INTERVAL_MIN_S, le=INTERVAL_MAX_S)]
Counts = Annotated[dict[Text, Count], Meta(max_length=PARTS_MAX_COUNT)]


class MalformedStatusError(ValueError):
    """A message is not a status record."""


class ActorStatus(Struct, frozen=True):
    """An actor."""

    uid: Count
    name: Text
    """Empty for an actor without a name."""
    type: Text
    """The name of its class."""
    state: Literal["new", "started", "suspended", "stopped"]
    """`suspended`: it has failed, and its supervisor has not decided yet."""
    waiting: Count
    """The number of messages in its mailbox."""
    restarts: Count
    handled: Count
    supervisor: Count | None
    """The uid of its supervisor; None if that is the system or on another node."""
    depth: Annotated[int, Meta(ge=0, le=DEPTH_MAX_COUNT)]
    """0 without a supervisor on this node."""


class PeerStatus(Struct, frozen=True):
    """Another node that an actor system communicates with."""

    node: Text
    unreachable: bool


class FailureStatus(Struct, frozen=True):
    """A failure of an actor that its supervisor has handled."""

    at: Count
    actor: Text
    outcome: Literal["restarted", "stopped", "given_up"]
    error: ErrorText


class ActorsStatus(Struct, frozen=True, kw_only=True, tag_field="kind", tag="actors"):
    """The status of an actor system."""

    name: Name
    """The name of the node."""
    at: Count
    started_at: Count
    interval: Interval
    """Seconds until the next record."""
    state: Literal["running", "closed"]
    actor_count: Count
    waiting: Count
    """Messages in all mailboxes."""
    restarts: Count
    """Of the living actors."""
    handled: Count
    """Messages that handlers have taken since the start, including those that failed."""
    dead_letters: Count
    peers: Annotated[tuple[PeerStatus, ...], Meta(max_length=PEERS_MAX_COUNT)] = ()
    failures: Annotated[tuple[FailureStatus, ...], Meta(max_length=FAILURES_MAX_COUNT)] = ()
    """The last ones, newest first."""
    actors: Annotated[tuple[ActorStatus, ...], Meta(max_length=ACTORS_MAX_COUNT)] = ()
    """Supervisors before the actors that they supervise."""
    omitted: Count = 0
    """How many actors are not in `actors`, because they are too many or supervised too deeply."""

    @property
    def has_ended(self) -> bool:
        return self.state == "closed"


class SourceStatus(Struct, frozen=True):
    """A source of a pipeline."""

    rows: Count
    rows_per_second: Number
    lag: Count | None
    """Available rows that were not read yet; None if the source does not report it."""


class PipelineStatus(Struct, frozen=True, kw_only=True, tag_field="kind", tag="pipeline"):
    """The status of a run of a pipeline."""

    name: Name
    run: Name
    """A random id of the run."""
    at: Count
    started_at: Count
    interval: Interval
    state: Literal["starting", "running", "finished", "stopped", "failed"]
    batch: Annotated[int, Meta(ge=-1, le=2**63 - 1)]
    """The number of the last batch; -1 before the first."""
    batches: Count
    batch_seconds: Number
    rows: Count
    """Rows that the run has read from all sources."""
    rows_per_second: Number
    lag: Count | None
    """The sum of the lags of the sources that report one."""
    dead_letters: Count
    late: Count
    duplicates: Count
    error: ErrorText | None = None
    sources: Annotated[dict[Text, SourceStatus], Meta(max_length=PARTS_MAX_COUNT)] = {}
    sinks: Counts = {}
    """Rows written, by sink."""
    dead: Counts = {}
    """Dead letters by step."""

    @property
    def has_ended(self) -> bool:
        return self.state in ("finished", "stopped", "failed")


StatusRecord = ActorsStatus | PipelineStatus

_decoder: Final = msgspec.json.Decoder(StatusRecord)


def check_source_name(name: str) -> str:
    """Return a name that fits into a routing key. Raises `ValueError`."""
    size = len(name.encode("utf-8", "surrogatepass"))
    if not 1 <= size <= NAME_MAX_BYTES:
        raise ValueError(
            f"status: the name {name[:40]!r} has {size} bytes, expected 1 to {NAME_MAX_BYTES}"
        )
    return name


def routing_key(record: StatusRecord) -> str:
    kind = "actors" if isinstance(record, ActorsStatus) else "pipeline"
    return f"{kind}.{record.name}"


def clip(text: str, characters_max: int = TEXT_MAX_COUNT) -> str:
    """Return the text shortened to a number of characters, with unpaired surrogates replaced."""
    clipped = text if len(text) <= characters_max else text[: characters_max - 1] + "…"
    return clipped.encode("utf-8", "replace").decode()


def encode_record(record: StatusRecord) -> bytes:
    """Return the JSON of a record, with fewer actors if it would be longer than `RECORD_MAX_BYTES`.

    Other lists are not shortened.
    """
    body = msgspec.json.encode(record)
    while len(body) > RECORD_MAX_BYTES and isinstance(record, ActorsStatus) and record.actors:
        kept = record.actors[: len(record.actors) // 2]
        omitted = record.omitted + len(record.actors) - len(kept)
        record = msgspec.structs.replace(record, actors=kept, omitted=omitted)
        body = msgspec.json.encode(record)
    return body


def decode_record(key: str, body: bytes) -> StatusRecord:
    """Return the record that was published with a routing key.

    Raises `MalformedStatusError`, also if the key does not name the source of the record: topic permissions can
    so restrict the sources for which a user publishes.
    """
    if len(body) > RECORD_MAX_BYTES:
        raise MalformedStatusError(f"{len(body)} bytes, the limit is {RECORD_MAX_BYTES}")
    try:
        record: StatusRecord = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise MalformedStatusError(clip(str(error), TEXT_MAX_COUNT)) from error
    if key != routing_key(record):
        raise MalformedStatusError("the routing key is not the kind and the name of the record")
    return record
