"""Which deliveries of a channel are done with, and the fewest words that tell the broker.

Deliveries have the tags 1, 2, … in the order in which they came. Mostly they are settled in that order, so
one ack with `multiple` is enough for many.

AK1  Each tag is told once, and none that was not settled.
AK2  An ack names a tag that the broker still has: others end the channel.
"""

from __future__ import annotations


class Acks:
    __slots__ = ("_beyond", "_count", "_last", "_single", "upto")

    def __init__(self) -> None:
        self.upto = 0  # all up to this one are settled
        self._beyond: set[int] = set()  # these too
        # Settled, and not told yet:
        self._count = 0  # so many of those up to `upto`,
        self._last = 0  # of which this is the highest;
        self._single: set[int] = set()  # and these beyond it

    def settle(self, tag: int) -> int:
        """How many are settled and not told."""
        if tag == self.upto + 1:
            self.upto = self._last = tag
            self._count += 1
            if self._beyond:
                self._advance()
        else:
            self._beyond.add(tag)
            self._single.add(tag)
        return self._count + len(self._single)

    def told(self, tag: int) -> None:
        """The broker was told otherwise, by a reject."""
        self._beyond.add(tag)
        self._advance()

    def take(self) -> list[tuple[int, bool]]:
        """Tags to acknowledge, each with whether it stands for all before it as well."""
        tags = [(self._last, self._count > 1)] if self._count else []
        tags += [(tag, False) for tag in sorted(self._single)]
        self._count = 0
        self._single.clear()
        return tags

    def _advance(self) -> None:
        while self.upto + 1 in self._beyond:
            self.upto += 1
            self._beyond.remove(self.upto)
            if self.upto in self._single:
                self._single.remove(self.upto)
                self._last = self.upto
                self._count += 1
