"""Dynamic router: a content-based router whose rules are changed by control messages while it runs.

The rules are in memory. A process that starts has none, so the control messages usually come from a log stream
that is read from its beginning: every process builds the same rules from it, in the same order.

    router = DynamicRouter(otherwise="orders.unclaimed")
    app.flow("orders", router)

    @app.subscribe(LogStream("orders.rules"))
    async def change_rules(change: RuleChange) -> None:
        router.change(change)

    await app.publish(LogStream("orders.rules"), RoutingRule(name="eu", selector="json.region = 'eu'", to="orders.eu"))

A program that may write to the control destination decides where messages go. Restrict it by AMQP permissions, and
the destinations by `allowed`.
"""

from collections.abc import Iterable
from typing import Any, Final, TypeAlias

import msgspec

from ..destination import DestinationLike, to_destination
from ..errors import CompositionError, RejectMessageError
from ..message import Message
from ..step import FlowStep, Outputs, Send
from .message_selector import MessagePredicate, to_predicate

MAX_RULES_COUNT: Final = 1_000
_MAX_NAME_BYTES: Final = 255


class RoutingRule(msgspec.Struct, frozen=True, kw_only=True, tag="set"):
    """Adds a rule, or replaces the one of the same name: messages that match `selector` go to `to`."""

    name: str
    selector: str
    to: str


class RuleRemoval(msgspec.Struct, frozen=True, kw_only=True, tag="remove"):
    """Removes the rule of that name, if there is one."""

    name: str


RuleChange: TypeAlias = RoutingRule | RuleRemoval


class DynamicRouter(FlowStep):
    """Send a message to the destination of the first rule that it matches; `change` sets and removes rules.

    A replaced rule keeps its place. `to` of a rule is the name of a queue, or of one of the `allowed`
    destinations; with `allowed`, rules with other names are rejected. Messages that match no rule are sent to
    `otherwise`; if it is None, they continue in the flow.
    """

    def __init__(
        self,
        *,
        allowed: Iterable[DestinationLike] | None = None,
        otherwise: DestinationLike | None = None,
        rules_max: int = MAX_RULES_COUNT,
    ) -> None:
        self._allowed = (
            None
            if allowed is None
            else {to_destination(each).name: to_destination(each) for each in allowed}
        )
        self._otherwise = otherwise
        self._rules_max = rules_max
        self._rules: dict[str, tuple[MessagePredicate, DestinationLike, RoutingRule]] = {}

    @property
    def rules(self) -> tuple[RoutingRule, ...]:
        """The present rules, in the order in which they are tried."""
        return tuple(rule for _, _, rule in self._rules.values())

    def change(self, change: RuleChange) -> None:
        """Apply a control message. Raises `RejectMessageError` if it is invalid, or one rule too many."""
        match change:
            case RoutingRule():
                self._set_rule(change)
            case RuleRemoval(name=name):
                self._rules.pop(name, None)

    def _set_rule(self, rule: RoutingRule) -> None:
        if len(self._rules) >= self._rules_max and rule.name not in self._rules:
            raise RejectMessageError(
                f"routing rule {rule.name!r:.100}: there are already {self._rules_max} rules (rules_max)"
            )
        for text in (rule.name, rule.to):
            if not 0 < len(text.encode(errors="replace")) <= _MAX_NAME_BYTES:
                raise RejectMessageError(
                    f"routing rule: {text!r:.100} is not a name of 1 to {_MAX_NAME_BYTES} bytes"
                )
        destination: DestinationLike = rule.to
        if self._allowed is not None:
            if rule.to not in self._allowed:
                raise RejectMessageError(
                    f"routing rule {rule.name!r}: {rule.to!r} is not an allowed destination"
                )
            destination = self._allowed[rule.to]
        try:
            self._rules[rule.name] = (to_predicate(rule.selector), destination, rule)
        except CompositionError as error:
            raise RejectMessageError(f"routing rule {rule.name!r}: {error}") from error

    def process(self, message: Message[Any]) -> Outputs:
        for matches, destination, _ in self._rules.values():
            if matches(message):
                return (Send(destination, message),)
        return (message if self._otherwise is None else Send(self._otherwise, message),)

    def destinations(self) -> Iterable[DestinationLike]:
        yield from (self._allowed or {}).values()
        if self._otherwise is not None:
            yield self._otherwise
