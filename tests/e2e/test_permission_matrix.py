"""Every method against each missing permission, on recado and RabbitMQ: the reply codes are equal.

Each user in turn runs all cases on one connection, each case on a new channel.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from pamqp import commands as c
from pika import BlockingConnection, ConnectionParameters, PlainCredentials
from pika.exceptions import ProbableAccessDeniedError

import recado
from workshop.peers import HOST, Server

from .permission_cases import (
    CASES,
    CHANNEL,
    DEFINITIONS,
    DIFFERENCES,
    FORBIDDEN_VHOST,
    FULL,
    NEW,
    OBJECTS,
    PASSWORD,
    USERS,
    VHOST,
    Case,
)
from .wire import Wire

PAGE = Path(__file__).parents[2] / "docs" / "compatibility.md"
# Needs no permission, or cannot be allowed.
NEVER_REFUSED = {
    "declare an exchange of an unknown type",
    "receive direct replies",
    "cancel",
    "ack of nothing",
    "recover",
    "qos",
    "transaction",
    "confirms",
    "flow",
}
NEVER_ALLOWED = {
    "bind to the default exchange",
    "declare a queue with a reserved name",
    "declare an exchange with a reserved name",
    "delete the default exchange",
    "publish to an internal exchange",
}

Outcomes = dict[tuple[str, str], str]
"""By user and case: `allowed`, or the code with which the channel or connection closes."""


class Client:
    """A user's connection, opened anew when a case has closed it."""

    def __init__(self, server: Server, user: str) -> None:
        self._server, self._user = server, user
        self._wire: Wire | None = None

    def run(self, case: Case) -> str:
        wire = self._connected()
        wire.send(c.Channel.Open(), *case.methods, c.Basic.Qos(prefetch_count=3), channel=CHANNEL)
        answered = 0
        expected = 1 + sum(isinstance(each, c.Basic.Qos) for each in case.methods)
        while answered < expected:
            _, value = wire.receive()
            if isinstance(value, c.Basic.QosOk):
                answered += 1
            elif isinstance(value, c.Channel.Close):
                wire.send(c.Channel.CloseOk(), channel=CHANNEL)
                return f"channel {value.reply_code}"
            elif isinstance(value, c.Connection.Close):
                self.close()
                return f"connection {value.reply_code}"
        wire.send(c.Channel.Close(200, "", 0, 0), channel=CHANNEL)
        while not isinstance(wire.receive()[1], c.Channel.CloseOk):
            pass
        return "allowed"

    def _connected(self) -> Wire:
        if self._wire is None:
            self._wire = Wire(self._server)
            self._wire.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._wire.handshake(self._user, PASSWORD, VHOST)
        return self._wire

    def close(self) -> None:
        if self._wire is not None:
            self._wire.socket.close()
            self._wire = None


def run_all(server: Server) -> Outcomes:
    owner = Client(server, FULL)
    declare = Case("", (*(c.Queue.Delete(queue=NEW), c.Exchange.Delete(exchange=NEW)), *OBJECTS))
    assert owner.run(declare) == "allowed"
    outcomes = {}
    for user in USERS:
        client = Client(server, user)
        for case in CASES:
            outcome = outcomes[user, case.name] = client.run(case)
            if case.changes and outcome == "allowed":
                assert owner.run(declare) == "allowed"
        client.close()
    owner.close()
    return outcomes


def as_server(broker: recado.Broker) -> Server:
    return Server("recado", broker.port, os.getpid(), log=Path())


@pytest.fixture(scope="module")
def ours() -> Iterator[Outcomes]:
    with recado.Broker() as broker:
        broker.import_definitions(DEFINITIONS)
        yield run_all(as_server(broker))


@pytest.fixture(scope="module")
def theirs(rabbitmq_server: Server) -> Outcomes:
    return run_all(rabbitmq_server)


def test_the_reply_codes_are_equal(ours: Outcomes, theirs: Outcomes) -> None:
    differing = {
        (user, case): (theirs[user, case], outcome)
        for (user, case), outcome in ours.items()
        if theirs[user, case] != outcome
        and not any(each.covers(user, case, theirs[user, case], outcome) for each in DIFFERENCES)
    }
    assert differing == {}


def test_every_listed_difference_exists(ours: Outcomes, theirs: Outcomes) -> None:
    page = PAGE.read_text()
    for each in DIFFERENCES:
        assert f"\n| {each.row} |" in page
        for case in each.cases:
            assert each.covers(each.user, case, theirs[each.user, case], ours[each.user, case])


def test_every_case_is_refused_to_a_user_without_permissions(ours: Outcomes) -> None:
    allowed = {case.name for case in CASES if ours["only nothing", case.name] != "channel 403"}
    refused = {case.name for case in CASES if ours[FULL, case.name] == "channel 403"}
    assert allowed == NEVER_REFUSED
    assert refused == NEVER_ALLOWED


@pytest.mark.parametrize("vhost", [FORBIDDEN_VHOST, "none"])
def test_a_vhost_without_permissions_cannot_be_opened(rabbitmq_server: Server, vhost: str) -> None:
    login = PlainCredentials(FULL, PASSWORD)
    with recado.Broker() as broker:
        broker.import_definitions(DEFINITIONS)
        for port in (broker.port, rabbitmq_server.port):
            parameters = ConnectionParameters(HOST, port, vhost, login)
            with pytest.raises(ProbableAccessDeniedError, match="530"):
                BlockingConnection(parameters)
