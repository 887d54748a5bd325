"""Commands reach every program of a name, and change its endpoints and detours."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack

import pytest

from recado.client import ChannelClosedByBrokerError
from recado.patterns import (
    CONTROL_EXCHANGE,
    ControlBus,
    ControlCommand,
    ControlConsole,
    Detour,
    Message,
    Messaging,
    PauseEndpoint,
    ProgramState,
    ReadState,
    ReplyError,
    ResumeEndpoint,
    SetConcurrency,
    SetDetour,
)
from tests.client.running import in_a_loop
from tests.e2e import people
from workshop.peers import Server

Name = Callable[[str], str]

TIMEOUT_S = 60


class Shop:
    """A program with an endpoint, a detour and a control bus."""

    def __init__(self, url: str, name: str, queue: str) -> None:
        self.app = Messaging(url, name=name)
        self.detour = Detour("validation")
        self.running = self.most = 0

        @self.app.subscribe(queue, tag="handle", concurrency=1)
        async def handle(number: int) -> int:
            self.running += 1
            self.most = max(self.most, self.running)
            await asyncio.sleep(0.005)
            self.running -= 1
            return number

        self.bus = ControlBus(self.app, detours={"validation": self.detour})


async def obey(console: ControlConsole, command: ControlCommand, app: str) -> ProgramState:
    """The answer of the only program."""
    (state,) = await console.ask(command, app, timeout=TIMEOUT_S, count=1)
    return state


@in_a_loop
async def test_endpoints_are_controlled(server: Server, name: Name) -> None:
    program, queue = name("shop"), name("orders")
    shop, operator = Shop(server.url, program, queue), Messaging(server.url)
    console = ControlConsole(operator)
    async with shop.app, operator:
        assert await operator.request(queue, 1, timeout=TIMEOUT_S) == 1

        state = await obey(console, PauseEndpoint("handle"), program)
        (endpoint, _) = state.endpoints
        assert (endpoint.tag, endpoint.queue, endpoint.state) == ("handle", queue, "paused")
        assert (endpoint.handled, endpoint.failed, endpoint.running) == (1, 0, 0)
        await operator.publish(queue, 2)
        async with operator.consume(queue) as message:  # the endpoint does not take it
            assert message is not None
            assert message.body == 2

        state = await obey(console, SetConcurrency("handle", 5), program)
        assert (state.endpoints[0].state, state.endpoints[0].concurrency) == ("paused", 5)
        await obey(console, ResumeEndpoint("handle"), program)
        requests = [operator.request(queue, n, timeout=TIMEOUT_S) for n in range(50)]
        assert await asyncio.gather(*requests) == list(range(50))
        assert shop.most == 5
        state = await obey(console, SetConcurrency("handle", 1), program)
        assert state.endpoints[0].handled == 51
        assert await operator.request(queue, 1, timeout=TIMEOUT_S) == 1

        state = await obey(console, SetDetour("validation", True), program)
        assert state.detours == {"validation": True}
        assert shop.detour.open


@in_a_loop
async def test_commands_that_cannot_be_obeyed(server: Server, name: Name) -> None:
    program = name("shop")
    shop, operator = Shop(server.url, program, name("orders")), Messaging(server.url)
    console = ControlConsole(operator)

    @shop.app.listen(name("orders"), bindings=[(CONTROL_EXCHANGE, "none")])
    async def observe(message: Message[object]) -> None: ...

    async with shop.app, operator:
        for command, reason in (
            (PauseEndpoint("other"), "no endpoint 'other'"),
            (PauseEndpoint("control-bus"), "the control bus cannot change its own endpoint"),
            (SetConcurrency("handle", 0), "concurrency 0 must be from 1 to 1000"),
            (SetConcurrency("observe", 2), "endpoint 'observe' has no concurrency"),
            (SetDetour("other", True), "no detour 'other'"),
        ):
            state = await obey(console, command, program)
            assert state.error == reason
            assert state.endpoints[0].state == "consuming"
        with pytest.raises(ReplyError, match="explode"):
            await operator.request(
                CONTROL_EXCHANGE, {"type": "explode"}, key=program, timeout=TIMEOUT_S
            )
        assert (await obey(console, ReadState(), program)).error is None


@in_a_loop
async def test_every_program_of_a_name_answers(server: Server, name: Name) -> None:
    program, queue = name("shop"), name("orders")
    shops = [Shop(server.url, program, queue) for _ in range(2)]
    operator = Messaging(server.url)
    console = ControlConsole(operator)
    async with AsyncExitStack() as stack:
        for app in (*(shop.app for shop in shops), operator):
            await stack.enter_async_context(app)
        states = await console.ask(ReadState(), program, timeout=TIMEOUT_S, count=2)
        assert {state.program for state in states} == {shop.bus.program for shop in shops}
        pause = PauseEndpoint("handle", program=shops[0].bus.program)
        (state,) = await console.ask(pause, program, timeout=TIMEOUT_S, count=1)
        assert state.program == shops[0].bus.program
        assert shops[1].app.health().is_healthy
        assert shops[1].app.endpoints["handle"].is_consuming
        assert await console.ask(ReadState(), name("nobody"), timeout=0.05) == []


@in_a_loop
async def test_permission_to_write_is_permission_to_command(server: Server, name: Name) -> None:
    program = name("shop")
    vhost = f"{server.host}:{server.port}/{people.OTHER}"
    shop = Shop(f"amqp://guest:guest@{vhost}", program, name("orders"))
    intruder = Messaging(f"amqp://{people.LIMITED}:{people.SECRET}@{vhost}")
    async with shop.app, intruder:
        with pytest.raises(ChannelClosedByBrokerError) as refusal:
            await intruder.publish(CONTROL_EXCHANGE, PauseEndpoint("handle"), key=program)
        assert refusal.value.reply_code == 403
        assert shop.app.endpoints["handle"].is_consuming
