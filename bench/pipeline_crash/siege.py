"""Messages are sent, the job is killed again and again, and in the end all is counted."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable

from bench.pipeline_crash.judge import Arrived, Violation, judge
from bench.pipeline_crash.listener import Listener, listening
from bench.pipeline_crash.routes import (
    CATALOGUED,
    QUEUED,
    RENAMED,
    RESTORED,
    ROUTES,
    WINDOWS,
    Generation,
    Layout,
    Query,
    Route,
    iceberg_table,
)
from bench.pipeline_crash.sender import sending
from bench.pipeline_crash.victim import Kill, Victim
from recado.amqp.values import FieldTable
from recado.client import connect_blocking
from recado.pipeline.lake.iceberg import open_catalogue
from recado.pipeline.lake.options import IcebergSourceOptions
from workshop import peers


@dataclass
class Outcome:
    violations: list[Violation]
    unseen: list[str]
    """Routes on which repeats had to be found, and were not."""
    own_deaths: list[str]
    """Exits of the job that were not caused by a kill: its last error lines."""
    counts: Counter[str]


def besiege(
    folder: Path,
    kills: Sequence[Kill],
    seed: int,
    tell: Callable[[str], None] = lambda _: None,
    routes: tuple[Route, ...] = ROUTES,
) -> Outcome:
    """Run one siege: kills of these kinds in this order."""
    folder.mkdir(parents=True, exist_ok=True)
    random = Random(seed)
    with ExitStack() as stack:
        recado = stack.enter_context(peers.recado(data=folder / "recado"))
        rabbitmq = stack.enter_context(peers.rabbitmq())
        layout = Layout({"recado": recado.url, "rabbitmq": rabbitmq.url}, routes)
        layout.write(folder)
        declare(layout)
        listener = stack.enter_context(listening(folder / "heard", layout))
        sender = stack.enter_context(sending(folder, layout))
        victim = stack.enter_context(Victim(folder, layout))
        begun = time.monotonic()
        for number, kind in enumerate(kills, 1):
            victim.kill(kind, random)
            seconds = time.monotonic() - begun
            tell(
                f"{seconds:5.1f} s: kill {number} of {len(kills)}, {kind.value}; {sender.sent:,} sent"
            )
        sender.stop()
        victim.finish()
        tell(f"{time.monotonic() - begun:5.1f} s: all that was left is read")
        arrived = {route: collect(route, folder, layout.urls, listener) for route in routes}
    return judged(arrived, sender.sent, victim)


def judged(arrived: Mapping[Route, Arrived], sent: int, victim: Victim) -> Outcome:
    counts = Counter({f"{kind.value} kills": count for kind, count in victim.deaths.items()})
    counts["sent"] = sent
    counts["queries that failed"] = victim.failures
    counts["checkpoints restored"] = victim.restored
    counts["checkpoints refused"] = victim.refusals
    counts["tasks tried again"] = victim.retries
    for route, what in arrived.items():
        counts[f"{route.name} repeats"] = what.repeats
    return Outcome(
        [each for route, what in arrived.items() for each in judge(what, sent, once=route.once)],
        [route.name for route, what in arrived.items() if not route.once and not what.repeats],
        victim.own_deaths,
        counts,
    )


def declare(layout: Layout) -> None:
    for broker, url in layout.urls.items():
        with connect_blocking(url) as connection:
            channel = connection.channel()
            for source in layout.queues:
                if source.broker == broker:
                    channel.declare_queue(source.name, durable=True)
            for target in layout.targets.values():
                if target.broker == broker:
                    channel.declare_exchange(target.exchange, "fanout", durable=True)
                    for queue in target.queues:
                        channel.declare_queue(queue, durable=True, arguments=window_of(queue))
                        channel.bind_queue(queue, target.exchange)


def window_of(queue: str) -> FieldTable:
    if queue not in WINDOWS:
        return {}
    return {"x-message-deduplication": True, "x-cache-size": WINDOWS[queue]}


def collect(route: Route, folder: Path, urls: Mapping[str, str], listener: Listener) -> Arrived:
    if route.table:
        rows = table(route.table, place_of(route.table, folder))
        rows = rows.filter(pc.field("source") == route.source)
        return Arrived(route.name, rows.column("number").to_pylist())
    if route.feed:
        heard = listener.heard(route.feed)
        return Arrived(route.name, [number for number, _ in heard], [named for _, named in heard])
    numbers: list[int] = []
    ids: list[str] = []
    with connect_blocking(urls[route.broker]) as connection:
        channel = connection.channel()
        left = channel.declare_queue(route.queue, passive=True).message_count
        with channel.consume(route.queue, no_ack=True) as consumer:
            while len(numbers) < left:
                for delivery in consumer.next_batch(timeout=60):
                    numbers.append(int(delivery.body))
                    ids.append(delivery.properties.message_id or "")
    return Arrived(route.name, numbers, ids)


def place_of(name: str, folder: Path) -> Path:
    """Of a table, as it is now."""
    if name in {query.value for query in RESTORED}:
        return Generation(folder, Query(name)).table
    return folder / "lake" / name


def table(name: str, place: Path) -> pa.Table:
    """Read without Spark."""
    if name in (QUEUED, Query.RESTORED_DELTA.value):
        return DeltaTable(place).to_pyarrow_table()
    if name in (CATALOGUED, RENAMED, Query.RESTORED_ICEBERG.value):
        options = IcebergSourceOptions(table=iceberg_table(name), warehouse=str(place))
        with closing(open_catalogue(options)) as catalogue:
            return catalogue.load_table(options.table).scan().to_arrow()
    return ds.dataset(place, format="parquet", partitioning=None).to_table()
