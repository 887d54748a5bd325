"""`recado trading`: the Trading System, a benchmark of remote actors over TCP and over AMQP.

recado trading run            measure: every number of clients, transport and latency
recado trading report DIR     tables and plots of what was measured, beside the dissertation's

and its processes, to be started by hand on machines of their own:

recado trading serve          the exchange: order books, matching engines, receivers, receptionist
recado trading trade          clients that send orders, and publish how long each took
recado trading network        a way to an address on which round trips are longer
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from recado.cli import DONE, FAILED, WRONG_USAGE, complain, told
from recado.cli.feed_live import until_signal

if TYPE_CHECKING:
    from recado.apps.trading.figures import Transport
    from recado.apps.trading.plan import Plan
    from recado.apps.trading.report import Report

VERBS = {
    "run": "Measure asks to remote actors, point to point and through a broker, with the processes that takes.",
    "report": "Show what was measured: the tables of the dissertation's chapter 7, and its plots.",
    "serve": "Run the exchange, until SIGTERM or Ctrl-C.",
    "trade": "Send orders to an exchange, one at a time in each client, and publish how long each took.",
    "network": "Pass connections on to an address, with longer round trips, until SIGTERM or Ctrl-C.",
}
ARCHIVE = "trading-archive"
UNITS = {"us": 1, "ms": 1_000, "s": 1_000_000}
TIME = re.compile(r"(\d+(?:\.\d+)?)(us|ms|s)")


def trading(verb: str, options: Sequence[str]) -> int:
    chosen = grammar(verb).parse_args(options)
    try:
        return run_verb(verb, chosen)
    except ImportError as error:
        if error.name == "pyspark":
            return complain("--spark needs Spark: pip install 'recado[spark]'", FAILED)
        if error.name not in ("pyarrow", "numpy", "matplotlib", "google"):
            raise
        return complain(f"this needs {error.name}: pip install 'recado[trading]'", FAILED)
    except BrokenPipeError:
        raise
    except OSError as error:
        return complain(told(error), FAILED)


def run_verb(verb: str, chosen: argparse.Namespace) -> int:
    match verb:
        case "run":
            return asyncio.run(until_signal(running(chosen)))
        case "report":
            return report(chosen)
        case _:
            from recado.cli.trading_roles import play

            return play(verb, chosen)


def grammar(verb: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"recado trading {verb}", description=VERBS[verb])
    add = parser.add_argument
    match verb:
        case "run":
            numbers = "with commas; default: 1,2,4,8,10,20,40,80"
            add("--clients", type=counts, metavar="N,…", help=numbers)
            add("--transport", type=transports, metavar="T,…", help="default: tcp,amqp")
            longer = "by which round trips are longer, such as 0ms,2ms; default: 0ms"
            add("--latency", type=latencies, default=[0], metavar="TIME,…", help=longer)
            add("--asks", type=positive, metavar="N", help="of each run; default: 30000")
            best = "of each kind; the best is reported; default: 3"
            add("--runs", type=positive, metavar="N", help=best)
            add("--quick", action="store_true", help="4800 asks, and one run of each kind")
            add(
                "--broker", type=broker, action="append", metavar="NAME=URL",
                help="another broker to go through; `recado` is the one that is started; may be repeated",
            )  # fmt: skip
            add(
                "--archive",
                type=Path,
                default=Path(ARCHIVE),
                metavar="DIR",
                help=f"default: {ARCHIVE}",
            )
            add("--json", action="store_true", help="a line for each run, for programs")
        case "report":
            add(
                "folder",
                type=Path,
                nargs="?",
                default=Path(ARCHIVE),
                metavar="DIR",
                help="of the archive",
            )
            add("--plots", type=Path, metavar="DIR", help="also draw the plots, into this folder")
            add("--spark", action="store_true", help="compute by Spark; the figures are the same")
            add("--json", action="store_true", help="for programs")
        case "network":
            add("behind", type=address, metavar="HOST:PORT")
            add("--latency", type=latency, default=0, metavar="TIME", help="such as 2ms")
        case _:
            add("--transport", type=transport, required=True, metavar="tcp|amqp")
            where = (
                "of the broker"
                if verb == "serve"
                else "of the broker, or tcp://HOST:PORT of the exchange"
            )
            add("--url", metavar="URL", help=where)
    if verb == "trade":
        add("--clients", type=positive, default=1, metavar="N")
        add("--asks", type=positive, default=30_000, metavar="N", help="of all clients together")
        add("--feed-url", metavar="URL", help="of the broker of the feed; default: publish nothing")
        add("--broker", metavar="NAME", help="of the broker, in the report")
        add(
            "--latency",
            type=latency,
            default=0,
            metavar="TIME",
            help="of the network, in the report",
        )
        add(
            "--run", help=argparse.SUPPRESS
        )  # for `recado trading run`, which publishes the run itself
    return parser


# --- words that are values


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
    return int(text)


def counts(text: str) -> list[int]:
    return [positive(each) for each in text.split(",")]


def latency(text: str) -> int:
    """µs."""
    found = TIME.fullmatch(text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is no time; write 500us, 2ms or 1s")
    return round(float(found[1]) * UNITS[found[2]])


def latencies(text: str) -> list[int]:
    return [latency(each) for each in text.split(",")]


def transport(text: str) -> Transport:
    from recado.apps.trading.figures import Transport

    try:
        return Transport(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither tcp nor amqp") from None


def transports(text: str) -> list[Transport]:
    return [transport(each) for each in text.split(",")]


def broker(text: str) -> tuple[str, str | None]:
    from recado.apps.trading.plan import OWN_BROKER

    name, found, url = text.partition("=")
    if text == OWN_BROKER:
        return text, None
    if not found or not name or not url.startswith(("amqp://", "amqps://")):
        raise argparse.ArgumentTypeError(f"{text!r}: write recado, or NAME=amqp://…")
    return name, url


def address(text: str) -> tuple[str, int]:
    host, found, port = text.rpartition(":")
    if not found or not port.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r}: write HOST:PORT")
    return host, int(port)


# --- the verbs


def plan_of(chosen: argparse.Namespace) -> Plan:
    from recado.apps.trading.plan import QUICK_ASKS, Plan

    given = {
        "clients": chosen.clients,
        "transports": chosen.transport,
        "latencies_us": chosen.latency,
        "asks": chosen.asks or (QUICK_ASKS if chosen.quick else None),
        "runs": chosen.runs or (1 if chosen.quick else None),
        "brokers": dict(chosen.broker) if chosen.broker else None,
    }
    return Plan(**{name: value for name, value in given.items() if value is not None})


async def running(chosen: argparse.Namespace) -> int:
    from recado.apps.trading.plan import BadPlan
    from recado.apps.trading.programs import ProgramFailed
    from recado.apps.trading.running import run_all
    from recado.cli.trading_progress import progress_of
    from recado.feeds.errors import FeedError

    try:
        plan = plan_of(chosen)
    except BadPlan as error:
        return complain(str(error), WRONG_USAGE)
    try:
        with progress_of(plan, as_json=chosen.json) as progress:
            await run_all(plan, chosen.archive, progress)
    except (FeedError, ProgramFailed, TimeoutError) as error:
        return complain(str(error), FAILED)
    if not chosen.json:
        print(f"runs: {len(plan)}; `recado trading report {chosen.archive}` shows what they tell")
    return DONE


def report(chosen: argparse.Namespace) -> int:
    from recado.apps.trading.report import Report
    from recado.feeds.archive.errors import ArchiveError
    from recado.pipeline.java import NoJava

    try:
        found = by_spark(chosen.folder) if chosen.spark else Report.of(chosen.folder)
    except (ArchiveError, NoJava) as error:
        return complain(str(error), FAILED)
    if not found.tables:
        why = "; ".join(map(str, ("no finished run", *found.left_out)))
        return complain(f"{chosen.folder} has {why}", FAILED)
    if chosen.json:
        print(msgspec.json.encode(found.as_json()).decode())
    else:
        print(found.text())
    if chosen.plots:
        from recado.apps.trading.plots import draw_all

        for file in draw_all(found.by_latency, chosen.plots):
            print(file, file=sys.stderr)
    return DONE


def by_spark(folder: Path) -> Report:
    from recado.apps.trading.on_spark import finished
    from recado.apps.trading.report import Report

    return Report.from_runs(finished(folder))
