"""The benchmark of the client: sending and receiving messages, compared with pika and aio-pika on the same
broker.

A sample is a separate process (`work.py`) that uses a broker on the other processor. The figure is the rate;
the processor time of the client per message is reported as a detail. Every client is used as its documentation
suggests: ours in batches, the others message by message, because they have no batches.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

from bench.book import Book, NotMeasuredError
from bench.client.work import COUNTS, WORKS
from bench.plan import Plan
from bench.scenario import Comparison, Sample, Scenario, Side
from workshop import peers

TITLES = {
    "publish": "publish 200 B, many at a time",
    "publish-each": "publish 200 B, one by one",
    "deliver": "receive 200 B, auto-ack",
    "deliver-ack": "receive 200 B, acknowledged",
}
PEERS = ("pika", "aio-pika")
SECONDS = 120

SCENARIOS = tuple(
    Scenario(
        f"{work}-{peer}",
        f"{title}, vs {peer}",
        "messages/s",
        Comparison.TIMES_MORE,
        peer=peer,
    )
    for work, title in TITLES.items()
    for peer in PEERS
)


def run(plan: Plan, book: Book) -> Iterator[str]:
    book.peer = "peers"  # each scenario names its own
    wanted = [scenario for scenario in SCENARIOS if plan.includes(scenario)]
    with peers.recado() as server:
        for scenario in wanted:
            work = scenario.name.removesuffix(f"-{scenario.peer}")
            with book.measuring(scenario.name):
                for _ in range(plan.rounds):
                    ours = sample("recado", work, server.url, plan)
                    book.enter(scenario.name, Side.RECADO, ours)
                    if plan.with_peer:
                        theirs = sample(scenario.peer, work, server.url, plan)
                        book.enter(scenario.name, Side.PEER, theirs)
            yield scenario.name


def sample(client: str, work: str, url: str, plan: Plan) -> Sample:
    assert work in WORKS
    count = COUNTS[client] // (4 if plan.quick else 1)
    command = [sys.executable, "-m", "bench.client.work", client, work, url, str(count)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise NotMeasuredError(f"{client} took more than {SECONDS} s") from None
    if done.returncode:
        raise NotMeasuredError(f"{client} failed: {done.stderr.strip().splitlines()[-1:]}")
    found = json.loads(done.stdout)
    return Sample(count / found["seconds"], {"cpu_us": found["cpu"] / count * 1e6})
