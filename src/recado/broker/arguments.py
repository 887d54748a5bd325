"""Arguments of queues, exchanges and consumers: validation, and typed settings.

Arguments arrive as a field table with keys such as `x-message-ttl`. They are validated once, at
declaration, and stored in a frozen struct. The table is stored too: a repeated declaration must be
equivalent to the first, and a policy must know which arguments were given. Unknown arguments are accepted
and ignored; arguments of another queue type are refused. Error texts are RabbitMQ's, because users search
for them.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import msgspec

from recado.amqp.errors import PreconditionFailedError
from recado.amqp.values import FieldTable, FieldValue

from . import checks
from .errors import InvalidValueError

if TYPE_CHECKING:
    from .message_filter import MessageFilter

QueueType = Literal["classic", "quorum", "stream"]
QUEUE_TYPES: Final[tuple[QueueType, ...]] = get_args(QueueType)
DeadLetterStrategy = Literal["at-most-once", "at-least-once"]
Overflow = Literal["drop-head", "reject-publish", "reject-publish-dlx"]


class DeduplicationSettings(msgspec.Struct, frozen=True):
    """Capacity and time to live of a deduplication window."""

    capacity: int
    ttl_ms: int | None


class QueueSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a queue. Times are in milliseconds; None means no limit."""

    durable: bool = False
    exclusive: bool = False
    auto_delete: bool = False
    arguments: FieldTable = {}
    queue_type: QueueType = "classic"
    message_ttl_ms: int | None = None
    expires_ms: int | None = None
    max_length: int | None = None
    max_length_bytes: int | None = None
    overflow: Overflow = "drop-head"
    dead_letter_exchange: str | None = None
    dead_letter_routing_key: str | None = None
    dead_letter_strategy: DeadLetterStrategy = "at-most-once"
    max_priority: int | None = None
    single_active_consumer: bool = False
    delivery_limit: int | None = None
    consumer_timeout_ms: int | None = None
    """None: the broker's default; 0: no timeout."""
    deduplication: DeduplicationSettings | None = None
    max_age_ms: int | None = None
    segment_bytes: int | None = None

    @property
    def is_at_least_once(self) -> bool:
        """Whether dead letters are delivered at least once; as in RabbitMQ, that needs all four conditions."""
        return (
            self.dead_letter_strategy == "at-least-once"
            and self.queue_type == "quorum"
            and self.overflow == "reject-publish"
            and self.dead_letter_exchange is not None
        )


class ExchangeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of an exchange."""

    exchange_type: str
    durable: bool = False
    auto_delete: bool = False
    internal: bool = False
    arguments: FieldTable = {}
    alternate_exchange: str | None = None
    deduplication: DeduplicationSettings | None = None


class ConsumerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a consumer. A wire tap receives copies of all messages and removes none."""

    arguments: FieldTable = {}
    priority: int = 0
    wire_tap: bool = False
    stream_offset: checks.StreamOffset = checks.StreamOffset()
    message_filter: "MessageFilter | None" = None
    """Built from `x-selector` and `x-stream-filter`; None delivers all messages of the stream."""


def describe_entity(entity: str, name: str, vhost: str) -> str:
    return f"{entity} '{name}' in vhost '{vhost}'"


# ── queues ──────────────────────────────────────────────────────────────────────────────────────

_ValueCheck = Callable[[FieldValue], object]

# Argument, field of the settings (None: validated and ignored), validation function.
_QUEUE_CHECKS: Final[tuple[tuple[str, str | None, _ValueCheck], ...]] = (
    ("x-expires", "expires_ms", checks.idle_time),
    ("x-message-ttl", "message_ttl_ms", checks.expiry),
    ("x-dead-letter-exchange", "dead_letter_exchange", checks.short_string),
    ("x-dead-letter-routing-key", "dead_letter_routing_key", checks.short_string),
    (
        "x-dead-letter-strategy",
        "dead_letter_strategy",
        checks.one_of(("at-most-once", "at-least-once"), "invalid_dlx_strategy"),
    ),
    ("x-max-length", "max_length", checks.not_negative),
    ("x-max-length-bytes", "max_length_bytes", checks.not_negative),
    ("x-max-in-memory-length", None, checks.not_negative),
    ("x-max-in-memory-bytes", None, checks.not_negative),
    ("x-max-priority", "max_priority", checks.max_priority),
    (
        "x-overflow",
        "overflow",
        checks.one_of(("drop-head", "reject-publish", "reject-publish-dlx"), "invalid_overflow"),
    ),
    ("x-queue-mode", None, checks.one_of(("default", "lazy"), "\"unsupported queue mode '{}'\"")),
    ("x-queue-version", None, checks.queue_version),
    ("x-single-active-consumer", "single_active_consumer", checks.boolean),
    ("x-quorum-initial-group-size", None, checks.positive),
    ("x-delivery-limit", "delivery_limit", checks.not_negative),
    ("x-consumer-timeout", "consumer_timeout_ms", checks.not_negative),
    ("x-max-age", "max_age_ms", checks.max_age),
    ("x-stream-max-segment-size-bytes", "segment_bytes", checks.not_negative),
    ("x-stream-filter-size-bytes", None, checks.filter_size),
    ("x-initial-cluster-size", None, checks.positive),
    (
        "x-queue-leader-locator",
        None,
        checks.one_of(
            ("client-local", "balanced", "random", "least-leaders"), "invalid_queue_locator_arg"
        ),
    ),
)

_SEGMENT_ARGUMENT_BYTES_MAX: Final = 3_000_000_000

# Field and validation function of each argument. Policies set the same fields: `message-ttl` sets that of
# `x-message-ttl`.
QUEUE_ARGUMENTS: Final[dict[str, tuple[str | None, _ValueCheck]]] = {
    argument: (field, check) for argument, field, check in _QUEUE_CHECKS
}

_check_queue_type: Final = checks.one_of(
    ("classic", "quorum", "stream"), "\"unsupported queue type '{}'\""
)

DEDUPLICATION_ARGUMENTS: Final = ("x-message-deduplication", "x-cache-size", "x-cache-ttl")

_COMMON_ARGUMENTS: Final = (
    "x-expires",
    "x-message-ttl",
    "x-dead-letter-exchange",
    "x-dead-letter-routing-key",
    "x-max-length",
    "x-max-length-bytes",
    "x-overflow",
    "x-single-active-consumer",
    "x-consumer-timeout",
    "x-queue-type",
    *DEDUPLICATION_ARGUMENTS,
)

# The arguments that each queue type supports. Arguments of another type are refused, not ignored: a client
# that sets a delivery limit on a classic queue should learn that it has no effect.
QUEUE_TYPE_ARGUMENTS: Final[dict[str, tuple[str, ...]]] = {
    "classic": (
        *_COMMON_ARGUMENTS,
        "x-max-priority",
        "x-queue-mode",
        "x-queue-version",
        "x-queue-master-locator",
    ),
    "quorum": (
        *_COMMON_ARGUMENTS,
        "x-dead-letter-strategy",
        "x-max-in-memory-length",
        "x-max-in-memory-bytes",
        "x-quorum-initial-group-size",
        "x-delivery-limit",
        "x-queue-leader-locator",
    ),
    "stream": (
        "x-max-length-bytes",
        "x-queue-type",
        "x-max-age",
        "x-stream-max-segment-size-bytes",
        "x-stream-filter-size-bytes",
        "x-initial-cluster-size",
        "x-queue-leader-locator",
    ),
}


def parse_queue_arguments(
    name: str,
    vhost: str,
    *,
    durable: bool,
    exclusive: bool,
    auto_delete: bool,
    arguments: FieldTable,
    server_named: bool = False,
    default_type: QueueType | None = None,
) -> QueueSettings:
    """Validate the arguments of a queue declaration and return its settings.

    An exclusive queue is never durable. `default_type` is the default queue type of the vhost. As in
    RabbitMQ, it is added to the arguments of a queue without a type; a queue that cannot have this type,
    such as an exclusive one, is classic. Raises `PreconditionFailedError` if an argument is invalid.
    """
    queue = describe_entity("queue", name, vhost)
    if default_type is not None and "x-queue-type" not in arguments:
        is_possible = default_type == "classic" or (durable and not exclusive and not auto_delete)
        arguments = {**arguments, "x-queue-type": default_type if is_possible else "classic"}
    queue_type = _check_argument(queue, arguments, "x-queue-type", _check_queue_type, "classic")
    if server_named and queue_type != "classic":
        raise PreconditionFailedError(
            f"Cannot declare a server-named queue for type rabbit_{queue_type}_queue"
        )
    _check_name_type(queue, arguments, "x-dead-letter-exchange")
    supported = QUEUE_TYPE_ARGUMENTS[queue_type]
    parsed: dict[str, Any] = {}
    for argument, field, check in _QUEUE_CHECKS:
        if argument in arguments and argument in supported:
            value = _check_argument(queue, arguments, argument, check)
            if field is not None:
                parsed[field] = value
    if "dead_letter_routing_key" in parsed and "dead_letter_exchange" not in parsed:
        raise _invalid_argument_error(
            "x-dead-letter-routing-key", queue, "routing_key_but_no_dlx_defined"
        )
    _reject_foreign_arguments(queue, arguments, queue_type, QUEUE_TYPE_ARGUMENTS)
    if queue_type != "classic":
        _check_durable_type(queue, durable, exclusive, auto_delete)
    if parsed.get("segment_bytes", 0) > _SEGMENT_ARGUMENT_BYTES_MAX:
        raise PreconditionFailedError("Exceeded max value for x-stream-max-segment-size-bytes")
    return QueueSettings(
        durable=durable and not exclusive,
        exclusive=exclusive,
        auto_delete=auto_delete,
        arguments=arguments,
        queue_type=queue_type,
        deduplication=_parse_deduplication(queue, arguments),
        **parsed,
    )


def _check_durable_type(queue: str, durable: bool, exclusive: bool, auto_delete: bool) -> None:
    """Refuse quorum queues and streams that are transient, exclusive or auto-delete."""
    for property_name, requested in (
        ("auto-delete", auto_delete),
        ("exclusive-owner", exclusive),
        ("non-durable", not durable),
    ):
        if requested:
            raise PreconditionFailedError(f"invalid property '{property_name}' for {queue}")


# ── exchanges ───────────────────────────────────────────────────────────────────────────────────


def parse_exchange_arguments(
    name: str,
    vhost: str,
    *,
    exchange_type: str,
    durable: bool,
    auto_delete: bool,
    internal: bool,
    arguments: FieldTable,
) -> ExchangeSettings:
    """Validate the arguments of an exchange declaration and return its settings.

    Raises `PreconditionFailedError` if an argument is invalid.
    """
    exchange = describe_entity("exchange", name, vhost)
    return ExchangeSettings(
        exchange_type=exchange_type,
        durable=durable,
        auto_delete=auto_delete,
        internal=internal,
        arguments=arguments,
        alternate_exchange=_check_name_type(exchange, arguments, "alternate-exchange"),
        deduplication=_parse_deduplication(exchange, arguments),
    )


def _parse_deduplication(described: str, arguments: FieldTable) -> DeduplicationSettings | None:
    size = _check_argument(
        described, arguments, "x-cache-size", checks.deduplication_capacity, 10_000
    )
    ttl = _check_argument(described, arguments, "x-cache-ttl", checks.idle_time)
    enabled = _check_argument(
        described, arguments, "x-message-deduplication", checks.boolean, False
    )
    return DeduplicationSettings(size, ttl) if enabled else None


# ── consumers ───────────────────────────────────────────────────────────────────────────────────

_CONSUMER_ARGUMENTS: Final[dict[str, tuple[str, ...]]] = {
    "classic": ("x-priority", "x-cancel-on-ha-failover", "x-credit", "x-wire-tap"),
    "quorum": ("x-priority", "x-credit", "x-wire-tap"),
    "stream": (
        "x-stream-offset",
        "x-stream-filter",
        "x-stream-match-unfiltered",
        "x-selector",
        "x-credit",
    ),
}


def parse_consumer_arguments(
    name: str, vhost: str, queue_type: QueueType, arguments: FieldTable
) -> ConsumerSettings:
    """Validate the arguments of a consumer of the queue `name` and return its settings.

    Raises `PreconditionFailedError` if an argument is invalid.
    """
    queue = describe_entity("queue", name, vhost)
    settings = ConsumerSettings(
        arguments=arguments,
        priority=_check_argument(queue, arguments, "x-priority", checks.integer, 0),
        wire_tap=_check_argument(queue, arguments, "x-wire-tap", checks.boolean, False),
        stream_offset=_check_argument(
            queue, arguments, "x-stream-offset", checks.stream_offset, checks.StreamOffset()
        ),
    )
    _check_argument(queue, arguments, "x-cancel-on-ha-failover", checks.boolean, False)
    if "x-selector" in arguments and queue_type != "stream":
        raise PreconditionFailedError(
            f"invalid arg 'x-selector', it needs a stream, but the queue type is {queue_type}; "
            f"for {queue}"
        )
    _reject_foreign_arguments(queue, arguments, queue_type, _CONSUMER_ARGUMENTS)
    filter_values = _check_argument(queue, arguments, "x-stream-filter", checks.filter_values)
    unfiltered = _check_argument(
        queue, arguments, "x-stream-match-unfiltered", checks.boolean, False
    )
    if filter_values is None and "x-selector" not in arguments:
        return settings
    selection = _parse_filter(queue, arguments, filter_values, unfiltered)
    return msgspec.structs.replace(settings, message_filter=selection)


def _parse_filter(
    queue: str,
    arguments: FieldTable,
    filter_values: frozenset[checks.FilterValue] | None,
    match_unfiltered: bool,
) -> "MessageFilter":
    text = _check_argument(queue, arguments, "x-selector", checks.text)
    from recado.selector import SelectorError

    # Imported here because few consumers use filters, and the import would slow down every start.
    from .message_filter import MessageFilter, StreamFilter

    stream_filter = StreamFilter(filter_values, match_unfiltered) if filter_values else None
    try:
        return MessageFilter(text, stream_filter)
    except SelectorError as error:
        # The error comes before the queue's name, which can be so long that the reply has no space for
        # both.
        raise PreconditionFailedError(
            f"invalid arg 'x-selector', {error.summary}; for {queue}"
        ) from None


# ── errors ──────────────────────────────────────────────────────────────────────────────────────


def _check_argument(
    described: str,
    arguments: FieldTable,
    argument: str,
    check: Callable[[FieldValue], Any],
    default: object = None,
) -> Any:
    if argument not in arguments:
        return default
    try:
        return check(arguments[argument])
    except InvalidValueError as refusal:
        raise _invalid_argument_error(argument, described, str(refusal)) from None


def _check_name_type(described: str, arguments: FieldTable, argument: str) -> str | None:
    if argument not in arguments:
        return None
    name = arguments[argument]
    if not isinstance(name, str):
        raise PreconditionFailedError(
            f"invalid type '{checks.type_name(name)}' for arg '{argument}' in {described}"
        )
    return name


def _reject_foreign_arguments(
    described: str, arguments: FieldTable, queue_type: str, known: dict[str, tuple[str, ...]]
) -> None:
    for argument in arguments:
        if argument not in known[queue_type] and any(argument in names for names in known.values()):
            raise PreconditionFailedError(
                f"invalid arg '{argument}' for {described} of queue type rabbit_{queue_type}_queue"
            )


def _invalid_argument_error(argument: str, described: str, reason: str) -> PreconditionFailedError:
    return PreconditionFailedError(f"invalid arg '{argument}' for {described}: {reason}")
