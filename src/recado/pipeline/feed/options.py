"""The options of `format("recado")`, for reading and writing."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from recado.selector import Selector, SelectorError, parse

from ..location import is_local, to_local_path
from ..options import OptionError, check_message_columns, parse_options
from ..queue.message_ids import IdColumns, choose_id_columns

FORMAT = "recado"
Positive = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0)]
StartPosition = Literal["earliest", "latest"] | int
"""Either end of the archive, or an offset."""
_TIMESTAMP_MAX_US: Final = (1 << 63) - 1  # archives store times in 64 bits
_NAMED_POSITIONS: Final[dict[str, Literal["earliest", "latest"]]] = {
    "earliest": "earliest",
    "latest": "latest",
    "-2": "earliest",  # Kafka's spelling
    "-1": "latest",
}


class _RawReadOptions(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    path: str | None = None
    feed: str | None = None
    config: str | None = None
    starting_offsets: str | None = None
    starting_timestamp: str | None = None
    ending_offsets: str | None = None
    ending_timestamp: str | None = None
    max_rows_per_trigger: Positive | None = None
    max_bytes_per_trigger: Positive | None = None
    min_partitions: Positive = 1
    fail_on_data_loss: bool = True
    selector: str | None = None


class FeedReadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The parsed options of a read."""

    path: str
    feed: str | None
    """The feed that the archive must have, if given."""
    start: StartPosition | None
    start_time_us: int | None
    """Microseconds since 1970."""
    end: StartPosition
    end_time_us: int | None
    max_rows: int | None
    max_bytes: int | None
    min_partitions: int
    fail_on_data_loss: bool
    selector: str | None


def parse_read_options(given: Mapping[str, str], *, is_streaming: bool = False) -> FeedReadOptions:
    """Parse and check the options of a read.

    Opens nothing but the configuration, if the path of the archive has to be looked up. Raises OptionError.
    """
    raw = parse_options(_RawReadOptions, FORMAT, given)
    if raw.starting_offsets is not None and raw.starting_timestamp is not None:
        raise OptionError("startingOffsets and startingTimestamp exclude each other")
    is_ending = raw.ending_offsets is not None or raw.ending_timestamp is not None
    if is_streaming and is_ending:
        raise OptionError(
            "endingOffsets and endingTimestamp are for tables. A stream ends when it is stopped, or after "
            "reading the available rows, with .trigger(availableNow=True)"
        )
    if raw.ending_offsets is not None and raw.ending_timestamp is not None:
        raise OptionError("endingOffsets and endingTimestamp exclude each other")
    if raw.selector is not None:
        parse_selector(raw.selector)
    start, feed = parse_position(raw.starting_offsets, "startingOffsets", raw.feed)
    end, feed = parse_position(raw.ending_offsets, "endingOffsets", feed)
    if end == "earliest":
        raise OptionError("endingOffsets cannot be earliest")
    return FeedReadOptions(
        path=find_archive(raw.path, feed, raw.config),
        feed=feed,
        start=start,
        start_time_us=parse_timestamp(raw.starting_timestamp, "startingTimestamp"),
        end="latest" if end is None else end,
        end_time_us=parse_timestamp(raw.ending_timestamp, "endingTimestamp"),
        max_rows=raw.max_rows_per_trigger,
        max_bytes=raw.max_bytes_per_trigger,
        min_partitions=raw.min_partitions,
        fail_on_data_loss=raw.fail_on_data_loss,
        selector=raw.selector,
    )


def parse_selector(selector: str) -> Selector:
    try:
        return parse(selector)
    except SelectorError as error:
        raise OptionError(f"option selector is invalid: {error}") from None


def parse_position(
    text: str | None, name: str, feed: str | None
) -> tuple[StartPosition | None, str | None]:
    """Parse `earliest`, `latest`, an offset, or `{"feed": offset}`. Return the position and the feed."""
    if text is None:
        return None, feed
    word = text.strip().lower()
    if word in _NAMED_POSITIONS:
        return _NAMED_POSITIONS[word], feed
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict) and len(found) == 1:
        ((named, found),) = found.items()
        if feed is not None and named != feed:
            raise OptionError(f"option {name} is for the feed {named!r}, but {feed!r} is read")
        feed = named
    if isinstance(found, int) and not isinstance(found, bool):
        if str(found) in _NAMED_POSITIONS:
            return _NAMED_POSITIONS[str(found)], feed
        if found >= 0:
            return found, feed
    raise OptionError(
        f'option {name} is {text!r}: expected earliest, latest, an offset, or {{"feed": offset}}'
    )


def parse_timestamp(text: str | None, name: str) -> int | None:
    """Parse milliseconds since 1970, as in Kafka's options, or ISO 8601. Return microseconds."""
    if text is None:
        return None
    word = text.strip()
    try:
        micros = int(word) * 1000 if word.isdecimal() else to_micros(datetime.fromisoformat(word))
    except ValueError:
        micros = _TIMESTAMP_MAX_US + 1
    if micros > _TIMESTAMP_MAX_US:
        raise OptionError(
            f"option {name} is {text!r}: expected milliseconds since 1970, or 2027-01-15T10:00:00Z"
        )
    return micros


def to_micros(time: datetime) -> int:
    """Convert a time to microseconds since 1970; a time without a zone is in UTC."""
    aware = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    since = aware - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def find_archive(path: str | None, feed: str | None, config: str | None) -> str:
    """Return the folder of the archive: as given, or from the configuration of the node. Raises OptionError."""
    if path is not None:
        return str(to_local_path(path))
    if feed is None:
        raise OptionError(f'format("{FORMAT}") needs the option path or feed')
    from recado.node.archives import archive_folder
    from recado.node.config import CONFIG_FILE, ConfigError, load_config

    file = Path(config) if config is not None else Path(CONFIG_FILE)
    if not file.is_file():
        reason = (
            f"{file} does not exist"
            if config is not None
            else f"there is no {CONFIG_FILE} in the working directory"
        )
        raise OptionError(
            f"cannot find the archive of the feed {feed}: {reason}; set the option path or config"
        )
    try:
        settings = load_config(file=file, environment=os.environ).settings
    except ConfigError as error:
        raise OptionError(f"{file}: {error}") from None
    found = [name for name, each in settings.feeds.archives.items() if each.feed == feed]
    if not found:
        raise OptionError(f"{file} has no archive of the feed {feed}: set the option path")
    return str(Path(archive_folder(settings, found[0])).absolute())


# --- writing -------------------------------------------------------------------------------------


_COLUMN_TYPES: Final = {
    "body": ("binary", "string"),
    "routing_key": ("string",),
    "offset": ("bigint", "int"),
    "timestamp": ("timestamp",),
    "headers": ("map<string,string>",),
    "properties": ("struct",),
}
"""The columns that the sink uses, and their accepted types by Spark's names."""


class FeedWriteOptions(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The options of a write."""

    url: str
    feed: str
    id_columns: str | None = None
    staging: str | None = None
    writer: str | None = None
    batch: Annotated[int, Meta(ge=0)] | None = None
    reconnect_timeout: Seconds = 300.0


def parse_write_options(given: Mapping[str, str]) -> FeedWriteOptions:
    """Parse and check the options of a write. Raises OptionError."""
    options = parse_options(FeedWriteOptions, FORMAT, given)
    _check_url(options.url)
    if options.batch is not None and options.staging is None:
        raise OptionError("option batch needs the option staging: a folder that outlives the batch")
    return options


def _check_url(url: str) -> None:
    from recado.client.parameters import parse_url
    from recado.feeds.transport.udp import parse_group

    try:
        if url.startswith("udp:"):
            parse_group(url)
        else:
            parse_url(url)
    except ValueError as error:
        raise OptionError(f'option url of format("{FORMAT}"): {error}') from None


def resolve_id_columns(
    options: FeedWriteOptions, types: Mapping[str, str | None]
) -> IdColumns | None:
    """Return the columns that make a message id.

    A type that is not known yet is None. Raises OptionError if rows with these columns cannot be messages.
    """
    check_message_columns(types, _COLUMN_TYPES, FORMAT)
    return choose_id_columns(options.id_columns, list(types), FORMAT)


def staging_folder(options: FeedWriteOptions, given: Mapping[str, str]) -> Path | None:
    """Return the staging folder of a stream: in its checkpoint, or its own subfolder of `staging`.

    Batches are numbered per query, and a query whose checkpoint was deleted is a new query. So the subfolder is
    named after the query id in the checkpoint, and batches of the new query are not mistaken for those of the old
    one. For a checkpoint that is not local, it is named after a digest of the checkpoint's location.
    Without a checkpoint, `staging` itself is returned, or None.
    """
    checkpoint = given.get("checkpointLocation") or given.get("checkpointlocation")
    if checkpoint is None:
        return None if options.staging is None else to_local_path(options.staging)
    if options.staging is None and not is_local(checkpoint):
        raise OptionError(
            f"the checkpoint {checkpoint} is on a file system that only Spark can access: set the "
            "option staging to a folder that all machines mount"
        )
    if options.staging is None:
        return to_local_path(checkpoint) / "recado"
    staging = to_local_path(options.staging)
    if is_local(checkpoint):
        with suppress(FileNotFoundError):
            metadata = (to_local_path(checkpoint) / "metadata").read_bytes()
            return staging / msgspec.json.decode(metadata, type=_QueryMetadata).id
    return staging / sha256(checkpoint.encode()).hexdigest()[:32]


class _QueryMetadata(msgspec.Struct):
    """The file `metadata` that Spark writes first into a checkpoint."""

    id: str
