"""The parts that all commands of this package share: flags, the call, resources and their verbs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from recado.cli import EXIT_FAILED, EXIT_OK, print_verbs

from .api import DEFAULT_EXCHANGE, REQUEST_TIMEOUT_S, ManagementApi, path_of
from .output import Form, JsonObject, Output, TableColumn
from .server_address import parse_url, select_context

HELP_WIDTH_COUNT: Final = 100
TIMEOUT_MAX_S: Final = 86_400.0


class Invocation(NamedTuple):
    """The server, the output, and the flags of one call."""

    api: ManagementApi
    output: Output
    args: argparse.Namespace
    vhost: str

    @property
    def is_dry_run(self) -> bool:
        return bool(getattr(self.args, "dry_run", False))


class Command(NamedTuple):
    """One command: a line for its help, its own arguments, and the function that runs it."""

    summary: str
    add_arguments: Callable[[argparse.ArgumentParser], object]
    execute: Callable[[Invocation], int | None]
    is_destructive: bool = False
    epilog: str | None = None

    def run(self, name: str, words: Sequence[str]) -> int:
        """Parse the words and run the command; return the exit status."""
        args = self.build_parser(name).parse_args(words)
        context = select_context(args.url, args.context)
        form = Form.JSON if args.json else None
        api = ManagementApi(
            parse_url(context.url), ca_file=context.ca_file, request_timeout=args.timeout
        )
        vhost = getattr(args, "vhost", None)
        call = Invocation(api, Output(form), args, context.vhost if vhost is None else vhost)
        try:
            return self.execute(call) or EXIT_OK
        finally:
            api.close()

    def build_parser(self, name: str) -> argparse.ArgumentParser:
        parser = argparse.ArgumentParser(
            prog=name,
            description=self.summary,
            epilog=self.epilog,
            formatter_class=create_formatter,
        )
        self.add_arguments(parser)
        if self.is_destructive:
            add_confirmation(parser)
        group = parser.add_argument_group("server and output")
        add = group.add_argument
        add("--url", metavar="URL", help="http://USER:PASSWORD@HOST:PORT of the HTTP API")
        add("--context", metavar="NAME", help="a server of `recado context`")
        add(
            "--timeout",
            type=parse_timeout,
            default=REQUEST_TIMEOUT_S,
            metavar="SECONDS",
            help=f"of each request; default: {REQUEST_TIMEOUT_S:g}",
        )
        add("--json", action="store_true", help="print JSON")
        return parser


class Resource(NamedTuple):
    """Objects of one kind: the verbs that commands offer for them."""

    verbs: Mapping[str, Command]

    def run(self, name: str, words: Sequence[str]) -> int:
        """Run the verb that the words begin with; return the exit status."""
        if not words or words[0] not in self.verbs:
            descriptions = {verb: each.summary for verb, each in self.verbs.items()}
            return print_verbs(name.removeprefix("recado "), descriptions, words)
        return self.verbs[words[0]].run(f"{name} {words[0]}", words[1:])


def create_formatter(prog: str) -> argparse.HelpFormatter:
    # argparse would import shutil, and with it all compression modules, to read the terminal's width.
    return argparse.HelpFormatter(prog, width=HELP_WIDTH_COUNT)


# ── arguments ───────────────────────────────────────────────────────────────────────────────────────


def add_vhost(parser: argparse.ArgumentParser, what: str = "default: / or the context's") -> None:
    parser.add_argument("-V", "--vhost", metavar="NAME", help=what)


def add_confirmation(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dry-run", action="store_true", help="print what would happen, change nothing"
    )
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask for confirmation")


def add_arguments_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-a",
        "--argument",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an argument of the declaration; the value is JSON or a text",
    )


def parse_count(value: str) -> int:
    """Parse a number of objects: at least one. Raises `argparse.ArgumentTypeError`."""
    return _parse_at_least(value, 1)


def parse_size(value: str) -> int:
    """Parse a number that may be zero. Raises `argparse.ArgumentTypeError`."""
    return _parse_at_least(value, 0)


def _parse_at_least(value: str, least: int) -> int:
    if not value.isdecimal() or int(value) < least:
        raise argparse.ArgumentTypeError(f"a whole number of at least {least}, not {value!r}")
    return int(value)


def parse_timeout(value: str) -> float:
    """Parse seconds. Raises `argparse.ArgumentTypeError`."""
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= TIMEOUT_MAX_S:
        limit = f"{TIMEOUT_MAX_S:,.0f}"
        raise argparse.ArgumentTypeError(f"seconds, more than 0 and at most {limit}, not {value!r}")
    return seconds


def parse_pairs(pairs: Sequence[str]) -> dict[str, Any]:
    """Parse `NAME=VALUE` options; a value is JSON, otherwise a text. Raises `ValueError`."""
    parsed: dict[str, Any] = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator or not name:
            raise ValueError(f"{pair!r} is not NAME=VALUE")
        parsed[name] = parse_json_or_text(value)
    return parsed


def parse_json_or_text(value: str) -> Any:
    try:
        return msgspec.json.decode(value)
    except msgspec.DecodeError:
        return value


# ── verbs that several resources have ───────────────────────────────────────────────────────────────


def list_command(
    plural: str,
    columns: Sequence[TableColumn],
    *,
    has_vhost: bool = True,
    names: Sequence[str] = ("name",),
    title: str | None = None,
    keep: Callable[[JsonObject], bool] | None = None,
) -> Command:
    """Return the command that lists the objects of `/api/PLURAL`, of all vhosts or of one.

    `names` are the fields that --name is compared with. `title` names the objects in texts if `plural` does not,
    and `keep` selects some of them.
    """
    title = title or plural

    def add(parser: argparse.ArgumentParser) -> None:
        if has_vhost:
            add_vhost(parser, "only this vhost; default: all")
        matched = "names" if names == ("name",) else " or ".join(names)
        parser.add_argument("--name", metavar="REGEX", help=f"only if it matches ({matched})")
        parser.add_argument("--sort", metavar="FIELD", help="sort by a field of the JSON")
        parser.add_argument("--reverse", action="store_true", help="the largest first")
        parser.add_argument("--limit", type=parse_size, metavar="N", help="at most N")

    def execute(call: Invocation) -> None:
        args = call.args
        matches = compile_pattern(args.name, "--name") if args.name else None
        query = {}
        if args.sort:
            query["sort"] = args.sort
        if args.reverse:
            query["sort_reverse"] = "true"
        vhost = getattr(args, "vhost", None)
        path = path_of(plural) if vhost is None else path_of(plural, vhost)
        items = call.api.get(path, query)
        items = [item for item in items if keep is None or keep(item)]
        if args.sort and items and not any(args.sort.partition(".")[0] in each for each in items):
            print(f"--sort: no {title} have a field '{args.sort}'; not sorted", file=sys.stderr)
        if matches is not None:
            items = [
                item
                for item in items
                if any(matches(str(item[name])) for name in names if name in item)
            ]
        shown = items if args.limit is None else items[: args.limit]
        call.output.table(columns, shown, f"no {title}")
        if len(shown) < len(items) and call.output.form is Form.TABLE:
            print(f"{len(shown):,} of {len(items):,}", file=sys.stderr)

    return Command(f"List {title}.", add, execute)


def compile_pattern(pattern: str, flag: str) -> Callable[[str], bool]:
    """Return a predicate for names. Raises `ValueError` if the value of the flag is no regular expression."""
    import re

    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{flag}: invalid regular expression: {error}") from error
    return lambda name: compiled.search(name) is not None


def show_command(
    singular: str,
    plural: str,
    order: Sequence[str],
    *,
    has_vhost: bool,
    check: Callable[[Invocation, JsonObject], object] | None = None,
) -> Command:
    """Return the command that shows one object; `check` may refuse it."""

    def add(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("name", metavar="NAME")
        if has_vhost:
            add_vhost(parser)

    def execute(call: Invocation) -> None:
        vhost = [call.vhost] if has_vhost else []
        name = call.args.name
        if plural == "exchanges" and not name:
            name = DEFAULT_EXCHANGE
        item = call.api.get(path_of(plural, *vhost, name))
        if check is not None:
            check(call, item)
        call.output.fields(item, order)

    return Command(f"Show a {singular}.", add, execute)


# ── changes ─────────────────────────────────────────────────────────────────────────────────────────


def report_declared(call: Invocation, what: str, result: JsonObject, *, is_new: bool) -> None:
    """Print the outcome of a declaration; `result` is the JSON object that names what was declared."""
    line = f"{'created' if is_new else 'updated or unchanged'}: {what}"
    call.output.done(line, {**result, "created": is_new})


def confirm(call: Invocation, change: str, result: JsonObject) -> bool:
    """Return whether to make a change; `result` is the JSON object that describes it.

    A dry run prints the change, and False is returned. In a terminal the user is asked, unless `--yes` is given;
    if the answer is not yes, `SystemExit` is raised. Without a terminal, the change is made without a question.
    """
    return confirm_change(call.output, call.args, change, result)


def confirm_change(
    output: Output, args: argparse.Namespace, change: str, result: JsonObject
) -> bool:
    """As `confirm`, for a command without a server."""
    if args.dry_run:
        output.done(f"would {change}", {"dry_run": True, **result})
        return False
    if args.yes or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return True
    from recado.cli.terminal import escape_unprintable

    print(f"{escape_unprintable(change)}? [y/N] ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    if answer.strip().lower() in ("y", "yes"):
        return True
    print("nothing changed" if answer else "\nnothing changed", file=sys.stderr)
    raise SystemExit(EXIT_FAILED)
