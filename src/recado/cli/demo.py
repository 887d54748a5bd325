"""`recado main_story`: the main job from beginning to end; what `./dev run` runs.

A node, a market on its feed, bars of it by Spark, a recorder that is killed and recovers. In a terminal the
node stays until Ctrl-C.
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

DEFAULT_FOLDER = "recado-story"
WELCOME_TEMPLATE = """\
The node stays at {url}
until Ctrl-C. In another terminal, a first message of your own:

  {python} -c '
import pika
channel = pika.BlockingConnection(pika.URLParameters("{url}")).channel()
channel.queue_declare("hello")
channel.basic_publish("", "hello", b"recado!")
print(channel.basic_get("hello", auto_ack=True)[2])'
"""


def main_story(options: Sequence[str]) -> int:
    chosen = build_parser().parse_args(options)
    # Ctrl-C ends it from anywhere; so does SIGTERM, or the processes that it started would go on.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        return run_story(chosen)
    except ImportError as error:
        if error.name not in ("pyspark", "pyarrow", "pandas", "matplotlib", "numpy", "rich"):
            raise
        return print_error(f"this needs {error.name}: pip install 'recado[story]'", EXIT_FAILED)
    except BrokenPipeError:
        raise
    except OSError as error:
        return print_error(describe_os_error(error), EXIT_FAILED)


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="recado story",
        description="A node, a market on a feed, bars of it by Spark, and a subscriber that is killed.",
    )
    add = parser.add_argument
    add(
        "--folder",
        type=Path,
        default=Path(DEFAULT_FOLDER),
        metavar="DIR",
        help="default: %(default)s",
    )
    add("--morning", type=int, metavar="N", help="ticks before Spark looks; default: 20000")
    add("--live", type=int, metavar="N", help="ticks while it does; default: 15000")
    add("--speed", type=float, metavar="N", help="seconds of the market in one; default: 60")
    add("--seed", type=int, default=1, help="another one, another market")
    add("--port", type=int, metavar="N", help="default: 5672, or a free one if that is taken")
    return parser


def run_story(chosen: argparse.Namespace) -> int:
    began = monotonic()
    from recado.apps.demo.environment import DemoEnvironment, DemoError
    from recado.apps.demo.report import format_bars, summarize, write_page
    from recado.apps.demo.scenario import DemoSettings, DemoTimeoutError, run_demo
    from recado.pipeline.java import JavaNotFoundError

    given = {name: getattr(chosen, name) for name in ("morning", "live", "speed")}
    script = DemoSettings(**{name: value for name, value in given.items() if value is not None})
    try:
        with DemoEnvironment(chosen.folder.resolve(), port=chosen.port, seed=chosen.seed) as stage:
            outcome = run_demo(stage, script, choose_display())
            page = write_page(outcome, stage.folder / "report")
            print("", *format_bars(outcome.minutes), "", *summarize(outcome), sep="\n")
            print(f"report: {page}")
            print(f"all of it took {monotonic() - began:.0f} s", flush=True)
            if outcome.problems:
                return EXIT_FAILED
            if sys.stdout.isatty():
                print(
                    "\n" + WELCOME_TEMPLATE.format(python=sys.executable, url=stage.broker.url),
                    flush=True,
                )
                signal.pause()
    except (DemoError, JavaNotFoundError, DemoTimeoutError) as error:
        return print_error(str(error), EXIT_FAILED)
    return EXIT_OK


def choose_display() -> DemoDisplay:
    from recado.apps.demo.monitor import DemoLines, DemoScreen

    return DemoScreen() if sys.stdout.isatty() else DemoLines()
