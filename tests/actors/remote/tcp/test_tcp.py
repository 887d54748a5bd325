"""The TCP transport: behaviour that only sockets have."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest

from recado.actors.remote.errors import LimitExceededError, LinkClosedError
from recado.actors.remote.events import LinkLost, LinkStillDown
from recado.actors.remote.tcp import TcpTransport, transport
from recado.actors.remote.tcp.connection import MAC_INTERVAL_BYTES, MAC_MARKER, PONG
from recado.actors.remote.tcp.handshake import MAGIC, StreamMac
from recado.actors.remote.tcp.transport import TcpSettings
from recado.actors.remote.transport import PeerLink
from recado.actors.remote.wire.frame import REFUSAL_MIN_BYTES
from tests.actors.remote.recorder import Recorder
from tests.actors.remote.running import in_a_loop

LIMIT = 1 << 16
GREETING = MAGIC + bytes(16)
FRAME = b"a frame, as long as a frame must be at least"


async def opened(settings: TcpSettings | None = None) -> tuple[TcpTransport, Recorder, str]:
    recorder = Recorder()
    tcp = TcpTransport("127.0.0.1:0", settings=settings)
    await tcp.open("server", "server", LIMIT, recorder)
    host, port = tcp.address
    return tcp, recorder, f"{host}:{port}"


async def client_of(address: str, **settings: float) -> tuple[TcpTransport, Recorder]:
    recorder = Recorder()
    tcp = TcpTransport(nodes={"server": address}, settings=TcpSettings(**settings))  # type: ignore[arg-type]
    await tcp.open("client", "client", LIMIT, recorder)
    return tcp, recorder


def wire(frame: bytes) -> bytes:
    return len(frame).to_bytes(4) + frame


class Voice:
    """The input of one connection, from a peer with the proof of the recorder."""

    def __init__(self) -> None:
        self._vouching = StreamMac(b"a proof, perhaps")

    def says(self, *frames: bytes) -> bytes:
        data = b"".join(map(wire, frames))
        self._vouching.update(data)
        return data + MAC_MARKER + self._vouching.digest()


async def dial(
    address: str, proof: bytes = b"a proof, perhaps"
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection with hands shaken."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(GREETING + proof)
    await reader.readexactly(len(GREETING) + 16)
    return reader, writer


async def hang_up(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


async def post_for_ever(link: PeerLink, frame: bytes) -> None:
    while True:
        link.post(frame)
        await asyncio.sleep(0)


def free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


@pytest.mark.parametrize("step", [1, 3, 7, 1000])
@in_a_loop
async def test_frames_come_in_any_pieces(step: int) -> None:
    server, recorder, address = await opened()
    _, writer = await dial(address)
    frames = [FRAME + bytes([number]) * number for number in range(20)]
    voice = Voice()
    data = b"".join(voice.says(*frames[at : at + 3]) + PONG for at in range(0, 20, 3))
    for at in range(0, len(data), step):
        writer.write(data[at : at + step])
        await writer.drain()
        await asyncio.sleep(0)
    await recorder.until(lambda: len(recorder.frames) == 20)
    assert recorder.frames == frames
    await hang_up(writer)
    await server.close()


@pytest.mark.parametrize("size", [3, 25, LIMIT + 1, 2**32 - 1])
@in_a_loop
async def test_a_size_that_no_frame_has_ends_the_connection_before_it_is_read(size: int) -> None:
    server, recorder, address = await opened()
    reader, writer = await dial(address)
    writer.write(Voice().says(FRAME) + size.to_bytes(4))
    assert await reader.read() == b""
    assert recorder.frames == [FRAME]
    assert recorder.events == ["gone"]
    await hang_up(writer)
    await server.close()


@pytest.mark.parametrize("change", ["added", "left out", "turned", "repeated", "not vouched for"])
@in_a_loop
async def test_nobody_between_two_ends_changes_what_they_say(change: str) -> None:
    server, recorder, address = await opened()
    _, writer = await dial(address)
    voice = Voice()
    first, second, third = (voice.says(FRAME + each) for each in (b"1", b"2", b"3"))
    said = {
        "added": first + wire(FRAME) + second,
        "left out": first + third,
        "turned": first + third + second,
        "repeated": first + first + second,
        "not vouched for": first
        + b"".join([wire(bytes(LIMIT))] * (2 + MAC_INTERVAL_BYTES // LIMIT)),
    }
    writer.write(said[change])
    await recorder.until(lambda: recorder.events == ["gone"])
    assert recorder.frames == [FRAME + b"1"]
    await hang_up(writer)
    await server.close()


@in_a_loop
async def test_much_that_waited_is_vouched_for_in_parts() -> None:
    server, at_server, address = await opened()
    client, at_client = await client_of(address)
    link = client.connect("server")
    frames = [bytes([number]) * (MAC_INTERVAL_BYTES // 3) for number in range(20)]
    # As much as one MAC covers: small frames, whose sizes count, and the largest one.
    frames += [bytes(REFUSAL_MIN_BYTES)] * ((MAC_INTERVAL_BYTES - 1) // REFUSAL_MIN_BYTES) + [
        bytes(LIMIT)
    ]
    for frame in frames:
        link.post(frame)
    await at_server.until(lambda: at_server.frames == frames)
    link.post(FRAME)
    await at_server.until(lambda: at_server.frames[-1] == FRAME)
    assert (at_server.events, at_client.events) == ([], [])
    await client.close()
    await server.close()


@in_a_loop
async def test_who_says_nothing_is_not_kept() -> None:
    server, recorder, address = await opened(TcpSettings(handshake_timeout=0.01))
    reader, writer = await dial(address)
    writer.write(wire(FRAME)[:10])
    assert await reader.read() == b""
    await recorder.until(lambda: recorder.events == ["gone"])
    await hang_up(writer)
    await server.close()


@in_a_loop
async def test_connections_are_bounded() -> None:
    server, recorder, address = await opened(TcpSettings(max_connections=2))
    first = [await dial(address) for _ in range(2)]
    for _, writer in first:
        writer.write(Voice().says(FRAME))
    await recorder.until(lambda: len(recorder.frames) == 2)
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await dial(address)
    for _, each in first:
        await hang_up(each)
    await server.close()


@in_a_loop
async def test_frames_for_a_node_that_is_not_there_are_returned_and_the_link_heals() -> None:
    address = free_address()
    client, recorder = await client_of(address, retry_max=0.02)
    link = client.connect("server")
    link.post(FRAME)
    await recorder.until(lambda: recorder.returned_frames == [FRAME])
    assert recorder.events == ["lost"]
    at_server = Recorder()
    server = TcpTransport(address)
    await server.open("server", "server", LIMIT, at_server)
    await recorder.until(lambda: "healed" in recorder.events)
    link.post(FRAME + b"2")
    await at_server.until(lambda: at_server.frames == [FRAME + b"2"])
    await client.close()
    await server.close()


@in_a_loop
async def test_what_was_posted_before_there_is_a_connection_is_sent_before_the_end() -> None:
    server, at_server, address = await opened()
    client, recorder = await client_of(address)
    client.connect("server").post(FRAME)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transport, "CLOSE_TIMEOUT_S", 30)  # however busy the machine is
        await client.close()
    await at_server.until(lambda: at_server.frames == [FRAME])
    assert recorder.returned_frames == []
    await server.close()


@in_a_loop
async def test_what_waits_for_hands_to_be_shaken_at_the_end_is_returned() -> None:  # TCL1
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.MonkeyPatch.context() as patch:
        patch.setattr(transport, "CLOSE_TIMEOUT_S", 0.05)
        client, recorder = await client_of(f"127.0.0.1:{silent.getsockname()[1]}")
        client.connect("server").post(FRAME)
        await client.close()
        assert recorder.returned_frames == [FRAME]


@in_a_loop
async def test_what_waits_for_a_connection_when_its_link_is_closed_is_returned() -> None:  # TCL1
    client, recorder = await client_of(free_address())
    link = client.connect("server")
    link.post(FRAME)
    link.close()
    assert recorder.returned_frames == [FRAME]
    await client.close()


@in_a_loop
async def test_a_node_that_comes_back_is_found_again() -> None:
    server, at_server, address = await opened()
    client, recorder = await client_of(address, retry_max=0.02)
    link = client.connect("server")
    link.post(FRAME)
    await at_server.until(lambda: len(at_server.frames) == 1)
    await server.close()
    await recorder.until(lambda: recorder.events == ["lost"])
    assert at_server.events == []  # a link that one closes oneself is not lost
    again = TcpTransport(address)
    await again.open("server", "server", LIMIT, at_server)
    await recorder.until(lambda: recorder.events == ["lost", "healed"])
    await client.close()
    await again.close()


@in_a_loop
async def test_a_link_is_given_up_in_the_end() -> None:
    client, recorder = await client_of(free_address(), reconnect_timeout=0.0)
    link = client.connect("server")
    await recorder.until(lambda: recorder.events == ["lost", "gone"])
    with pytest.raises(LinkClosedError):
        link.post(FRAME)
    assert client.connect("server") is not link
    await client.close()


@in_a_loop
async def test_the_application_is_told_again_and_again_while_nobody_answers() -> None:
    client, recorder = await client_of(free_address(), report_interval=0.05)
    client.connect("server")
    await recorder.until(lambda: len(recorder.told) >= 4)
    lost, *down = recorder.told
    assert isinstance(lost, LinkLost)
    for event in down:
        assert isinstance(event, LinkStillDown)
        assert event.link == lost.link
        assert event.down_seconds >= 0.05
    await client.close()


@in_a_loop
async def test_what_waits_for_a_slow_peer_is_bounded() -> None:
    listener = socket.create_server(("127.0.0.1", 0), backlog=1)  # never accepted and never read
    address = f"127.0.0.1:{listener.getsockname()[1]}"
    client, _ = await client_of(address, send_buffer_bytes=1 << 20)
    link = client.connect("server")
    large = bytes(LIMIT)
    with pytest.raises(LimitExceededError, match="send buffer for server is full"):
        await post_for_ever(link, large)
    waiting = asyncio.create_task(link.drain())
    await asyncio.sleep(0)
    assert not waiting.done()
    link.close()
    with pytest.raises(LinkClosedError):
        await waiting
    listener.close()
    await client.close()


@in_a_loop
async def test_room_comes_back_when_a_slow_peer_reads() -> None:
    listener = socket.create_server(("127.0.0.1", 0), backlog=1)
    listener.setblocking(False)
    address = f"127.0.0.1:{listener.getsockname()[1]}"
    client, _ = await client_of(address, send_buffer_bytes=1 << 20)
    link = client.connect("server")
    loop = asyncio.get_running_loop()
    peer, _ = await loop.sock_accept(listener)
    await loop.sock_sendall(peer, GREETING + b"a proof, perhaps")
    sent = 0
    with contextlib.suppress(LimitExceededError):
        while True:
            link.post(bytes(LIMIT))
            sent += 1
            await asyncio.sleep(0)
    waiting = asyncio.create_task(link.drain())
    got = 0
    while got < len(GREETING) + 16 + sent * (LIMIT + 4):
        got += len(await loop.sock_recv(peer, 1 << 20))
    async with asyncio.timeout(10):
        await waiting
    peer.close()
    listener.close()
    await client.close()


@pytest.mark.parametrize("address", ["nowhere", "host:", "host:port", "host:70000", ":x"])
def test_addresses_are_host_and_port(address: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        TcpTransport(address)


@in_a_loop
async def test_a_node_that_does_not_listen_has_no_address() -> None:
    tcp = TcpTransport()
    await tcp.open("client", "client", LIMIT, Recorder())
    with pytest.raises(RuntimeError, match="does not listen"):
        _ = tcp.address
    await tcp.close()


@in_a_loop
async def test_who_cannot_prove_itself_is_not_heard() -> None:
    server, recorder, address = await opened()
    _, writer = await dial(address, b"the wrong proof!")
    writer.write(wire(FRAME))
    await recorder.until(lambda: recorder.unproved == [FRAME])
    assert recorder.frames == []
    await hang_up(writer)
    await server.close()


@in_a_loop
async def test_who_is_no_node_is_cut_off() -> None:
    server, recorder, address = await opened()
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET / HTTP/1.1\r\nHost: somebody\r\n\r\n")
    await reader.readexactly(len(GREETING))
    with contextlib.suppress(ConnectionError):
        assert await reader.read() == b""
    await recorder.until(lambda: recorder.events == ["gone"])
    await hang_up(writer)
    await server.close()


@in_a_loop
async def test_a_server_that_is_no_node_is_not_called_without_end() -> None:
    calls = 0

    async def hang_up_at_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal calls
        calls += 1
        writer.close()

    listener = await asyncio.start_server(hang_up_at_once, "127.0.0.1", 0)
    host, port = listener.sockets[0].getsockname()
    client, recorder = await client_of(f"{host}:{port}", reconnect_timeout=0.3)
    client.connect("server").post(FRAME)
    await recorder.until(lambda: recorder.events == ["lost", "gone"])
    assert recorder.returned_frames == [FRAME]
    assert calls <= 5  # each time it is waited longer
    await client.close()
    listener.close()
    await listener.wait_closed()
