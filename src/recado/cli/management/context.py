"""`recado context`: list, set, use, delete the servers that commands know by name."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

from recado.cli import EXIT_OK, print_verbs

from .command import add_confirmation, confirm_change, create_formatter
from .output import Form, Output, text
from .server_address import Context, Contexts, load_contexts, parse_url, save_contexts

COLUMNS = (text("", "mark"), text("name", "name"), text("url", "url"), text("vhost", "vhost"))


def _list(args: argparse.Namespace, output: Output) -> None:
    known = load_contexts()
    items = [
        {"mark": "*" if name == known.current else "", **_describe(name, known)}
        for name in sorted(known.contexts)
    ]
    output.table(COLUMNS, items, "no contexts; `recado context set NAME URL` adds one")


def _describe(name: str, known: Contexts) -> dict[str, Any]:
    """Return the JSON object of a context, without its password."""
    context = known.contexts[name]
    return {
        "name": name,
        "url": str(parse_url(context.url)),
        "vhost": context.vhost,
        "ca_file": context.ca_file,
        "current": name == known.current,
    }


def _set(args: argparse.Namespace, output: Output) -> None:
    address = parse_url(args.url)
    known = load_contexts()
    known.contexts[args.name] = Context(args.url, args.vhost, args.ca_file)
    known.current = known.current or args.name
    save_contexts(known)
    output.done(f"context '{args.name}' is {address}", _describe(args.name, known))


def _use(args: argparse.Namespace, output: Output) -> None:
    known = load_contexts()
    known.find(args.name)
    known.current = args.name
    save_contexts(known)
    output.done(f"using context '{args.name}'", _describe(args.name, known))


def _delete(args: argparse.Namespace, output: Output) -> None:
    known = load_contexts()
    known.find(args.name)
    result = _describe(args.name, known)
    if not confirm_change(output, args, f"delete context '{args.name}' ({result['url']})", result):
        return
    del known.contexts[args.name]
    if known.current == args.name:
        known.current = ""
    save_contexts(known)
    output.done(f"deleted context '{args.name}'", result)


VERBS: dict[str, tuple[str, Callable[[argparse.Namespace, Output], None]]] = {
    "list": ("List the contexts; * marks the one in use.", _list),
    "set": ("Add or change a context.", _set),
    "use": ("Use a context for commands that name no other server.", _use),
    "delete": ("Delete a context.", _delete),
}


class ContextCommand:
    """Not a `Resource`, because it edits a file and calls no server."""

    def run(self, name: str, words: Sequence[str]) -> int:
        """Run the verb that the words begin with; return the exit status."""
        if not words or words[0] not in VERBS:
            return print_verbs("context", {verb: each[0] for verb, each in VERBS.items()}, words)
        verb = words[0]
        summary, call = VERBS[verb]
        parser = argparse.ArgumentParser(
            prog=f"{name} {verb}", description=summary, formatter_class=create_formatter
        )
        if verb != "list":
            parser.add_argument("name", metavar="NAME")
        if verb == "set":
            parser.add_argument("url", metavar="URL", help="http://USER:PASSWORD@HOST:PORT")
            parser.add_argument("--vhost", default="/", metavar="NAME", help="default: /")
            parser.add_argument("--ca-file", default="", metavar="FILE", help="CA of the server")
        if verb == "delete":
            add_confirmation(parser)
        parser.add_argument("--json", action="store_true", help="print JSON")
        args = parser.parse_args(words[1:])
        call(args, Output(Form.JSON if args.json else None))
        return EXIT_OK


COMMAND = ContextCommand()
