"""The cost of persistence for live subscribers: a feed with an archive compared with one without.

The first feed has an archive, a live subscriber and a publisher; the second one has another plain subscriber
instead of the archive. Both are on one broker with a data folder, and are measured alternately. First the
publisher sends at full speed; then at half the rate of the slower feed, and the latency is measured. The
latency of a subscriber that falls behind only shows the length of its queue: such a sample is repeated, and if
that does not help, all samples of both feeds are repeated at a lower rate. Without a rate that both sustain
there is no figure.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Protocol

from bench.book import Book, NotMeasuredError
from bench.feeds.programs import Meter, pause, run_client, started
from bench.generator import Figures
from bench.plan import Plan
from bench.program import Program
from bench.scenario import Comparison, Sample, Scenario, Side
from workshop import peers
from workshop.peers import Server

SIZE = 200
RATE_MESSAGES, QUICK_RATE_MESSAGES = 1_000_000, 100_000
LATENCY_SECONDS, QUICK_LATENCY_SECONDS = 3.0, 0.7
WARM_UP = 20_000

# Share of the offered rate; below it messages queue up.
KEPT_UP = 0.95
TRIES = 2
LOWER = 0.7
RATES = 5

PEER = "a volatile feed"
RATE = Scenario(
    "live-rate",
    "delivered live, with vs without archive",
    "messages/s",
    Comparison.TIMES_MORE,
    peer=PEER,
)
LATENCY = Scenario(
    "live-p50",
    "latency at half the rate, p50",
    "µs",
    Comparison.SHARE_OF_PEER,
    peer=PEER,
)
SCENARIOS = (RATE, LATENCY)
FEEDS = {Side.RECADO: "persistent", Side.PEER: "volatile"}


class Feeds(Protocol):
    def sample(self, side: Side, messages: int, rate: float) -> Figures:
        """Return what a live subscriber of this side measured for so many messages; rate 0: full speed."""


class Stage:
    """A broker with both feeds and their members, for all samples."""

    def __init__(self, server: Server, folder: Path, stack: ExitStack) -> None:
        self._url = server.url

        def enter(name: str, *arguments: object) -> Program:
            return stack.enter_context(started(name, *arguments))

        def subscriber(side: Side, name: str) -> Program:
            return enter("live", "subscribe", self._url, FEEDS[side], name)

        self._live = {side: subscriber(side, "live") for side in Side}
        more = subscriber(Side.PEER, "more")
        archive = enter("archive", self._url, FEEDS[Side.RECADO], folder)
        for program in (*self._live.values(), more, archive):
            program.until_ready()
        self._pids = {Side.RECADO: [server.pid, archive.pid], Side.PEER: [server.pid]}

    def sample(self, side: Side, messages: int, rate: float) -> Figures:
        """Return the figures of the live subscriber; the processor time is that of the broker and the
        archive."""
        meter = Meter(self._pids[side])
        run_client("live", "publish", self._url, FEEDS[side], messages, SIZE, rate)
        figures = self._live[side].figures()
        if figures["messages"] != messages:
            raise NotMeasuredError(
                f"{figures['messages']:.0f} of {messages} messages were delivered"
            )
        return {**figures, "cpu_us": meter.microseconds_per(messages)}


def run(plan: Plan, book: Book, folder: Path) -> Iterator[str]:
    names = [scenario.name for scenario in SCENARIOS if plan.wants(scenario.name)]
    if not names:
        return
    with book.measuring(*names), ExitStack() as stack:
        try:
            server = stack.enter_context(peers.recado(data=folder / "live-broker"))
        except peers.PeerStartError as error:
            raise NotMeasuredError(str(error).splitlines()[0]) from error
        take(Stage(server, folder / "live-archive", stack), plan, book)
    yield from names


def take(stage: Feeds, plan: Plan, book: Book) -> None:
    for side in Side:
        stage.sample(side, WARM_UP, 0)
    messages = QUICK_RATE_MESSAGES if plan.quick else RATE_MESSAGES
    for _ in range(plan.rounds):
        for side in Side:
            pause(plan)
            figures = stage.sample(side, messages, 0)
            book.enter(RATE.name, side, Sample(figures["rate"], figures))
    with book.measuring(LATENCY.name):
        take_latency(stage, plan, book)


def take_latency(stage: Feeds, plan: Plan, book: Book) -> None:
    reached = [median(each.value for each in book.samples(RATE.name, side)) for side in Side]
    rate = min(reached) / 2
    for _ in range(RATES):
        try:
            samples = [
                (side, keeping_up(stage, side, rate, plan))
                for _ in range(plan.rounds)
                for side in Side
            ]
        except FellBehindError as error:
            reason = str(error)
            rate *= LOWER
            continue
        for side, figures in samples:
            book.enter(LATENCY.name, side, Sample(figures["p50_us"], {**figures, "offered": rate}))
        return
    raise NotMeasuredError(reason)


class FellBehindError(Exception):
    """A feed could not sustain the rate."""


def keeping_up(stage: Feeds, side: Side, rate: float, plan: Plan) -> Figures:
    messages = int(rate * (QUICK_LATENCY_SECONDS if plan.quick else LATENCY_SECONDS))
    for _ in range(TRIES):
        pause(plan)
        figures = stage.sample(side, messages, rate)
        if figures["rate"] >= KEPT_UP * rate:
            return figures
    told = f"{figures['rate']:,.0f} of {rate:,.0f} messages/s"
    raise FellBehindError(f"a {FEEDS[side]} feed does not sustain the rate: {told}")
