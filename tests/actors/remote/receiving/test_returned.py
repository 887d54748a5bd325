"""What certainly did not arrive: messages, asks, signals, and what others would not understand."""

from __future__ import annotations

import pytest

from recado.actors import DeadLetter, Down, Message, Unreachable
from recado.actors.failing.bonds import monitor
from recado.actors.remote.faults import Refusal, Undelivered
from recado.actors.remote.memory import MemoryLink
from recado.actors.remote.options import Options
from recado.actors.remote.peer import Peer
from recado.actors.remote.pending import FORGET, Pending
from recado.actors.remote.sealed.frame import Seal, Sealer, refuse
from recado.actors.serialising import catalogue
from tests.actors.remote.running import in_a_loop
from tests.actors.remote.shop import Place, pair, until, watcher


@in_a_loop
async def test_an_ask_fails_and_a_message_is_a_dead_letter() -> None:
    async with pair() as it:
        letters: list[object] = []
        it.client.listeners.append(letters.append)
        await it.server.close()
        with pytest.raises(Undelivered):
            await it.book().ask(Place(1))
        it.book().tell(Place(2))
        await until(lambda: len(letters) == 2)
        assert [letter.message for letter in letters if isinstance(letter, DeadLetter)] == [
            Place(1),
            Place(2),
        ]


@in_a_loop
async def test_a_watch_that_did_not_arrive_ends_by_silence() -> None:
    async with pair(client=Options(heartbeat=0.01, silence=0.05)) as it:
        await it.server.close()
        seer = await watcher(it.client)
        monitor(seer._cell, it.book())
        [down] = await seer.until(1)
        assert isinstance(down, Down)
        assert isinstance(down.reason, Unreachable)


@in_a_loop
async def test_what_cannot_be_read_here_is_only_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    class Foreign(Message[None]):
        pass

    async with pair() as it:
        await it.server.close()
        letters: list[object] = []
        it.client.listeners.append(letters.append)
        monkeypatch.setattr(catalogue, "_own_manifest", lambda cls: "a class of somebody else")
        it.book().tell(Foreign())
        monkeypatch.undo()
        it.book().tell(Place(1))
        await until(lambda: bool(letters))
        assert [letter.message for letter in letters if isinstance(letter, DeadLetter)] == [
            Place(1)
        ]


@in_a_loop
async def test_a_refusal_that_comes_back_is_nothing() -> None:
    async with pair() as it:
        link = it.at_client.ways.link_to(it.at_client.ways.peer("server"))
        assert isinstance(link, MemoryLink)
        it.at_client.returned(link, refuse(bytes(16), 1, Refusal.COOKIE), "nobody")


class Unwaited:
    """A reply of which nobody can tell whether it is waited for."""

    patience: float | None = None

    def complete(self, value: object) -> None: ...

    def fail(self, error: BaseException) -> None: ...


def test_asks_of_whose_end_nobody_tells_are_forgotten_in_time() -> None:
    peer = Peer("server", Sealer(Seal(), bytes(16)), 0.0)
    hasty = Unwaited()
    hasty.patience = 2.0
    pending = Pending(10)
    pending.add(1, (Unwaited(), peer, 1, Place))
    pending.add(2, (hasty, peer, 2, Place))
    pending.sweep(100.0)
    assert len(pending) == 2
    pending.sweep(101.9)
    assert len(pending) == 2
    pending.sweep(102.0)
    assert len(pending) == 1
    pending.sweep(100.0 + FORGET)
    assert len(pending) == 0


def test_an_answer_is_for_who_was_asked() -> None:
    peer, other = (
        Peer("server", Sealer(Seal(), bytes(16)), 0.0),
        Peer("other", Sealer(Seal(), bytes(16)), 0.0),
    )
    pending = Pending(10)
    pending.add(1, (Unwaited(), peer, 7, Place))
    assert pending.take(1, other) is None
    assert pending.take(2, peer) is None
    assert pending.waits_for(peer)
    assert not pending.waits_for(other)
    assert pending.take_sequence(peer, 8) is None
    assert pending.take_sequence(peer, 7) is not None
    assert pending.take(1, peer) is None
