"""Frames that must be refused: forged, oversized, replayed, pickled, misrouted."""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado.actors.remote.errors import MessageRefusedError, RefusalReason
from recado.actors.remote.events import FrameRefused, MessageRefused
from recado.actors.remote.inbound import handler
from recado.actors.remote.inbound.refusals import MAX_STRIKES, REFUSALS_PER_SECOND
from recado.actors.remote.options import RemoteOptions
from recado.actors.remote.wire.envelope import EnvelopeWriter
from recado.actors.remote.wire.envelope_pb2 import ANSWER, CONTROL, PICKLE, Envelope, Payload
from recado.actors.remote.wire.frame import (
    FrameAuthenticator,
    FrameSigner,
    decode_refusal,
    encode_refusal,
    is_refusal,
)
from recado.actors.runtime.clock import Clock

from .running import in_a_loop
from .shop import KINDS, Ack, Log, Pair, Place, pair, until

SECRET = RemoteOptions(cookie="secret")  # and so it is demanded
STRANGER = bytes(range(16))


class Probe:
    """A link on which a test sends arbitrary frames to a node, and records the answers."""

    is_durable = False
    is_up = True

    def __init__(self, peer: str = "") -> None:
        self.peer = peer
        self.posted: list[bytes] = []
        self.closed = False

    def post(self, frame: bytes) -> None:
        self.posted.append(frame)

    async def drain(self) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None:
        self.closed = True

    def refusals(self) -> list[RefusalReason]:
        return [decode_refusal(frame).reason for frame in self.posted if is_refusal(frame)]


def sealed(envelope: bytes, options: RemoteOptions | None = None, sequence: int = 1) -> bytes:
    seal = FrameAuthenticator(options.cookie if options else "", max_frame_bytes=1 << 24)
    sealer = FrameSigner(seal, STRANGER)
    sealer.sequence = sequence - 1
    return sealer.sign(envelope)


def message(target: str, body: bytes = b"\x81\xa5order\x01", **fields: Any) -> bytes:
    payload = Payload(body=body, manifest=f"{Place.__module__}.Place")
    for name in ("format_id", "manifest", "compression"):
        if name in fields:
            setattr(payload, name, fields.pop(name))
    fields.setdefault("node", "stranger")
    fields.setdefault("client", "stranger")
    return Envelope(target=target, message=payload, one_way=True, **fields).SerializeToString()


async def placed(it: Pair) -> list[int]:
    found: list[int] = await it.server.actor("book").ask(Log())
    return found


BOOK = "recado-actor://server/book"


@in_a_loop
async def test_a_message_of_a_stranger_is_taken_where_no_cookie_is_demanded() -> None:
    async with pair() as it:
        probe = Probe()
        it.at_server.frame_received(probe, sealed(message(BOOK)), None)
        assert await placed(it) == [1]
        assert probe.posted == []


# ── the cookie ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", KINDS)
@in_a_loop
async def test_nodes_with_the_same_cookie_talk(kind: str) -> None:
    async with pair(kind, SECRET, SECRET) as it:
        assert await it.book().ask(Place(1)) == Ack(1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cookie", ["", "another"])
@in_a_loop
async def test_without_the_cookie_nothing_is_processed_and_the_sender_is_told(
    kind: str, cookie: str
) -> None:
    async with pair(kind, SECRET, RemoteOptions(cookie=cookie)) as it:
        with pytest.raises(MessageRefusedError) as refused:
            await it.book().ask(Place(1))
        assert refused.value.reason is RefusalReason.COOKIE
        heard: list[object] = []
        it.client._listeners.append(heard.append)
        it.book().tell(Place(2))
        with pytest.raises(MessageRefusedError):
            await it.book().ask(Place(3))
        assert MessageRefused("server", RefusalReason.COOKIE) in heard
        assert await placed(it) == []


@in_a_loop
async def test_a_forged_frame_is_refused_before_it_is_decoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with pair(server=SECRET) as it:
        probe = Probe()
        decoded: list[bytes] = []
        monkeypatch.setattr(handler, "read_envelope", decoded.append)
        frame = bytearray(sealed(message(BOOK), SECRET))
        frame[-1] ^= 1
        it.at_server.frame_received(probe, bytes(frame), None)
        it.at_server.frame_received(probe, sealed(message(BOOK)), None)
        it.at_server.frame_received(probe, sealed(b"\xff" * 100), None)
        assert decoded == []
        assert probe.refusals() == [RefusalReason.COOKIE] * 3
        assert await placed(it) == []


class Stopped:
    """A clock that always shows the same time."""

    def __init__(self, clock: Clock) -> None:
        self._now = clock.time()
        self.call_later = clock.call_later

    def time(self) -> float:
        return self._now


@in_a_loop
async def test_refusals_are_bounded_and_the_link_is_closed() -> None:
    async with pair(server=SECRET) as it:
        probe = Probe()
        for _ in range(MAX_STRIKES + 5):
            it.at_server.frame_received(probe, sealed(message(BOOK)), None)
        await until(lambda: probe.closed)
        it.server._clock = Stopped(
            it.server._clock
        )  # all following frames arrive in the same second
        many = [Probe() for _ in range(REFUSALS_PER_SECOND + 50)]
        for each in many:
            it.at_server.frame_received(each, sealed(message(BOOK)), None)
        assert sum(len(each.posted) for each in many) <= REFUSALS_PER_SECOND


@in_a_loop
async def test_a_refusal_of_what_we_did_not_send_is_nothing() -> None:
    async with pair() as it:
        heard: list[object] = []
        it.client._listeners.append(heard.append)
        it.at_client.frame_received(
            Probe(), encode_refusal(STRANGER, 1, RefusalReason.COOKIE), None
        )
        assert heard == []


# ── replay ────────────────────────────────────────────────────────────────────────────────────────────────


@in_a_loop
async def test_a_frame_is_processed_once() -> None:
    async with pair() as it:
        probe = Probe()
        frame = sealed(message(BOOK))
        for _ in range(3):
            it.at_server.frame_received(probe, frame, None)
        assert await placed(it) == [1]
        assert probe.refusals() == [RefusalReason.REPLAY] * 2


@in_a_loop
async def test_a_frame_that_was_settled_is_a_replay_and_one_that_was_not_is_redelivered() -> None:
    async with pair() as it:
        probe = Probe()
        settled: list[bool] = []
        frame = sealed(message(BOOK))
        it.at_server.frame_received(probe, frame, settled.append)
        it.at_server.frame_received(probe, frame, settled.append)
        assert await placed(it) == [1]
        assert settled == [True, True]  # the second one is a duplicate, and no offence
        assert probe.posted == []
        incarnation, sequence = STRANGER, 2
        replay = it.at_server.inbound.deduplicator
        replay.mark_pending(incarnation, sequence)
        replay.release(incarnation, sequence)  # for instance because it could not be stored
        it.at_server.frame_received(probe, sealed(message(BOOK), sequence=2), settled.append)
        assert await placed(it) == [1, 1]


@in_a_loop
async def test_a_frame_for_another_node_is_not_ours() -> None:
    async with pair() as it:
        probe = Probe()
        it.at_server.frame_received(probe, sealed(message("recado-actor://third/book")), None)
        it.at_server.frame_received(
            probe, sealed(message("third", kind=ANSWER, answers=1), sequence=2), None
        )
        it.at_server.frame_received(probe, sealed(message("third", kind=CONTROL), sequence=3), None)
        assert probe.refusals() == [RefusalReason.ENVELOPE] * 3
        assert await placed(it) == []


# ── what is inside ────────────────────────────────────────────────────────────────────────────────────────


class Bomb:
    went_off = False

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return _go_off, ()


def _go_off() -> None:
    Bomb.went_off = True


BAD: list[tuple[bytes, RefusalReason]] = [
    (message(BOOK, pickle.dumps(Bomb()), format_id=PICKLE), RefusalReason.SERIALIZATION),
    (message(BOOK, manifest="os.system"), RefusalReason.SERIALIZATION),
    (message(BOOK, manifest="recado.actors.supervision.signals.Down"), RefusalReason.SERIALIZATION),
    (message(BOOK, format_id=77), RefusalReason.SERIALIZATION),
    (message(BOOK, b"\xc1"), RefusalReason.ENVELOPE),
    (message(BOOK, compression=1), RefusalReason.ENVELOPE),
    (message(BOOK, compression=9), RefusalReason.ENVELOPE),
    (message(BOOK, kind=9), RefusalReason.ENVELOPE),
    (message(BOOK, sender="nonsense"), RefusalReason.ENVELOPE),
    (message(BOOK, node=""), RefusalReason.ENVELOPE),
    (message(BOOK, node="server"), RefusalReason.ENVELOPE),  # it would be us
    (message("nonsense"), RefusalReason.ENVELOPE),
    (message("recado-actor://server/"), RefusalReason.ENVELOPE),
    (message("server", kind=CONTROL), RefusalReason.ENVELOPE),
    (message(BOOK, b"\x92\xa6signal\xa4stop", kind=CONTROL), RefusalReason.ENVELOPE),
    (b"\xff\xff\xff", RefusalReason.ENVELOPE),
    (b"\x42\x00" * 100_000, RefusalReason.ENVELOPE),
]


@pytest.mark.parametrize(("envelope", "reason"), BAD)
@in_a_loop
async def test_what_breaks_the_rules_is_refused_and_nothing_else_suffers(
    envelope: bytes, reason: RefusalReason
) -> None:
    async with pair() as it:
        heard: list[object] = []
        it.server._listeners.append(heard.append)
        probe = Probe()
        it.at_server.frame_received(probe, sealed(envelope), None)
        assert probe.refusals() == [reason]
        assert heard == [FrameRefused("", reason)]
        assert not Bomb.went_off
        settled: list[bool] = []
        it.at_server.frame_received(probe, sealed(envelope, sequence=2), settled.append)
        assert settled == [False]  # it must not be redelivered
        assert await it.book().ask(Place(5)) == Ack(5)


@in_a_loop
async def test_a_frame_above_the_limit_is_no_frame() -> None:
    async with pair(server=RemoteOptions(max_frame_bytes=2048)) as it:
        probe = Probe()
        it.at_server.frame_received(probe, sealed(message(BOOK, bytes(5000))), None)
        assert probe.posted == []
        assert await placed(it) == []


@in_a_loop
async def test_a_bomb_stops_at_the_cap() -> None:
    async with pair(server=RemoteOptions(max_decompressed_bytes=1 << 16)) as it:
        probe = Probe()
        bomb = zlib.compress(bytes(1 << 24))
        it.at_server.frame_received(probe, sealed(message(BOOK, bomb, compression=1)), None)
        assert probe.refusals() == [RefusalReason.ENVELOPE]


@in_a_loop
async def test_who_speaks_on_the_link_of_another_is_refused() -> None:
    async with pair() as it:
        probe = Probe("somebody")
        it.at_server.frame_received(probe, sealed(message(BOOK)), None)
        assert probe.refusals() == [RefusalReason.ENVELOPE]
        allowed = Probe("stranger")
        it.at_server.frame_received(allowed, sealed(message(BOOK), sequence=2), None)
        assert await placed(it) == [1]


@in_a_loop
async def test_an_answer_counts_only_from_the_node_that_was_asked() -> None:
    async with pair() as it:
        assert it.hub is not None
        it.hub.frame_filter = lambda sender, to, frame: sender != "server"
        asking = it.book().ask_future(Place(1), timeout=0.2)
        [number] = it.at_client.outbound.pending_asks._asks
        forged = EnvelopeWriter("stranger").write_answer(1, number, "client", 0, "", 0, b"\xa4evil")
        it.at_client.frame_received(Probe(), sealed(forged), None)
        with pytest.raises(TimeoutError):
            await asking


@in_a_loop
async def test_nobody_speaks_for_the_actors_of_a_third_node() -> None:
    async with pair() as it:
        probe = Probe()
        watch = b"\x93\xa6signal\xa5watch\xbbrecado-actor://third/spy#1x"
        envelope = message(BOOK, watch, manifest="recado.control", kind=CONTROL)
        it.at_server.frame_received(probe, sealed(envelope), None)
        assert probe.refusals() == [RefusalReason.ENVELOPE]


@in_a_loop
async def test_watches_of_others_are_bounded() -> None:
    async with pair(server=RemoteOptions(max_remote_watches=3)) as it:
        probe = Probe()
        for number in range(1, 6):
            watch = f"recado-actor://stranger/#{number}".encode()
            body = b"\x93\xa6signal\xa5watch" + bytes([0xA0 | len(watch)]) + watch
            envelope = message(BOOK, body, manifest="recado.control", kind=CONTROL)
            it.at_server.frame_received(probe, sealed(envelope, sequence=number), None)
        assert probe.refusals() == [RefusalReason.BUSY] * 2
        assert len(it.at_server.remote_watcher.relations) == 3


@given(st.binary(max_size=400))
def test_noise_harms_nobody(noise: bytes) -> None:
    @in_a_loop
    async def go() -> None:
        async with pair() as it:
            it.at_server.frame_received(Probe(), noise, None)
            it.at_server.frame_received(Probe(), sealed(noise), None)
            assert await it.book().ask(Place(1)) == Ack(1)

    go()
