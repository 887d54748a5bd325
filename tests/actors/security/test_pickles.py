"""Pickles and names of code are never loaded or imported."""

from __future__ import annotations

import pickle
import sys
import zlib
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import zstandard

from recado.actors.remote.errors import (
    RefusalReason,
    RemoteActorError,
    RemoteError,
    UnacceptableMessageError,
)
from recado.actors.remote.options import RemoteOptions
from recado.actors.remote.wire.controls import CreateActor, MoveActor
from recado.actors.remote.wire.envelope_pb2 import (
    JSON,
    MSGPACK,
    PICKLE,
    PROTOBUF,
    ZLIB,
    ZSTD,
    Failure,
    Payload,
)
from tests.actors.remote.running import in_a_loop

from .mallory import Account, Deposit, Link, Mallory, at_most, bank, waiting

exploded: list[str] = []


def explode(text: str) -> None:
    exploded.append(text)


class Bomb:
    """It goes off when it is unpickled."""

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return explode, ("boom",)


PICKLED = pickle.dumps(Bomb())
KIND = f"{Account.__module__}.{Account.__qualname__}"


@pytest.fixture(autouse=True)
def _defused() -> None:
    exploded.clear()


def test_the_bomb_is_one() -> None:
    pickle.loads(PICKLED)
    assert exploded == ["boom"]


@pytest.mark.parametrize("manifest", ["", f"{Deposit.__module__}.Deposit", "builtins.eval"])
def test_a_pickled_message_is_refused_and_not_loaded(manifest: str) -> None:
    @in_a_loop
    async def go() -> None:
        async with bank() as house:
            payload = Payload(format_id=PICKLE, manifest=manifest, body=PICKLED)
            link = house.give(Mallory().frame(payload))
            assert link.refusals == [RefusalReason.SERIALIZATION]
            assert await house.balance() == 0

    go()
    assert exploded == []


LARGE = pickle.dumps(bytes(15 << 20))  # below the cap of what is expanded
COMPRESSED = {ZLIB: zlib.compress(LARGE), ZSTD: zstandard.ZstdCompressor().compress(LARGE)}


@pytest.mark.parametrize("compression", COMPRESSED)
@pytest.mark.parametrize(
    ("format_id", "manifest"), [(PICKLE, ""), (MSGPACK, "os.system"), (77, "")]
)
def test_what_would_be_refused_is_not_expanded_first(
    compression: Any, format_id: Any, manifest: str
) -> None:
    payload = Payload(manifest=manifest, body=COMPRESSED[compression], compression=compression)
    payload.format_id = format_id

    @in_a_loop
    async def go() -> None:
        async with bank() as house:
            frame = Mallory().frame(payload)
            with at_most(megabytes=1):
                link = house.give(frame)
            assert link.refusals == [RefusalReason.SERIALIZATION]
            assert await house.balance() == 0

    go()


@pytest.mark.parametrize("compression", COMPRESSED)
def test_a_pickled_answer_is_not_expanded_first(compression: Any) -> None:
    payload = Payload(format_id=PICKLE, body=COMPRESSED[compression], compression=compression)

    @in_a_loop
    async def go() -> None:
        async with waiting() as it:
            frame = Mallory(name="bank").frame(payload, **it.fields)
            with at_most(megabytes=1):
                it.give(frame, Link(peer="bank"))
            with pytest.raises(UnacceptableMessageError):
                await it.future

    go()


@pytest.mark.parametrize("format_id", [JSON, PROTOBUF, 0, 4, 127])
def test_a_pickle_under_another_label_is_no_message(format_id: Any) -> None:
    @in_a_loop
    async def go() -> None:
        async with bank() as house:
            payload = Payload(format_id=format_id, body=PICKLED)
            link = house.give(Mallory().frame(payload))
            assert len(link.refusals) == 1
            assert await house.balance() == 0

    go()
    assert exploded == []


@in_a_loop
async def test_pickled_arguments_of_an_actor_are_not_loaded() -> None:
    async with bank() as house:
        house.node.creation.offer(Account)
        link = Link()
        house.give(
            Mallory().control(CreateActor(KIND, "new", int(PICKLE), PICKLED, "", temporary=False)),
            link,
        )
        await link.until_told()
        assert link.answers[0].HasField("exception")
        assert len(house.system.registry) == 1
    assert exploded == []


@in_a_loop
async def test_a_pickled_state_of_an_actor_that_moves_is_not_loaded() -> None:
    async with bank() as house:
        house.node.creation.offer(Account)
        link = Link()
        moved = MoveActor("token", KIND, "new", int(PICKLE), "", PICKLED, temporary=False)
        house.give(Mallory().control(moved), link)
        await link.until_told()
        assert link.answers[0].HasField("exception")
        assert len(house.system.registry) == 1
    assert exploded == []


@in_a_loop
async def test_a_pickled_answer_is_an_error_of_who_asked() -> None:
    async with waiting() as it:
        payload = Payload(format_id=PICKLE, body=PICKLED)
        it.give(Mallory(name="bank").frame(payload, **it.fields), Link(peer="bank"))
        with pytest.raises(RemoteError):
            await it.future
    assert exploded == []


@pytest.mark.parametrize(
    "kind",
    ["SystemExit", "KeyboardInterrupt", "GeneratorExit", "asyncio.exceptions.CancelledError", "StopIteration",
     "os.system", "builtins.eval", "subprocess.Popen", "recado.actors.remote.errors.os", "__main__.Bomb"],
)  # fmt: skip
def test_an_exception_is_never_code_nor_the_end_of_the_program(kind: str) -> None:
    @in_a_loop
    async def go() -> None:
        async with waiting() as it:
            failure = Failure(kind=kind, text="no", arguments=msgspec.msgpack.encode(["echo hi"]))
            mallory = Mallory(name="bank")
            it.give(mallory.frame(exception=failure, **it.fields), Link(peer="bank"))
            with pytest.raises(RemoteActorError, match=kind):
                await it.future

    go()


@pytest.mark.parametrize(
    "manifest",
    ["antigravity", "antigravity.geohash", "os.system", "builtins.eval", "this", "recado.actors.actor.Actor",
     "recado.actors.remote.wire.controls.CreateActor", "recado.actors.supervision.signals.Stop",
     "recado.actors.actor_events.DeadLetter"],
)  # fmt: skip
def test_a_manifest_is_never_imported_and_no_class_of_ours_but_messages(manifest: str) -> None:
    @in_a_loop
    async def go() -> None:
        before = set(sys.modules)
        async with bank() as house:
            for format_id in (MSGPACK, JSON, PROTOBUF):
                payload = Payload(format_id=format_id, manifest=manifest, body=b"\x80")
                link = house.give(Mallory().frame(payload))
                assert link.refusals == [RefusalReason.SERIALIZATION]
            assert await house.balance() == 0
        assert not {"antigravity", "this"} & (set(sys.modules) - before)

    go()


@in_a_loop
async def test_pickles_are_for_those_who_ask_for_them() -> None:
    async with bank(RemoteOptions(pickle=True)) as house:
        house.give(Mallory().frame(Payload(format_id=PICKLE, body=pickle.dumps(Deposit(100)))))
        assert await house.balance() == 100
