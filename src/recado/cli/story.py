"""`recado story`: the main job from beginning to end; what `./dev run` runs.

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

from recado.cli import DONE, FAILED, complain, told

if TYPE_CHECKING:
    from recado.apps.story.watching import Display

FOLDER = "recado-story"
WELCOME = """\
The node stays at {url}
until Ctrl-C. In another terminal, a first message of your own:

  {python} -c '
import pika
channel = pika.BlockingConnection(pika.URLParameters("{url}")).channel()
channel.queue_declare("hello")
channel.basic_publish("", "hello", b"recado!")
print(channel.basic_get("hello", auto_ack=True)[2])'
"""


def story(options: Sequence[str]) -> int:
    chosen = grammar().parse_args(options)
    # Ctrl-C ends it from anywhere; so does SIGTERM, or the processes that it started would go on.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        return told_whole(chosen)
    except ImportError as error:
        if error.name not in ("pyspark", "pyarrow", "pandas", "matplotlib", "numpy", "rich"):
            raise
        return complain(f"this needs {error.name}: pip install 'recado[story]'", FAILED)
    except BrokenPipeError:
        raise
    except OSError as error:
        return complain(told(error), FAILED)


def grammar() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="recado story",
        description="A node, a market on a feed, bars of it by Spark, and a subscriber that is killed.",
    )
    add = parser.add_argument
    add("--folder", type=Path, default=Path(FOLDER), metavar="DIR", help="default: %(default)s")
    add("--morning", type=int, metavar="N", help="ticks before Spark looks; default: 20000")
    add("--live", type=int, metavar="N", help="ticks while it does; default: 15000")
    add("--speed", type=float, metavar="N", help="seconds of the market in one; default: 60")
    add("--seed", type=int, default=1, help="another one, another market")
    add("--port", type=int, metavar="N", help="default: 5672, or a free one if that is taken")
    return parser


def told_whole(chosen: argparse.Namespace) -> int:
    began = monotonic()
    from recado.apps.story.report import lines, summary, write
    from recado.apps.story.stage import CannotBegin, Stage
    from recado.apps.story.telling import Script, TooSlow, tell
    from recado.pipeline.java import NoJava

    given = {name: getattr(chosen, name) for name in ("morning", "live", "speed")}
    script = Script(**{name: value for name, value in given.items() if value is not None})
    try:
        with Stage(chosen.folder.resolve(), port=chosen.port, seed=chosen.seed) as stage:
            outcome = tell(stage, script, display())
            page = write(outcome, stage.folder / "report")
            print("", *lines(outcome.minutes), "", *summary(outcome), sep="\n")
            print(f"report: {page}")
            print(f"all of it took {monotonic() - began:.0f} s", flush=True)
            if outcome.problems:
                return FAILED
            if sys.stdout.isatty():
                print(
                    "\n" + WELCOME.format(python=sys.executable, url=stage.broker.url), flush=True
                )
                signal.pause()
    except (CannotBegin, NoJava, TooSlow) as error:
        return complain(str(error), FAILED)
    return DONE


def display() -> Display:
    from recado.apps.story.watching import Lines, Screen

    return Screen() if sys.stdout.isatty() else Lines()
