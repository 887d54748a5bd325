"""Nodes in separate processes over TCP: killed and stopped, with durable mailboxes, and with equal names.

Over TCP a message is delivered at most once. A message in a durable mailbox is handled at least once
nevertheless, and the answer to an ask shows that it was.
"""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path

import pytest

from recado.actors import ActorSystem, Down, NoSuchActorError
from recado.actors.inspection import INSPECTOR_NAME, Inspect, Inspector
from recado.actors.remote.amqp import Storage
from recado.actors.remote.errors import LinkLostError, RemoteError
from recado.actors.remote.options import RemoteOptions
from recado.actors.remote.tcp import TcpTransport
from recado.actors.supervision.links import monitor
from tests.actors.remote.running import in_a_loop
from tests.actors.remote.shop import watcher
from tests.feeds.io.loop import until
from workshop.peers import free_ports
from workshop.time_limit import scale

from .actors_cast import Gate, Ledger, Note, Twice
from .actors_node import TCP
from .actors_town import NodeProcess, noted, process

EXCHANGE = "exchange"
PATIENCE = 60.0


@contextmanager
def node(role: str, url: str, folder: Path) -> Iterator[NodeProcess]:
    with process(role, url, EXCHANGE, folder, Storage.DURABLE) as it:
        yield it


@asynccontextmanager
async def exchange_and_desk(folder: Path) -> AsyncIterator[tuple[NodeProcess, ActorSystem, str]]:
    """A server as a process, a system of this one, and where the server listens."""
    address = f"127.0.0.1:{free_ports(1)[0]}"
    options = RemoteOptions(failure_timeout=PATIENCE)
    with node("server", f"{TCP}{address}", folder) as there:
        await there.start()
        transport = TcpTransport(nodes={EXCHANGE: address})
        async with ActorSystem("desk", transport=transport, options=options) as desk:
            yield there, desk, f"{TCP}{address}"


@in_a_loop
async def test_what_was_answered_was_handled_however_often_the_node_is_killed(
    tmp_path: Path,
) -> None:
    """A client that repeats unanswered asks has each of them handled, in order, and few of them twice."""
    kills, each = 3, 150
    async with exchange_and_desk(tmp_path) as (there, desk, _):
        ledger = desk.actor("ledger", Ledger, node=EXCHANGE)

        async def tell_all(numbers: range) -> None:
            for number in numbers:
                while True:
                    try:
                        assert await ledger.ask(Note(0, number), timeout=scale(PATIENCE)) == number
                        break
                    except RemoteError:  # Undelivered or Cut
                        continue

        for life in range(kills):
            numbers = range(life * each, (life + 1) * each)
            telling = asyncio.create_task(tell_all(numbers))
            await until(lambda start=numbers.start: len(noted(tmp_path)) > start + each // 2)  # type: ignore[misc]
            there.kill()
            await there.start()
            await telling
    found = noted(tmp_path)
    assert list(dict.fromkeys(found)) == list(range(kills * each))
    assert (
        len(found) - kills * each <= 2 * kills
    )  # by the next incarnation of the node, and by the asker


@in_a_loop
async def test_what_tell_wait_returned_for_is_handled_however_often_the_node_is_killed(
    tmp_path: Path,
) -> None:
    kills, each = 3, 100
    stored: list[int] = []
    async with exchange_and_desk(tmp_path) as (there, desk, _):
        ledger = desk.actor("ledger", Ledger, node=EXCHANGE)

        async def tell_all(first: int) -> None:
            for number in range(first, first + 100 * each):
                await ledger.tell_wait(Note(0, number), timeout=scale(PATIENCE))
                stored.append(number)

        for life in range(kills):
            telling = asyncio.create_task(tell_all(life * 1_000_000))
            await until(lambda life=life: len(stored) > (life + 1) * each)  # type: ignore[misc]
            there.kill()
            with pytest.raises(RemoteError):  # Cut, or Undelivered
                await telling
            await there.start()
        assert await ledger.ask(Note(0, 9_000_000), timeout=scale(PATIENCE)) == 9_000_000
    found = noted(tmp_path)
    assert set(stored) <= set(found)
    assert list(dict.fromkeys(found)) == sorted(set(found))


@in_a_loop
async def test_what_waits_in_a_node_that_is_killed_is_handled_and_its_asks_end(
    tmp_path: Path,
) -> None:
    asks = 5
    async with exchange_and_desk(tmp_path) as (there, desk, _):
        gate = desk.actor("gate", Gate, node=EXCHANGE)
        inspector = desk.actor(INSPECTOR_NAME, Inspector, node=EXCHANGE)
        answers = [
            gate.ask_future(Twice(number), timeout=scale(PATIENCE)) for number in range(asks)
        ]
        waiting = 0
        while waiting < asks - 1:  # the gate has one of them
            page = await inspector.ask(Inspect(), timeout=scale(PATIENCE))
            waiting = next(seen.waiting for seen in page.seen if seen.name == "gate")
        there.kill()
        for outcome in await asyncio.gather(*answers, return_exceptions=True):
            assert isinstance(outcome, LinkLostError)
        (tmp_path / "open").touch()
        await there.start()
        passed = tmp_path / "passed"
        await until(lambda: passed.exists() and len(passed.read_text().split()) == asks)
        assert [int(number) for number in passed.read_text().split()] == list(range(asks))


@in_a_loop
async def test_a_client_that_is_killed_leaves_no_gap_and_its_next_life_is_served(
    tmp_path: Path,
) -> None:
    lives = 3
    async with exchange_and_desk(tmp_path) as (_, desk, url):
        for life in range(lives):
            with node("client", url, tmp_path) as teller:
                await teller.start()
                await until(lambda life=life: len(noted(tmp_path, life)) > 200)  # type: ignore[misc]
        ledger = desk.actor("ledger", Ledger, node=EXCHANGE)
        # The answer shows that all earlier messages are handled.
        assert await ledger.ask(Note(9, 1), timeout=scale(PATIENCE)) == 1
    for life in range(lives):
        found = noted(tmp_path, life)
        assert found == list(range(len(found)))


@in_a_loop
async def test_a_client_that_was_stopped_and_replaced_is_refused(tmp_path: Path) -> None:
    async with exchange_and_desk(tmp_path) as (_, _desk, url):
        with node("client", url, tmp_path) as first, node("client", url, tmp_path) as second:
            await first.start()
            await until(partial(has_noted, tmp_path, 0, 50))
            first.send(signal.SIGSTOP)
            await second.start()
            await until(partial(has_noted, tmp_path, 1, 50))
            first.send(signal.SIGCONT)
            said = await first.ends()
            assert "replaced by another node of the same name" in said
            assert "Refused" in said.splitlines()[-1]
            count = len(noted(tmp_path, 1))
            await until(partial(has_noted, tmp_path, 1, count + 50))  # the second one continues
    for life in (0, 1):
        assert Counter(noted(tmp_path, life)).most_common(1)[0][1] == 1


def has_noted(folder: Path, life: int, count: int) -> bool:
    return len(noted(folder, life)) >= count


@in_a_loop
async def test_a_watched_actor_with_a_durable_mailbox_dies_with_its_node(tmp_path: Path) -> None:
    """The next one has its mailbox and its name, and is another actor all the same."""
    async with exchange_and_desk(tmp_path) as (there, desk, _):
        ledger = desk.actor("ledger", Ledger, node=EXCHANGE)
        seer = await watcher(desk)
        monitor(seer._cell, ledger)
        assert await ledger.ask(Note(0, 1), timeout=scale(PATIENCE)) == 1
        there.kill()
        await there.start()
        (down,) = await seer.until(1)
        assert isinstance(down, Down)
        assert isinstance(down.reason, NoSuchActorError)
        assert await ledger.ask(Note(0, 2), timeout=scale(PATIENCE)) == 2
