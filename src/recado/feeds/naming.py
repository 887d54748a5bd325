"""Names of feeds and members, and how a broker's exchanges and queues are called after them.

feed.F                      channel P, a durable topic exchange
feed.F.archive              channel A, a durable direct exchange
feed.F.archive.NAME         the durable queue of an archive on P
NAME@INCARNATION            a member's id as text; a publisher's name is empty
"""

from __future__ import annotations

import os
from typing import Final

from .boundary import Target
from .vector import PUBLISHER_ID_BYTES
from .views import MemberId

MAX_NAME_BYTES: Final = 120
"""Bytes of a name: AMQP has 255 for that of a queue, and an archive's has two names in it."""


def check_name(name: str, label: str) -> str:
    """The name, or a `ValueError` that says what is wrong with it."""
    if not name:
        raise ValueError(f"{label} needs a name")
    if not name.isprintable():
        raise ValueError(f"the name of {label} has characters that cannot be printed: {name!r}")
    size = len(name.encode("utf-8", "surrogatepass"))
    if size > MAX_NAME_BYTES:
        raise ValueError(f"the name of {label} has {size} bytes; {MAX_NAME_BYTES} are allowed")
    return name


def check_feed_name(name: str) -> str:
    if name.endswith(".archive"):
        raise ValueError(
            f"a feed's name does not end with .archive, as {name!r} does: that is a part of another"
        )
    return check_name(name, "a feed")


def new_member_id(name: str = "") -> MemberId:
    """For a member or a publisher that starts now."""
    return MemberId(name, os.urandom(PUBLISHER_ID_BYTES))


def format_target(to: Target) -> str:
    """As a routing key; `members` and `archives` are no member's."""
    return str(to)


def parse_member_id(text: str) -> MemberId | None:
    """None if it is no member's."""
    try:
        return MemberId.parse(text)
    except ValueError:
        return None


def broadcast_exchange(feed: str) -> str:
    return f"feed.{feed}"


def member_exchange(feed: str) -> str:
    return f"feed.{feed}.archive"


def archive_queue_name(feed: str, name: str) -> str:
    return f"feed.{feed}.archive.{name}"
