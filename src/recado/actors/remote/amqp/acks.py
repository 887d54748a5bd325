"""Which deliveries of a channel are done with, and the fewest words that tell the broker.

Deliveries have the tags 1, 2, … in the order in which they came. Mostly they are settled in that order, so
one ack with `multiple` is enough for many.

AK1  Each tag is told once, and none that was not settled.
AK2  An ack names a tag that the broker still has: others end the channel.
"""

from __future__ import annotations


class AckBatch:
    __slots__ = (
        "_last_unsent",
        "_settled_beyond",
        "_unsent_beyond",
        "_unsent_count",
        "settled_upto",
    )

    def __init__(self) -> None:
        self.settled_upto = 0  # all up to this one are settled
        self._settled_beyond: set[int] = set()  # these too
        # Settled, and not told yet:
        self._unsent_count = 0  # so many of those up to `upto`,
        self._last_unsent = 0  # of which this is the highest;
        self._unsent_beyond: set[int] = set()  # and these beyond it

    def settle(self, tag: int) -> int:
        """How many are settled and not told."""
        if tag == self.settled_upto + 1:
            self.settled_upto = self._last_unsent = tag
            self._unsent_count += 1
            if self._settled_beyond:
                self._advance()
        else:
            self._settled_beyond.add(tag)
            self._unsent_beyond.add(tag)
        return self._unsent_count + len(self._unsent_beyond)

    def mark_rejected(self, tag: int) -> None:
        """The broker was told otherwise, by a reject."""
        self._settled_beyond.add(tag)
        self._advance()

    def take_acks(self) -> list[tuple[int, bool]]:
        """Tags to acknowledge, each with whether it stands for all before it as well."""
        tags = [(self._last_unsent, self._unsent_count > 1)] if self._unsent_count else []
        tags += [(tag, False) for tag in sorted(self._unsent_beyond)]
        self._unsent_count = 0
        self._unsent_beyond.clear()
        return tags

    def _advance(self) -> None:
        while self.settled_upto + 1 in self._settled_beyond:
            self.settled_upto += 1
            self._settled_beyond.remove(self.settled_upto)
            if self.settled_upto in self._unsent_beyond:
                self._unsent_beyond.remove(self.settled_upto)
                self._last_unsent = self.settled_upto
                self._unsent_count += 1
