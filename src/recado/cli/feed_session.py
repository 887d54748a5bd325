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


def run_live(verb: str, chosen: argparse.Namespace) -> int:
    commands = {
        "publish": publish,
        "subscribe": subscribe,
        "archive": archive,
        "members": members,
    }
    return asyncio.run(until_signal(commands[verb](chosen)))


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


async def publish(chosen: argparse.Namespace) -> int:
    headers = dict(parse_header(text) for text in chosen.header)
    async with connect(chosen) as link:
        feed = link.feed(chosen.feed, stack=chosen.stack)
        if chosen.bodies:
            bodies = [body.encode("utf-8", "surrogateescape") for body in chosen.bodies]
            await feed.publish_many(bodies, keys=chosen.key, headers=headers)
        else:
            async for lines in read_lines(sys.stdin.fileno(), MAX_MESSAGE_BYTES):
                await feed.publish_many(lines, keys=chosen.key, headers=headers)
        await feed.flush()
        if chosen.json:
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


async def subscribe(chosen: argparse.Namespace) -> int:
    if chosen.vector is not None and chosen.recovery is not None:
        return print_error("--vector and --recovery cannot be combined", EXIT_USAGE)
    file = None if chosen.vector is None else Path(chosen.vector)
    recovery: Recovery = chosen.recovery
    if file is not None:
        recovery = load_vector(file)
    left = chosen.count
    async with connect(chosen) as link:
        feed = link.feed(chosen.feed, stack=chosen.stack)
        subscription = feed.subscribe(chosen.name, selector=chosen.selector, recovery=recovery)
        async with subscription as messages:
            if not chosen.json:
                print(f"recado: {chosen.name} subscribed to {chosen.feed}", file=sys.stderr)
            async for batch in messages.batches():
                shown = batch[:left]
                sys.stdout.write(
                    "".join(format_message(message, as_json=chosen.json) for message in shown)
                )
                sys.stdout.flush()
                if left is not None and len(shown) == left:
                    messages.mark_finished(shown[-1])
                if file is not None:
                    save_vector(file, messages.vector)
                if left is not None:
                    left -= len(shown)
                    if left == 0:
                        break
    return EXIT_OK


def load_vector(file: Path) -> Vector:
    """Return the vector that the last process saved, or an empty one."""
    try:
        return Vector.from_text(file.read_text().strip())
    except FileNotFoundError:
        return Vector()
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error


def save_vector(file: Path, vector: Vector) -> None:
    """Save the vector atomically."""
    part = file.with_name(f"{file.name}.part")
    part.write_text(vector.to_text() + "\n")
    part.replace(file)


async def archive(chosen: argparse.Namespace) -> int:
    from recado.feeds.archive.retention import RetentionLimits
    from recado.feeds.archiver import ArchiveOptions

    limits = RetentionLimits(chosen.max_age, chosen.max_messages, chosen.max_share)
    given = {name: getattr(chosen, name) for name in ("seal_rows", "seal_seconds", "grace")}
    known = {name: value for name, value in given.items() if value is not None}
    upkeep = ArchiveOptions(retention=limits, **known)
    async with recado.feeds.connect(
        chosen.url, reconnect_timeout=None, wait_for_broker=True
    ) as link:
        archive = link.archive(
            chosen.feed, chosen.folder, name=chosen.name, stack=chosen.stack, archive_options=upkeep
        )
        async with archive:
            about = {"feed": chosen.feed, "folder": chosen.folder, "name": chosen.name}
            if chosen.json:
                print_json({"archiving": True, **about})
            else:
                print(
                    f"archiving feed {chosen.feed} in {chosen.folder} as {chosen.name}", flush=True
                )
            await archive.run()
    return EXIT_OK


async def members(chosen: argparse.Namespace) -> int:
    from recado.feeds.observer import observe_members

    found = await observe_members(chosen.url, chosen.feed, chosen.seconds)
    if chosen.json:
        print_json([member.as_json() for member in found])
    else:
        for member in found:
            print(format_member(member))
    if not found:
        return print_error(
            f"no members found on feed {chosen.feed} in {chosen.seconds:g} s", EXIT_FAILED
        )
    return EXIT_OK


def connect(chosen: argparse.Namespace) -> FeedConnection:
    return recado.feeds.connect(chosen.url)


def print_json(value: object) -> None:
    print(msgspec.json.encode(value).decode(), flush=True)
