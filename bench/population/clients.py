"""Populations of 30 % consumers and 70 % publishers on one queue.

*Steady*: all clients stay connected, and each publisher sends one message per second.

*Arriving*: the workload of the slides. Consumers connect and stay; then each publisher connects, publishes one
message and disconnects, one after the other, evenly over the time of the slides: 6 s with 10 clients and 42 s with
100. Beyond, it is 42 s too.

The slides do not tell the size of messages: it is 100 bytes here. Messages are transient, consumers acknowledge
each, and publishers use no confirms: the defaults of amqp-consume and amqp-publish.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from bench.book import Book
from bench.load import QUICK_SETTLE_S, SETTLE_S
from bench.plan import Plan
from bench.population.crowd import END, JOINED, START, Course, Crowd, observe
from bench.population.published import CAPTURES
from bench.quiet import settle
from bench.scenario import Comparison, Sample, Scenario, Side
from workshop.peers import Server

POPULATIONS = (0, 10, 100, 1_000, 10_000)
QUICK_LARGEST_COUNT = 1_000
CONSUMERS_SHARE = 0.3

STEADY_S, QUICK_STEADY_S = 10.0, 0.8
QUICK_ARRIVING_S = 0.5
LONGEST_ARRIVING_S = CAPTURES[100].seconds

STEADY, ARRIVING = "steady", "arriving"
CPU, MEMORY, PACKETS, BYTES = "cpu", "memory", "packets", "bytes"


def scenario(form: str, figure: str, clients: int) -> Scenario:
    unit, comparison = {
        (STEADY, CPU): ("% of a core", Comparison.TIMES_LESS),
        (STEADY, MEMORY): ("MB", Comparison.SHARE_OF_PEER),
        (STEADY, PACKETS): ("packets/s", Comparison.SHARE_OF_PEER),
        (STEADY, BYTES): ("bytes/s", Comparison.SHARE_OF_PEER),
        (ARRIVING, CPU): ("CPU ms/client", Comparison.TIMES_LESS),
        (ARRIVING, PACKETS): ("packets/client", Comparison.SHARE_OF_PEER),
        (ARRIVING, BYTES): ("bytes/client", Comparison.SHARE_OF_PEER),
    }[form, figure]
    title = f"{clients:,} clients, {form}: {figure.upper() if figure == CPU else figure}"
    too_many = clients > QUICK_LARGEST_COUNT
    return Scenario(name_of(form, figure, clients), title, unit, comparison, full_only=too_many)


def name_of(form: str, figure: str, clients: int) -> str:
    return f"{form}-{figure}-{clients}"


def figures_of(form: str, clients: int) -> tuple[str, ...]:
    """Return the measured figures; nothing is sent without clients, and none arrives."""
    if clients == 0:
        return (CPU, MEMORY) if form == STEADY else ()
    return (CPU, MEMORY, PACKETS, BYTES) if form == STEADY else (CPU, PACKETS, BYTES)


SCENARIOS = tuple(
    scenario(form, figure, clients)
    for clients in POPULATIONS
    for form in (STEADY, ARRIVING)
    for figure in figures_of(form, clients)
)


def crowd_of(form: str, clients: int, plan: Plan) -> Crowd:
    consumers = round(CONSUMERS_SHARE * clients)
    publishers = clients - consumers
    if form == ARRIVING:
        published = CAPTURES.get(clients)
        seconds = published.seconds if published else LONGEST_ARRIVING_S
        seconds = QUICK_ARRIVING_S if plan.quick else seconds
        return Crowd(consumers, publishers, publishers, seconds, arriving=True)
    seconds = QUICK_STEADY_S if plan.quick else STEADY_S
    messages = max(round(publishers * seconds), publishers)
    return Crowd(consumers, publishers, messages, seconds)


def run(servers: Mapping[Side, Server], plan: Plan, book: Book, rounds: int) -> Iterator[str]:
    for clients in POPULATIONS:
        for form in (STEADY, ARRIVING):
            scenarios = {
                figure: name_of(form, figure, clients) for figure in figures_of(form, clients)
            }
            chosen = [each.name for each in SCENARIOS if plan.includes(each)]
            names = [name for name in scenarios.values() if name in chosen]
            if not names:
                continue
            with book.measuring(*names):
                for _ in range(rounds):
                    for side, server in servers.items():
                        settle(QUICK_SETTLE_S if plan.quick else SETTLE_S)
                        course = observe(server, crowd_of(form, clients, plan))
                        for figure, name in scenarios.items():
                            book.enter(name, side, sample(form, figure, clients, course))
            yield from names


def sample(form: str, figure: str, clients: int, course: Course) -> Sample:
    """Steady figures are those since all clients are connected; arriving ones those of the whole run."""
    begin = JOINED if form == STEADY else START
    seconds = course.between("seconds", begin)
    details = {
        "seconds": seconds,
        "cpu_percent": course.cpu_percent(begin),
        "megabytes": course.peak_megabytes,
        "packets": course.between("packets", begin),
        "bytes": course.between("bytes", begin),
        "messages": course.marks[END]["delivered"],
        "generator_share": course.generator_share,
    }
    if form == ARRIVING:
        # How it went, for the plot of the slides.
        for step in range(JOINED, len(course.marks) - 2):
            details[f"cpu_percent_{step}"] = course.cpu_percent(step, step + 1)
        cpu_ms = course.between("broker_cpu_seconds", begin) * 1e3
        values = {CPU: cpu_ms, PACKETS: details["packets"], BYTES: details["bytes"]}
        return Sample(values[figure] / clients, details)
    values = {
        CPU: details["cpu_percent"],
        MEMORY: details["megabytes"],
        PACKETS: details["packets"] / seconds,
        BYTES: details["bytes"] / seconds,
    }
    return Sample(values[figure], details)
