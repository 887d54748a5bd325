"""Several services are asked, and their replies become one message."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from recado.patterns import (
    CompositionError,
    ContentRouter,
    DeliveryInfo,
    FlowStep,
    Message,
    Messaging,
    Recipient,
    RejectMessageError,
    Send,
    StatefulStep,
    composed_message_processor,
    scatter_gather,
)
from recado.patterns.return_address import REPLY_ERROR_HEADER
from recado.patterns.step import AnyFlowStep
from tests.client.running import in_a_loop
from tests.patterns.dict_state import DictState
from workshop.peers import Server

Name = Callable[[str], str]

DELIVERY = DeliveryInfo(exchange="", queue="quotes", redelivered=False, raw_body=b"")
REQUEST = Message(
    body={"product": "pen"}, reply_to="client", correlation_id="c", delivery=DELIVERY, priority=3
)


def run(
    steps: Sequence[AnyFlowStep], message: Message[Any], state: DictState, first: int = 0
) -> list[Any]:
    """Lead a message through the steps from number `first`, and return the outputs."""
    outputs: list[Any] = [message]
    for step in steps[first:]:
        following: list[Any] = []
        for output in outputs:
            if isinstance(output, Send):
                following.append(output)
            elif isinstance(step, StatefulStep):
                following.extend(step.process(output, state))
            else:
                following.extend(step.process(output))  # type: ignore[arg-type]
        outputs = following
    return outputs


def reply(to: Send, body: Any, **fields: Any) -> Message[Any]:
    """The reply of a service, which copies the correlation id."""
    return Message(body=body, correlation_id=to.message.correlation_id, delivery=DELIVERY, **fields)


def bodies(messages: list[Message[Any]]) -> list[Any]:
    return [message.body for message in messages]


def test_replies_are_combined_in_the_order_of_the_recipients() -> None:
    state, steps = DictState(), scatter_gather("a", "b", "c", combine=bodies, timeout=5)
    sent = run(steps, REQUEST, state)
    assert [each.to.name for each in sent] == ["a", "b", "c"]
    assert {each.message.reply_to for each in sent} == {"quotes"}
    assert {str(each.message.body) for each in sent} == {"{'product': 'pen'}"}
    assert run(steps, reply(sent[2], 3), state) == []
    assert run(steps, reply(sent[0], 1), state) == []
    assert run(steps, reply(sent[0], 1), state) == []  # again
    (combined,) = run(steps, reply(sent[1], 2), state)
    assert combined.message.body == [1, 2, 3]
    assert (combined.message.key, combined.message.correlation_id) == ("client", "c")
    assert combined.message.reply_to is None
    assert combined.message.headers == {}
    assert run(steps, reply(sent[1], 2), state) == []  # late


def test_the_time_begins_with_the_request() -> None:
    for answers in (0, 1):
        state = DictState(now=100.0)
        steps = scatter_gather("a", "b", combine=bodies, timeout=5)
        sent = run(steps, REQUEST.replace(reply_to=None), state)
        for each in sent[:answers]:
            run(steps, reply(each, each.to.name), state)
        state.now = 104.9
        assert isinstance(steps[1], StatefulStep)
        assert list(steps[1].expire(state)) == []
        state.now = 105.0
        (group,) = steps[1].expire(state)
        assert isinstance(group, Message)
        (combined,) = run(steps, group, state, 2)
        assert combined.body == ["a"][:answers]  # without a return address it continues
        assert combined.priority == 3


def test_failed_services_are_missing() -> None:
    state, steps = DictState(), scatter_gather("a", "b", combine=bodies, timeout=5)
    sent = run(steps, REQUEST, state)
    run(steps, reply(sent[0], None, headers={REPLY_ERROR_HEADER: "ValueError"}), state)
    (combined,) = run(steps, reply(sent[1], 2), state)
    assert combined.message.body == [2]


def test_conditions_of_recipients_and_requests_without_recipients() -> None:
    state = DictState()
    steps = scatter_gather(Recipient("a", "json.product = 'pen'"), combine=len, timeout=5)
    assert len(run(steps, REQUEST, state)) == 1
    (combined,) = run(steps, REQUEST.with_body({"product": "ink"}), state)
    assert combined.message.body == 0


def test_headers_of_services_do_not_matter() -> None:
    state, steps = DictState(), scatter_gather("a", combine=lambda replies: replies[0], timeout=5)
    (sent,) = run(steps, REQUEST, state)
    copied = {"recado.sequence-id": 7, "recado.sequence-outer": "x", "colour": "red"}
    (combined,) = run(steps, reply(sent, 1, headers=copied), state)
    assert combined.message.headers == {"colour": "red"}  # combine returned the reply itself


@pytest.mark.parametrize("token", ["", "x", "x.1.2", "x.3.2", "x.a.2", "x.2.", ".2.2", "x.2.2.2"])
def test_invented_tokens(token: str) -> None:
    steps = scatter_gather("a", combine=bodies, timeout=5)
    with pytest.raises(RejectMessageError, match="invalid correlation id"):
        run(steps, REQUEST.replace(correlation_id=f"recado.scatter.{token}"), DictState())


def test_replies_to_no_request_are_dropped() -> None:
    state, steps = DictState(), scatter_gather("a", combine=bodies, timeout=5)
    invented = REQUEST.replace(correlation_id="recado.scatter.x.2.2")
    assert run(steps, invented, state) == []
    state.now += 5
    assert isinstance(steps[1], StatefulStep)
    (group,) = steps[1].expire(state)
    assert isinstance(group, Message)
    assert run(steps, group, state, 2) == []


def test_requests_need_a_queue_for_the_replies() -> None:
    with pytest.raises(CompositionError, match="only received messages"):
        run(scatter_gather("a", combine=bodies, timeout=5), Message(body=1), DictState())


class Late(FlowStep):
    async def process(self, message: Message[Any]) -> list[Message[Any]]:
        return [message]


def test_parts_are_processed_elsewhere() -> None:
    state = DictState()
    router = ContentRouter({"json.kind = 'pen'": "pens", "json.kind = 'ink'": "inks"})
    steps = composed_message_processor(
        lambda order: order["lines"], router, combine=bodies, timeout=5
    )
    lines = [{"kind": "pen"}, {"kind": "paper"}, {"kind": "ink"}]
    sent = run(steps, REQUEST.with_body({"lines": lines}), state)
    assert [(each.to, each.message.body["kind"]) for each in sent] == [
        ("pens", "pen"),
        ("inks", "ink"),
    ]
    assert run(steps, reply(sent[1], "checked ink"), state) == []
    (combined,) = run(steps, reply(sent[0], "checked pen"), state)
    assert combined.message.body == ["checked pen", {"kind": "paper"}, "checked ink"]
    (combined,) = run(steps, REQUEST.with_body({"lines": []}), state)
    assert combined.message.body == []
    assert list(steps[0].destinations()) == ["pens", "inks"]
    with pytest.raises(CompositionError, match="Late must not be asynchronous"):
        composed_message_processor(iter, Late(), combine=bodies, timeout=5)


@in_a_loop
async def test_a_flow_asks_services(server: Server, name: Name, tmp_path: Path) -> None:
    banks = [name("bank") for _ in range(3)]
    quotes = name("quotes")
    app = Messaging(server.url, store=tmp_path / "state.sqlite")
    app.flow(quotes, *scatter_gather(*banks, name("silent"), combine=bodies, timeout=1))

    for number, bank in enumerate(banks):

        @app.subscribe(bank, tag=bank)
        async def quote(amount: int, number: int = number) -> int:
            if number == 2:
                raise ValueError("this bank has no money")
            await asyncio.sleep(0.01 * (2 - number))
            return amount * (number + 1)

    async with app:
        requests = [app.request(quotes, amount, timeout=60) for amount in (10, 100)]
        assert await asyncio.gather(*requests) == [[10, 20], [100, 200]]
