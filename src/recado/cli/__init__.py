"""The command `recado`: which command is meant, and how failures are told.

Each command has its own module and its own grammar, and both are imported only when it is called:
`recado serve` has to answer its first client 150 ms after the interpreter starts
(docs/decisions/0001-command-line-on-argparse.md).

Exit status: 0 done, 1 failed, 2 wrong usage or configuration.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Mapping, Sequence

from recado import __version__

EXIT_OK, EXIT_FAILED, EXIT_USAGE = 0, 1, 2

USAGE = """\
usage: recado COMMAND [options]

  recado demo           run the end-to-end demo: a market on a feed, bars by Spark, a kill -9
  recado serve          run a broker until SIGTERM or Ctrl-C
  recado config show    print the effective settings and where each came from
  recado definitions export|import|check
                        users, policies, queues … of a data folder, in RabbitMQ's format
  recado journal check  verify every record of a data folder
  recado quotes publish|watch|record|catchup
                        a feed of financial quotes, to see what feeds do
  recado feed publish|subscribe|archive|replay|members|verify|gc
                        messages for all who listen, kept for those who were away
  recado trading run|report|serve|trade|network
                        the Trading System: remote actors measured over TCP and over AMQP
  recado actors URL     the actors of a node: mailboxes, restarts
  recado pipeline check|explain|run|status
                        pipelines on Spark: from queues and feeds into lakes, feeds and exchanges
  recado --version

`recado COMMAND --help` tells the options of a command."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; every foreseeable failure is one line on standard error with a hint."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["serve"]:
        gc.disable()  # until it listens: modules are no garbage, and looking costs 5 % of the start
    try:
        return run(words)
    except KeyboardInterrupt:
        return EXIT_OK
    except BrokenPipeError:  # whoever reads has seen enough: `recado config show | head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or it is flushed, and fails, once more
        return EXIT_FAILED


def run(words: list[str]) -> int:
    from recado.node.config import ConfigError

    try:
        match words:
            case ["serve", *options]:
                from recado.cli.serve import run_serve

                return run_serve(options)
            case ["config", "show", *options]:
                from recado.cli.config import show_config

                return show_config(options)
            case ["definitions", ("export" | "import" | "check") as verb, *options]:
                from recado.cli.definitions import definitions

                return definitions(verb, options)
            case ["journal", "check", *options]:
                from recado.cli.journal import journal_check

                return journal_check(options)
            case ["quotes", ("publish" | "watch" | "record" | "catchup") as verb, *options]:
                from recado.cli.quotes import run_quotes

                return run_quotes(verb, options)
            case [
                "feed",
                (
                    "publish" | "subscribe" | "archive" | "replay" | "members" | "verify" | "gc"
                ) as verb,
                *options,
            ]:
                from recado.cli.feed import run_feed

                return run_feed(verb, options)
            case ["trading", ("run" | "report" | "serve" | "trade" | "network") as verb, *options]:
                from recado.cli.trading import run_trading

                return run_trading(verb, options)
            case ["demo", *options]:
                from recado.cli.demo import main_demo

                return main_demo(options)
            case ["pipeline", ("check" | "explain" | "run" | "status") as verb, *options]:
                from recado.cli.pipeline import run_pipeline

                return run_pipeline(verb, options)
            case ["actors", *options]:
                from recado.cli.actors import actors

                return actors(options)
            case ["feed", *rest]:
                from recado.cli.feed import DESCRIPTIONS

                return print_verbs("feed", DESCRIPTIONS, rest)
            case ["quotes", *rest]:
                from recado.cli.quotes import DESCRIPTIONS

                return print_verbs("quotes", DESCRIPTIONS, rest)
            case ["--version"]:
                print(f"recado {__version__}")
            case ["--help" | "-h" | "help"] | [_, "--help" | "-h"]:
                print(USAGE)
            case []:
                return print_error(f"a command is missing\n{USAGE}", EXIT_USAGE)
            case _:
                return print_error(f"no command {' '.join(words)!r}\n{USAGE}", EXIT_USAGE)
    except ConfigError as error:
        return print_error(str(error), EXIT_USAGE)
    return EXIT_OK


def print_verbs(command: str, descriptions: Mapping[str, str], words: Sequence[str]) -> int:
    """A command of several verbs, and none of them was named."""
    verbs = "\n".join(f"  {verb:11}{text}" for verb, text in descriptions.items())
    end = f"`recado {command} VERB --help` tells the options of each."
    usage = f"usage: recado {command} VERB [options]\n\n{verbs}\n\n{end}"
    if words and words[0] in ("--help", "-h"):
        print(usage)
        return EXIT_OK
    problem = f"no command '{command} {words[0]}'" if words else f"{command}: what to do is missing"
    return print_error(f"{problem}\n{usage}", EXIT_USAGE)


def describe_os_error(error: OSError) -> str:
    """What the system said, and of which file."""
    reason = error.strerror or str(error)
    if isinstance(error, FileExistsError):  # all that we make without looking are folders
        reason = "this is a file, where a folder is needed"
    return f"{error.filename}: {reason}" if error.filename else reason


def print_error(text: str, status: int = EXIT_FAILED) -> int:
    print(f"recado: {text}", file=sys.stderr)
    return status
