"""Scatter-gather and composed message processor: ask several services, and combine their replies to one message.

    request ─→ scatter ─→ copies to the services, which reply to the queue of the same flow
                  └─────→ the request itself, as part 1
    replies ─→ scatter ─→ parts 2, 3, … ─→ aggregator ─→ gather ─→ combined message

The correlation id of a copy says which part its reply is, so a service needs only to reply as any AMQP program does.
The request is part 1: the time limit begins with it, and the combined message has its properties. A reply that comes
after its group was combined is late, and the aggregator drops it.
"""

from collections.abc import Callable, Iterable
from inspect import isasyncgenfunction, iscoroutinefunction
from secrets import token_urlsafe
from typing import Any, Final, cast

from ..destination import DestinationLike
from ..errors import CompositionError, RejectMessageError
from ..message import Message
from ..message_sequence import (
    OUTER_SEQUENCES_HEADER,
    SEQUENCE_ID_HEADER,
    SEQUENCE_NUMBER_HEADER,
    SEQUENCE_SIZE_HEADER,
    MessageSequence,
    begin_sequence,
    end_sequence,
    sequence_of,
)
from ..return_address import REPLY_ERROR_HEADER, send_reply
from ..step import AnyFlowStep, FlowStep, Output, Outputs, Send
from .aggregator import Aggregator, Combine
from .recipient_list import RecipientLike, RecipientList
from .splitter import Splitter

_TOKEN_PREFIX: Final = "recado.scatter."
_SEQUENCE_HEADERS: Final = dict.fromkeys(
    (SEQUENCE_ID_HEADER, SEQUENCE_NUMBER_HEADER, SEQUENCE_SIZE_HEADER, OUTER_SEQUENCES_HEADER)
)


def scatter_gather(
    *recipients: RecipientLike,
    combine: Combine,
    timeout: float,
    table: str = "scatter-gather",
) -> tuple[AnyFlowStep, ...]:
    """Return the steps of a flow that sends each request to all recipients and combines their replies.

        app.flow("quotes", *scatter_gather("bank.a", "bank.b", combine=cheapest, timeout=5))

    Args:
        recipients: as of a `RecipientList`.
        combine: a function of the replies, in the order of the recipients; it returns a message or a body. Replies
            of services that failed, or that did not come in time, are missing.
        timeout: seconds after the request, when the replies that have come are combined if others are missing.
        table: the name of the table of the replies, unique in the store.

    The combined message goes to the return address of the request; without one, it continues in the flow.
    """
    scatter = ScatterStep(RecipientList(*recipients))
    return _compose(scatter, combine, timeout, table)


def composed_message_processor(
    split: Callable[[Any], Iterable[Any]],
    router: FlowStep,
    *,
    combine: Combine,
    timeout: float,
    table: str = "composed-message-processor",
) -> tuple[AnyFlowStep, ...]:
    """Return the steps of a flow that splits a message, has each part processed elsewhere, and joins the results.

    Args:
        split: a function of the body that returns its parts, as of a `Splitter`.
        router: a step that sends each part to the service for it. A part that it lets continue is its own result.
        combine, timeout, table: as of `scatter_gather`; the results are in the order of the parts.
    """
    scatter = ScatterStep(router, Splitter(split, empty="drop"))
    return _compose(scatter, combine, timeout, table)


def _compose(
    scatter: "ScatterStep", combine: Combine, timeout: float, table: str
) -> tuple[AnyFlowStep, ...]:
    aggregator = Aggregator(_collect, timeout=timeout, table=table)
    return (scatter, aggregator, GatherStep(combine))


class ScatterStep(FlowStep):
    """Make parts of requests and of replies: part 1 is the request, the others are the replies."""

    def __init__(self, router: FlowStep, splitter: Splitter | None = None) -> None:
        if iscoroutinefunction(router.process) or isasyncgenfunction(router.process):
            raise CompositionError(f"{type(router).__name__} must not be asynchronous here")
        self._router = router
        self._splitter = splitter

    def process(self, message: Message[Any]) -> Outputs:
        token = message.correlation_id
        if token is not None and token.startswith(_TOKEN_PREFIX):
            reply = message.with_headers(_SEQUENCE_HEADERS).as_new()
            return (begin_sequence(reply, _parse_token(token)),)
        return self._scatter(message)

    def _scatter(self, request: Message[Any]) -> Outputs:
        if request.delivery is None:
            raise CompositionError("only received messages can be scattered: replies need a queue")
        queue = request.delivery.queue
        routed = list(self._route(request))
        whole, size = token_urlsafe(16), len(routed) + 1
        outputs: list[Output] = [begin_sequence(request, MessageSequence(whole, 1, size))]
        for number, output in enumerate(routed, 2):
            if isinstance(output, Send):
                token = f"{_TOKEN_PREFIX}{whole}.{number}.{size}"
                copy = output.message.replace(reply_to=queue, correlation_id=token)
                outputs.append(Send(output.to, copy))
            else:
                part = output.with_headers(_SEQUENCE_HEADERS)
                outputs.append(begin_sequence(part, MessageSequence(whole, number, size)))
        return outputs

    def _route(self, request: Message[Any]) -> Iterable[Output]:
        parts = (request,) if self._splitter is None else self._splitter.process(request)
        for part in parts:
            assert isinstance(part, Message)
            outputs = cast("Outputs", self._router.process(part))
            # A request without recipients continues; here that means that there is nothing to wait for.
            yield from (each for each in outputs if self._splitter or isinstance(each, Send))

    def destinations(self) -> Iterable[DestinationLike]:
        return self._router.destinations()


class GatherStep(FlowStep):
    """Combine the replies to a request that an aggregator has collected, and answer the request."""

    def __init__(self, combine: Combine) -> None:
        self._combine = combine

    def process(self, message: Message[Any]) -> Outputs:
        first, *others = message.body
        sequence = sequence_of(first)
        if sequence is None or sequence.number != 1:
            return ()  # replies to a request that this flow has not sent
        request = end_sequence(first)
        replies = [end_sequence(each) for each in others if REPLY_ERROR_HEADER not in each.headers]
        combined = self._combine(replies)
        if not isinstance(combined, Message):
            combined = request.replace(body=combined, message_id=None, expiration=None)
        if request.reply_to is None:
            return (combined,)
        correlation_id = request.correlation_id or request.message_id
        return (send_reply(combined, request.reply_to, correlation_id),)


def _collect(messages: list[Message[Any]]) -> Message[Any]:
    """Pass all messages of a group to the gather step."""
    return Message(body=messages)


def _parse_token(token: str) -> MessageSequence:
    whole, _, place = token.removeprefix(_TOKEN_PREFIX).partition(".")
    number, _, size = place.partition(".")
    if not (whole and number.isdecimal() and size.isdecimal() and 1 < int(number) <= int(size)):
        raise RejectMessageError(f"invalid correlation id {token!r:.100} of a scattered request")
    return MessageSequence(whole, int(number), int(size))
