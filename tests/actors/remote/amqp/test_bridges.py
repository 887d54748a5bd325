"""Bridges on a working broker: delivered frames, stored frames, and returned ones."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import recado
from recado.actors.remote.amqp import ConnectionSharing, Storage, transport
from recado.actors.remote.amqp.bridge import DeliveredFrames
from recado.actors.remote.amqp.frame_batch import BATCH_MAX_BYTES, encode_batch
from recado.actors.remote.errors import LimitExceededError, LinkClosedError, NoRouteError
from recado.client import (
    AuthenticationError,
    CannotConnectError,
    Channel,
    ChannelClosedByBrokerError,
    Connection,
    connect,
)
from tests.actors.remote.running import in_a_loop
from workshop.peers import free_ports

from .ends import LIMIT, End, end, frame, frames

EVERY_STORAGE = pytest.mark.parametrize("storage", Storage)


@pytest.mark.parametrize("sharing", ConnectionSharing)
@EVERY_STORAGE
@in_a_loop
async def test_frames_go_there_and_answers_back(
    storage: Storage, sharing: ConnectionSharing
) -> None:
    policy: dict[str, Any] = {
        "storage": storage,
        "server_sharing": sharing,
        "client_sharing": sharing,
    }
    async with (
        recado.Broker() as broker,
        end(broker.url, "server", **policy) as server,
        end(broker.url, "node", "client", server_bridge=False, **policy) as client,
    ):
        server.answer = lambda frame: frame + b"!"
        link = client.transport.connect("server")
        assert (link.peer, link.is_durable) == ("server", True)
        assert client.transport.connect("server") is link
        for each in frames(0, 500):
            link.post(each)
        await client.until(lambda: len(client.frames) == 500)
        assert server.frames == frames(0, 500)
        assert client.frames == [each + b"!" for each in frames(0, 500)]
        assert set(client.links) == {link}
        assert {each.peer for each in server.links} == {"client"}
        assert server.events == client.events == []


@in_a_loop
async def test_the_largest_frame_passes_and_a_larger_one_is_dropped() -> None:
    async with (
        recado.Broker() as broker,
        end(broker.url, "server") as server,
        end(broker.url, "client") as client,
    ):
        largest = bytes(range(256)) * (LIMIT // 256)
        for each in (largest + b"x", largest):
            client.transport.connect("server").post(each)
        await server.until(lambda: bool(server.frames))
        assert server.frames == [largest]
        assert await waiting(broker.url, "actor.queue.in.server") == 0


@in_a_loop
async def test_what_was_not_settled_comes_to_the_next_life() -> None:
    async with recado.Broker() as broker, end(broker.url, "client") as client:
        link = client.transport.connect("server")
        async with end(broker.url, "server") as server:
            server.settles_at_once = False
            await client.until(lambda: client.is_well)
            posted: list[bytes] = []
            for each in frames(0, 5):  # each by itself
                link.post(each)
                posted.append(each)
                await server.until(lambda: server.frames == posted)
            settle_some(server, {0: True, 3: True, 2: False})
        link.post(frame(5))
        async with end(broker.url, "server") as server:
            await server.until(lambda: len(server.frames) == 3)
            assert server.frames == [frame(1), frame(4), frame(5)]


@pytest.mark.parametrize("unsettled", [None, 2])
def test_what_travels_together_is_settled_together(unsettled: int | None) -> None:
    """And is redelivered together, if one of the frames was not settled."""

    @in_a_loop
    async def travel() -> None:
        async with recado.Broker() as broker, end(broker.url, "client") as client:
            link = client.transport.connect("server")
            async with end(broker.url, "server") as server:
                server.settles_at_once = False
                await client.until(lambda: client.is_well)
                for each in frames(0, 5):
                    link.post(each)
                await server.until(lambda: len(server.frames) == 5)
                assert server.frames == frames(0, 5)
                settle_some(server, {n: True for n in range(5) if n != unsettled})
            left = await waiting(broker.url, "actor.queue.in.server")
            assert left == (0 if unsettled is None else 1)
            link.post(frame(5))
            async with end(broker.url, "server") as server:
                # The first one had nothing to wait for, and was sent at once.
                expected = frames(5, 6) if unsettled is None else frames(1, 6)
                await server.until(lambda: len(server.frames) == len(expected))
                assert server.frames == expected

    travel()


def settle_some(server: End, taken: dict[int, bool]) -> None:
    for number, whether in taken.items():
        settle = server.settles[number]
        assert settle is not None
        settle(whether)


@in_a_loop
async def test_parcels_that_are_none_come_as_they_are_and_those_above_the_limit_do_not() -> None:
    """The listener gets invalid batches as they are, and decides when to close the link."""
    async with recado.Broker() as broker, end(broker.url, "server") as server:
        async with await connect(broker.url) as connection:
            channel = await connection.channel()
            whole = encode_batch(frames(1, 4))
            bad = [
                b"\x02",
                whole[:-1],
                whole + b"\x00",
                b"\x02" + bytes(BATCH_MAX_BYTES),
                whole * 1000,
            ]
            for body in (*bad, b"\x02" + bytes(LIMIT), b"", whole):
                channel.publish("actor.exchange.in.server", "to.server.server", body)
            expected = [*bad, *frames(1, 4)]
            await server.until(lambda: len(server.frames) == len(expected))
        assert server.frames == expected
        assert await waiting(broker.url, "actor.queue.in.server") == 0


class Takes:
    """A handler that accepts everything."""

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.taken: list[bytes] = []
        self.all_came = asyncio.Event()

    def frames_delivered(self, messages: DeliveredFrames) -> bool:
        self.taken += messages.frames
        if len(self.taken) >= self.wanted:
            self.all_came.set()
        return True

    def frame_rejected(self, key: str, body: bytes, reason: str) -> None:
        raise AssertionError(f"{key} came back: {reason}")


@in_a_loop
async def test_what_a_handler_takes_is_acknowledged() -> None:
    async with recado.Broker() as broker, end(broker.url, "client") as client:
        async with end(broker.url, "server") as server:
            assert server.transport._server_links is not None
            handler = server.transport._server_links.bridge.handler = Takes(5)
            for each in frames(0, 5):
                client.transport.connect("server").post(each)
            await handler.all_came.wait()
        assert handler.taken == frames(0, 5)
        assert await waiting(broker.url, "actor.queue.in.server") == 0


@in_a_loop
async def test_a_client_with_the_same_id_finds_its_answers() -> None:
    async with recado.Broker() as broker, end(broker.url, "server") as server:
        async with end(broker.url, "node", "client", server_bridge=False) as client:
            client.transport.connect("server").post(frame(1))
            await server.until(lambda: server.frames == [frame(1)])
        server.links[0].post(b"the answer")
        async with end(broker.url, "node", "client", server_bridge=False) as client:
            client.transport.connect("server")
            await client.until(lambda: client.frames == [b"the answer"])


@in_a_loop
async def test_frames_for_a_node_that_never_was_come_back() -> None:
    async with recado.Broker() as broker, end(broker.url, "client") as client:
        link = client.transport.connect("server")
        link.post(frame(1))
        await client.until(lambda: client.returned_frames == [frame(1)])
        assert client.events == ["lost"]
        async with end(broker.url, "server") as server:
            await client.until(lambda: client.events == ["lost", "healed"])
            link.post(frame(2))
            await server.until(lambda: server.frames == [frame(2)])


@in_a_loop
async def test_answers_to_a_client_that_is_gone_come_back() -> None:
    exclusive: dict[str, Any] = {"storage": Storage.EXCLUSIVE_AUTODELETE}
    async with recado.Broker() as broker, end(broker.url, "server", **exclusive) as server:
        async with end(broker.url, "client", **exclusive) as client:
            client.transport.connect("server").post(frame(1))
            await server.until(lambda: server.frames == [frame(1)])
        server.links[0].post(b"the answer")
        await server.until(lambda: server.returned_frames == [b"the answer"])
        async with end(broker.url, "client", **exclusive) as client:
            client.transport.connect("server").post(frame(2))
            await server.until(lambda: server.frames == [frame(1), frame(2)])


@EVERY_STORAGE
@in_a_loop
async def test_what_stays_on_the_broker_is_what_the_policy_says(storage: Storage) -> None:
    async with recado.Broker() as broker:
        async with (
            end(broker.url, "server", storage=storage) as server,
            end(broker.url, "client", storage=storage) as client,
        ):
            client.transport.connect("server").post(frame(1))
            await server.until(lambda: server.frames == [frame(1)])
        stays = storage is not Storage.EXCLUSIVE_AUTODELETE
        for queue in ("actor.queue.in.server", "actor.queue.out.server.client"):
            if stays:
                assert await waiting(broker.url, queue) == 0
            else:
                with pytest.raises(ChannelClosedByBrokerError):
                    await waiting(broker.url, queue)


async def waiting(url: str, queue: str) -> int:
    async with await Connection.open(url) as connection:
        channel: Channel = await connection.channel()
        return (await channel.declare_queue(queue, passive=True)).message_count


@in_a_loop
async def test_what_was_posted_is_sent_before_the_end() -> None:
    async with recado.Broker() as broker, end(broker.url, "server") as server:
        async with end(broker.url, "client") as client:
            link = client.transport.connect("server")
            link.post(frame(0))
            await server.until(lambda: bool(server.frames))
            for each in frames(1, 1000):
                link.post(each)
        await server.until(lambda: server.frames == frames(0, 1000))
        with pytest.raises(NoRouteError):
            client.transport.connect("server")
        with pytest.raises(LinkClosedError):
            link.post(frame(1))


@in_a_loop
async def test_what_was_posted_before_the_bridge_is_up_is_sent_before_the_end() -> None:
    async with recado.Broker() as broker, end(broker.url, "server") as server:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(transport, "CLOSE_TIMEOUT_S", 30)  # however busy the machine is
            async with end(broker.url, "client") as client:
                for each in frames(0, 10):
                    client.transport.connect("server").post(each)
        await server.until(lambda: server.frames == frames(0, 10))
        assert client.returned_frames == []


@in_a_loop
async def test_what_no_broker_has_taken_by_the_end_comes_back() -> None:
    async with recado.Broker() as broker:
        url = broker.url
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transport, "CLOSE_TIMEOUT_S", 0.05)
        async with end(url, "client", server_bridge=False) as client:
            client.transport.connect("server").post(frame(1))
    assert client.returned_frames == [frame(1)]


@in_a_loop
async def test_a_broker_that_lets_nobody_in_is_not_waited_for_at_the_end() -> None:
    async with recado.Broker() as broker:
        url = broker.url.replace("guest:guest", "guest:guess")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(transport, "CLOSE_TIMEOUT_S", 1_000)
            async with end(url, "client", server_bridge=False) as client:
                client.transport.connect("server").post(frame(1))
        assert client.returned_frames == [frame(1)]


@in_a_loop
async def test_a_closed_link_takes_nothing_and_a_new_one_does() -> None:
    async with (
        recado.Broker() as broker,
        end(broker.url, "server") as server,
        end(broker.url, "client") as client,
    ):
        link = client.transport.connect("server")
        link.post(frame(1))
        await server.until(lambda: server.frames == [frame(1)])
        link.close()
        with pytest.raises(LinkClosedError):
            link.post(frame(1))
        with pytest.raises(LinkClosedError):
            await link.drain()
        client.transport.connect("server").post(frame(2))
        await server.until(lambda: server.frames == [frame(1), frame(2)])


@in_a_loop
async def test_a_client_whose_link_the_node_has_closed_gets_another() -> None:
    async with (
        recado.Broker() as broker,
        end(broker.url, "server") as server,
        end(broker.url, "client") as client,
    ):
        for number in (1, 2, 3):
            client.transport.connect("server").post(frame(number))
            await server.until(lambda number=number: len(server.frames) == number)  # type: ignore[misc]
            if number == 1:
                server.links[0].close()
        one, two, three = server.links
        assert one is not two
        assert two is three
        two.post(b"an answer")
        await client.until(lambda: client.frames == [b"an answer"])


@in_a_loop
async def test_a_name_that_no_broker_takes_is_no_way() -> None:
    async with recado.Broker() as broker, end(broker.url, "client") as client:
        with pytest.raises(NoRouteError, match="bytes too long"):
            client.transport.connect("n" * 250)


@in_a_loop
async def test_a_second_node_of_the_same_name_is_refused() -> None:
    async with recado.Broker() as broker, end(broker.url, "server") as server:
        with pytest.raises(CannotConnectError, match="403"):
            async with end(broker.url, "server", connect_timeout=0.5):
                pass
        async with end(broker.url, "client") as client:
            client.transport.connect("server").post(frame(1))
            await server.until(lambda: server.frames == [frame(1)])


@in_a_loop
async def test_a_wrong_password_is_told_at_once() -> None:
    async with recado.Broker() as broker:
        with pytest.raises(AuthenticationError):
            async with end(broker.url.replace("guest:guest", "guest:guess"), "server"):
                pass


@in_a_loop
async def test_a_node_waits_for_its_broker() -> None:
    (port,) = free_ports(1)
    url = f"amqp://guest:guest@127.0.0.1:{port}"
    going = end(url, "server", connect_timeout=0.1)
    opening = asyncio.create_task(going.__aenter__())
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(opening), 0.5)  # several attempts
    async with recado.Broker(port=port) as broker:
        server = await opening
        async with end(broker.url, "client") as client:
            client.transport.connect("server").post(frame(1))
            await server.until(lambda: server.frames == [frame(1)])
        await going.__aexit__(None, None, None)


@in_a_loop
async def test_a_node_waits_for_its_broker_no_longer_than_give_up() -> None:
    async with recado.Broker() as broker:
        url = broker.url
    with pytest.raises(CannotConnectError, match=r"connection to .* refused"):
        async with end(url, "server", reconnect_timeout=0.3):
            pass


@in_a_loop
async def test_a_node_that_is_cancelled_while_it_waits_for_its_broker_leaves_nothing() -> None:
    (port,) = free_ports(1)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3), end(f"amqp://127.0.0.1:{port}", "server"):
            pass
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []


@in_a_loop
async def test_too_many_clients_forget_the_one_that_was_silent_longest() -> None:
    async with recado.Broker() as broker, end(broker.url, "server", max_clients=2) as server:
        for number, client in enumerate(["one", "two", "one", "three"], 1):
            async with end(broker.url, "node", client, server_bridge=False) as there:
                there.transport.connect("server").post(frame(number))
                await server.until(lambda number=number: len(server.frames) == number)  # type: ignore[misc]
        assert server.events == ["gone"]
        one, two, again, three = server.links
        assert one is again
        with pytest.raises(LinkClosedError):
            two.post(frame(1))
        one.post(frame(1))
        three.post(frame(1))


@in_a_loop
async def test_what_waits_is_bounded_and_there_is_room_again() -> None:
    async with (
        recado.Broker() as broker,
        end(broker.url, "server") as server,
        end(broker.url, "client", send_buffer_bytes=1 << 16) as client,
    ):
        link = client.transport.connect("server")
        for number in range(54):  # each counts with its overhead
            link.post(frame(number, 1000))
        with pytest.raises(LimitExceededError):
            link.post(frame(54, 1000))
        await link.drain()
        link.post(frame(54, 1000))
        await server.until(lambda: len(server.frames) == 55)
