"""Which publishes of a channel the broker has confirmed.

The n-th message published on a channel has the sequence number n. The broker settles (acks or nacks) one
number, or with `multiple` all numbers up to one; usually, but not always, in ascending order. The tracker
stores the number up to which everything is settled and the set of settled numbers beyond it.

CCT1  A number is reported as settled exactly once, even if acks with and without `multiple` overlap.
CCT2  `settled_up_to` never decreases, and every number up to it has been reported.
"""


class ConfirmTracker:
    """Tracks which sequence numbers of a channel are settled."""

    __slots__ = ("_settled_beyond", "published_count", "settled_up_to")

    def __init__(self) -> None:
        # Incremented by the publisher: a method call would take 40 ns more.
        self.published_count = 0
        self.settled_up_to = 0
        self._settled_beyond: set[int] = set()

    @property
    def unconfirmed_count(self) -> int:
        return self.published_count - self.settled_up_to - len(self._settled_beyond)

    def settle(self, sequence_number: int, *, multiple: bool) -> list[range]:
        """Record an ack or nack of `sequence_number`, with `multiple` also of all numbers before it.

        Returns the newly settled numbers; those settled before or never published are ignored.
        """
        if not multiple:
            return self._settle_one(sequence_number)
        last = min(sequence_number or self.published_count, self.published_count)  # 0 means all
        if last <= self.settled_up_to:
            return []
        if not self._settled_beyond:
            first, self.settled_up_to = self.settled_up_to + 1, last
            return [range(first, last + 1)]
        known = sorted(each for each in self._settled_beyond if each <= last)
        settled, first = [], self.settled_up_to + 1
        for each in (*known, last + 1):
            if first < each:
                settled.append(range(first, each))
            first = each + 1
        self._settled_beyond.difference_update(known)
        self.settled_up_to = last
        self._advance()
        return settled

    def settle_range(self, first: int, count: int) -> list[range]:
        """Settle `count` consecutive numbers that were confirmed one by one; return those that are new."""
        end = self.settled_up_to + count
        if (
            first == self.settled_up_to + 1
            and not self._settled_beyond
            and end <= self.published_count
        ):
            self.settled_up_to = end
            return [range(first, first + count)]
        each = range(first, first + count)
        return [numbers for number in each for numbers in self._settle_one(number)]

    def _settle_one(self, sequence_number: int) -> list[range]:
        if (
            not self.settled_up_to < sequence_number <= self.published_count
            or sequence_number in self._settled_beyond
        ):
            return []
        if sequence_number == self.settled_up_to + 1:
            self.settled_up_to = sequence_number
            if self._settled_beyond:
                self._advance()
        else:
            self._settled_beyond.add(sequence_number)
        return [range(sequence_number, sequence_number + 1)]

    def _advance(self) -> None:
        while self.settled_up_to + 1 in self._settled_beyond:
            self.settled_up_to += 1
            self._settled_beyond.remove(self.settled_up_to)

    def is_settled(self, sequence_number: int) -> bool:
        return sequence_number <= self.settled_up_to or sequence_number in self._settled_beyond
