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
from .vector import PUBLISHER_SIZE
from .views import MemberId

LONGEST: Final = 120
"""Bytes of a name: AMQP has 255 for that of a queue, and an archive's has two names in it."""


def check_name(name: str, what: str) -> str:
    """The name, or a `ValueError` that says what is wrong with it."""
    if not name:
        raise ValueError(f"{what} needs a name")
    if not name.isprintable():
        raise ValueError(f"the name of {what} has characters that cannot be printed: {name!r}")
    size = len(name.encode("utf-8", "surrogatepass"))
    if size > LONGEST:
        raise ValueError(f"the name of {what} has {size} bytes; {LONGEST} are allowed")
    return name


def check_feed(name: str) -> str:
    if name.endswith(".archive"):
        raise ValueError(
            f"a feed's name does not end with .archive, as {name!r} does: that is a part of another"
        )
    return check_name(name, "a feed")


def new_id(name: str = "") -> MemberId:
    """For a member or a publisher that starts now."""
    return MemberId(name, os.urandom(PUBLISHER_SIZE))


def text_of(to: Target) -> str:
    """As a routing key; `members` and `archives` are no member's."""
    return str(to)


def id_of(text: str) -> MemberId | None:
    """None if it is no member's."""
    try:
        return MemberId.parse(text)
    except ValueError:
        return None


def exchange_p(feed: str) -> str:
    return f"feed.{feed}"


def exchange_a(feed: str) -> str:
    return f"feed.{feed}.archive"


def archive_queue(feed: str, name: str) -> str:
    return f"feed.{feed}.archive.{name}"
