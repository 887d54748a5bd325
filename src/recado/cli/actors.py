"""`recado actors URL NODE`: the actors of a node, their mailboxes and restarts, requested from the node.

The verbs `list` and `show` are in `management.actors`.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from recado.cli import EXIT_FAILED, EXIT_OK, EXIT_USAGE, describe_os_error, print_error

if TYPE_CHECKING:
    from recado.actors.inspection import ActorInfo, Inspection
    from recado.actors.remote.transport import Transport
    from recado.actors.system import ActorSystem

URL_HELP = "tcp://HOST:PORT of the node, or amqp://… of the broker that it is connected to"
TIMEOUT_S = 5.0
COLUMNS = ("name", "class", "state", "mailbox", "restarts", "supervisor")


def run_actors(options: Sequence[str]) -> int:
    args = build_parser().parse_args(options)
    logging.basicConfig(level=logging.CRITICAL)  # errors are printed once, below
    try:
        return asyncio.run(show_actors(args))
    except ImportError as error:
        if error.name is None or not error.name.startswith("google"):
            raise
        return print_error("remote actors need protobuf: pip install 'recado[actors]'", EXIT_FAILED)
    except ValueError as error:
        return print_error(str(error), EXIT_USAGE)
    except BrokenPipeError:
        raise
    except OSError as error:
        return print_error(describe_os_error(error) or str(error), EXIT_FAILED)


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="recado actors",
        description="Show the actors of nodes, their mailboxes and restarts.",
        epilog="`recado actors list` and `recado actors show NAME` ask a node of recado over HTTP instead,"
        " for systems that publish their status.",
    )
    add = parser.add_argument
    add("url", metavar="URL", help=URL_HELP)
    add("nodes", nargs="+", metavar="NODE", help="name of the node; several over a broker")
    add(
        "--cookie",
        metavar="TEXT",
        help="if the node requires one; default: the variable RECADO_ACTORS_COOKIE",
    )
    add(
        "--internals",
        action="store_true",
        help="show the node's internal actors instead of the application's",
    )
    add(
        "--timeout",
        type=float,
        default=TIMEOUT_S,
        metavar="SECONDS",
        help="of each request; default: 5",
    )
    add("--json", action="store_true", help="print JSON")
    return parser


async def show_actors(args: argparse.Namespace) -> int:
    from recado.actors.errors import ActorError
    from recado.actors.remote.errors import MessageRefusedError, RefusalReason
    from recado.actors.remote.options import RemoteOptions
    from recado.actors.system import ActorSystem

    cookie = args.cookie or os.environ.get("RECADO_ACTORS_COOKIE", "")
    name = f"recado-actors-{os.getpid()}"
    # The node may have no cookie, and this command need not authenticate it.
    options = RemoteOptions(cookie=cookie, require_cookie=False, client_id=name)
    status = EXIT_OK
    async with ActorSystem(name, transport=create_transport(args), options=options) as system:
        for node in args.nodes:
            try:
                inspection = await inspect(system, node, args.internals, args.timeout)
            except MessageRefusedError as error:
                hint = (
                    ". Pass its cookie with --cookie"
                    if error.reason is RefusalReason.COOKIE
                    else ""
                )
                status = print_error(f"{node}: {error}{hint}", EXIT_FAILED)
                continue
            except ActorError as error:
                status = print_error(f"{node}: {error}", EXIT_FAILED)
                continue
            if args.json:
                print(msgspec.json.encode(inspection).decode())
            else:
                print(format_table(inspection))
    return status


def create_transport(args: argparse.Namespace) -> Transport:
    parts = urlsplit(args.url)
    match parts.scheme:
        case "tcp":
            from recado.actors.remote import TcpTransport

            return TcpTransport(nodes=dict.fromkeys(args.nodes, parts.netloc))
        case "amqp" | "amqps":
            from recado.actors.remote import AmqpSettings, AmqpTransport, Storage

            # Shorter than the timeout of a request: without a broker, the error says so, and is no timeout.
            settings = AmqpSettings(
                storage=Storage.EXCLUSIVE_AUTODELETE,
                server_bridge=False,
                reconnect_timeout=args.timeout / 2,
            )
            return AmqpTransport(args.url, settings)
        case _:
            raise ValueError(f"{args.url!r} is not a tcp:// or amqp:// URL")


async def inspect(
    system: ActorSystem, node: str, internals: bool, request_timeout: float
) -> Inspection:
    """Request all pages, and return them as one."""
    from recado.actors.inspection import INSPECTOR_NAME, Inspect, Inspector

    inspector = system.actor(INSPECTOR_NAME, Inspector, node=node)
    page = await inspector.ask(Inspect(0, internals), request_timeout)
    actors_seen = list(page.seen)
    while page.seen:
        page = await inspector.ask(Inspect(actors_seen[-1].uid, internals), request_timeout)
        actors_seen += page.seen
    return msgspec.structs.replace(page, seen=tuple(actors_seen))


def format_table(inspection: Inspection) -> str:
    rows = [COLUMNS, *map(format_row, inspection.seen)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        f"{inspection.node}: {inspection.actors} actors, {inspection.dead_letters} dead letters"
    ]
    nodes = [
        f"{peer.node} (unreachable)" if peer.unreachable else peer.node for peer in inspection.nodes
    ]
    lines += [f"connected to {', '.join(nodes)}", ""]
    for row in rows:
        cells = [
            f"{cell:>{width}}" if title in ("mailbox", "restarts") else f"{cell:{width}}"
            for title, cell, width in zip(COLUMNS, row, widths, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines) + "\n"


def format_row(actor: ActorInfo) -> tuple[str, ...]:
    name = actor.name or f"#{actor.uid}"
    supervisor = actor.supervisor.rpartition("/")[2].partition("#")[0]
    return (name, actor.kind, actor.state, str(actor.waiting), str(actor.restarts), supervisor)
