"""`recado actors`: output for nodes over both transports, and errors."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable

import pytest

import recado
from recado.actors.actor import Actor
from recado.actors.message import Message
from recado.actors.remote.amqp.transport import AmqpTransport
from recado.actors.remote.options import RemoteOptions
from recado.actors.remote.tcp.transport import TcpTransport
from recado.actors.remote.transport import Transport
from recado.actors.system import ActorSystem
from recado.cli import main

HOST = "127.0.0.1:0"


class Fail(Message[None]):
    pass


class Clerk(Actor[Fail]):
    def receive(self, message: Fail) -> None:
        raise RuntimeError("as told")


class Desk(Actor[Fail]):
    async def pre_start(self) -> None:
        clerk = await self.start_link(Clerk, name="clerk.1")
        with pytest.raises(RuntimeError):
            await clerk.ask(Fail())
        await self.start_link(Clerk)

    def receive(self, message: Fail) -> None:
        pass


def beside(transport: Transport, options: RemoteOptions, words: Callable[[], list[str]]) -> int:
    """Return the exit status of the command, run in a thread beside a node with an actor."""

    async def work() -> int:
        async with ActorSystem("office", transport=transport, options=options) as system:
            await system.spawn(Desk, name="desk")
            return await asyncio.to_thread(main, ["actors", *words()])

    return asyncio.run(bounded(work()))


async def bounded(work: Awaitable[int]) -> int:
    return await asyncio.wait_for(work, 60)


def of_tcp(tcp: TcpTransport) -> str:
    host, port = tcp.address
    return f"tcp://{host}:{port}"


def test_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    tcp = TcpTransport(HOST)
    assert beside(tcp, RemoteOptions(), lambda: [of_tcp(tcp), "office"]) == 0
    headline, nodes, _, heading, *rows = capsys.readouterr().out.splitlines()
    assert headline == "office: 3 actors, 0 dead letters"
    assert nodes == f"connected to recado-actors-{os.getpid()}"
    assert heading.split() == ["name", "class", "state", "mailbox", "restarts", "supervisor"]
    assert rows[0].split() == ["desk", "Desk", "started", "0", "0"]
    assert rows[1].split() == ["clerk.1", "Clerk", "started", "0", "1", "desk"]
    assert rows[2].split()[1:] == ["Clerk", "started", "0", "0", "desk"]
    assert rows[2].startswith("#")


def test_json_over_a_broker(
    recado_broker: recado.Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [recado_broker.url, "office", "--json"]
    assert beside(AmqpTransport(recado_broker.url), RemoteOptions(), lambda: words) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["node"], found["actors"]) == ("office", 3)
    assert [each["name"] for each in found["seen"]] == ["desk", "clerk.1", ""]
    assert [each["restarts"] for each in found["seen"]] == [0, 1, 0]


def test_the_nodes_own_actors(capsys: pytest.CaptureFixture[str]) -> None:
    tcp = TcpTransport(HOST)
    assert beside(tcp, RemoteOptions(), lambda: [of_tcp(tcp), "office", "--internals"]) == 0
    assert "recado.inspector" in capsys.readouterr().out


def test_more_than_a_page(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recado.actors.inspection.PAGE_ACTORS_MAX", 2)
    tcp = TcpTransport(HOST)
    assert beside(tcp, RemoteOptions(), lambda: [of_tcp(tcp), "office", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["seen"]) == 3


def test_a_cookie(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    demanding = RemoteOptions(cookie="secret", require_cookie=True)
    tcp = TcpTransport(HOST)
    quickly = ["--timeout", "2"]
    assert beside(tcp, demanding, lambda: [of_tcp(tcp), "office", *quickly]) == 1
    assert "Pass its cookie with --cookie" in capsys.readouterr().err
    tcp = TcpTransport(HOST)
    assert beside(tcp, demanding, lambda: [of_tcp(tcp), "office", "--cookie", "secret"]) == 0
    monkeypatch.setenv("RECADO_ACTORS_COOKIE", "secret")
    tcp = TcpTransport(HOST)
    assert beside(tcp, demanding, lambda: [of_tcp(tcp), "office"]) == 0


def test_a_node_that_is_not_there(
    recado_broker: recado.Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["actors", recado_broker.url, "nobody", "--timeout", "3"]) == 1
    assert capsys.readouterr().err.startswith("recado: nobody: ")


def test_a_broker_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["actors", "amqp://127.0.0.1:1", "office", "--timeout", "2"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("recado: office: ")
    assert "connection to 127.0.0.1:1 refused" in line


def test_a_url_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["actors", "http://localhost", "office"]) == 2
    assert "is not a tcp:// or amqp:// URL" in capsys.readouterr().err
