"""Idle connections, and those of peers without the cookie."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from recado.actors.remote.tcp.connection import PING, PONG, UNAUTHENTICATED_MAX_BYTES
from recado.actors.remote.tcp.transport import TcpSettings
from tests.actors.remote.running import in_a_loop

from .test_tcp import FRAME, GREETING, Voice, client_of, dial, hang_up, opened, wire

WRONG = b"not a proof, no!"


@in_a_loop
async def test_who_is_silent_is_asked_and_then_taken_for_dead() -> None:
    server, recorder, address = await opened(TcpSettings(read_timeout=0.15))
    reader, writer = await dial(address)
    writer.write(Voice().says(FRAME))
    assert await reader.read() == PING
    await recorder.until(lambda: recorder.events == ["gone"])
    await hang_up(writer)
    await server.close()


@in_a_loop
async def test_who_answers_is_kept() -> None:
    server, recorder, address = await opened(TcpSettings(read_timeout=0.6))
    reader, writer = await dial(address)
    voice = Voice()
    writer.write(voice.says(FRAME))
    for _ in range(3):
        assert await reader.readexactly(4) == PING
        writer.write(PONG)
    writer.write(voice.says(FRAME))
    await recorder.until(lambda: len(recorder.frames) == 2)
    assert recorder.events == []
    await hang_up(writer)
    await server.close()


@in_a_loop
async def test_nodes_answer_each_other_however_long_they_wait_themselves() -> None:
    server, at_server, address = await opened(TcpSettings(read_timeout=60))
    client, at_client = await client_of(address, read_timeout=0.6)
    client.connect("server").post(FRAME)
    await at_server.until(lambda: at_server.frames == [FRAME])
    await asyncio.sleep(1.0)  # nothing must happen meanwhile
    assert (at_server.events, at_client.events) == ([], [])
    await client.close()
    await server.close()


@in_a_loop
async def test_a_peer_that_falls_silent_is_called_again() -> None:
    calls: list[asyncio.Task[object] | None] = []

    async def falls_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        calls.append(asyncio.current_task())
        writer.write(GREETING + b"a proof, perhaps")
        with contextlib.suppress(ConnectionError):
            while await reader.read(1000):
                pass
        await hang_up(writer)

    silent = await asyncio.start_server(falls_silent, "127.0.0.1", 0)
    host, port = silent.sockets[0].getsockname()
    client, recorder = await client_of(f"{host}:{port}", read_timeout=0.06, retry_max=0.01)
    client.connect("server").post(FRAME)
    await recorder.until(lambda: recorder.events[:3] == ["lost", "healed", "lost"])
    await client.close()
    assert len(calls) >= 2
    await asyncio.gather(*(call for call in calls if call is not None))
    silent.close()
    await silent.wait_closed()


@in_a_loop
async def test_a_link_that_does_not_read_says_that_it_is_there() -> None:
    server, recorder, address = await opened(TcpSettings(read_timeout=0.6))
    reader, writer = await dial(address)
    writer.write(Voice().says(FRAME))
    await recorder.until(lambda: len(recorder.frames) == 1)
    (link,) = server._inbound_links
    link.pause_reading()
    assert await reader.readexactly(4) == PONG
    await asyncio.sleep(0.8)  # it receives nothing, and knows why
    assert recorder.events == []
    link.resume_reading()
    await hang_up(writer)
    await server.close()


@in_a_loop
async def test_questions_are_answered_once_for_each_read() -> None:
    server, _, address = await opened()
    reader, writer = await dial(address)
    writer.write(PING * 1000 + wire(FRAME)[:7])
    assert await reader.readexactly(4) == PONG
    await hang_up(writer)
    await server.close()


@in_a_loop
async def test_who_has_not_proved_itself_does_not_stay_by_talking() -> None:
    server, recorder, address = await opened(TcpSettings(handshake_timeout=0.1))
    reader, writer = await dial(address, WRONG)
    writer.write(wire(FRAME))
    await recorder.until(lambda: recorder.unproved == [FRAME])
    assert await reader.read() == b""
    assert not server._inbound_links
    await hang_up(writer)
    await server.close()


@pytest.mark.parametrize(("proof", "ends"), [(WRONG, True), (b"a proof, perhaps", False)])
@in_a_loop
async def test_little_is_kept_of_who_has_not_proved_itself(proof: bytes, ends: bool) -> None:
    server, recorder, address = await opened(TcpSettings(handshake_timeout=3600))
    reader, writer = await dial(address, proof)
    large = bytes(UNAUTHENTICATED_MAX_BYTES + 1)
    if ends:
        writer.write(wire(large)[:1000])
        assert await reader.read() == b""
    else:
        writer.write(Voice().says(large))
        await recorder.until(lambda: recorder.frames == [large])
    await hang_up(writer)
    await server.close()
