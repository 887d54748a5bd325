"""The pages that Prometheus scrapes.

    /metrics              totals of the node
    /metrics/per-object   a time series for each queue, channel and connection
    /metrics/detailed     chosen families per object: ?family=queue_coarse_metrics&vhost=…&queue=REGEX

The functions are generators, and the text is written while it is rendered, a slice at a time, so that a
scrape of 20,000 queues does not delay messages. An empty piece, `yield b""`, ends a step that has no text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from recado.broker.pattern import compile_name_pattern
from recado.broker.queue import Queue

from ..query import QueryError
from .exposition import Writer, format_labels
from .families import KINDS, ObjectKind
from .node import render_identity, render_node

if TYPE_CHECKING:
    from ..console import Console


PORTION_COUNT: Final = 100  # samples that are rendered together, in less than 0.1 ms


def render_totals(console: Console, writer: Writer) -> Iterator[bytes]:
    """Render the metrics of the node; those of queues, channels and connections are summed."""
    yield from render_identity(console, writer, "aggregated")
    yield from render_node(console, writer)
    for kind in KINDS:
        if not kind.is_summed:
            yield from _render_kind(console, writer, kind, "rabbitmq_", None, lambda _: True)
            continue
        metrics = kind.metrics()
        sums = [0.0] * len(metrics)
        for each in kind.objects(console):
            for index, metric in enumerate(metrics):
                sums[index] += metric.read(each)
            yield b""
        for metric, value in zip(metrics, sums, strict=True):
            yield writer.single(f"rabbitmq_{metric.name}", metric.kind, metric.help, value)
    yield writer.end()


def render_objects(console: Console, writer: Writer) -> Iterator[bytes]:
    """Render the metrics of the node, and a time series for each queue, channel and connection."""
    yield from render_identity(console, writer, "per-object")
    yield from render_node(console, writer)
    yield from _render_families(console, writer, "rabbitmq_", None, lambda _: True)
    yield writer.end()


def render_detailed(
    console: Console, writer: Writer, families: Iterable[str], vhosts: set[str], pattern: str | None
) -> Iterator[bytes]:
    """Render chosen families per object. Raises `QueryError` for an invalid pattern."""
    try:
        matches = compile_name_pattern(pattern) if pattern else None
    except ValueError as error:
        raise QueryError("bad_request", f"queue: invalid regular expression: {error}") from error

    def is_chosen(each: object) -> bool:
        return not isinstance(each, Queue) or (
            (not vhosts or each.vhost.name in vhosts) and (matches is None or matches(each.name))
        )

    yield from render_identity(console, writer, "detailed")
    yield from _render_families(console, writer, "rabbitmq_detailed_", set(families), is_chosen)
    yield writer.end()


def _render_families(
    console: Console,
    writer: Writer,
    prefix: str,
    names: set[str] | None,
    is_chosen: Callable[[Any], bool],
) -> Iterator[bytes]:
    for kind in KINDS:
        yield from _render_kind(console, writer, kind, prefix, names, is_chosen)


def _render_kind(
    console: Console,
    writer: Writer,
    kind: ObjectKind,
    prefix: str,
    names: set[str] | None,
    is_chosen: Callable[[Any], bool],
) -> Iterator[bytes]:
    metrics = kind.metrics(names)
    objects: list[Any] = []
    labels: list[str] = []
    for each in kind.objects(console) if metrics else ():
        if is_chosen(each):
            objects.append(each)
            labels.append(format_labels(kind.labels(each)))
        yield b""
    for metric in metrics:
        name = prefix + metric.name
        yield writer.head(name, metric.kind, metric.help)
        for first in range(0, len(objects), PORTION_COUNT):
            portion = slice(first, first + PORTION_COUNT)
            yield writer.samples(
                name, zip(labels[portion], map(metric.read, objects[portion]), strict=True)
            )
