"""Names with line breaks, and the empty name: where RabbitMQ strips CR and LF, and where it does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from pamqp import body, commands, frame, header
from pamqp.base import Frame

from workshop.peers import Server

from .wire import Wire, wire_to

DEFAULT_EXCHANGE = "ACCESS_REFUSED - operation not permitted on the default exchange"


def named(method: Frame, **names: str) -> Frame:
    """The same method with names that pamqp would refuse to send."""
    unchecked = type(type(method).__name__, (type(method),), {"validate": lambda method: None})
    twin: Frame = object.__new__(unchecked)
    for field in method.__slots__:
        setattr(twin, field, names.get(field, getattr(method, field)))
    return twin


@pytest.fixture
def wire(server: Server) -> Iterator[Wire]:
    with wire_to(server) as wire:
        wire.send(commands.Channel.Open(), channel=1)
        wire.expect(commands.Channel.OpenOk)
        yield wire


@pytest.fixture
def queue(wire: Wire, name: Callable[[str], str]) -> str:
    """An exclusive queue, declared on channel 1."""
    queue = name("queue")
    wire.send(commands.Queue.Declare(queue=queue, exclusive=True), channel=1)
    wire.expect(commands.Queue.DeclareOk)
    return queue


@pytest.fixture
def exchange(wire: Wire, name: Callable[[str], str]) -> Iterator[str]:
    exchange = name("exchange")
    wire.send(commands.Exchange.Declare(exchange=exchange, exchange_type="fanout"), channel=1)
    wire.expect(commands.Exchange.DeclareOk)
    yield exchange
    wire.send(commands.Channel.Open(), commands.Exchange.Delete(exchange=exchange), channel=2)
    wire.expect(commands.Channel.OpenOk, commands.Exchange.DeleteOk)


def broken(name: str) -> str:
    """The same name with line breaks inside and at the end."""
    return f"{name[:3]}\r\n{name[3:]}\n\r"


def refusal(wire: Wire, method: Frame | bytes) -> str:
    """The text with which the channel closes."""
    wire.send(method, channel=1)
    closed = wire.expect(commands.Channel.Close)
    assert isinstance(closed, commands.Channel.Close)
    wire.send(commands.Channel.CloseOk(), channel=1)
    return closed.reply_text


@pytest.mark.parametrize("passive", [False, True])
def test_a_declared_queue_has_a_name_without_line_breaks(
    wire: Wire, queue: str, passive: bool
) -> None:
    declare = commands.Queue.Declare(exclusive=True, passive=passive)
    wire.send(named(declare, queue=broken(queue)), channel=1)
    declared = wire.expect(commands.Queue.DeclareOk)
    assert isinstance(declared, commands.Queue.DeclareOk)
    assert declared.queue == queue


def test_a_queue_name_of_line_breaks_only_is_no_name(wire: Wire) -> None:
    wire.send(named(commands.Queue.Declare(exclusive=True), queue="\r\n"), channel=1)
    declared = wire.expect(commands.Queue.DeclareOk)
    assert isinstance(declared, commands.Queue.DeclareOk)
    assert (declared.queue or "").startswith("amq.gen-")


def test_methods_that_declare_bind_and_delete_strip_line_breaks(
    wire: Wire, queue: str, exchange: str
) -> None:
    names = {"queue": broken(queue), "exchange": broken(exchange)}
    ends = {"destination": broken("amq.fanout"), "source": broken(exchange)}
    wire.send(
        named(commands.Exchange.Declare(exchange_type="fanout"), exchange=broken(exchange)),
        named(commands.Exchange.Declare(passive=True), exchange=broken(exchange)),
        named(commands.Queue.Bind(), **names),
        named(commands.Queue.Unbind(), **names),
        named(commands.Exchange.Bind(), **ends),
        named(commands.Exchange.Unbind(), **ends),
        named(commands.Queue.Delete(), queue=broken(queue)),
        named(commands.Exchange.Delete(), exchange=broken(exchange)),
        channel=1,
    )
    wire.expect(
        commands.Exchange.DeclareOk,
        commands.Exchange.DeclareOk,
        commands.Queue.BindOk,
        commands.Queue.UnbindOk,
        commands.Exchange.BindOk,
        commands.Exchange.UnbindOk,
        commands.Queue.DeleteOk,
        commands.Exchange.DeleteOk,
    )
    gone = commands.Queue.Declare(queue=queue, passive=True)
    assert refusal(wire, gone) == f"NOT_FOUND - no queue '{queue}' in vhost '/'"
    wire.send(commands.Channel.Open(), channel=1)
    wire.expect(commands.Channel.OpenOk)
    absent = commands.Exchange.Declare(exchange=exchange, passive=True)
    assert refusal(wire, absent) == f"NOT_FOUND - no exchange '{exchange}' in vhost '/'"


@pytest.mark.parametrize(
    "method",
    [
        commands.Basic.Get(),
        commands.Basic.Consume(),
        commands.Queue.Purge(),
    ],
    ids=lambda method: method.name,
)
def test_methods_that_use_a_queue_take_its_name_as_it_is(
    wire: Wire, queue: str, method: Frame
) -> None:
    text = refusal(wire, named(method, queue=broken(queue)))
    assert text == f"NOT_FOUND - no queue '{broken(queue)}' in vhost '/'"


def test_a_publish_takes_the_exchange_name_as_it_is(wire: Wire, exchange: str) -> None:
    publish = named(commands.Basic.Publish(), exchange=broken(exchange))
    wire.send(publish, channel=1)
    wire.send(frame.marshal(header.ContentHeader(body_size=1), 1))
    text = refusal(wire, frame.marshal(body.ContentBody(b"x"), 1))
    assert text == f"NOT_FOUND - no exchange '{broken(exchange)}' in vhost '/'"


@pytest.mark.parametrize(
    "method",
    [
        named(commands.Exchange.Declare(exchange_type="fanout"), exchange="\r"),
        named(commands.Exchange.Declare(passive=True), exchange="\r"),
        named(commands.Exchange.Delete(), exchange="\n"),
        named(commands.Exchange.Bind(source="amq.fanout"), destination="\r\n"),
        named(commands.Exchange.Unbind(destination="amq.fanout"), source="\r\n"),
        named(commands.Queue.Bind(queue=""), exchange="\n"),
    ],
    ids=lambda method: method.name,
)
def test_an_exchange_name_of_line_breaks_only_is_the_default_exchange(
    wire: Wire, queue: str, method: Frame
) -> None:
    assert refusal(wire, method) == DEFAULT_EXCHANGE


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        ("queue", named(commands.Queue.Declare(), queue="am\rq.mine")),
        ("exchange", named(commands.Exchange.Declare(), exchange="am\rq.mine")),
    ],
)
def test_line_breaks_do_not_hide_a_reserved_prefix(wire: Wire, kind: str, method: Frame) -> None:
    assert refusal(wire, method) == (
        f"ACCESS_REFUSED - {kind} name 'amq.mine' contains reserved prefix 'amq.*'"
    )


@pytest.mark.parametrize(
    "method",
    [
        commands.Queue.Declare(queue="", passive=True),
        named(commands.Queue.Declare(passive=True), queue="\n"),
        named(commands.Queue.Bind(exchange="amq.fanout"), queue="\r\n"),
    ],
    ids=["passive declare", "passive declare of a line break", "bind of a line break"],
)
def test_only_an_empty_name_in_other_methods_stands_for_the_queue_declared_last(
    wire: Wire, queue: str, method: Frame
) -> None:
    assert refusal(wire, method) == "NOT_FOUND - no queue '' in vhost '/'"


def test_a_passive_declare_chooses_the_queue_that_an_empty_name_stands_for(
    wire: Wire, queue: str
) -> None:
    wire.send(
        commands.Queue.Declare(queue="", exclusive=True),
        commands.Queue.Declare(queue=queue, passive=True),
        commands.Queue.Delete(queue=""),
        channel=1,
    )
    wire.expect(commands.Queue.DeclareOk, commands.Queue.DeclareOk, commands.Queue.DeleteOk)
    gone = commands.Queue.Declare(queue=queue, passive=True)
    assert refusal(wire, gone) == f"NOT_FOUND - no queue '{queue}' in vhost '/'"


def test_deleting_a_name_of_line_breaks_deletes_nothing(wire: Wire, queue: str) -> None:
    wire.send(
        named(commands.Queue.Delete(), queue="\r\n"),
        commands.Queue.Declare(queue=queue, passive=True),
        channel=1,
    )
    wire.expect(commands.Queue.DeleteOk, commands.Queue.DeclareOk)
