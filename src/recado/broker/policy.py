"""Policies: what an administrator wants of all queues and exchanges whose names match a pattern.

PO1  At most one policy and one operator policy apply to a thing: of those that match, that of the highest
     priority, and of equals the first by name.
PO2  What was declared stays as it was: policies make other settings of it, and when they go those are back.
PO3  A policy that wants something of a queue which this type of queue cannot do, does not apply to it at all.

An operator policy has only limits, and of two limits the lower one holds. Checks, texts and precedence are
those of RabbitMQ 3.10, except that there it is left to chance which of two equal policies applies.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal

import msgspec

from recado.amqp.values import Value

from . import checks
from .arguments import QUEUE_ARGUMENTS, ExchangeSettings, QueueSettings
from .pattern import name_finder

POLICY_KINDS: Final = ("policy", "operator_policy")

ApplyTo = Literal["queues", "exchanges", "all"]


class InvalidPolicy(ValueError):
    """A policy cannot be as it is asked for; the text says why."""


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """One policy, or operator policy. What cannot be is an `InvalidPolicy`."""

    name: str
    pattern: str
    definition: dict[str, Any]
    apply_to: ApplyTo = "all"
    priority: int | float = 0
    operator: bool = False

    def __post_init__(self) -> None:
        if self.apply_to not in ("queues", "exchanges", "all"):
            raise InvalidPolicy(
                f"apply-to '{self.apply_to}' unrecognised; should be 'queues', 'exchanges' or 'all'"
            )
        try:
            name_finder(self.pattern)
        except ValueError as fault:
            raise InvalidPolicy(
                f"pattern should be regular expression but is invalid: {fault}"
            ) from None
        _check_definition(self.definition, OPERATOR_KEYS if self.operator else KEYS)

    @property
    def kind(self) -> str:
        """RabbitMQ's word for it, under which it is remembered."""
        return POLICY_KINDS[self.operator]

    @property
    def rank(self) -> tuple[float, str]:
        """What comes first applies (PO1)."""
        return -self.priority, self.name

    def suits(self, queue_type: str) -> bool:
        return not self.definition.keys() & _UNSUITABLE[queue_type]


# ── what a policy may say ─────────────────────────────────────────────────────────────────────────────


class _Key(msgspec.Struct, frozen=True):
    noun: str
    check: Callable[[Value], object]
    """Gives what is kept of the value, or raises `Refused`."""


def _capped(check: Callable[[Value], Any]) -> Callable[[Value], Any]:
    """An argument of more than ten years is refused, a policy is not."""

    def capped(value: Value) -> Any:
        return check(min(checks.integer(value), checks.MAX_EXPIRY_MS))

    return capped


def _anything(value: Value) -> Value:
    return value


_NOUNS_OF_ARGUMENTS: Final = {
    "max-length": "maximum length",
    "max-length-bytes": "maximum length in bytes",
    "max-in-memory-length": "maximum memory in bytes",
    "max-in-memory-bytes": "maximum memory in bytes",
    "overflow": "overflow value",
    "dead-letter-exchange": "dead letter exchange name",
    "dead-letter-routing-key": "dead letter routing key",
    "dead-letter-strategy": "dead letter strategy",
    "delivery-limit": "delivery limit",
    "consumer-timeout": "consumer timeout",
    "queue-mode": "queue-mode value",
    "queue-version": "queue-version value",
    "queue-leader-locator": "queue leader locator value",
    "max-age": "max age",
    "stream-max-segment-size-bytes": "segment size",
    "stream-filter-size-bytes": "filter size. Valid range is 16-255",
}
# Of no consequence here, for there is nothing to mirror.
_MIRRORING: Final = (
    "ha-mode",
    "ha-params",
    "ha-promote-on-failure",
    "ha-promote-on-shutdown",
    "ha-sync-mode",
)
_masters: Final = checks.one_of(("client-local", "random", "min-masters"), "")

KEYS: Final[dict[str, _Key]] = {
    "message-ttl": _Key("message TTL", _capped(checks.not_negative)),
    "expires": _Key("queue expiry", _capped(checks.positive)),
    "alternate-exchange": _Key("alternate exchange name", checks.name),
    "initial-cluster-size": _Key("cluster size", checks.not_negative),
    "queue-master-locator": _Key("queue-master-locator value", _masters),
    "ha-sync-batch-size": _Key("batch size", _anything),
    **dict.fromkeys(_MIRRORING, _Key("value", _anything)),
    **{
        key: _Key(noun, QUEUE_ARGUMENTS[f"x-{key}"][1]) for key, noun in _NOUNS_OF_ARGUMENTS.items()
    },
}

_LIMITS: Final = (
    "message-ttl",
    "expires",
    "max-length",
    "max-length-bytes",
    "max-in-memory-length",
    "max-in-memory-bytes",
    "delivery-limit",
)
OPERATOR_KEYS: Final = {key: KEYS[key] for key in _LIMITS}

_OF_STREAMS: Final = {
    "max-age",
    "stream-max-segment-size-bytes",
    "stream-filter-size-bytes",
    "initial-cluster-size",
}
_OF_CLASSIC: Final = {"queue-mode", "queue-master-locator", *_MIRRORING}
# What a type of queue cannot do (PO3).
_UNSUITABLE: Final[dict[str, set[str]]] = {
    "classic": {*_OF_STREAMS, "queue-leader-locator", "delivery-limit", "dead-letter-strategy"},
    "quorum": {*_OF_STREAMS, *_OF_CLASSIC},
    "stream": {
        *_OF_CLASSIC,
        *_LIMITS,
        "overflow",
        "dead-letter-exchange",
        "dead-letter-routing-key",
        "dead-letter-strategy",
    }
    - {"max-length-bytes"},
}


def _check_definition(definition: object, keys: Mapping[str, _Key]) -> None:
    if not isinstance(definition, dict):
        raise InvalidPolicy(f"definition must be a dictionary: {_erlang(definition)}")
    if not definition:
        raise InvalidPolicy("no policy provided")
    for key, value in definition.items():
        if key in keys:
            try:
                keys[key].check(value)
            except checks.Refused:
                raise InvalidPolicy(f"{_erlang(value)} is not a valid {keys[key].noun}") from None
    unknown = {key: definition[key] for key in sorted(definition) if key not in keys}
    if unknown:
        pairs = ",".join(f"{{{_erlang(key)},{_erlang(value)}}}" for key, value in unknown.items())
        raise InvalidPolicy(f"[{pairs}] are not recognised policy settings")


def _erlang(value: object) -> str:
    """A value as RabbitMQ prints it."""
    match value:
        case bool():
            return str(value).lower()
        case str():
            return f'<<"{value}">>'
        case dict():
            pairs = (f"{_erlang(key)} => {_erlang(inner)}" for key, inner in value.items())
            return f"#{{{','.join(pairs)}}}"
        case list():
            return f"[{','.join(map(_erlang, value))}]"
        case None:
            return "null"
        case _:
            return str(value)


# ── how policies and declarations combine ─────────────────────────────────────────────────────────────

# Where the queue's own argument and a policy both say something, the lower limit holds and otherwise the
# argument; in these the policy.
_POLICY_WINS: Final[dict[str, frozenset[str]]] = {
    "classic": frozenset(),
    "quorum": frozenset({"overflow", "expires"}),
    "stream": frozenset(KEYS),
}


class Policies:
    """The policies of one vhost."""

    def __init__(self) -> None:
        self.known: dict[tuple[bool, str], Policy] = {}
        """By whether it is an operator policy, and name."""
        self._ranked: list[tuple[Policy, Callable[[str], bool]]] = []

    def set(self, policy: Policy) -> None:
        """A policy of the same name is replaced."""
        self.known[policy.operator, policy.name] = policy
        self._rank()

    def remove(self, name: str, *, operator: bool = False) -> Policy:
        policy = self.known.pop((operator, name), None)
        if policy is None:
            raise InvalidPolicy(f"there is no policy '{name}'")
        self._rank()
        return policy

    def _rank(self) -> None:
        ranked = sorted(self.known.values(), key=lambda policy: policy.rank)
        self._ranked = [(policy, name_finder(policy.pattern)) for policy in ranked]

    def for_queue(self, name: str, declared: QueueSettings) -> QueueSettings:
        """The settings of a queue with what the policies make of them."""
        if not self._ranked:
            return declared
        changes: dict[str, Any] = {}
        for key, value in self.of_queue(name, declared.queue_type).items():
            field, _ = QUEUE_ARGUMENTS.get(f"x-{key}", (None, None))
            if field is not None:
                changes[field] = _combined(key, value, declared, field)
        return msgspec.structs.replace(declared, **changes)

    def for_exchange(self, name: str, declared: ExchangeSettings) -> ExchangeSettings:
        definition = self.of_exchange(name)
        if declared.alternate_exchange is not None or "alternate-exchange" not in definition:
            return declared
        alternate = definition["alternate-exchange"]
        return msgspec.structs.replace(declared, alternate_exchange=alternate)

    def of_queue(self, name: str, queue_type: str) -> dict[str, Any]:
        """What the policies that apply to a queue say together."""
        return self._merged(
            policy
            for policy, finds in self._ranked
            if policy.apply_to != "exchanges" and policy.suits(queue_type) and finds(name)
        )

    def of_exchange(self, name: str) -> dict[str, Any]:
        return self._merged(
            policy for policy, finds in self._ranked if policy.apply_to != "queues" and finds(name)
        )

    @staticmethod
    def _merged(matching: Iterable[Policy]) -> dict[str, Any]:
        """The first policy and the first operator policy, the lower of their limits (PO1)."""
        merged: dict[str, Any] = {}
        seen: set[bool] = set()
        for policy in matching:
            if policy.operator not in seen:
                for key, value in policy.definition.items():
                    kept: Any = KEYS[key].check(value)
                    merged[key] = min(kept, merged[key]) if key in merged else kept
                seen.add(policy.operator)
                if len(seen) == 2:
                    break
        return merged


def _combined(key: str, value: Any, declared: QueueSettings, field: str) -> Any:
    argument = f"x-{key}"
    if argument not in declared.arguments or key in _POLICY_WINS[declared.queue_type]:
        return value
    own = getattr(declared, field)
    return min(own, value) if key in _LIMITS else own
