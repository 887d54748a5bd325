"""Returned frames: messages, asks, signals, and messages that only the other node can decode."""

from __future__ import annotations

import pytest

from recado.actors import DeadLetter, Down, Message, NodeUnreachableError
from recado.actors.ref import Reply
from recado.actors.remote.errors import NotDeliveredError, RefusalReason
from recado.actors.remote.memory import MemoryLink
from recado.actors.remote.options import RemoteOptions
from recado.actors.remote.peer import Peer
from recado.actors.remote.pending_asks import ASK_EXPIRY_S, PendingAsks
from recado.actors.remote.wire.frame import FrameAuthenticator, FrameSigner, encode_refusal
from recado.actors.serialization import class_registry
from recado.actors.supervision.links import monitor
from tests.actors.remote.running import in_a_loop
from tests.actors.remote.shop import Place, pair, until, watcher


@in_a_loop
async def test_an_ask_fails_and_a_message_is_a_dead_letter() -> None:
    async with pair() as it:
        letters: list[object] = []
        it.client._listeners.append(letters.append)
        await it.server.close()
        with pytest.raises(NotDeliveredError):
            await it.book().ask(Place(1))
        it.book().tell(Place(2))
        await until(lambda: len(letters) == 2)
        assert [letter.message for letter in letters if isinstance(letter, DeadLetter)] == [
            Place(1),
            Place(2),
        ]


@in_a_loop
async def test_a_watch_that_did_not_arrive_ends_by_silence() -> None:
    async with pair(client=RemoteOptions(heartbeat_interval=0.01, failure_timeout=0.05)) as it:
        await it.server.close()
        seer = await watcher(it.client)
        monitor(seer._cell, it.book())
        [down] = await seer.until(1)
        assert isinstance(down, Down)
        assert isinstance(down.reason, NodeUnreachableError)


@in_a_loop
async def test_what_cannot_be_read_here_is_only_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    class Foreign(Message[None]):
        pass

    async with pair() as it:
        await it.server.close()
        letters: list[object] = []
        it.client._listeners.append(letters.append)
        monkeypatch.setattr(
            class_registry, "_default_manifest", lambda cls: "a class of somebody else"
        )
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
        link = it.at_client.peer_table.link_to(it.at_client.peer_table.peer("server"))
        assert isinstance(link, MemoryLink)
        it.at_client.frame_returned(
            link, encode_refusal(bytes(16), 1, RefusalReason.COOKIE), "nobody"
        )


class Unwaited(Reply):
    """A reply that does not know whether its caller still waits."""

    def __init__(self, timeout: float | None = None) -> None:
        self._timeout = timeout

    @property
    def timeout(self) -> float | None:
        return self._timeout

    def complete(self, value: object) -> None: ...

    def fail(self, error: BaseException) -> None: ...


def test_asks_of_whose_end_nobody_tells_are_forgotten_in_time() -> None:
    peer = Peer("server", FrameSigner(FrameAuthenticator(), bytes(16)), 0.0)
    hasty = Unwaited(2.0)
    pending = PendingAsks(10)
    pending.add(1, (Unwaited(), peer, 1, Place))
    pending.add(2, (hasty, peer, 2, Place))
    pending.sweep(100.0)
    assert len(pending) == 2
    pending.sweep(101.9)
    assert len(pending) == 2
    pending.sweep(102.0)
    assert len(pending) == 1
    pending.sweep(100.0 + ASK_EXPIRY_S)
    assert len(pending) == 0


def test_an_answer_is_for_who_was_asked() -> None:
    peer, other = (
        Peer("server", FrameSigner(FrameAuthenticator(), bytes(16)), 0.0),
        Peer("other", FrameSigner(FrameAuthenticator(), bytes(16)), 0.0),
    )
    pending = PendingAsks(10)
    pending.add(1, (Unwaited(), peer, 7, Place))
    assert pending.take(1, other) is None
    assert pending.take(2, peer) is None
    assert pending.has_asks_to(peer)
    assert not pending.has_asks_to(other)
    assert pending.take_by_sequence(peer, 8) is None
    assert pending.take_by_sequence(peer, 7) is not None
    assert pending.take(1, peer) is None
