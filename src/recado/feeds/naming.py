"""Names of feeds and members, and of the exchanges and queues that a feed uses on a broker.

feed.F                      broadcast route: a durable topic exchange
feed.F.archive              addressed route: a durable direct exchange
feed.F.archive.NAME         the durable queue of an archive, bound to feed.F
NAME@INCARNATION            a member id as text; the name of a publisher is empty
"""

from __future__ import annotations

import os
from typing import Final

from .boundary import Target
from .vector import PUBLISHER_ID_BYTES
from .views import MemberId

MAX_NAME_BYTES: Final = 120
"""AMQP limits queue names to 255 bytes, and the name of an archive's queue contains two of these names."""


def check_name(name: str, label: str) -> str:
    """Return the name; raise `ValueError` if it is empty, too long or not printable."""
    if not name:
        raise ValueError(f"the name of {label} is empty")
    if not name.isprintable():
        raise ValueError(f"the name of {label} has unprintable characters: {name!r}")
    size = len(name.encode("utf-8", "surrogatepass"))
    if size > MAX_NAME_BYTES:
        raise ValueError(f"the name of {label} has {size} bytes, the limit is {MAX_NAME_BYTES}")
    return name


def check_feed_name(name: str) -> str:
    if name.endswith(".archive"):
        raise ValueError(
            f"the name of a feed cannot end with .archive: {name!r} is the exchange of another feed"
        )
    return check_name(name, "a feed")


def new_member_id(name: str = "") -> MemberId:
    """Return the id of a member or publisher that starts now, with a random incarnation."""
    return MemberId(name, os.urandom(PUBLISHER_ID_BYTES))


def format_target(to: Target) -> str:
    """Return the routing key of a member id or of a group (`members`, `archives`, `coordinators`)."""
    return str(to)


def parse_member_id(text: str) -> MemberId | None:
    """Return the member id that a text contains, or None if it contains none."""
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
