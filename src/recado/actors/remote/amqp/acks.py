"""Which deliveries of a channel are done with, and the fewest words that tell the broker.

Deliveries have the tags 1, 2, … in the order in which they came. Mostly they are settled in that order, so
one ack with `multiple` is enough for many.

AK1  Each tag is told once, and none that was not settled.
AK2  An ack names a tag that the broker still has: others end the channel.
"""

from __future__ import annotations


class Acks:
    __slots__ = ("_beyond", "_now", "upto")

    def __init__(self) -> None:
        self.upto = 0  # all up to this one are settled
        self._beyond: set[int] = set()  # these too
        self._now: list[int] = []  # settled, and not told yet

    def settle(self, tag: int) -> int:
        """How many are settled and not told."""
        self._now.append(tag)
        return len(self._now)

    def told(self, tag: int) -> None:
        """The broker was told otherwise, by a reject."""
        self._beyond.add(tag)
        self._advance()

    def take(self) -> list[tuple[int, bool]]:
        """Tags to acknowledge, each with whether it stands for all before it as well."""
        now, self._now = self._now, []
        last, count = 0, 0
        single: list[int] = []
        for tag in sorted(now):
            if tag == self.upto + 1:
                self.upto = last = tag
                count += 1
                self._advance()
            else:
                self._beyond.add(tag)
                single.append(tag)
        first = [(last, count > 1)] if count else []
        return first + [(tag, False) for tag in single]

    def _advance(self) -> None:
        while self.upto + 1 in self._beyond:
            self.upto += 1
            self._beyond.remove(self.upto)
