"""Decompression bombs stop at the limit, and use no more memory than that."""

from __future__ import annotations

import zlib
from typing import Any

import msgspec
import pytest
import zstandard

from recado.actors.remote.errors import InvalidEnvelopeError, RefusalReason
from recado.actors.remote.options import RemoteOptions
from recado.actors.remote.wire.envelope_pb2 import JSON, MSGPACK, ZLIB, ZSTD, Payload
from tests.actors.remote.running import in_a_loop

from .mallory import (
    Deposit,
    Link,
    Mallory,
    at_most,
    bank,
    payload_of,
    waiting,
)

CAP = 1 << 20
CAPPED = RemoteOptions(max_decompressed_bytes=CAP)
HUGE = 256 << 20  # bytes; a thousandth of it on the wire


def zlib_bomb(size: int = HUGE) -> bytes:
    machine = zlib.compressobj(9)
    part = bytes(1 << 20)
    parts = [machine.compress(part) for _ in range(size >> 20)]
    return b"".join([*parts, machine.flush()])


def zstd_bomb(size: int = HUGE, *, told: bool = True) -> bytes:
    machine = zstandard.ZstdCompressor().compressobj(size=size if told else -1)
    part = bytes(1 << 20)
    parts = [machine.compress(part) for _ in range(size >> 20)]
    return b"".join([*parts, machine.flush()])


def lying_zstd() -> bytes:
    """It says that a few bytes are in it. | magic 4 | descriptor | window | size …"""
    honest = bytearray(zstandard.ZstdCompressor().compress(bytes(300)))
    many = zstd_bomb(told=False)
    # The frame header of a small one, in front of the blocks of a large one.
    return bytes(honest[:7]) + many[6:]


def wide_window() -> bytes:
    """A frame that asks for two gigabytes of memory to be expanded in."""
    magic, descriptor = b"\x28\xb5\x2f\xfd", b"\x80"  # a size of four bytes follows the window
    window = bytes([21 << 3])
    return magic + descriptor + window + (100).to_bytes(4, "little") + b"\x01\x00\x00"


BOMBS = {
    "zlib": (ZLIB, zlib_bomb()),
    "zstd": (ZSTD, zstd_bomb()),
    "zstd that does not say its size": (ZSTD, zstd_bomb(told=False)),
    "zstd that lies": (ZSTD, lying_zstd()),
    "zstd with a wide window": (ZSTD, wide_window()),
    "zlib in zlib": (ZLIB, zlib.compress(zlib_bomb())),
    "frames of zstd": (ZSTD, zstandard.ZstdCompressor().compress(bytes(CAP)) * 64),
    "unknown": (9, bytes(10)),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_stops_at_the_cap(name: str) -> None:
    compression, body = BOMBS[name]
    fields: dict[str, Any] = {"compression": compression, "body": body}

    @in_a_loop
    async def go() -> None:
        async with bank(CAPPED) as house:
            frame = Mallory().frame(payload_of(Deposit(100), **fields))
            with at_most(megabytes=6):
                link = house.give(frame)
            assert link.refusals == [RefusalReason.ENVELOPE]
            assert await house.balance() == 0

    assert len(body) < RemoteOptions().max_frame_bytes
    go()


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_in_an_answer_is_an_error_of_who_asked(name: str) -> None:
    compression, body = BOMBS[name]
    payload = Payload(format_id=MSGPACK, body=body)
    payload.compression = compression  # type: ignore[assignment]  # unknown ones are among them

    @in_a_loop
    async def go() -> None:
        async with waiting() as it:
            frame = Mallory(name="bank").frame(payload, **it.fields)
            with at_most(megabytes=64):  # here the cap is the usual one
                it.give(frame, Link(peer="bank"))
            with pytest.raises(InvalidEnvelopeError):
                await it.future

    go()


@pytest.mark.parametrize("scheme", [ZLIB, ZSTD])
def test_what_is_as_large_as_the_cap_is_no_bomb(scheme: Any) -> None:
    body = msgspec.msgpack.encode({"amount": 100, "padding": ""})
    body = msgspec.msgpack.encode({"amount": 100, "padding": "x" * (CAP - len(body) - 4)})
    assert len(body) == CAP
    small = zlib.compress(body) if scheme == ZLIB else zstandard.ZstdCompressor().compress(body)

    @in_a_loop
    async def go() -> None:
        async with bank(CAPPED) as house:
            house.give(Mallory().frame(payload_of(Deposit(100), body=small, compression=scheme)))
            assert await house.balance() == 100

    go()


@pytest.mark.parametrize(
    ("format_id", "body"),
    [
        (JSON, b"[" * 100_000),
        (JSON, b'{"a":' * 100_000),
        (MSGPACK, b"\x91" * 100_000),
        (MSGPACK, b"\x81\xa1a" * 100_000),
        (JSON, b"9" * 900_000),  # a number
        (JSON, b'"' + b"\\u0000" * 150_000 + b'"'),
    ],
)
def test_depth_and_digits_end_in_an_error(format_id: Any, body: bytes) -> None:
    @in_a_loop
    async def go() -> None:
        async with bank() as house:
            manifest = f"{Deposit.__module__}.Deposit"
            payload = Payload(format_id=format_id, manifest=manifest, body=body)
            link = house.give(Mallory().frame(payload))
            assert link.refusals == [RefusalReason.ENVELOPE]
            assert await house.balance() == 0

    go()
