"""Publishes that alternate between several routes, regrouped so that each route is published as one run.

A client numbers its publishes in their original order, and confirms use these numbers. Because the regrouped
messages are published out of order, no message of the batch is confirmed until the whole batch is
published, and the number of a rejected message has to be looked up.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter

from recado.amqp.events import InterleavedPublished, Published

_METHOD_FRAME = itemgetter(0)


def group_by_route(
    event: InterleavedPublished, method_frames: Iterable[bytes]
) -> Iterator[Published]:
    """Return the publishes in one run per route; `method_frames` are the distinct methods of the event."""
    payloads_by_method: dict[bytes, list[bytes]] = {
        method_frame: [] for method_frame in method_frames
    }
    for method_frame, payload in zip(event.method_frames, event.payloads, strict=True):
        payloads_by_method[method_frame].append(payload)
    for method_frame, payloads in payloads_by_method.items():
        yield Published(event.channel, method_frame, event.traits, event.prefix, payloads)


def split_by_route(event: InterleavedPublished) -> Iterator[Published]:
    """Return the publishes in their original order, in one run per sequence of equal routes."""
    for method_frame, run in groupby(
        zip(event.method_frames, event.payloads, strict=True), _METHOD_FRAME
    ):
        yield Published(
            event.channel, method_frame, event.traits, event.prefix, [payload for _, payload in run]
        )


class InterleavedBatch:
    """The publish numbers of a batch that is published route by route."""

    __slots__ = ("_method_frames", "last_number", "number_before")

    def __init__(self, number_before: int, method_frames: list[bytes]) -> None:
        """Publish numbers start after `number_before`.

        `method_frames`, in original order, identify the routes.
        """
        self._method_frames = method_frames
        self.number_before = number_before
        self.last_number = number_before + len(method_frames)

    def publish_numbers(self, published: int, indexes: Iterable[int]) -> Iterator[int]:
        """Return the publish numbers of rejected messages.

        `published` is the number of messages that the channel has published before the current run, and
        `indexes` are the indexes of the rejected messages within the run.
        """
        route_order = {method: i for i, method in enumerate(dict.fromkeys(self._method_frames))}
        # For each message in the order of publishing, its index in the original order.
        original_indexes = sorted(
            range(len(self._method_frames)), key=lambda i: route_order[self._method_frames[i]]
        )
        published_here = published - self.number_before
        return (
            self.number_before + 1 + original_indexes[published_here + index] for index in indexes
        )
