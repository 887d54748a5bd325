"""`recado demo`: the end-to-end demo, which `./dev run` runs.

A broker, a market on a feed, bars computed by Spark, and a recorder that is killed and recovers. In a
terminal the broker runs until Ctrl-C.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from recado.cli import EXIT_FAILED, EXIT_OK, describe_os_error, print_error

if TYPE_CHECKING:
    from recado.apps.demo.monitor import DemoDisplay

DEFAULT_FOLDER = "recado-demo"
WELCOME_TEMPLATE = """\
The broker keeps running at {url}
until Ctrl-C. To publish a first message, run this in another terminal:

  {python} -c '
import pika
channel = pika.BlockingConnection(pika.URLParameters("{url}")).channel()
channel.queue_declare("hello")
channel.basic_publish("", "hello", b"recado!")
print(channel.basic_get("hello", auto_ack=True)[2])'

To see its queues in a browser, sign in as guest with the password guest:

  {console_url}

or in the terminal:

  curl -u guest:guest "{management_url}/queues?columns=name,messages"
"""


def main_demo(options: Sequence[str]) -> int:
    args = build_parser().parse_args(options)
    # SIGTERM unwinds like Ctrl-C; otherwise the processes started here would keep running.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        return run_demo_command(args)
    except ImportError as error:
        if error.name not in ("pyspark", "pyarrow", "pandas", "matplotlib", "numpy", "rich"):
            raise
        return print_error(f"missing package {error.name}: pip install 'recado[demo]'", EXIT_FAILED)
    except BrokenPipeError:
        raise
    except OSError as error:
        return print_error(describe_os_error(error), EXIT_FAILED)


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="recado demo",
        description="Run a broker, a market on a feed, bars computed by Spark, and a subscriber that is killed.",
    )
    add = parser.add_argument
    add(
        "--folder",
        type=Path,
        default=Path(DEFAULT_FOLDER),
        metavar="DIR",
        help="folder for all files, emptied first (default: %(default)s)",
    )
    add("--morning", type=int, metavar="N", help="ticks before Spark starts (default: 20000)")
    add("--live", type=int, metavar="N", help="ticks while Spark runs (default: 15000)")
    add("--speed", type=float, metavar="N", help="market seconds per real second (default: 60)")
    add("--seed", type=int, default=1, help="seed of the simulated market (default: 1)")
    add(
        "--port",
        type=int,
        metavar="N",
        help="port of the broker (default: 5672, or a free one if that is in use)",
    )
    add(
        "--management-port",
        type=int,
        metavar="N",
        help="port of the HTTP API (default: 15672, or a free one if that is in use)",
    )
    add(
        "--metrics-port",
        type=int,
        metavar="N",
        help="port for Prometheus (default: 15692, or a free one if that is in use)",
    )
    return parser


def run_demo_command(args: argparse.Namespace) -> int:
    started_at = monotonic()
    from recado.apps.demo.environment import DemoEnvironment, DemoError
    from recado.apps.demo.report import format_bars, summarize, write_page
    from recado.apps.demo.scenario import DemoSettings, DemoTimeoutError, run_demo
    from recado.node.config import ConfigError
    from recado.pipeline.java import JavaNotFoundError

    given = {name: getattr(args, name) for name in ("morning", "live", "speed")}
    settings = DemoSettings(**{name: value for name, value in given.items() if value is not None})
    try:
        with DemoEnvironment(
            args.folder.resolve(),
            port=args.port,
            management_port=args.management_port,
            metrics_port=args.metrics_port,
            seed=args.seed,
        ) as environment:
            result = run_demo(environment, settings, choose_display())
            page = write_page(result, environment.folder / "report")
            print("", *format_bars(result.minutes), "", *summarize(result), sep="\n")
            print(f"report: {page}")
            print(f"total time: {monotonic() - started_at:.0f} s", flush=True)
            if result.problems:
                return EXIT_FAILED
            if sys.stdout.isatty():
                print(
                    "\n"
                    + WELCOME_TEMPLATE.format(
                        python=sys.executable,
                        url=environment.broker.url,
                        management_url=environment.management_url,
                        console_url=environment.console_url,
                    ),
                    flush=True,
                )
                signal.pause()
    except (ConfigError, DemoError, JavaNotFoundError, DemoTimeoutError) as error:
        return print_error(str(error), EXIT_FAILED)
    return EXIT_OK


def choose_display() -> DemoDisplay:
    from recado.apps.demo.monitor import DemoLines, DemoScreen

    return DemoScreen() if sys.stdout.isatty() else DemoLines()
