"""Interceptors: code around every message that an application publishes and handles, such as tracing."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

from .destination import Destination
from .message import Message

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


def intercept_publish(
    interceptors: Sequence[Interceptor], message: Message[Any], to: Destination | None
) -> Message[Any]:
    """Return what remains of a message after all interceptors."""
    for each in interceptors:
        message = each.publish(message, to)
    return message


async def intercept_handler(
    interceptors: Sequence[Interceptor], message: Message[Any], tag: str, proceed: Proceed
) -> Any:
    """Run a handler inside all interceptors; the first one is outermost."""
    for each in reversed(interceptors):
        proceed = partial(each.handle, message, tag, proceed)
    return await proceed()
