"""Messages that were published in turn by several routes, and are taken in one route after the other.

Their numbers are still those of the order in which they came: nobody can say that all up to one of them were
taken in before all of them are, and the one that is refused is not the one that its place in a strand seems to
say.
"""

from collections.abc import Iterable, Iterator


class Strands:
    __slots__ = ("_methods", "before", "last")

    def __init__(self, before: int, methods: list[bytes]) -> None:
        """Numbers begin behind `before`; the methods, in the order they came, tell the routes apart."""
        self._methods = methods
        self.before = before
        self.last = before + len(methods)

    def numbers(self, taken: int, indexes: Iterable[int]) -> Iterator[int]:
        """Of messages behind those `taken` in, counted as they are taken in."""
        strands = {method: at for at, method in enumerate(dict.fromkeys(self._methods))}
        came = sorted(range(len(self._methods)), key=lambda at: strands[self._methods[at]])
        done = taken - self.before
        return (self.before + 1 + came[done + index] for index in indexes)
