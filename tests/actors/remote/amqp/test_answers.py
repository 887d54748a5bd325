"""A client that is away when it is answered: the answers wait for it on the broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest

import recado
from recado.actors import Actor, ActorRef, ActorSystem, Message
from recado.actors.durable_mailbox.mailboxes import DurableMailboxes
from recado.actors.remote.amqp import AmqpSettings, AmqpTransport
from recado.journal.disk import Disk
from recado.simulator.disk import SimulatedDisk
from tests.actors.remote.running import in_a_loop


class Question(Message[None]):
    text: str


class Answer(Message[None]):
    text: str


class Heard(Message[list[str]]):
    pass


class Oracle(Actor[Question]):
    """It answers when the test does."""

    def __init__(self, asked: asyncio.Queue[ActorRef[Answer]]) -> None:
        self._asked = asked

    def receive(self, _: Question) -> None:
        assert self.sender is not None
        self._asked.put_nowait(self.sender)


class Pilgrim(Actor[Question | Answer | Heard]):
    def __init__(self, oracle: ActorRef[Question]) -> None:
        self._oracle = oracle
        self._heard: list[str] = []

    def receive(self, message: Question | Answer | Heard) -> None:
        match message:
            case Question():
                self._oracle.tell(message)
            case Answer(text):
                self._heard.append(text)
            case Heard():
                self.reply(self._heard)


@asynccontextmanager
async def pilgrim(
    url: str, disk: Disk, *, serve: bool
) -> AsyncIterator[ActorRef[Question | Answer | Heard]]:
    transport = AmqpTransport(url, AmqpSettings(server_bridge=serve))
    async with ActorSystem("client", transport=transport) as client:
        boxes = DurableMailboxes(client, disk)
        make = partial(Pilgrim, client.actor("oracle", Oracle, node="server"))
        yield await client.spawn(make, name="pilgrim", mailbox=boxes.mailbox("pilgrim"))


@pytest.mark.parametrize("serve", [True, False])
@in_a_loop
async def test_they_come_when_it_speaks_to_that_node_again(serve: bool) -> None:  # R11
    asked: asyncio.Queue[ActorRef[Answer]] = asyncio.Queue()
    disk = SimulatedDisk()
    async with (
        recado.Broker() as broker,
        ActorSystem("server", transport=AmqpTransport(broker.url)) as server,
    ):
        await server.spawn(partial(Oracle, asked), name="oracle")
        async with pilgrim(broker.url, disk, serve=serve) as first:
            first.tell(Question("whither"))
            whom = await asked.get()
        whom.tell(Answer("home"))
        async with pilgrim(broker.url, disk, serve=serve) as second:
            second.tell(Question("and now"))
            while await second.ask(Heard()) != ["home"]:
                pass
