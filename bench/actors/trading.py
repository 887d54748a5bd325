"""The Trading System over AMQP: compared with point to point, and recado compared with RabbitMQ.

`recado trading run` measures, and its archive is evaluated: the mean time of an ask, and compared with RabbitMQ
the asks per second. With network latency, the figures over AMQP are compared with those of table 7.2 in "Uso do
padrão AMQP para transporte de mensagens entre atores remotos" by Thadeu de Russo e Carmo, for each number of
clients: the rate, the mean, the percentiles. The difference to point to point in percent is reported without an
aim: an ask through a broker takes two round trips instead of one, so the less overhead a program adds, the
closer the difference is to +100 % (decision 12).
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.book import Book, NotMeasuredError
from bench.generator import last_line
from bench.plan import Plan
from bench.program import ROOT
from bench.scenario import Comparison, Sample, Scenario, Side
from workshop import peers

FEW, MANY = 1, 80
CLIENTS = (1, 2, 4, 8, 10, 20, 40, 80)
TCP = "point to point"
RABBITMQ = "rabbitmq"
RECADO = "recado"
# As large as the round trips of the dissertation's wireless network.
LATENCY_MICROSECONDS = 1670
# A run takes seconds. The 30,000 asks of the dissertation would take eighty clients half a second, in which two
# processes run either alternately or concurrently, point to point, and rarely change between the two: five such
# runs resulted in ratios from 1.1 to 1.5 for the same code.
ASKS = {FEW: 30_000, MANY: 240_000}
QUICK_ASKS, DELAYED_ASKS = 1_200, 2_400
LONGEST_S = 1_200

TIMES = ("mean", "p25", "p50", "p75", "p95")

Report = dict[str, Any]  # JSON, as `recado trading report` has it

VS_TCP = {
    clients: Scenario(
        f"trading-{clients}",
        f"Trading System over AMQP, {clients} client{'s' * (clients > 1)}",
        "µs",
        Comparison.SHARE_OF_PEER,
        peer=TCP,
    )
    for clients in (FEW, MANY)
}
VS_RABBITMQ = {
    clients: Scenario(
        f"trading-rabbitmq-{clients}",
        f"the same, {clients} client{'s' * (clients > 1)}, vs RabbitMQ",
        "asks/s",
        Comparison.TIMES_MORE,
        full_only=True,
        peer="RabbitMQ",
    )
    for clients in (FEW, MANY)
}
DELAYED = Scenario(
    "trading-delayed",
    "with latency: any figure over AMQP, at worst",
    "of table 7.2",
    Comparison.AT_MOST,
    full_only=True,
)
DIFFERENCE = Scenario(
    "trading-delayed-difference",
    "the same: excess over point to point, worst",
    "% points",
    Comparison.AT_MOST,
    full_only=True,
)
SCENARIOS = (*VS_TCP.values(), *VS_RABBITMQ.values(), DELAYED, DIFFERENCE)


def run(plan: Plan, book: Book, folder: Path) -> Iterator[str]:
    pairs = (*VS_TCP.values(), *VS_RABBITMQ.values())
    wanted = [scenario.name for scenario in pairs if plan.includes(scenario)]
    if wanted:
        with book.measuring(*wanted), ExitStack() as stack:
            brokers = {RECADO: ""}
            if any(each.name in wanted for each in VS_RABBITMQ.values()):
                brokers[RABBITMQ] = rabbitmq_url(stack)
            for clients, asks in ASKS.items():
                if {VS_TCP[clients].name, VS_RABBITMQ[clients].name}.isdisjoint(wanted):
                    continue
                place, count = folder / f"trading-{clients}", QUICK_ASKS if plan.quick else asks
                trade(place, (clients,), 0, count, brokers, plan.rounds)
                enter(every_run(place), wanted, book)
        yield from wanted
    delayed = [each.name for each in (DELAYED, DIFFERENCE) if plan.includes(each)]
    if delayed:
        with book.measuring(*delayed):
            for turn in range(plan.rounds):
                place = folder / f"delayed-{turn}"
                trade(place, CLIENTS, LATENCY_MICROSECONDS, DELAYED_ASKS, {RECADO: ""})
                tables = json.loads(trading("report", "--json", str(place)))["tables"]
                book.enter(DELAYED.name, Side.RECADO, share_of_published(tables))
                book.enter(DIFFERENCE.name, Side.RECADO, excess(tables))
        yield from delayed


def rabbitmq_url(stack: ExitStack) -> str:
    try:
        return stack.enter_context(peers.rabbitmq()).url
    except peers.PeerStartError as error:
        raise NotMeasuredError(str(error).splitlines()[0]) from error


def trade(
    archive: Path,
    clients: Sequence[int],
    latency: int,
    asks: int,
    brokers: Mapping[str, str],
    rounds: int = 1,
) -> None:
    """Runs of each kind, interleaved. Without the address of a broker the program starts one."""
    words = ["--clients", ",".join(map(str, clients)), "--latency", f"{latency}us"]
    words += ["--asks", str(asks), "--runs", str(rounds), "--archive", str(archive)]
    for name, url in brokers.items():
        words += ["--broker", f"{name}={url}" if url else name]
    trading("run", "--json", *words)


def every_run(archive: Path) -> list[Report]:
    """In the form of the report, which has only the best of each kind."""
    # The programs of the peers import this package too, in an environment without recado.
    from msgspec.structs import asdict

    from recado.apps.trading.results import load_complete_runs

    return [
        {**asdict(one.run), "figures": asdict(one.figures)} for one in load_complete_runs(archive)
    ]


def trading(*words: str) -> str:
    command = [sys.executable, "-m", "recado", "trading", *words]
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=LONGEST_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise NotMeasuredError(f"the Trading System took more than {LONGEST_S} s") from None
    if done.returncode:
        raise NotMeasuredError(f"the Trading System: {last_line(done.stderr)}")
    return done.stdout


def enter(runs: Sequence[Report], wanted: Sequence[str], book: Book) -> None:
    for run in runs:
        clients, broker, figures = run["clients"], run["broker"], run["figures"]
        vs_tcp, vs_rabbitmq = VS_TCP[clients].name, VS_RABBITMQ[clients].name
        details = {"rate": figures["rate"]}
        if broker is None or "broker" in run["processor"]:  # or that of the broker is not in it
            details["cpu_us"] = 1e6 * sum(run["processor"].values()) / run["asks"]
        mean, rate = Sample(figures["mean"], details), Sample(figures["rate"], details)
        if broker is None:
            book.enter(vs_tcp, Side.PEER, mean)
        elif broker == RECADO:
            book.enter(vs_tcp, Side.RECADO, mean)
            if vs_rabbitmq in wanted:
                book.enter(vs_rabbitmq, Side.RECADO, rate)
        else:
            book.enter(vs_rabbitmq, Side.PEER, rate)


def excess(tables: Sequence[Report]) -> Sample:
    """Return the additional time over AMQP compared with point to point, in relation to the dissertation."""
    return worst(
        {
            line["clients"]: line["recado"]["mean"] - line["published"]["mean"]
            for line in lines(tables)
            if line["is_difference"]
        }
    )


def share_of_published(tables: Sequence[Report]) -> Sample:
    """Return the time of an ask over AMQP as a share of that in the dissertation, for the worst column."""
    return worst(
        {
            line["clients"]: max(
                line["published"]["rate"] / line["recado"]["rate"],
                *(line["recado"][time] / line["published"][time] for time in TIMES),
            )
            for line in lines(tables)
            if not line["is_difference"] and line["series"].startswith("amqp")
        }
    )


def lines(tables: Sequence[Report]) -> Iterator[Report]:
    for table in tables:
        yield from table["lines"]


def worst(found: Mapping[int, float]) -> Sample:
    """Return the worst of all numbers of clients, with each of them as a detail."""
    if sorted(found) != sorted(CLIENTS):
        raise NotMeasuredError(f"the report has only {sorted(found)} clients")
    return Sample(max(found.values()), {f"with_{n}": value for n, value in found.items()})
