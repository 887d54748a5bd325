"""`recado trading`: the Trading System, a benchmark of remote actors over TCP and over AMQP.

recado trading run            measure all numbers of clients, transports and latencies
recado trading report DIR     show tables and plots of the results beside those of the dissertation

and its processes, to be started by hand on several machines:

recado trading serve          the exchange: order books, matching engines, receivers, receptionist
recado trading trade          clients that send orders and publish their response times
recado trading network        a TCP proxy that adds latency

The dissertation is Thadeu de Russo e Carmo, *Uso do padrão AMQP para transporte de mensagens entre atores
remotos*; see docs/trading.md.
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

from recado.cli import EXIT_FAILED, EXIT_OK, EXIT_USAGE, describe_os_error, print_error
from recado.cli.feed_session import until_signal

if TYPE_CHECKING:
    from recado.apps.trading.figures import TransportKind
    from recado.apps.trading.plan import BenchmarkPlan
    from recado.apps.trading.report import Report

DESCRIPTIONS = {
    "run": "Start the processes and measure asks to remote actors over TCP and through a broker.",
    "report": "Show the results as in chapter 7 of the dissertation: tables and plots.",
    "serve": "Run the exchange until SIGTERM or Ctrl-C.",
    "trade": "Send orders to an exchange, one at a time per client, and publish the response times.",
    "network": "Run a TCP proxy that adds latency, until SIGTERM or Ctrl-C.",
}
DEFAULT_ARCHIVE = "trading-archive"
US_PER_UNIT = {"us": 1, "ms": 1_000, "s": 1_000_000}
TIME_PATTERN = re.compile(r"(\d+(?:\.\d+)?)(us|ms|s)")


def run_trading(verb: str, options: Sequence[str]) -> int:
    args = build_parser(verb).parse_args(options)
    try:
        return run_verb(verb, args)
    except ImportError as error:
        if error.name == "pyspark":
            return print_error("--spark needs Spark: pip install 'recado[spark]'", EXIT_FAILED)
        if error.name not in ("pyarrow", "numpy", "matplotlib", "google"):
            raise
        return print_error(
            f"missing package {error.name}: pip install 'recado[trading]'", EXIT_FAILED
        )
    except BrokenPipeError:
        raise
    except OSError as error:
        return print_error(describe_os_error(error), EXIT_FAILED)


def run_verb(verb: str, args: argparse.Namespace) -> int:
    match verb:
        case "run":
            return asyncio.run(until_signal(run_measurements(args)))
        case "report":
            return show_report(args)
        case _:
            from recado.cli.trading_roles import run_role

            return run_role(verb, args)


def build_parser(verb: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"recado trading {verb}", description=DESCRIPTIONS[verb])
    add = parser.add_argument
    match verb:
        case "run":
            clients_help = "comma-separated; default: 1,2,4,8,10,20,40,80"
            add("--clients", type=parse_counts, metavar="N,…", help=clients_help)
            add("--transport", type=parse_transports, metavar="T,…", help="default: tcp,amqp")
            latency_help = "added to each round trip, such as 0ms,2ms; default: 0ms"
            add(
                "--latency",
                type=parse_latencies_us,
                default=[0],
                metavar="TIME,…",
                help=latency_help,
            )
            add("--asks", type=parse_positive, metavar="N", help="asks per run; default: 30000")
            runs_help = "runs of each configuration, of which the best is reported; default: 3"
            add("--runs", type=parse_positive, metavar="N", help=runs_help)
            add("--quick", action="store_true", help="4800 asks and one run of each configuration")
            add(
                "--broker", type=parse_broker, action="append", metavar="NAME=URL",
                help="a broker to measure; `recado` is the one that this starts; may be repeated",
            )  # fmt: skip
            add(
                "--archive",
                type=Path,
                default=Path(DEFAULT_ARCHIVE),
                metavar="DIR",
                help=f"default: {DEFAULT_ARCHIVE}",
            )
            add("--json", action="store_true", help="print one line of JSON per run")
        case "report":
            add(
                "folder",
                type=Path,
                nargs="?",
                default=Path(DEFAULT_ARCHIVE),
                metavar="DIR",
                help="of the archive",
            )
            add("--plots", type=Path, metavar="DIR", help="also draw the plots into this folder")
            add("--spark", action="store_true", help="compute with Spark, with the same results")
            add("--json", action="store_true", help="print JSON")
        case "network":
            add("behind", type=parse_address, metavar="HOST:PORT")
            add("--latency", type=parse_latency_us, default=0, metavar="TIME", help="such as 2ms")
        case _:
            add("--transport", type=parse_transport, required=True, metavar="tcp|amqp")
            url_help = (
                "of the broker"
                if verb == "serve"
                else "of the broker, or tcp://HOST:PORT of the exchange"
            )
            add("--url", metavar="URL", help=url_help)
    if verb == "trade":
        add("--clients", type=parse_positive, default=1, metavar="N")
        add(
            "--asks",
            type=parse_positive,
            default=30_000,
            metavar="N",
            help="of all clients together",
        )
        add(
            "--feed-url",
            metavar="URL",
            help="broker of the feed for the results; default: publish nothing",
        )
        add("--broker", metavar="NAME", help="name of the broker in the report")
        add(
            "--latency",
            type=parse_latency_us,
            default=0,
            metavar="TIME",
            help="latency of the network in the report",
        )
        # Set by `recado trading run`, which publishes the run itself.
        add("--run", help=argparse.SUPPRESS)
    return parser


# --- argument types


def parse_positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return int(text)


def parse_counts(text: str) -> list[int]:
    return [parse_positive(each) for each in text.split(",")]


def parse_latency_us(text: str) -> int:
    """Parse a duration into microseconds."""
    found = TIME_PATTERN.fullmatch(text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration such as 500us, 2ms or 1s")
    return round(float(found[1]) * US_PER_UNIT[found[2]])


def parse_latencies_us(text: str) -> list[int]:
    return [parse_latency_us(each) for each in text.split(",")]


def parse_transport(text: str) -> TransportKind:
    from recado.apps.trading.figures import TransportKind

    try:
        return TransportKind(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither tcp nor amqp") from None


def parse_transports(text: str) -> list[TransportKind]:
    return [parse_transport(each) for each in text.split(",")]


def parse_broker(text: str) -> tuple[str, str | None]:
    from recado.apps.trading.plan import OWN_BROKER_NAME

    name, found, url = text.partition("=")
    if text == OWN_BROKER_NAME:
        return text, None
    if not found or not name or not url.startswith(("amqp://", "amqps://")):
        raise argparse.ArgumentTypeError(f"{text!r}: expected recado or NAME=amqp://…")
    return name, url


def parse_address(text: str) -> tuple[str, int]:
    host, found, port = text.rpartition(":")
    if not found or not port.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r}: expected HOST:PORT")
    return host, int(port)


# --- verbs


def create_plan(args: argparse.Namespace) -> BenchmarkPlan:
    from recado.apps.trading.plan import QUICK_ASKS_COUNT, BenchmarkPlan

    values = {
        "clients": args.clients,
        "transports": args.transport,
        "latencies_us": args.latency,
        "asks": args.asks or (QUICK_ASKS_COUNT if args.quick else None),
        "runs": args.runs or (1 if args.quick else None),
        "brokers": dict(args.broker) if args.broker else None,
    }
    return BenchmarkPlan(**{name: value for name, value in values.items() if value is not None})


async def run_measurements(args: argparse.Namespace) -> int:
    from recado.apps.trading.benchmark import run_plan
    from recado.apps.trading.plan import InvalidPlanError
    from recado.apps.trading.processes import ProcessFailedError
    from recado.cli.trading_progress import show_progress
    from recado.feeds.errors import FeedError

    try:
        plan = create_plan(args)
    except InvalidPlanError as error:
        return print_error(str(error), EXIT_USAGE)
    try:
        with show_progress(plan, as_json=args.json) as progress:
            await run_plan(plan, args.archive, progress)
    except (FeedError, ProcessFailedError, TimeoutError) as error:
        return print_error(str(error), EXIT_FAILED)
    if not args.json:
        print(f"runs: {len(plan)}; `recado trading report {args.archive}` shows the results")
    return EXIT_OK


def show_report(args: argparse.Namespace) -> int:
    from recado.apps.trading.report import Report
    from recado.feeds.archive.errors import ArchiveError
    from recado.pipeline.java import JavaNotFoundError

    try:
        report = report_by_spark(args.folder) if args.spark else Report.from_archive(args.folder)
    except (ArchiveError, JavaNotFoundError) as error:
        return print_error(str(error), EXIT_FAILED)
    if not report.tables:
        reason = "; ".join(map(str, ("no finished run", *report.incomplete_runs)))
        return print_error(f"{args.folder} has {reason}", EXIT_FAILED)
    if args.json:
        print(msgspec.json.encode(report.as_json()).decode())
    else:
        print(report.text())
    if args.plots:
        from recado.apps.trading.plots import draw_figures

        for file in draw_figures(report.by_latency, args.plots):
            print(file, file=sys.stderr)
    return EXIT_OK


def report_by_spark(folder: Path) -> Report:
    from recado.apps.trading.report import Report
    from recado.apps.trading.spark_results import load_runs

    return Report.from_runs(load_runs(folder))
