"""Batches of acks: which deliveries of a channel are settled, and the fewest acks that tell the broker.

Delivery tags are 1, 2, … in the order of delivery. Deliveries are usually settled in that order, so one ack
with `multiple` covers many.

AK1  Each tag is acknowledged or rejected once, and only after it was settled.
AK2  An ack names a tag that the broker has not settled yet; otherwise the broker would close the channel.
"""

from __future__ import annotations


class AckBatch:
    """Collects settled delivery tags, and returns the fewest acks for them."""

    __slots__ = (
        "_last_unsent",
        "_settled_beyond",
        "_unsent_beyond",
        "_unsent_count",
        "settled_upto",
    )

    def __init__(self) -> None:
        self.settled_upto = 0  # all tags up to this one are settled
        self._settled_beyond: set[int] = set()  # and these above it
        # Settled tags for which no ack was sent:
        self._unsent_count = 0  # the number of those up to `settled_upto`
        self._last_unsent = 0  # the highest of these
        self._unsent_beyond: set[int] = set()  # those above `settled_upto`

    def settle(self, tag: int) -> int:
        """Add a tag. Returns the number of settled tags without an ack."""
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
        """The tag was settled by a reject: it needs no ack."""
        self._settled_beyond.add(tag)
        self._advance()

    def take_acks(self) -> list[tuple[int, bool]]:
        """Return the tags to acknowledge, each with the flag `multiple`."""
        acks = [(self._last_unsent, self._unsent_count > 1)] if self._unsent_count else []
        acks += [(tag, False) for tag in sorted(self._unsent_beyond)]
        self._unsent_count = 0
        self._unsent_beyond.clear()
        return acks

    def _advance(self) -> None:
        while self.settled_upto + 1 in self._settled_beyond:
            self.settled_upto += 1
            self._settled_beyond.remove(self.settled_upto)
            if self.settled_upto in self._unsent_beyond:
                self._unsent_beyond.remove(self.settled_upto)
                self._last_unsent = self.settled_upto
                self._unsent_count += 1
