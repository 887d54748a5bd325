"""Messages that were published in turn by several routes, and are taken in one route after the other.

Their numbers are still those of the order in which they came: nobody can say that all up to one of them were
taken in before all of them are, and the one that is refused is not the one that its place in a strand seems to
say.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter

from recado.amqp.events import Interleaved, Published

_FRAME = itemgetter(0)


def by_route(event: Interleaved, frames: Iterable[bytes]) -> Iterator[Published]:
    """The publishes in runs, all of a route together; `frames` are the distinct methods of the event."""
    strands: dict[bytes, list[bytes]] = {frame: [] for frame in frames}
    for frame, tail in zip(event.methods, event.tails, strict=True):
        strands[frame].append(tail)
    for frame, tails in strands.items():
        yield Published(event.channel, frame, event.facts, event.head, tails)


def as_they_came(event: Interleaved) -> Iterator[Published]:
    """The publishes in runs, each as long as the route is the same."""
    for frame, run in groupby(zip(event.methods, event.tails, strict=True), _FRAME):
        yield Published(event.channel, frame, event.facts, event.head, [tail for _, tail in run])


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
