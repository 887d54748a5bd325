"""The ids of the most recent messages: a message whose id is among them is a duplicate.

Duplicates come from brokers that did not receive an acknowledgement, and from publishers that did not receive a
confirm. A message without an id is never a duplicate.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator

from recado.amqp.errors import AmqpError
from recado.amqp.traits import read_message_id


class DedupWindow:
    """At most `size` ids, oldest first; with 0, nothing is a duplicate."""

    __slots__ = ("_seen", "_size")

    def __init__(self, size: int, ids: Iterable[bytes] = ()) -> None:
        self._size = size
        # A dict scans its deleted entries to find the oldest key: 70 µs with 100,000 ids instead of 0.1.
        self._seen: OrderedDict[bytes, None] = OrderedDict()
        for each in ids:
            self.add_new(each)

    def add_new(self, message_id: bytes | None) -> bool:
        """Add an id; return whether it was new. None is always new, and not added."""
        if message_id is None or not self._size:
            return True
        seen = self._seen
        if message_id in seen:
            return False
        seen[message_id] = None
        if len(seen) > self._size:
            seen.popitem(last=False)
        return True

    def __len__(self) -> int:
        return len(self._seen)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._seen)


def message_id_or_none(properties: bytes) -> bytes | None:
    """Return the message id in encoded properties; None also if they are invalid."""
    try:
        return read_message_id(properties)
    except (IndexError, AmqpError):
        return None
