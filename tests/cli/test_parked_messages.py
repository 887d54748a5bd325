"""`recado parked` on recado and on RabbitMQ."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest

from recado.cli import main
from recado.patterns import Messaging
from workshop.peers import Server

Name = Callable[[str], str]


async def _park(server: Server, queue: str, dead: str) -> None:
    """Let a handler fail with three messages."""
    app = Messaging(server.url, dead_letter=dead)

    @app.subscribe(queue, tag="billing", retry=2)
    async def handle(number: int) -> None:
        raise ValueError(f"unlucky {number}")

    async with app:
        await app.publish_many(queue, [1, 2, 3])
        async with asyncio.timeout(60):
            while await _count(app, dead) < 3:  # noqa: ASYNC110  there is no event for it
                await asyncio.sleep(0.05)


async def _count(app: Messaging, queue: str) -> int:
    async with await app.open_channel() as channel:
        return (await channel.declare_queue(queue, passive=True)).message_count


async def _bodies(server: Server, queue: str) -> list[int]:
    found: list[int] = []
    async with Messaging(server.url) as app:
        while True:
            async with app.consume(queue, int) as message:
                if message is None:
                    return found
                assert message.attempt == 1
                found.append(message.body)


def test_parked_messages_are_listed_and_replayed(
    server: Server, name: Name, capsys: pytest.CaptureFixture[str]
) -> None:
    queue, dead = name("orders"), name("dead")
    asyncio.run(_park(server, queue, dead))

    assert main(["parked", "list", dead, "--url", server.url]) == 0
    printed = capsys.readouterr()
    assert printed.out.count(f"{queue}  2 attempts") == 3
    assert "ValueError: unlucky 2" in printed.out
    assert printed.err == "3 parked messages\n"

    assert main(["parked", "list", dead, "--url", server.url, "--json", "--limit", "1"]) == 0
    (first,) = json.loads(capsys.readouterr().out)
    assert (first["queue"], first["handler"], first["attempts"]) == (queue, "billing", 2)

    assert main(["parked", "replay", dead, "--url", server.url, "--dry-run"]) == 0
    assert capsys.readouterr().out == "3 would be replayed, 0 left\n"

    chosen = ["--selector", "headers.\"x-failure-reason\" LIKE '%2'"]
    assert main(["parked", "replay", dead, "--url", server.url, *chosen]) == 0
    assert capsys.readouterr().out == "1 replayed, 2 left\n"
    assert asyncio.run(_bodies(server, queue)) == [2]

    assert main(["parked", "replay", dead, "--url", server.url, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"replayed": 2, "left": 0, "dry_run": False}
    # RabbitMQ changes the order of messages that return to a quorum queue.
    assert sorted(asyncio.run(_bodies(server, queue))) == [1, 3]


def test_mistakes_are_named(server: Server, name: Name, capsys: pytest.CaptureFixture[str]) -> None:
    queue = name("absent")
    assert main(["parked", "replay", queue, "--url", server.url]) == 1
    assert queue in capsys.readouterr().err
    assert main(["parked", "list", "--url", server.url, "--selector", "priority >"]) == 2
    assert "invalid selector" in capsys.readouterr().err
    assert main(["parked", "list", "--url", "http://localhost"]) == 2
    assert "URL scheme" in capsys.readouterr().err
