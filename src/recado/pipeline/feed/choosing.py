"""Where to begin and where to end, by what was asked for and what the archive has."""

from __future__ import annotations

from typing import Literal

from recado.feeds.archive.following import Follower

from ..options import OptionError
from .errors import DataLoss
from .options import Reading


def check_feed(follower: Follower, options: Reading) -> None:
    if options.feed is not None and options.feed != follower.feed:
        raise OptionError(
            f"{follower.path} is an archive of the feed {follower.feed!r}, not of {options.feed!r}"
        )


def start_of(
    follower: Follower, options: Reading, *, otherwise: Literal["earliest", "latest"]
) -> int:
    if options.start_time is not None:
        return follower.offset_at(options.start_time)
    match otherwise if options.start is None else options.start:
        case "earliest":
            return follower.first
        case "latest":
            return follower.end
        case offset:
            return _there(follower, offset, "startingOffsets", options)


def end_of(follower: Follower, options: Reading) -> int:
    if options.end_time is not None:
        return follower.offset_at(options.end_time)
    match options.end:
        case "earliest" | "latest":
            return follower.end
        case offset:
            return _there(follower, offset, "endingOffsets", options)


def _there(follower: Follower, offset: int, name: str, options: Reading) -> int:
    first, end = follower.first, follower.end
    if options.fail_on_data_loss and not first <= offset <= end:
        raise DataLoss(
            f"{name} is {offset}, and the archive of the feed {follower.feed} has offsets "
            f"from {first} up to {end} ({follower.path})"
        )
    return max(first, min(offset, end))
