"""A message is the same when it is sent locally, to another node, and through a durable mailbox to the next
incarnation."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recado.actors import ActorSystem, DurableMailboxes
from recado.actors.remote import MemoryNetwork, MemoryTransport, RemoteOptions
from recado.journal.disk import MemoryDisk

from .values import Carry, Echoing, alike, orders, quicks, values


@pytest.mark.parametrize("serializer", ["msgpack", "json"])
@settings(max_examples=15, deadline=None)
@given(
    messages=st.lists(st.builds(Carry, values) | orders | quicks, min_size=1, max_size=12),
)
def test_local_remote_and_durable_are_alike(
    serializer: Literal["msgpack", "json"], messages: list[Any]
) -> None:
    disk, hub, options = MemoryDisk(), MemoryNetwork(), RemoteOptions(serializer=serializer)
    local: list[Any] = []
    remote: list[Any] = []
    durable: list[Any] = []

    async def first() -> None:
        async with (
            ActorSystem("server", transport=MemoryTransport(hub), options=options) as server,
            ActorSystem("client", transport=MemoryTransport(hub), options=options) as client,
        ):
            boxes = DurableMailboxes(server, disk)
            here = await server.spawn(lambda: Echoing(local))
            there = await server.spawn(lambda: Echoing(remote), name="echo")
            kept = await server.spawn(Echoing, name="kept", mailbox=boxes.mailbox("kept"))
            there = client.actor("echo", node="server")
            await server.stop(kept)
            for message in messages:
                for ref in (here, there):
                    answer = await ref.ask(message)
                    assert alike(answer, message.value if isinstance(message, Carry) else message)
                await kept.tell_wait(message)

    async def second() -> None:
        async with ActorSystem("server") as server:
            boxes = DurableMailboxes(server, disk)
            kept = await server.spawn(
                lambda: Echoing(durable), name="kept", mailbox=boxes.mailbox("kept")
            )
            await kept.ask(Carry(None))
            durable.pop()
            assert server.dead_letter_count == 0

    asyncio.run(first())
    asyncio.run(second())
    for seen in (local, remote, durable):
        assert len(seen) == len(messages)
        assert all(map(alike, seen, messages))
