"""Failed messages: the headers that tell why, and how often a message was attempted.

The number of attempts is exact across workers and restarts, also for messages without an id: `x-attempt` counts
the attempts that ended with an exception, because each retry is published with it; the broker counts deliveries
that ended with the worker (`x-delivery-count` of quorum queues; on classic queues only the redelivered flag).

A parked message (dead letter or invalid message) has its original body and properties and these headers:

    x-failure-reason        the exception, as `ValueError: text`
    x-failure-traceback     the end of the traceback
    x-failure-history       one line per failed attempt
    x-failure-queue         the queue it came from, to which a replay returns it
    x-failure-exchange, x-failure-key   where an output was to go that the broker has refused
    x-failure-handler       the tag of the endpoint
    x-failure-time          when it was parked, as an ISO time
    x-attempt               how often it was attempted
    x-original-properties   its properties as bytes, if they cannot be decoded
    x-original-user-id      its user id, which the broker would refuse in a copy
"""

import asyncio
import traceback
from datetime import UTC, datetime
from typing import Any

import msgspec

from recado.amqp.properties import Properties, encode_properties
from recado.client import Delivery

from .errors import HandlerAbortedError
from .message import PERSISTENT_CODE, without_copy_headers
from .publisher import EncodedPublish

ATTEMPT_HEADER = "x-attempt"
DELIVERY_COUNT_HEADER = "x-delivery-count"
DELAY_HEADER = "x-delay"
REASON_HEADER = "x-failure-reason"
TRACEBACK_HEADER = "x-failure-traceback"
HISTORY_HEADER = "x-failure-history"
QUEUE_HEADER = "x-failure-queue"
EXCHANGE_HEADER = "x-failure-exchange"
KEY_HEADER = "x-failure-key"
HANDLER_HEADER = "x-failure-handler"
TIME_HEADER = "x-failure-time"
USER_HEADER = "x-original-user-id"
PROPERTIES_HEADER = "x-original-properties"

_COUNT_HEADERS = (ATTEMPT_HEADER, DELIVERY_COUNT_HEADER, DELAY_HEADER)

REASON_MAX_BYTES = 1024
TRACEBACK_MAX_BYTES = 8192
HISTORY_MAX_COUNT = 10
HEADERS_MAX_BYTES = (
    100_000  # of a copy: the properties must fit into one frame, usually 131,072 bytes
)


def attempt_number(delivery: Delivery, properties: Properties) -> int:
    """Return which attempt of its message a delivery is; the first is 1."""
    headers = properties.headers or {}
    failed = read_count(headers.get(ATTEMPT_HEADER))
    redelivered = read_count(headers.get(DELIVERY_COUNT_HEADER))
    return 1 + failed + (redelivered or int(delivery.redelivered))


def read_count(value: object) -> int:
    """Return a count from a header, which may contain anything."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31:
        return int(value)
    return 0


def to_failure(raised: BaseException) -> Exception:
    """Return what a program has raised as the failure of its message.

    An exception that ends this task or the program is raised again. A cancellation ends this task only if the task
    itself was cancelled; otherwise the handler has awaited something else that was cancelled, and has failed.
    """
    if isinstance(raised, Exception):
        return raised
    if isinstance(raised, KeyboardInterrupt | SystemExit | GeneratorExit):
        raise raised
    if isinstance(raised, asyncio.CancelledError) and _is_cancelled():
        raise raised
    failure = HandlerAbortedError(f"raised {describe(raised)}")
    failure.__cause__ = raised
    return failure


def _is_cancelled() -> bool:
    """Whether this task was cancelled; a thread has no task."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return False
    return task is not None and task.cancelling() > 0


def describe(error: BaseException) -> str:
    """Return the type and text of an exception, of bounded length."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - of the program
        text = "(its text cannot be read)"
    name = type(error).__name__
    return _truncate(f"{name}: {text}" if text else name, REASON_MAX_BYTES)


def retry_properties(
    properties: Properties, error: BaseException, attempt: int, now: float
) -> Properties:
    """Return the properties of the copy that is attempted again later."""
    return _for_republishing(properties, _failed_headers(properties, error, attempt, now))


def parked_properties(
    properties: Properties,
    error: BaseException,
    attempt: int,
    now: float,
    *,
    queue: str | None,
    handler: str,
) -> Properties:
    """Return the properties of a dead letter or invalid message; without a queue it cannot be replayed."""
    headers = _failed_headers(properties, error, attempt, now)
    headers[REASON_HEADER] = describe(error)
    lines = "".join(traceback.format_exception(error)).encode("utf-8", "replace")
    headers[TRACEBACK_HEADER] = lines[-TRACEBACK_MAX_BYTES:].decode("utf-8", "ignore")
    if queue is None:
        headers.pop(QUEUE_HEADER, None)  # of an earlier failure
    else:
        headers[QUEUE_HEADER] = queue
    headers[HANDLER_HEADER] = handler
    headers[TIME_HEADER] = _format_time(now)
    return _for_republishing(properties, headers)


def parked_output_properties(
    properties: Properties, error: BaseException, now: float, publish: EncodedPublish, handler: str
) -> Properties:
    """Return the properties of the dead letter of a message that the broker has refused."""
    target = publish.key if not publish.exchange else ""
    parked = parked_properties(properties, error, 1, now, queue=target, handler=handler)
    if not publish.exchange:
        return parked
    key = _truncate(publish.key, REASON_MAX_BYTES)
    headers = {**(parked.headers or {}), EXCHANGE_HEADER: publish.exchange, KEY_HEADER: key}
    return msgspec.structs.replace(parked, headers=headers)


def replay_properties(properties: Properties) -> Properties:
    """Return the properties of a parked message that is sent back to its queue, with a fresh count of attempts."""
    headers = {
        name: value
        for name, value in (properties.headers or {}).items()
        if name not in _COUNT_HEADERS and not name.startswith("x-failure-")
    }
    return _for_republishing(properties, headers)


def _failed_headers(
    properties: Properties, error: BaseException, attempt: int, now: float
) -> dict[str, Any]:
    headers: dict[str, Any] = dict(properties.headers or {})
    for stale in (DELIVERY_COUNT_HEADER, DELAY_HEADER):
        headers.pop(stale, None)
    headers[ATTEMPT_HEADER] = attempt
    history = headers.get(HISTORY_HEADER)
    entries = list(history) if isinstance(history, list) else []
    entries.append(f"{_format_time(now)} attempt {attempt}: {describe(error)}")
    headers[HISTORY_HEADER] = entries[-HISTORY_MAX_COUNT:]
    return headers


def _for_republishing(properties: Properties, headers: dict[str, Any]) -> Properties:
    """Return properties with these headers, for a copy of a received message.

    Headers that would not fit into a frame together with those of the failure are dropped, largest first. The
    expiration is dropped: the message was taken in time, and it must not expire while it waits. So are CC and BCC:
    their queues have a copy. The broker refuses a user id that is not that of this connection, so it becomes a header.
    """
    headers = dict(without_copy_headers(headers))
    if properties.user_id is not None:
        headers.setdefault(USER_HEADER, properties.user_id)
    _drop_largest(headers)
    return msgspec.structs.replace(
        properties,
        headers=headers or None,
        user_id=None,
        expiration=None,
        delivery_mode=PERSISTENT_CODE,
    )


def _drop_largest(headers: dict[str, Any]) -> None:
    """Drop the largest headers until the others have at most `HEADERS_MAX_BYTES`."""
    if _size(headers) <= HEADERS_MAX_BYTES:
        return
    sizes = {name: _size({name: value}) for name, value in headers.items()}
    excess = sum(sizes.values()) - HEADERS_MAX_BYTES
    for name in sorted(sizes, key=sizes.__getitem__, reverse=True):
        if excess <= 0:
            return
        excess -= sizes[name]
        del headers[name]


def _size(headers: dict[str, Any]) -> int:
    return len(encode_properties(Properties(headers=headers)))


def _truncate(text: str, max_bytes: int) -> str:
    """Return text of bounded length that can be encoded: names of files may have surrogates."""
    return text.encode("utf-8", "replace")[:max_bytes].decode("utf-8", "ignore")


def _format_time(now: float) -> str:
    return datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds")
