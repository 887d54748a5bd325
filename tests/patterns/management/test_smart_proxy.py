"""Requests get another return address, and replies the original one."""

from __future__ import annotations

from typing import Any

import pytest

from recado.patterns.errors import CompositionError
from recado.patterns.management import ProxiedRequest, SmartProxy
from recado.patterns.message import DeliveryInfo, Message
from recado.patterns.step import Send
from tests.patterns.dict_state import DictState

DELIVERY = DeliveryInfo(exchange="", queue="proxy", redelivered=False, raw_body=b"1")
REQUEST = Message(
    body=1, key="proxy", reply_to="client", correlation_id="c1", delivery=DELIVERY, message_id="m"
)


def sent(step: SmartProxy, message: Message[Any], state: DictState) -> Send:
    (output,) = step.process(message, state)
    assert isinstance(output, Send)
    return output


def test_a_reply_finds_its_requester() -> None:
    seen: list[ProxiedRequest] = []
    state, step = DictState(now=100.0), SmartProxy("service", observe=seen.append)
    first, second = (
        sent(step, REQUEST.replace(correlation_id=each, reply_to=f"client-{each}"), state)
        for each in ("c1", "c2")
    )
    assert first.to == second.to == "service"
    assert first.message.reply_to == "proxy"
    assert first.message.correlation_id != second.message.correlation_id
    assert seen == []

    state.now = 101.5
    answer = Message(body="done", correlation_id=second.message.correlation_id, delivery=DELIVERY)
    reply = sent(step, answer, state)
    assert (reply.message.key, reply.message.correlation_id) == ("client-c2", "c2")
    assert reply.message.body == "done"
    (request,) = seen
    assert (request.received_at, request.replied_at) == (100.0, 101.5)
    assert list(step.process(answer, state)) == []  # a second reply
    assert list(step.destinations()) == ["service"]


def test_requests_without_reply_are_reported_once() -> None:
    seen: list[ProxiedRequest] = []
    state, step = DictState(now=100.0), SmartProxy("service", timeout=5, observe=seen.append)
    forwarded = sent(step, REQUEST, state).message
    state.now = 104.0
    assert list(step.expire(state)) == []
    assert seen == []
    state.now = 105.0
    assert list(step.expire(state)) == []
    assert list(step.expire(state)) == []
    assert [each.replied_at for each in seen] == [None]
    assert list(step.process(forwarded, state)) == []  # a reply that is late
    assert state.tables == {step.table: {}}


def test_messages_without_return_address_are_forwarded() -> None:
    state = DictState()
    message = REQUEST.replace(reply_to=None)
    assert sent(SmartProxy("service"), message, state) == Send("service", message)
    assert state.tables == {}


def test_invented_tokens_and_messages_that_were_not_received() -> None:
    state, step = DictState(), SmartProxy("service")
    assert list(step.process(REQUEST.replace(correlation_id="recado.proxy.x"), state)) == []
    with pytest.raises(CompositionError, match="received messages only"):
        step.process(REQUEST.replace(delivery=None), state)
