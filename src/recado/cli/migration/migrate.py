"""`recado migrate`: definitions and messages from one server to another, recado or RabbitMQ."""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from recado.cli import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_USAGE,
    describe_os_error,
    print_error,
)
from recado.cli.management import EXIT_REFUSED, EXIT_UNREACHABLE
from recado.cli.management.amqp_address import find_amqp_url
from recado.cli.management.api import (
    AccessDeniedError,
    ManagementApi,
    ManagementError,
    UnreachableError,
    path_of,
)
from recado.cli.management.command import compile_pattern
from recado.cli.management.output import Form, Output, plural
from recado.cli.management.server_address import Context, load_contexts, parse_url

from .plan import MigrationPlan, make_plan
from .progress import MigrationProgress
from .topology import compare, write_definitions
from .transfer import StreamPositions, TransferError, TransferResult, transfer

if TYPE_CHECKING:
    from recado.client import Connection

CONTINUATION: Final = "nothing is lost, run the same command again to continue"
WINDOW_COUNT: Final = 500  # enough that round trips do not limit the rate
WINDOW_MAX_COUNT: Final = 10_000  # so many messages are in memory at once
SHOWN_DIFFERENCES_MAX_COUNT: Final = 20  # --json prints all of them


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="recado migrate",
        description="Copy definitions, then move messages queue by queue. Run it again to continue"
        " after an interruption.",
    )
    add = parser.add_argument
    add("--from", dest="source", required=True, metavar="URL", help="HTTP API, or a context")
    add("--to", dest="target", required=True, metavar="URL", help="HTTP API, or a context")
    add("-V", "--vhost", action="append", metavar="NAME", help="only this vhost; repeatable")
    add("--queue", metavar="REGEX", help="only messages of queues whose names match")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--definitions-only", action="store_true", help="move no messages")
    only.add_argument("--messages-only", action="store_true", help="import no definitions")
    add("--dry-run", action="store_true", help="print the plan, change nothing")
    add("--from-amqp", metavar="URL", help="AMQP URL without a vhost; default: found by HTTP")
    add("--to-amqp", metavar="URL", help="AMQP URL without a vhost; default: found by HTTP")
    add(
        "--window",
        type=int,
        default=WINDOW_COUNT,
        metavar="N",
        help="messages between two acknowledgements: up to this many of a queue can be moved twice by an"
        f" interruption; default: {WINDOW_COUNT}",
    )
    add(
        "--state",
        type=Path,
        metavar="FILE",
        help="positions of streams; default: one for each pair of servers",
    )
    add("--json", action="store_true", help="print JSON")
    return parser


def run_migrate(words: Sequence[str]) -> int:
    """Run the migration and return the exit status."""
    args = build_parser().parse_args(words)
    try:
        if not 1 <= args.window <= WINDOW_MAX_COUNT:
            raise ValueError(f"--window: from 1 to {WINDOW_MAX_COUNT:,}, not {args.window}")
        source, target = open_api(args.source), open_api(args.target)
        return migrate(args, source, target)
    except KeyboardInterrupt:
        return print_error(f"interrupted; {CONTINUATION}", EXIT_INTERRUPTED)
    except UnreachableError as error:
        return print_error(str(error), EXIT_UNREACHABLE)
    except AccessDeniedError as error:
        return print_error(f"{error}; migrating needs an administrator", EXIT_REFUSED)
    except (ManagementError, TransferError) as error:
        return print_error(str(error), EXIT_FAILED)
    except ValueError as error:
        return print_error(str(error), EXIT_USAGE)
    except BrokenPipeError:
        raise
    except OSError as error:
        return print_error(describe_os_error(error))


def open_api(server: str) -> ManagementApi:
    """Return the API of a URL or of a context. Raises `ValueError`."""
    context = load_contexts().contexts.get(server)
    if context is None:
        if server != "localhost" and not any(character in server for character in ".:/"):
            raise ValueError(f"{server!r} is no context; write a host as http://{server}:15672")
        context = Context(server)
    return ManagementApi(parse_url(context.url), ca_file=context.ca_file)


def migrate(args: argparse.Namespace, source: ManagementApi, target: ManagementApi) -> int:
    output = Output(Form.JSON if args.json else None)
    is_chosen = compile_pattern(args.queue, "--queue") if args.queue else lambda _: True
    plan = make_plan(source, target, vhosts=args.vhost, is_chosen=is_chosen)
    for warning in plan.warnings:
        print_error(f"warning: {warning}")
    for obstacle in plan.obstacles:
        print_error(obstacle)
    if args.dry_run:
        would_import = "" if args.messages_only else f"import {plural(plan.import_count, 'object')}"
        would_move = "" if args.definitions_only else describe_messages(plan)
        what = " and ".join(filter(None, (would_import, would_move)))
        output.done(f"would {what}", {"dry_run": True, **plan.to_json()})
        return EXIT_FAILED if plan.obstacles else EXIT_OK
    if plan.obstacles:
        return EXIT_FAILED
    result: dict[str, Any] = plan.to_json()
    if not args.messages_only:
        write_definitions(target, plan.definitions)
        differences = compare(plan.definitions, target.get(path_of("definitions")))
        result["differences"] = [str(each) for each in differences]
        for difference in differences[:SHOWN_DIFFERENCES_MAX_COUNT]:
            print_error(f"not equal after the import: {difference}")
        if differences:
            reason = f"{plural(len(differences), 'object')} differ; no message was moved"
            return print_error(f"{reason}. Change them, or use --messages-only", EXIT_FAILED)
    moved = {} if args.definitions_only else asyncio.run(move_all(args, plan, source, target))
    result["moved"] = sum(each.moved for each in moved.values())
    result["left"] = sum(each.left for each in moved.values())
    imported = "" if args.messages_only else f"imported {plural(plan.import_count, 'object')}, "
    output.done(f"{imported}moved {plural(result['moved'], 'message')}", result)
    return EXIT_OK


def describe_messages(plan: MigrationPlan) -> str:
    return f"move {plural(plan.messages, 'message')} of {plural(len(plan.jobs), 'queue')}"


async def move_all(
    args: argparse.Namespace, plan: MigrationPlan, source: ManagementApi, target: ManagementApi
) -> dict[str, TransferResult]:
    """Transfer the queues one after the other; return the results by queue."""
    from recado.client import ClientError

    positions = StreamPositions(args.state or default_state(source, target))
    progress = MigrationProgress(plan.messages)
    results: dict[str, TransferResult] = {}
    vhost, connections = None, None
    try:
        for job in sorted(plan.jobs, key=lambda each: each.vhost):
            if vhost != job.vhost or connections is None:
                await close(connections)
                connections = await connect(args, source, target, job.vhost)
                vhost = job.vhost
            progress.start(job)
            results[str(job)] = await transfer(
                *connections,
                job,
                window=args.window,
                positions=positions,
                on_progress=progress.advance,
            )
            progress.finish(job, results[str(job)])
    except ClientError as error:
        raise TransferError(f"interrupted: {error}; {CONTINUATION}") from error
    finally:
        progress.end()
        await close(connections)
    return results


async def connect(
    args: argparse.Namespace, source: ManagementApi, target: ManagementApi, vhost: str
) -> tuple[Connection, Connection]:
    from recado.client import Connection

    urls = [
        find_amqp_url(api, vhost) if given is None else with_vhost(given, vhost)
        for api, given in ((source, args.from_amqp), (target, args.to_amqp))
    ]
    opened = [await Connection.open(url, name="recado migrate") for url in urls]
    return opened[0], opened[1]


def with_vhost(url: str, vhost: str) -> str:
    from urllib.parse import quote, urlsplit

    return urlsplit(url)._replace(path=f"/{quote(vhost, safe='')}").geturl()


async def close(connections: tuple[Connection, Connection] | None) -> None:
    for connection in connections or ():
        await connection.close()


def default_state(source: ManagementApi, target: ManagementApi) -> Path:
    """Return the file for positions of streams: one for each pair of servers."""
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    pair = f"{source.address} {target.address}"
    digest = hashlib.sha256(pair.encode()).hexdigest()[:16]
    return Path(base) / "recado" / f"migration-{digest}.json"
