"""Interceptors: code around every message that an application publishes and handles, such as tracing."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from recado.amqp.properties import decode_properties

from .destination import Destination
from .message import Message
from .publisher import EncodedPublish

Proceed: TypeAlias = Callable[[], Awaitable[Any]]


class Interceptor:
    """Base class: each method does nothing but pass on its message."""

    def publish(self, message: Message[Any], to: Destination | None) -> Message[Any]:
        """Return the message that is published instead; `to` is None for a reply."""
        return message

    async def handle(self, message: Message[Any], tag: str, proceed: Proceed) -> Any:
        """Call `proceed`, which runs the handler of the endpoint `tag`, and return its result.

        An exception of the handler passes through, and decides about retries, so it must be raised again.
        """
        return await proceed()

    async def send(
        self, to: Destination, headers: Sequence[Mapping[str, Any]], proceed: Proceed
    ) -> Any:
        """Call `proceed`, which sends messages with these headers and waits until the broker has confirmed them."""
        return await proceed()

    async def handle_batch(
        self, messages: Sequence[Message[Any]], tag: str, proceed: Proceed
    ) -> Any:
        """Call `proceed`, which leads messages through the steps of the flow `tag`, and return its result."""
        return await proceed()


def intercept_publish(
    interceptors: Sequence[Interceptor], message: Message[Any], to: Destination | None
) -> Message[Any]:
    """Return what remains of a message after all interceptors."""
    for each in interceptors:
        message = each.publish(message, to)
    return message


async def intercept_send(
    interceptors: Sequence[Interceptor],
    publishes: Sequence[EncodedPublish],
    to: Destination,
    proceed: Proceed,
) -> Any:
    """Send messages inside all interceptors."""
    headers = [
        decode_properties(each.properties, max_entries=1 << 16).headers or {} for each in publishes
    ]
    for each in reversed(interceptors):
        proceed = partial(each.send, to, headers, proceed)
    return await proceed()


async def intercept_batch(
    interceptors: Sequence[Interceptor],
    messages: Sequence[Message[Any]],
    tag: str,
    proceed: Proceed,
) -> Any:
    """Lead messages through a flow inside all interceptors."""
    for each in reversed(interceptors):
        proceed = partial(each.handle_batch, messages, tag, proceed)
    return await proceed()


async def intercept_handler(
    interceptors: Sequence[Interceptor], message: Message[Any], tag: str, proceed: Proceed
) -> Any:
    """Run a handler inside all interceptors; the first one is outermost."""
    for each in reversed(interceptors):
        proceed = partial(each.handle, message, tag, proceed)
    return await proceed()
