"""Test messages return to their sender; all others continue."""

from __future__ import annotations

from collections.abc import Callable

from recado.patterns import (
    Message,
    Messaging,
    Send,
    TestMessageSeparator,
    is_test_message,
    send_test_message,
)
from tests.client.running import in_a_loop
from workshop.peers import Server


def test_the_separator_returns_test_messages_only() -> None:
    step = TestMessageSeparator()
    order = Message(body=1, reply_to="client", correlation_id="c")
    assert list(step.process(order)) == [order]
    test = order.with_headers({"recado.test": True})
    assert is_test_message(test)
    (output,) = step.process(test)
    assert isinstance(output, Send)
    assert (output.message.key, output.message.correlation_id) == ("client", "c")
    assert list(step.process(test.replace(reply_to=None))) == []


@in_a_loop
async def test_a_handler_recognises_test_messages(
    server: Server, name: Callable[[str], str]
) -> None:
    app, queue = Messaging(server.url), name("orders")
    booked = []

    @app.subscribe(queue)
    async def book(message: Message[int]) -> int:
        if not is_test_message(message):
            booked.append(message.body)
        return message.body * 2

    async with app:
        assert await send_test_message(app, queue, 4, int, timeout=60) == 8
        assert await send_test_message(app, queue, Message(body=5, priority=1), timeout=60) == 10
        assert await app.request(queue, 6, timeout=60) == 12
    assert booked == [6]
