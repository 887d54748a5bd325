"""Test messages: messages that are sent through a running flow to see whether it works.

    app.flow("orders", CheckStock(), TestMessageSeparator(), to="orders.checked")

    assert await send_test_message(app, "orders", Order(id=0)) == CheckedOrder(id=0, in_stock=True)

A test message takes the way of all others. The separator in front of the output returns it to its sender, so that the
output contains no tests. Steps with effects, such as one that books a payment, ask `is_test_message` first.
"""

from typing import Any, ClassVar, Final

from ..destination import DestinationLike
from ..message import Message
from ..messaging import Messaging
from ..return_address import send_reply
from ..step import FlowStep, Outputs

TEST_HEADER: Final = "recado.test"


class TestMessageSeparator(FlowStep):
    """Return test messages to their sender; all others continue."""

    __test__: ClassVar = False  # pytest would take it for a class of tests

    def process(self, message: Message[Any]) -> Outputs:
        if not is_test_message(message):
            return (message,)
        if message.reply_to is None:
            return ()
        return (send_reply(message, message.reply_to, message.correlation_id),)


def is_test_message(message: Message[Any]) -> bool:
    """Return whether the message was sent by `send_test_message`."""
    return TEST_HEADER in message.headers


async def send_test_message(
    app: Messaging,
    to: DestinationLike,
    body: object,
    result_type: Any = Any,
    *,
    timeout: float = 10.0,  # noqa: ASYNC109  as in `Messaging.request`
) -> Any:
    """Send a test message through the flow that begins at `to`, and return the body that reaches its separator.

    The body is decoded to `result_type`. Raises `RequestTimeoutError` if the message does not reach the separator
    within `timeout` seconds, and `ReplyError` if a handler failed.
    """
    message = body if isinstance(body, Message) else Message(body=body)
    test = message.with_headers({TEST_HEADER: True})
    return await app.request(to, test, result_type, timeout=timeout)
