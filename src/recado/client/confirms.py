"""Which messages of a channel the broker has confirmed.

The n-th message published on a channel has the number n. The broker confirms one, or all up to one; in order
as a rule, but it need not be so. What is known: everything up to `upto` is settled, and some beyond it.

F1  A number is told as settled exactly once, however the broker puts it.
F2  `upto` never goes back, and everything up to it has been told.
"""


class Confirms:
    __slots__ = ("_beyond", "published", "upto")

    def __init__(self) -> None:
        self.published = 0
        self.upto = 0
        self._beyond: set[int] = set()

    @property
    def outstanding(self) -> int:
        return self.published - self.upto - len(self._beyond)

    def settle(self, number: int, *, multiple: bool) -> list[range]:
        """The numbers that are settled by this. One that is not outstanding is none of ours: ignored."""
        if not multiple:
            return self._settle_one(number)
        last = min(number or self.published, self.published)  # 0 means all
        if last <= self.upto:
            return []
        if not self._beyond:
            first, self.upto = self.upto + 1, last
            return [range(first, last + 1)]
        known = sorted(each for each in self._beyond if each <= last)
        settled, first = [], self.upto + 1
        for each in (*known, last + 1):
            if first < each:
                settled.append(range(first, each))
            first = each + 1
        self._beyond.difference_update(known)
        self.upto = last
        self._advance()
        return settled

    def settle_each(self, first: int, count: int) -> list[range]:
        """Numbers counting up, each confirmed for itself."""
        if first == self.upto + 1 and not self._beyond and self.upto + count <= self.published:
            self.upto += count
            return [range(first, first + count)]
        each = range(first, first + count)
        return [numbers for number in each for numbers in self._settle_one(number)]

    def _settle_one(self, number: int) -> list[range]:
        if not self.upto < number <= self.published or number in self._beyond:
            return []
        if number == self.upto + 1:
            self.upto = number
            if self._beyond:
                self._advance()
        else:
            self._beyond.add(number)
        return [range(number, number + 1)]

    def _advance(self) -> None:
        while self.upto + 1 in self._beyond:
            self.upto += 1
            self._beyond.remove(self.upto)

    def is_settled(self, number: int) -> bool:
        return number <= self.upto or number in self._beyond
