"""An attacker who may publish on the broker, and has no cookie: other nodes are served as before."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

import recado
from recado.actors import ActorError, ActorRef, ActorSystem
from recado.actors.remote.amqp import AmqpSettings, AmqpTransport, naming
from recado.actors.remote.inbound.refusals import MAX_STRIKES
from recado.actors.remote.options import RemoteOptions
from recado.client import Channel, Connection, Properties
from tests.actors.remote.running import in_a_loop

from .mallory import COOKIE, Account, Balance, Deposit, Mallory

BANK = RemoteOptions(cookie=COOKIE, require_cookie=True, max_frame_bytes=4096)
CUSTOMER = RemoteOptions(
    cookie=COOKIE, require_cookie=True, max_frame_bytes=4096, client_id="alice"
)


@dataclass
class Scene:
    account: ActorRef[Deposit | Balance]  # as the customer knows it
    channel: Channel  # hers

    async def publish(self, key: str, body: bytes, reply_to: str = "") -> None:
        exchange = naming.inbound_exchange("bank")
        self.channel.publish(exchange, key, body, Properties(reply_to=reply_to or None))
        await self.channel.drain()


@asynccontextmanager
async def scene() -> AsyncIterator[Scene]:
    async with recado.Broker() as broker:
        bank = ActorSystem("bank", transport=AmqpTransport(broker.url), options=BANK)
        quiet = AmqpTransport(broker.url, AmqpSettings(server_bridge=False))
        customer = ActorSystem("customer", transport=quiet, options=CUSTOMER)
        async with bank, customer, await Connection.open(broker.url) as connection:
            await bank.spawn(Account, name="account")
            account = customer.actor("account", Account, node="bank")
            assert await account.ask(Deposit(5), timeout=5) == 5
            yield Scene(account, await connection.channel(confirms=False))


@pytest.mark.parametrize("cookie", ["", "wrong"])
def test_forged_messages_in_the_name_of_a_customer(cookie: str) -> None:
    @in_a_loop
    async def go() -> None:
        async with scene() as it:
            mallory = Mallory(cookie)
            for _ in range(2 * MAX_STRIKES):
                await it.publish(naming.key_to_server("bank"), mallory.deposit(), "alice")
            async with asyncio.timeout(10):
                assert await it.account.ask(Balance(), timeout=5) == 5
                assert await it.account.ask(Deposit(1), timeout=5) == 6

    go()


@in_a_loop
async def test_forged_answers_to_a_customer() -> None:
    async with scene() as it:
        mallory = Mallory("wrong", name="bank")
        for _ in range(2 * MAX_STRIKES):
            await it.publish(naming.key_to_client("bank", "alice"), mallory.deposit())
        await ends_well(it)


async def ends_well(it: Scene) -> None:
    """An ask may fall into the moment in which a link is closed: it ends, and the next ones are answered."""
    async with asyncio.timeout(20):
        while True:
            try:
                assert await it.account.ask(Balance(), timeout=1) == 5
                break
            except ActorError:
                continue
        for _ in range(10):
            assert await it.account.ask(Balance(), timeout=5) == 5


NOISE = [b"", b"\0", bytes(26), b"x" * 40, b"\x01" * 41, b"y" * 100_000]
NOISE += [b"\x02", b"\x02\0", b"\x02" + bytes(5000), b"\x02\0\0\0\x1a" + bytes(26)]


@pytest.mark.parametrize("body", NOISE, ids=len)
def test_what_is_no_frame_is_taken_off_the_queue_and_others_are_served(body: bytes) -> None:
    @in_a_loop
    async def go() -> None:
        async with scene() as it:
            for reply_to in ("alice", "somebody", ""):
                await it.publish(naming.key_to_server("bank"), body, reply_to)
            assert await it.account.ask(Deposit(1), timeout=5) == 6
            queue = await it.channel.declare_queue(naming.inbound_queue("bank"), passive=True)
            assert queue.message_count == 0

    go()


@pytest.mark.parametrize("body", [b"\x02\0", b"y" * 5000], ids=["no frame", "too large"])
def test_noise_does_not_fill_the_log(body: bytes, caplog: pytest.LogCaptureFixture) -> None:
    @in_a_loop
    async def go() -> None:
        async with scene() as it:
            for _ in range(20 * MAX_STRIKES):
                await it.publish(naming.key_to_server("bank"), body, "somebody")
            assert await it.account.ask(Deposit(1), timeout=5) == 6

    go()
    said = [each for each in caplog.records if each.name == "recado.actors"]
    assert 0 < len(said) <= 20  # one for each link that is closed, or for each second


@in_a_loop
async def test_a_message_that_was_written_down_is_not_handled_again() -> None:
    """She reads what goes by, and publishes it again; she cannot change a byte of it."""
    async with scene() as it:
        spy = (await it.channel.declare_queue(exclusive=True)).name
        await it.channel.bind_queue(
            spy, naming.inbound_exchange("bank"), naming.key_to_server("bank")
        )
        assert await it.account.ask(Deposit(1), timeout=5) == 6
        recorded = None
        async with asyncio.timeout(5):
            while recorded is None:
                recorded = await it.channel.get(spy, no_ack=True)
        for _ in range(5):
            await it.publish(naming.key_to_server("bank"), recorded.body, "alice")
        assert await it.account.ask(Balance(), timeout=5) == 6
