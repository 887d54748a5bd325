"""The command `recado`. Here only the grammar; each command is imported when it is called.

`recado serve` has to answer its first client 150 ms after the interpreter starts, so nothing is
imported that a command does not use (see docs/decisions/0001-command-line-on-argparse.md).

Exit status: 0 done, 1 failed, 2 wrong usage or configuration.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from recado import __version__

DONE, FAILED, WRONG_USAGE = 0, 1, 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; every foreseeable failure is one line on standard error with a hint."""
    chosen = grammar().parse_args(arguments)
    from recado.node.config import ConfigError

    try:
        if chosen.command == "serve":
            from recado.cli.serve import serve

            return serve(chosen)
        from recado.cli.config import show

        return show(chosen)
    except ConfigError as error:
        return complain(str(error), WRONG_USAGE)
    except KeyboardInterrupt:
        return DONE


def complain(text: str, status: int = FAILED) -> int:
    print(f"recado: {text}", file=sys.stderr)
    return status


def grammar() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="recado", description="A message broker that every AMQP 0-9-1 client uses unchanged."
    )
    parser.add_argument("--version", action="version", version=f"recado {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    serve = commands.add_parser("serve", help="run a broker until SIGTERM or Ctrl-C")
    add_settings(serve)
    serve.add_argument("--welcome", action="store_true", help="print a first message to send, too")

    config = commands.add_parser("config", help="look at the configuration")
    actions = config.add_subparsers(dest="action", required=True, metavar="ACTION")
    show = actions.add_parser("show", help="print the effective settings and their origins")
    add_settings(show)
    show.add_argument("--json", action="store_true", help="for programs")
    return parser


def add_settings(parser: argparse.ArgumentParser) -> None:
    """The settings that have a flag. `dest` is the key, which is how they find their place."""
    parser.add_argument("--config", type=Path, metavar="FILE", help="default: ./recado.toml")
    group = parser.add_argument_group("settings (every other: RECADO_SECTION_KEY or the file)")
    group.add_argument("--host", dest="server.host", help="address to listen on: 127.0.0.1")
    group.add_argument(
        "--port", dest="server.port", type=int, metavar="N", help="5672; 0 takes a free one"
    )
    group.add_argument("--tls-port", dest="server.tls_port", type=int, metavar="N")
    group.add_argument("--data", dest="node.data", metavar="DIR", help="keep durable things here")
