"""Handlers: what a function wants to receive, read from its annotations.

async def handle(order: Order) -> Receipt          # the body, decoded to its type
async def handle(message: Message[Order])          # the message with all properties
def handle(order): …                               # any body; a plain function runs in a thread
def handle(order: Order, transaction: StoreTransaction)     # within the transaction of its inbox
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

from .errors import CompositionError
from .message import Message
from .state import StoreTransaction

AnyHandler = Callable[..., Any]


class Handler(msgspec.Struct, frozen=True):
    """A function with the types of its argument and result."""

    function: AnyHandler
    call: Callable[[Any], Awaitable[Any]]
    name: str
    body_type: Any
    reply_type: Any
    wants_message: bool
    wants_transaction: bool = False


def inspect_handler(function: AnyHandler) -> Handler:
    """Read the signature of a handler; raises `CompositionError` if it cannot take one argument."""
    target = function.func if isinstance(function, partial) else function
    if not inspect.isroutine(target):
        target = type(target).__call__
    name = getattr(function, "__qualname__", type(function).__qualname__)
    try:
        hints = get_type_hints(target)
        parameters = list(inspect.signature(function).parameters.values())
        wants_transaction = (
            len(parameters) > 1 and hints.get(parameters[1].name) is StoreTransaction
        )
        inspect.signature(function).bind(*[None] * (1 + wants_transaction))
    except NameError as error:
        raise CompositionError(
            f"handler {name}: the annotation cannot be resolved ({error}); define its type at module level"
        ) from None
    except TypeError as error:
        raise CompositionError(f"handler {name} must accept one argument: {error}") from None
    annotation = hints.get(parameters[0].name, Any)
    wants_message = annotation is Message or get_origin(annotation) is Message
    if wants_message:
        arguments = get_args(annotation)
        body_type = arguments[0] if arguments else Any
    else:
        body_type = annotation
    is_async = inspect.iscoroutinefunction(target)
    call = function if is_async else partial(asyncio.to_thread, _without_stop_iteration(function))
    if is_async and wants_transaction:
        raise CompositionError(
            f"handler {name} runs within a transaction of the store, so it cannot be asynchronous"
        )
    return_type = hints.get("return", Any)
    return Handler(function, call, name, body_type, return_type, wants_message, wants_transaction)


def _without_stop_iteration(function: AnyHandler) -> AnyHandler:
    """Return a function for a thread; a future cannot have the exception `StopIteration`, and would never end."""

    def call(argument: Any) -> Any:
        try:
            return function(argument)
        except StopIteration as error:
            raise RuntimeError("handler raised StopIteration") from error

    return call
