"""The command `recado`: dispatch to commands, and error output.

Each command has its own module and parser, imported only when the command is called: `recado serve` must
answer its first client 150 ms after the interpreter starts
(docs/decisions/0001-command-line-on-argparse.md).

Exit status: 0 success, 1 failure, 2 wrong usage or configuration, 130 interrupted. Commands of `management` have
more.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from recado import __version__

EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED = 0, 1, 2, 130

GROUPS: Final = {
    "Run a broker": {
        "serve": "run a broker until SIGTERM or Ctrl-C",
        "demo": "run the end-to-end demo: a market on a feed, bars by Spark, a kill -9",
        "config show": "print the effective settings and the origin of each",
        "definitions export|import|check": "users, policies, queues … as JSON, of a folder or a broker",
        "journal check": "verify every record of a data folder",
        "doctor": "check ports, disk, limits, clock, TLS, journal, Java",
        "completion bash|zsh|fish": "print the script that completes commands in a shell",
    },
    "Administer a running broker, recado or RabbitMQ": {
        "status": "alarms, resources and totals on one screen",
        "top": "the busiest queues and all rates, live",
        "queues list|show|declare|alter|delete|purge|peek|move|replay": "",
        "streams list|show|declare|delete|peek": "",
        "exchanges list|show|declare|delete": "",
        "bindings list|declare|delete": "",
        "connections list|show|close": "",
        "channels list|show": "",
        "consumers list": "",
        "users list|show|declare|delete": "",
        "vhosts list|show|declare|delete": "",
        "permissions list|show|declare|delete": "",
        "policies list|show|declare|delete": "",
        "publish": "publish a message, or each line of standard input",
        "get": "take messages from a queue, or put them back",
        "tap": "print the messages that enter a queue, without taking any",
        "events": "print changes of queues, clients, users, alarms as they happen",
        "bench": "load a broker for some seconds: messages a second, latencies",
        "context list|set|use|delete": "name servers, so that commands need no --url",
    },
    "Migrate": {
        "migrate": "copy definitions and move messages, from and to RabbitMQ",
    },
    "Feeds, actors, patterns and pipelines": {
        "feed publish|subscribe|archive|replay|members|verify|gc|list|show": (
            "publish/subscribe with archives for subscribers that were offline"
        ),
        "actors list|show|URL": "the actors of a node: mailboxes, restarts",
        "parked list|replay": "messages that the handlers of patterns could not process",
        "pipeline check|explain|run|status|list|show": "on Spark: from queues and feeds to tables and back",
    },
    "Example applications": {
        "chat": "a chat for browsers, with its history in a feed",
        "quotes publish|watch|record|catchup": "a feed of financial quotes",
        "trading run|report|serve|trade|network": "a benchmark of remote actors, TCP and AMQP",
    },
}
"""The commands with their verbs, by group, in the order of the help."""

MANAGEMENT_COMMANDS: Final = frozenset(
    words.split()[0] for words in GROUPS["Administer a running broker, recado or RabbitMQ"]
)
COMMAND_WIDTH_COUNT: Final = 34
UNTIL_INTERRUPTED: Final = frozenset(
    {"serve", "demo", "top", "tap", "events", "chat", "feed", "quotes", "pipeline", "trading"}
)
"""Commands that Ctrl-C ends successfully; the others have not done what they should."""
PART_MODULES: Final = {"feed": "feeds", "actors": "actors", "pipeline": "pipelines"}
"""Commands whose verbs `list` and `show` ask a node over HTTP, and their modules in `management`."""


def format_usage() -> str:
    """Return the help: every command with its verbs, in groups."""
    lines = ["usage: recado COMMAND [options]"]
    for title, commands in GROUPS.items():
        lines += ["", f"{title}:"]
        for words, description in commands.items():
            if len(words) > COMMAND_WIDTH_COUNT and description:
                lines.append(f"  {words}")
                lines.append(f"  {'':{COMMAND_WIDTH_COUNT}} {description}")
            else:
                lines.append(f"  {words:{COMMAND_WIDTH_COUNT}} {description}".rstrip())
    lines += [
        "",
        "`recado COMMAND --help` shows the options of a command, `recado --version` the version.",
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status; an expected failure is one line on standard error."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["serve"]:
        # No garbage collection until the broker listens: modules contain no garbage, and scanning them takes
        # 5 % of the start.
        gc.disable()
    try:
        return run(words)
    except KeyboardInterrupt:
        return EXIT_OK if words and words[0] in UNTIL_INTERRUPTED else EXIT_INTERRUPTED
    except BrokenPipeError:  # the reader has closed the pipe: `recado config show | head -1`
        # Otherwise standard output is flushed at exit and fails again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return EXIT_FAILED


def run(words: list[str]) -> int:
    """Find the command, import its module and run it."""
    if words and words[0] in MANAGEMENT_COMMANDS:  # without the 60 ms that the configuration takes
        from recado.cli.management import run_management

        return run_management(words[0], words[1:])
    if words and words[0] in PART_MODULES and words[1:2] in (["list"], ["show"]):
        from recado.cli.management import run_management

        return run_management(words[0], words[1:], module_name=PART_MODULES[words[0]])
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
                from recado.cli.definitions import run_definitions

                return run_definitions(verb, options)
            case ["journal", "check", *options]:
                from recado.cli.journal import run_journal_check

                return run_journal_check(options)
            case ["doctor", *options]:
                from recado.cli.doctor import run_doctor

                return run_doctor(options)
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
            case ["chat", *options]:
                from recado.cli.chat import run_chat_command

                return run_chat_command(options)
            case ["demo", *options]:
                from recado.cli.demo import main_demo

                return main_demo(options)
            case ["pipeline", ("check" | "explain" | "run" | "status") as verb, *options]:
                from recado.cli.pipeline import run_pipeline

                return run_pipeline(verb, options)
            case ["parked", ("list" | "replay") as verb, *options]:
                from recado.cli.parked_messages import run_parked

                return run_parked(verb, options)
            case ["actors", *options]:
                from recado.cli.actors import run_actors

                return run_actors(options)
            case ["migrate", *options]:
                from recado.cli.migration.migrate import run_migrate

                return run_migrate(options)
            case ["completion", *options]:
                from recado.cli.completion import run_completion

                return run_completion(options)
            case ["complete", *options]:  # called by the scripts of `completion`
                from recado.cli.completion import run_complete

                return run_complete(options)
            case ["feed", *rest]:
                from recado.cli.feed import DESCRIPTIONS

                return print_verbs("feed", DESCRIPTIONS, rest)
            case ["quotes", *rest]:
                from recado.cli.quotes import DESCRIPTIONS

                return print_verbs("quotes", DESCRIPTIONS, rest)
            case ["pipeline", *rest]:
                from recado.cli.pipeline import DESCRIPTIONS

                return print_verbs("pipeline", DESCRIPTIONS, rest)
            case ["--version"]:
                print(f"recado {__version__}")
            case ["--help" | "-h" | "help"]:
                print(format_usage())
            case ["help", *command]:
                return run([*command, "--help"])
            case []:
                return print_error(f"missing command\n{format_usage()}", EXIT_USAGE)
            case ["trading", *rest]:
                from recado.cli.trading import DESCRIPTIONS

                return print_verbs("trading", DESCRIPTIONS, rest)
            case ["parked", *rest]:
                from recado.cli.parked_messages import DESCRIPTIONS

                return print_verbs("parked", DESCRIPTIONS, rest)
            case ["definitions", *rest]:
                from recado.cli.definitions import DESCRIPTIONS

                return print_verbs("definitions", DESCRIPTIONS, rest)
            case ["config", *rest]:
                text = "Print the effective settings and the origin of each."
                return print_verbs("config", {"show": text}, rest)
            case ["journal", *rest]:
                return print_verbs(
                    "journal", {"check": "Verify every record of a data folder."}, rest
                )
            case _:
                return print_unknown(words[0], list_verbs(), rest=words[1:])
    except ConfigError as error:
        return print_error(str(error), EXIT_USAGE)
    return EXIT_OK


def print_verbs(command: str, descriptions: Mapping[str, str], words: Sequence[str]) -> int:
    """Print the verbs of a command; return an error status unless `words` asks for help.

    `words` follow the command: nothing, `--help`, or an unknown verb.
    """
    verbs = "\n".join(f"  {verb:11}{text}".rstrip() for verb, text in descriptions.items())
    end = f"`recado {command} VERB --help` shows the options of each."
    usage = f"usage: recado {command} VERB [options]\n\n{verbs}\n\n{end}"
    if words and words[0] in ("--help", "-h"):
        print(usage)
        return EXIT_OK
    if words:
        return print_unknown(words[0], descriptions, f"recado {command}")
    return print_error(f"{command}: missing verb\n{usage}", EXIT_USAGE)


SYNONYMS: Final = {
    "ls": "list",
    "describe": "show",
    "info": "show",
    "create": "declare",
    "add": "declare",
    "apply": "declare",
    "update": "alter",
    "edit": "alter",
    "rm": "delete",
    "remove": "delete",
    "unbind": "delete",
    "kill": "close",
    "select": "use",
    "ctx": "context",
    "monitor": "top",
    "consume": "get",
    "subscribe": "tap",
    "watch": "events",
}
"""What other programs call a command or a verb, for suggestions."""


def print_unknown(
    word: str, known: Iterable[str], prefix: str = "recado", rest: Sequence[str] = ()
) -> int:
    """Print that a command or verb does not exist, with the most similar one that does.

    `rest` follows the word: `list queues` is close to `queues list`.
    """
    from difflib import get_close_matches

    known, commands = list(known), list_verbs()
    verb = SYNONYMS.get(word, word)
    swapped = [
        each for each in commands if verb in commands[each] and rest[:1] in ([each], [each[:-1]])
    ]
    if swapped:
        found = f"{prefix} {swapped[0]} {verb}"
    elif SYNONYMS.get(word) in known:
        found = f"{prefix} {SYNONYMS[word]}"
    elif similar := get_close_matches(word, known, 1):
        found = f"{prefix} {similar[0]}"
    elif prefix != "recado" and word in commands:  # `queues get`
        found = f"recado {word}"
    else:
        found = ""
    suggestion = f"did you mean `{found}`? " if found else ""
    name = f"{prefix} {word}".removeprefix("recado ")
    return print_error(
        f"unknown command '{name}'; {suggestion}`{prefix} --help` lists all", EXIT_USAGE
    )


def list_verbs() -> dict[str, list[str]]:
    """Return the verbs of every command; commands without verbs have none. A word in capitals is an argument."""
    verbs: dict[str, list[str]] = {}
    for commands in GROUPS.values():
        for words in commands:
            command, _, rest = words.partition(" ")
            verbs.setdefault(command, []).extend(verb for verb in rest.split("|") if verb.islower())
    return verbs


def describe_os_error(error: OSError) -> str:
    """Return the system's error message, with the file that it concerns."""
    reason = error.strerror or str(error)
    # Commands create folders without checking first, so an existing file is in the way.
    if isinstance(error, FileExistsError):
        reason = "a file is in the place of the folder"
    return f"{error.filename}: {reason}" if error.filename else reason


def print_error(text: str, status: int = EXIT_FAILED) -> int:
    print(f"recado: {text}", file=sys.stderr)
    return status
