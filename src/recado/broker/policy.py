"""Policies: settings of all queues and exchanges whose names match a pattern.

POL1  At most one policy and one operator policy apply to a queue or exchange: the matching one with the
      highest priority, and among equals the first by name.
POL2  Declared settings are never changed: policies produce effective settings, and removing a policy
      restores the declared ones.
POL3  A policy with a key that a queue type does not support does not apply to queues of that type at all.

An operator policy only has limits, and of two limits the lower one applies. Validation, texts and
precedence are those of RabbitMQ 3.10. RabbitMQ leaves undefined which of two policies with equal priority
applies.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal

import msgspec

from recado.amqp.values import FieldValue

from . import checks
from .arguments import QUEUE_ARGUMENTS, ExchangeSettings, QueueSettings
from .errors import InvalidPolicyError, InvalidValueError
from .pattern import compile_name_pattern

POLICY_KINDS: Final = ("policy", "operator_policy")

ApplyTo = Literal["queues", "exchanges", "all"]


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """A policy or operator policy. The constructor raises `InvalidPolicyError`."""

    name: str
    pattern: str
    definition: dict[str, Any]
    apply_to: ApplyTo = "all"
    priority: int | float = 0
    operator: bool = False

    def __post_init__(self) -> None:
        if self.apply_to not in ("queues", "exchanges", "all"):
            raise InvalidPolicyError(
                f"apply-to '{self.apply_to}' unrecognised; should be 'queues', 'exchanges' or 'all'"
            )
        try:
            compile_name_pattern(self.pattern)
        except ValueError as error:
            raise InvalidPolicyError(
                f"pattern should be regular expression but is invalid: {error}"
            ) from None
        _check_definition(self.definition, OPERATOR_POLICY_KEYS if self.operator else POLICY_KEYS)

    @property
    def kind(self) -> str:
        """The kind under which the policy is stored; also RabbitMQ's name for it."""
        return POLICY_KINDS[self.operator]

    @property
    def sort_key(self) -> tuple[float, str]:
        """The first matching policy in this order applies (POL1)."""
        return -self.priority, self.name

    def supports(self, queue_type: str) -> bool:
        return not self.definition.keys() & _UNSUPPORTED_KEYS[queue_type]


# ── valid definitions ─────────────────────────────────────────────────────────────────────────────────


class _PolicyKey(msgspec.Struct, frozen=True):
    noun: str
    check: Callable[[FieldValue], object]
    """Returns the value to use, or raises `InvalidValueError`."""


def _cap_expiry(check: Callable[[FieldValue], Any]) -> Callable[[FieldValue], Any]:
    """Limit a duration to ten years; an argument above that is refused, a policy is not."""

    def capped(value: FieldValue) -> Any:
        return check(min(checks.integer(value), checks.MAX_EXPIRY_MS))

    return capped


def _accept_any(value: FieldValue) -> FieldValue:
    return value


_ARGUMENT_NOUNS: Final = {
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
# Accepted and ignored: there is no mirroring.
_MIRRORING_KEYS: Final = (
    "ha-mode",
    "ha-params",
    "ha-promote-on-failure",
    "ha-promote-on-shutdown",
    "ha-sync-mode",
)
_check_master_locator: Final = checks.one_of(("client-local", "random", "min-masters"), "")

POLICY_KEYS: Final[dict[str, _PolicyKey]] = {
    "message-ttl": _PolicyKey("message TTL", _cap_expiry(checks.not_negative)),
    "expires": _PolicyKey("queue expiry", _cap_expiry(checks.positive)),
    "alternate-exchange": _PolicyKey("alternate exchange name", checks.short_string),
    "initial-cluster-size": _PolicyKey("cluster size", checks.not_negative),
    "queue-master-locator": _PolicyKey("queue-master-locator value", _check_master_locator),
    "ha-sync-batch-size": _PolicyKey("batch size", _accept_any),
    **dict.fromkeys(_MIRRORING_KEYS, _PolicyKey("value", _accept_any)),
    **{
        key: _PolicyKey(noun, QUEUE_ARGUMENTS[f"x-{key}"][1])
        for key, noun in _ARGUMENT_NOUNS.items()
    },
}

_LIMIT_KEYS: Final = (
    "message-ttl",
    "expires",
    "max-length",
    "max-length-bytes",
    "max-in-memory-length",
    "max-in-memory-bytes",
    "delivery-limit",
)
OPERATOR_POLICY_KEYS: Final = {key: POLICY_KEYS[key] for key in _LIMIT_KEYS}

_STREAM_KEYS: Final = {
    "max-age",
    "stream-max-segment-size-bytes",
    "stream-filter-size-bytes",
    "initial-cluster-size",
}
_CLASSIC_KEYS: Final = {"queue-mode", "queue-master-locator", *_MIRRORING_KEYS}
# Keys that each queue type does not support (POL3).
_UNSUPPORTED_KEYS: Final[dict[str, set[str]]] = {
    "classic": {*_STREAM_KEYS, "queue-leader-locator", "delivery-limit", "dead-letter-strategy"},
    "quorum": {*_STREAM_KEYS, *_CLASSIC_KEYS},
    "stream": {
        *_CLASSIC_KEYS,
        *_LIMIT_KEYS,
        "overflow",
        "dead-letter-exchange",
        "dead-letter-routing-key",
        "dead-letter-strategy",
    }
    - {"max-length-bytes"},
}


def _check_definition(definition: object, keys: Mapping[str, _PolicyKey]) -> None:
    if not isinstance(definition, dict):
        raise InvalidPolicyError(f"definition must be a dictionary: {_format_erlang(definition)}")
    if not definition:
        raise InvalidPolicyError("no policy provided")
    for key, value in definition.items():
        if key in keys:
            try:
                keys[key].check(value)
            except InvalidValueError:
                raise InvalidPolicyError(
                    f"{_format_erlang(value)} is not a valid {keys[key].noun}"
                ) from None
    unknown = {key: definition[key] for key in sorted(definition) if key not in keys}
    if unknown:
        pairs = ",".join(
            f"{{{_format_erlang(key)},{_format_erlang(value)}}}" for key, value in unknown.items()
        )
        raise InvalidPolicyError(f"[{pairs}] are not recognised policy settings")


def _format_erlang(value: object) -> str:
    """Format a value as RabbitMQ prints it."""
    match value:
        case bool():
            return str(value).lower()
        case str():
            return f'<<"{value}">>'
        case dict():
            pairs = (
                f"{_format_erlang(key)} => {_format_erlang(inner)}" for key, inner in value.items()
            )
            return f"#{{{','.join(pairs)}}}"
        case list():
            return f"[{','.join(map(_format_erlang, value))}]"
        case None:
            return "null"
        case _:
            return str(value)


# ── effective settings ────────────────────────────────────────────────────────────────────────────────

# The keys for which a policy takes precedence over an argument of the declaration. For other keys that both
# set, the lower of two limits applies, and the argument if the key is not a limit.
_POLICY_PRECEDENCE_KEYS: Final[dict[str, frozenset[str]]] = {
    "classic": frozenset(),
    "quorum": frozenset({"overflow", "expires"}),
    "stream": frozenset(POLICY_KEYS),
}


class Policies:
    """The policies of one vhost."""

    def __init__(self) -> None:
        self.by_name: dict[tuple[bool, str], Policy] = {}
        """The key is whether it is an operator policy, and the name."""
        self._sorted: list[tuple[Policy, Callable[[str], bool]]] = []

    def set(self, *policies: Policy) -> None:
        """Add policies, or replace those with the same names."""
        for policy in policies:
            self.by_name[policy.operator, policy.name] = policy
        self._sort()

    def remove(self, name: str, *, operator: bool = False) -> Policy:
        policy = self.by_name.pop((operator, name), None)
        if policy is None:
            raise InvalidPolicyError(f"there is no policy '{name}'")
        self._sort()
        return policy

    def _sort(self) -> None:
        compiled = {policy.pattern: matches for policy, matches in self._sorted}
        in_order = sorted(self.by_name.values(), key=lambda policy: policy.sort_key)
        self._sorted = [
            (policy, compiled.get(policy.pattern) or compile_name_pattern(policy.pattern))
            for policy in in_order
        ]

    def effective_queue_settings(self, name: str, declared: QueueSettings) -> QueueSettings:
        """Return the declared settings of a queue combined with its policies."""
        if not self._sorted:
            return declared
        changes: dict[str, Any] = {}
        for key, value in self.queue_definition(name, declared.queue_type).items():
            field, _ = QUEUE_ARGUMENTS.get(f"x-{key}", (None, None))
            if field is not None:
                changes[field] = _combine(key, value, declared, field)
        return msgspec.structs.replace(declared, **changes)

    def effective_exchange_settings(
        self, name: str, declared: ExchangeSettings
    ) -> ExchangeSettings:
        definition = self.exchange_definition(name)
        if declared.alternate_exchange is not None or "alternate-exchange" not in definition:
            return declared
        alternate = definition["alternate-exchange"]
        return msgspec.structs.replace(declared, alternate_exchange=alternate)

    def find_policy(
        self,
        name: str,
        kind: Literal["queues", "exchanges"],
        queue_type: str = "",
        *,
        operator: bool = False,
    ) -> Policy | None:
        """Return the policy, or operator policy, that applies to a queue or exchange (POL1)."""
        for policy, finds in self._sorted:
            if (
                policy.operator is operator
                and policy.apply_to in (kind, "all")
                and (kind == "exchanges" or policy.supports(queue_type))
                and finds(name)
            ):
                return policy
        return None

    def queue_definition(self, name: str, queue_type: str) -> dict[str, Any]:
        """Return the merged definitions of the policies that apply to a queue."""
        return self._merge_definitions(
            policy
            for policy, matches in self._sorted
            if policy.apply_to != "exchanges" and policy.supports(queue_type) and matches(name)
        )

    def exchange_definition(self, name: str) -> dict[str, Any]:
        return self._merge_definitions(
            policy
            for policy, matches in self._sorted
            if policy.apply_to != "queues" and matches(name)
        )

    @staticmethod
    def _merge_definitions(matching: Iterable[Policy]) -> dict[str, Any]:
        """Merge the first policy and the first operator policy; of two limits the lower one applies (POL1)."""
        merged: dict[str, Any] = {}
        seen: set[bool] = set()
        for policy in matching:
            if policy.operator not in seen:
                for key, value in policy.definition.items():
                    limit: Any = POLICY_KEYS[key].check(value)
                    merged[key] = min(limit, merged[key]) if key in merged else limit
                seen.add(policy.operator)
                if len(seen) == 2:
                    break
        return merged


def _combine(key: str, value: Any, declared: QueueSettings, field: str) -> Any:
    argument = f"x-{key}"
    if argument not in declared.arguments or key in _POLICY_PRECEDENCE_KEYS[declared.queue_type]:
        return value
    declared_value = getattr(declared, field)
    return min(declared_value, value) if key in _LIMIT_KEYS else declared_value
