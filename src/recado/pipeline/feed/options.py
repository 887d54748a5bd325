"""What may be asked of `format("recado")`, when reading and when writing."""

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

from ..location import folder_of, is_local
from ..options import OptionError, check_columns, read
from ..queue.ids import Ways, id_columns

SOURCE = "recado"
Positive = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0)]
Start = Literal["earliest", "latest"] | int
"""Where to begin: at one end, or at an offset."""
_LATEST: Final = (1 << 63) - 1  # as a time has 64 bits in an archive
_ENDS: Final[dict[str, Literal["earliest", "latest"]]] = {
    "earliest": "earliest",
    "latest": "latest",
    "-2": "earliest",  # as Kafka writes them
    "-1": "latest",
}


class _Given(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
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


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """All that is said about reading, understood."""

    path: str
    feed: str | None
    """Which feed must be in it, if that was said."""
    start: Start | None
    start_time: int | None
    """In µs."""
    end: Start
    end_time: int | None
    max_rows: int | None
    max_bytes: int | None
    least_partitions: int
    fail_on_data_loss: bool
    selector: str | None


def reading(given: Mapping[str, str], *, streaming: bool = False) -> Reading:
    """Raises OptionError; nothing is opened but the configuration, where a path is to come from it."""
    asked = read(_Given, SOURCE, given)
    if asked.starting_offsets is not None and asked.starting_timestamp is not None:
        raise OptionError("startingOffsets and startingTimestamp say the same twice: leave one out")
    is_ending = asked.ending_offsets is not None or asked.ending_timestamp is not None
    if streaming and is_ending:
        raise OptionError(
            "endingOffsets and endingTimestamp are for tables: a stream ends where it is stopped, or with "
            "all that is there now, by .trigger(availableNow=True)"
        )
    if asked.ending_offsets is not None and asked.ending_timestamp is not None:
        raise OptionError("endingOffsets and endingTimestamp say the same twice: leave one out")
    if asked.selector is not None:
        understood(asked.selector)
    start, feed = place_of(asked.starting_offsets, "startingOffsets", asked.feed)
    end, feed = place_of(asked.ending_offsets, "endingOffsets", feed)
    if end == "earliest":
        raise OptionError("endingOffsets cannot be earliest: nothing is before it")
    return Reading(
        path=archive_folder(asked.path, feed, asked.config),
        feed=feed,
        start=start,
        start_time=time_of(asked.starting_timestamp, "startingTimestamp"),
        end="latest" if end is None else end,
        end_time=time_of(asked.ending_timestamp, "endingTimestamp"),
        max_rows=asked.max_rows_per_trigger,
        max_bytes=asked.max_bytes_per_trigger,
        least_partitions=asked.min_partitions,
        fail_on_data_loss=asked.fail_on_data_loss,
        selector=asked.selector,
    )


def understood(selector: str) -> Selector:
    try:
        return parse(selector)
    except SelectorError as error:
        raise OptionError(f"option selector cannot be understood: {error}") from None


def place_of(text: str | None, name: str, feed: str | None) -> tuple[Start | None, str | None]:
    """`earliest`, `latest`, an offset, or `{"feed": offset}`; and the feed, which that says, too."""
    if text is None:
        return None, feed
    word = text.strip().lower()
    if word in _ENDS:
        return _ENDS[word], feed
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict) and len(found) == 1:
        ((named, found),) = found.items()
        if feed is not None and named != feed:
            raise OptionError(f"option {name} is for the feed {named!r}, and {feed!r} is read")
        feed = named
    if isinstance(found, int) and not isinstance(found, bool):
        if str(found) in _ENDS:
            return _ENDS[str(found)], feed
        if found >= 0:
            return found, feed
    raise OptionError(
        f'option {name} is {text!r}: expected earliest, latest, an offset, or {{"feed": offset}}'
    )


def time_of(text: str | None, name: str) -> int | None:
    """In µs: from milliseconds since 1970, as for Kafka, or from ISO 8601."""
    if text is None:
        return None
    word = text.strip()
    try:
        micros = int(word) * 1000 if word.isdecimal() else micros_of(datetime.fromisoformat(word))
    except ValueError:
        micros = _LATEST + 1
    if micros > _LATEST:
        raise OptionError(
            f"option {name} is {text!r}: expected milliseconds since 1970, or 2027-01-15T10:00:00Z"
        )
    return micros


def micros_of(time: datetime) -> int:
    """One without a zone is in UTC, as all times here."""
    aware = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    since = aware - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def archive_folder(path: str | None, feed: str | None, config: str | None) -> str:
    """Where the archive is: as given, or as a node's configuration says for the feed."""
    if path is not None:
        return str(folder_of(path))
    if feed is None:
        raise OptionError(f'format("{SOURCE}") needs the option path, or feed')
    from recado.node.archives import folder_for
    from recado.node.config import FILE, ConfigError, load

    file = Path(config) if config is not None else Path(FILE)
    if not file.is_file():
        told = f"{file} does not exist" if config is not None else f"there is no {FILE} here"
        raise OptionError(f"where is the archive of the feed {feed}? {told}: set path, or config")
    try:
        settings = load(file=file, environment=os.environ).settings
    except ConfigError as error:
        raise OptionError(f"{file}: {error}") from None
    found = [name for name, each in settings.feeds.archives.items() if each.feed == feed]
    if not found:
        raise OptionError(f"{file} has no archive of the feed {feed}: set path")
    return str(Path(folder_for(settings, found[0])).absolute())


# --- writing -------------------------------------------------------------------------------------


_TYPES: Final = {
    "body": ("binary", "string"),
    "routing_key": ("string",),
    "offset": ("bigint", "int"),
    "timestamp": ("timestamp",),
    "headers": ("map<string,string>",),
    "properties": ("struct",),
}
"""Of columns that mean something, as Spark calls them."""


class Writing(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What may be asked when writing."""

    url: str
    feed: str
    id_columns: str | None = None
    staging: str | None = None
    writer: str | None = None
    batch: Annotated[int, Meta(ge=0)] | None = None
    give_up: Seconds = 300.0


def writing(given: Mapping[str, str]) -> Writing:
    """Raises OptionError."""
    options = read(Writing, SOURCE, given)
    _check_url(options.url)
    if options.batch is not None and options.staging is None:
        raise OptionError("option batch needs the option staging: a folder that outlives the batch")
    return options


def _check_url(url: str) -> None:
    from recado.client.address import parse_address
    from recado.feeds.transport.udp import parse_group

    try:
        if url.startswith("udp:"):
            parse_group(url)
        else:
            parse_address(url)
    except ValueError as error:
        raise OptionError(f'option url of format("{SOURCE}"): {error}') from None


def checked_columns(options: Writing, types: Mapping[str, str | None]) -> Ways | None:
    """The columns that make a row's id. Raises OptionError if rows with these columns cannot be messages.

    A type that is not known yet is None.
    """
    check_columns(types, _TYPES, SOURCE)
    return id_columns(options.id_columns, list(types), SOURCE)


def staging_of(options: Writing, given: Mapping[str, str]) -> Path | None:
    """The folder of a stream: in its checkpoint; or one of this query's own, where several are told the same.

    Of Spark's own options the place of the checkpoint is of use. Batches are numbered by query: one with a
    checkpoint that was deleted is another, and is not taken for the one before.
    """
    checkpoint = given.get("checkpointLocation") or given.get("checkpointlocation")
    if checkpoint is None:
        return None if options.staging is None else folder_of(options.staging)
    if options.staging is None and not is_local(checkpoint):
        raise OptionError(
            f"the checkpoint {checkpoint} is on a file system that only Spark reads: set the option staging to "
            "a folder that all machines mount"
        )
    if options.staging is None:
        return folder_of(checkpoint) / "recado"
    staging = folder_of(options.staging)
    if is_local(checkpoint):
        with suppress(FileNotFoundError):
            metadata = (folder_of(checkpoint) / "metadata").read_bytes()
            return staging / msgspec.json.decode(metadata, type=_Query).id
    return staging / sha256(checkpoint.encode()).hexdigest()[:32]


class _Query(msgspec.Struct):
    """What Spark notes in a checkpoint, before all else."""

    id: str
