"""Commands that connect to a feed: publish, subscribe, archive, members."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Final

import msgspec

import recado.feeds
from recado.cli import EXIT_FAILED, EXIT_OK, EXIT_USAGE, print_error
from recado.cli.feed_output import format_member, format_message
from recado.cli.standard_input import read_lines
from recado.feeds.coalescer import MAX_MESSAGE_BYTES
from recado.feeds.connection import FeedConnection
from recado.feeds.subscription import Recovery
from recado.feeds.vector import Vector

STOPPED_MESSAGE: Final = "recado: stopped"


def run_live(verb: str, args: argparse.Namespace) -> int:
    commands = {
        "publish": publish,
        "subscribe": subscribe,
        "archive": archive,
        "members": members,
    }
    return asyncio.run(until_signal(commands[verb](args)))


async def until_signal(work: Coroutine[Any, Any, int]) -> int:
    """Run until done; SIGTERM and Ctrl-C cancel it, so that it leaves the feed in order."""
    task = asyncio.ensure_future(work)
    stopped = False

    def stop() -> None:
        nonlocal stopped
        stopped = True
        task.cancel()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    try:
        return await task
    except asyncio.CancelledError:
        if not stopped:
            raise
        print(STOPPED_MESSAGE, file=sys.stderr)
        return EXIT_OK
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


async def publish(args: argparse.Namespace) -> int:
    headers = dict(parse_header(text) for text in args.header)
    async with connect(args) as connection:
        feed = connection.feed(args.feed, stack=args.stack)
        if args.bodies:
            bodies = [body.encode("utf-8", "surrogateescape") for body in args.bodies]
            await feed.publish_many(bodies, keys=args.key, headers=headers)
        else:
            async for lines in read_lines(sys.stdin.fileno(), MAX_MESSAGE_BYTES):
                await feed.publish_many(lines, keys=args.key, headers=headers)
        await feed.flush()
        if args.json:
            about = {"publisher": feed.publisher.hex(), "published": feed.last_sequence}
            print_json({"feed": feed.name, **about, "confirmed": feed.confirmed_sequence})
        else:
            count = (
                f"{feed.confirmed_sequence:,} message{'' if feed.confirmed_sequence == 1 else 's'}"
            )
            print(f"{count} published and confirmed", file=sys.stderr)
    return EXIT_OK


def parse_header(text: str) -> tuple[str, str]:
    name, found, value = text.partition("=")
    if not found or not name:
        raise ValueError(f"--header {text}: expected NAME=VALUE")
    return name, value


async def subscribe(args: argparse.Namespace) -> int:
    if args.vector is not None and args.recovery is not None:
        return print_error("--vector and --recovery cannot be combined", EXIT_USAGE)
    vector_file = None if args.vector is None else Path(args.vector)
    recovery: Recovery = args.recovery
    if vector_file is not None:
        recovery = load_vector(vector_file)
    remaining = args.count
    async with connect(args) as connection:
        feed = connection.feed(args.feed, stack=args.stack)
        subscription = feed.subscribe(args.name, selector=args.selector, recovery=recovery)
        async with subscription as messages:
            if not args.json:
                print(f"recado: {args.name} subscribed to {args.feed}", file=sys.stderr)
            async for batch in messages.batches():
                shown = batch[:remaining]
                sys.stdout.write(
                    "".join(format_message(message, as_json=args.json) for message in shown)
                )
                sys.stdout.flush()
                if remaining is not None and len(shown) == remaining:
                    messages.mark_finished(shown[-1])
                if vector_file is not None:
                    save_vector(vector_file, messages.vector)
                if remaining is not None:
                    remaining -= len(shown)
                    if remaining == 0:
                        break
    return EXIT_OK


def load_vector(vector_file: Path) -> Vector:
    """Return the vector that the last process saved, or an empty one."""
    try:
        return Vector.from_text(vector_file.read_text().strip())
    except FileNotFoundError:
        return Vector()
    except ValueError as error:
        raise ValueError(f"{vector_file}: {error}") from error


def save_vector(vector_file: Path, vector: Vector) -> None:
    """Save the vector atomically."""
    part = vector_file.with_name(f"{vector_file.name}.part")
    part.write_text(vector.to_text() + "\n")
    part.replace(vector_file)


async def archive(args: argparse.Namespace) -> int:
    from recado.feeds.archive.retention import RetentionLimits
    from recado.feeds.archiver import ArchiveOptions

    limits = RetentionLimits(args.max_age, args.max_messages, args.max_share)
    values = {name: getattr(args, name) for name in ("seal_rows", "seal_interval", "grace")}
    set_values = {name: value for name, value in values.items() if value is not None}
    archive_options = ArchiveOptions(retention=limits, **set_values)
    async with recado.feeds.connect(
        args.url, reconnect_timeout=None, wait_for_broker=True
    ) as connection:
        archive = connection.archive(
            args.feed,
            args.folder,
            name=args.name,
            stack=args.stack,
            archive_options=archive_options,
        )
        async with archive:
            about = {"feed": args.feed, "folder": args.folder, "name": args.name}
            if args.json:
                print_json({"archiving": True, **about})
            else:
                print(f"archiving feed {args.feed} in {args.folder} as {args.name}", flush=True)
            await archive.run()
    return EXIT_OK


async def members(args: argparse.Namespace) -> int:
    from recado.feeds.observer import observe_members

    found = await observe_members(args.url, args.feed, args.seconds)
    if args.json:
        print_json([member.as_json() for member in found])
    else:
        for member in found:
            print(format_member(member))
    if not found:
        return print_error(
            f"no members found on feed {args.feed} in {args.seconds:g} s", EXIT_FAILED
        )
    return EXIT_OK


def connect(args: argparse.Namespace) -> FeedConnection:
    return recado.feeds.connect(args.url)


def print_json(value: object) -> None:
    print(msgspec.json.encode(value).decode(), flush=True)
