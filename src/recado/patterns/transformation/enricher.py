"""Content Enricher: add to messages what their sender does not know.

    class AddUser:
        def should_apply(self, message: Message[Any]) -> bool:
            return "user_id" not in message.headers

        def apply(self, message: Message[Any]) -> Message[Any]:
            return message.with_headers(user_id=self.id)

Enrichers are applied in order, each to the result of the one before, which `should_apply` sees as well. A function
of the message is an enricher that always applies. `apply` may be async, for data that must be fetched; as long as
none is, nothing is awaited.
"""

from collections.abc import Awaitable, Callable, Sequence
from inspect import iscoroutinefunction
from typing import Any, Protocol, TypeAlias, cast

from ..errors import CompositionError
from ..message import Message
from ..step import AsyncOutputs, FlowStep, Outputs

_Enriched: TypeAlias = Message[Any] | Awaitable[Message[Any]]


class Enricher(Protocol):
    """Adds something to messages."""

    def should_apply(self, message: Message[Any]) -> bool:
        """Whether a message is to be enriched."""
        ...

    def apply(self, message: Message[Any]) -> _Enriched:
        """Return the enriched message."""
        ...


EnricherLike: TypeAlias = Enricher | Callable[[Message[Any]], _Enriched]


class _FunctionEnricher:
    """A function as an enricher."""

    def __init__(self, function: Callable[[Message[Any]], _Enriched]) -> None:
        self.apply = function

    def should_apply(self, message: Message[Any]) -> bool:
        return True

    def __repr__(self) -> str:
        return f"{self.apply!r}"


def to_enricher(enricher: EnricherLike) -> Enricher:
    """Return an enricher; a function of the message becomes one. Raises CompositionError for anything else."""
    should_apply = getattr(enricher, "should_apply", None)
    apply = getattr(enricher, "apply", None)
    if callable(should_apply) and callable(apply):
        if iscoroutinefunction(should_apply):
            raise CompositionError(f"should_apply of {enricher!r:.100} is async: only apply may be")
        return cast(Enricher, enricher)
    if callable(enricher):
        return _FunctionEnricher(enricher)
    raise CompositionError(
        f"an enricher has should_apply and apply, or is a function of the message, not {enricher!r:.100}"
    )


def apply_enrichers(message: Message[Any], enrichers: Sequence[Enricher]) -> _Enriched:
    """Return the enriched message; an awaitable of it if an enricher is async."""
    for index, enricher in enumerate(enrichers):
        if enricher.should_apply(message):
            enriched = enricher.apply(message)
            if not isinstance(enriched, Message):
                if not isinstance(enriched, Awaitable):
                    raise _result_error(enricher, enriched)
                return _await_enrichers(enricher, enriched, enrichers[index + 1 :])
            message = enriched
    return message


async def _await_enrichers(
    enricher: Enricher, pending: Awaitable[Message[Any]], rest: Sequence[Enricher]
) -> Message[Any]:
    message = await pending
    if not isinstance(message, Message):
        raise _result_error(enricher, message)
    enriched = apply_enrichers(message, rest)
    return enriched if isinstance(enriched, Message) else await enriched


def _result_error(enricher: Enricher, result: object) -> TypeError:
    return TypeError(f"enricher {enricher!r:.100} returned {type(result).__name__}, not a Message")


class ContentEnricher(FlowStep):
    """Apply enrichers to each message, in order."""

    def __init__(self, *enrichers: EnricherLike) -> None:
        self._enrichers = tuple(map(to_enricher, enrichers))

    def process(self, message: Message[Any]) -> Outputs | AsyncOutputs:
        enriched = apply_enrichers(message, self._enrichers)
        return (enriched,) if isinstance(enriched, Message) else _to_outputs(enriched)


async def _to_outputs(enriched: Awaitable[Message[Any]]) -> Outputs:
    return (await enriched,)
