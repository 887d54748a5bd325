"""A publication as the bytes that browsers get, made once for all of its readers.

There are two forms: the author's has the client id, and names a private conversation by the other user.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final

from .conversation import partner, room_of
from .frames import encode_frame, show_message
from .messages import Applied, Kind
from .names import PRIVATE_EXCHANGE

RECENT_MAX_COUNT: Final = 4_096
"""Publications that wait for their deliveries. Of one that is no longer here, browsers get what they lack from the read
model."""


class Rendered:
    """A publication that is in the read model, with its frames."""

    __slots__ = (
        "_for_author",
        "_for_others",
        "applied",
        "author_id",
        "key",
        "position",
        "previous",
    )

    def __init__(self, applied: Applied) -> None:
        self.applied = applied
        self.key = applied.message.conversation
        self.position = applied.position
        self.previous = applied.previous
        self.author_id = applied.message.author.id
        self._for_author = self._for_others = b""

    def frame_for(self, user_id: str) -> bytes:
        """Return the frame for a member of the conversation."""
        if user_id == self.author_id:
            self._for_author = self._for_author or self._encode(user_id)
            return self._for_author
        self._for_others = self._for_others or self._encode(user_id)
        return self._for_others

    def _encode(self, user_id: str) -> bytes:
        message = show_message(self.applied.message, user_id)
        content: dict[str, Any] = {"type": "message", "message": message}
        if self.applied.kind is not Kind.MESSAGE:
            content = {"type": "changed", "message": message, "position": self.position}
        return encode_frame(content)


class RecentPublications:
    """The last applied publications by position."""

    def __init__(self) -> None:
        self._by_position: OrderedDict[int, Rendered] = OrderedDict()

    def add(self, applied: Sequence[Applied]) -> None:
        for each in applied:
            self._by_position[each.position] = Rendered(each)
        while len(self._by_position) > RECENT_MAX_COUNT:
            self._by_position.popitem(last=False)

    def find(self, position: int) -> Rendered | None:
        return self._by_position.get(position)


def route_of(applied: Applied) -> list[tuple[str, str]]:
    """Return exchange and routing key of each publication of a message to users' queues.

    A private message is published under the ids of both users, as in the report.
    """
    message = applied.message
    room = room_of(message.conversation)
    if room is not None:
        return [(room, "")]
    author_id = message.author.id
    ids = dict.fromkeys((author_id, partner(message.conversation, author_id)))
    return [(PRIVATE_EXCHANGE, each) for each in ids]
