"""Messages that were published in turn by several routes, and are taken in one route after the other.

Their numbers are still those of the order in which they came: nobody can say that all up to one of them were
taken in before all of them are, and the one that is refused is not the one that its place in a strand seems to
say.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter

from recado.amqp.events import InterleavedPublished, Published

_METHOD_FRAME = itemgetter(0)


def group_by_route(
    event: InterleavedPublished, method_frames: Iterable[bytes]
) -> Iterator[Published]:
    """The publishes in runs, all of a route together; `frames` are the distinct methods of the event."""
    strands: dict[bytes, list[bytes]] = {method_frame: [] for method_frame in method_frames}
    for method_frame, tail in zip(event.method_frames, event.payloads, strict=True):
        strands[method_frame].append(tail)
    for method_frame, tails in strands.items():
        yield Published(event.channel, method_frame, event.traits, event.prefix, tails)


def split_by_route(event: InterleavedPublished) -> Iterator[Published]:
    """The publishes in runs, each as long as the route is the same."""
    for method_frame, run in groupby(
        zip(event.method_frames, event.payloads, strict=True), _METHOD_FRAME
    ):
        yield Published(
            event.channel, method_frame, event.traits, event.prefix, [tail for _, tail in run]
        )


class InterleavedBatch:
    __slots__ = ("_method_frames", "last_number", "number_before")

    def __init__(self, number_before: int, method_frames: list[bytes]) -> None:
        """Numbers begin behind `before`; the methods, in the order they came, tell the routes apart."""
        self._method_frames = method_frames
        self.number_before = number_before
        self.last_number = number_before + len(method_frames)

    def publish_numbers(self, published: int, indexes: Iterable[int]) -> Iterator[int]:
        """Of messages behind those `taken` in, counted as they are taken in."""
        route_order = {method: at for at, method in enumerate(dict.fromkeys(self._method_frames))}
        arrival_order = sorted(
            range(len(self._method_frames)), key=lambda at: route_order[self._method_frames[at]]
        )
        published_here = published - self.number_before
        return (self.number_before + 1 + arrival_order[published_here + index] for index in indexes)
