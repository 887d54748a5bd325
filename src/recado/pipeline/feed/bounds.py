"""The start and end offset of a read, from the options and the offsets of the archive."""

from __future__ import annotations

from typing import Literal

from recado.feeds.archive.follower import ArchiveFollower

from ..errors import DataLossError
from ..options import OptionError
from .options import FeedReadOptions


def check_feed(archive: ArchiveFollower, options: FeedReadOptions) -> None:
    if options.feed is not None and options.feed != archive.feed:
        raise OptionError(
            f"{archive.path} is an archive of the feed {archive.feed!r}, not of {options.feed!r}"
        )


def resolve_start(
    archive: ArchiveFollower, options: FeedReadOptions, *, default: Literal["earliest", "latest"]
) -> int:
    if options.start_time_us is not None:
        return archive.find_offset_at(options.start_time_us)
    match default if options.start is None else options.start:
        case "earliest":
            return archive.first_offset
        case "latest":
            return archive.end_offset
        case offset:
            return _check_offset(archive, offset, "startingOffsets", options)


def resolve_end(archive: ArchiveFollower, options: FeedReadOptions) -> int:
    if options.end_time_us is not None:
        return archive.find_offset_at(options.end_time_us)
    match options.end:
        case "earliest" | "latest":
            return archive.end_offset
        case offset:
            return _check_offset(archive, offset, "endingOffsets", options)


def _check_offset(
    archive: ArchiveFollower, offset: int, name: str, options: FeedReadOptions
) -> int:
    first, end = archive.first_offset, archive.end_offset
    if options.fail_on_data_loss and not first <= offset <= end:
        raise DataLossError(
            f"{name} is {offset}, but the archive of the feed {archive.feed} has offsets "
            f"from {first} up to {end} ({archive.path})"
        )
    return max(first, min(offset, end))
