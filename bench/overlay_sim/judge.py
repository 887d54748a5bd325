"""Whether a history is consistent with the guarantees. The judge knows nothing of ranges, replicas or decisions.

A command whose origin crashed, or which was refused as unavailable, may or may not have been executed. All other
commands were executed at one moment between submission and answer.
"""

from __future__ import annotations

from collections import defaultdict
from math import inf
from typing import Final

import msgspec

from recado.overlay.command import (
    Action,
    CommandRefusal,
    CreateTopic,
    Done,
    FieldValue,
    GetField,
    Grant,
    Handle,
    Handled,
    Publish,
    PublishReport,
    Refused,
    Revoke,
    SetField,
    Subscribe,
    SubscriptionId,
    TopicMessage,
    Unsubscribe,
)
from recado.selector import compile_predicate, parse

from .history import (
    Acknowledged,
    Answered,
    DeliveryRecord,
    Disturbed,
    Evicted,
    History,
    Judged,
    Stopped,
    Submitted,
)
from .verdict import Rule, Verdict, Violation

SETTLED_S: Final = 3.0
"""A notification must have arrived when the world has run for so long after the publish and after all faults."""


class Operation(msgspec.Struct):
    """A submitted command with its answer."""

    submitted: Submitted
    start: float
    end: float
    """`inf` if there is none."""
    answer: object
    number: int = 0

    @property
    def is_done(self) -> bool:
        return not isinstance(self.answer, Refused) and self.answer is not None

    @property
    def is_unknown(self) -> bool:
        """Whether it may have been executed."""
        return self.answer is None or (
            isinstance(self.answer, Refused) and self.answer.reason is CommandRefusal.UNAVAILABLE
        )


def judge(history: History) -> Verdict:
    return _Judge(history).judge()


class _Judge:
    def __init__(self, history: History) -> None:
        self.history = history
        self.verdict = Verdict()
        self.operations: dict[int, Operation] = {}
        self.stopped = {event.node: event for event in history.of(Stopped)}
        for event in history.of(Submitted):
            self.operations[event.request] = Operation(event, event.at, inf, None)
        for answered in history.of(Answered):
            operation = self.operations[answered.request]
            if operation.answer is not None:
                self.violate(
                    Rule.TWICE, answered.at, f"request {answered.request} is answered twice"
                )
            operation.answer = answered.answer
            if not operation.is_unknown:
                operation.end = answered.at
        self.by_topic: dict[str, list[Operation]] = defaultdict(list)
        for operation in self.operations.values():
            self.by_topic[operation.submitted.topic].append(operation)
        self.end = max((event.at for event in history.of(Judged)), default=0.0)

    def violate(self, rule: Rule, at: float, what: str) -> None:
        self.verdict.violations.append(Violation(rule, at, what))

    def judge(self) -> Verdict:
        self._judge_owners()
        for topic, operations in self.by_topic.items():
            for field in ("a", "b"):
                self._judge_field(topic, field, operations)
            self._judge_existence(topic, operations)
            self._judge_list(topic, operations)
            self._judge_permissions(topic, operations)
            self._judge_notifications(topic, operations)
        self._judge_progress()
        self._count()
        return self.verdict

    # ── owners ────────────────────────────────────────────────────────────────────────────────────

    def _judge_owners(self) -> None:
        """One owner for each key and epoch. Origins number their commands, so the topic of an answer is known."""
        numbers: dict[tuple[str, int], Operation] = {}
        owners: dict[tuple[str, int], str] = {}
        epochs: dict[str, list[tuple[float, int]]] = defaultdict(list)
        for operation in self.operations.values():
            if operation.number:
                numbers[operation.submitted.node, operation.number] = operation
        for event in self.history.of(Acknowledged):
            configuration = event.configuration
            name = f"{configuration.owner.address.split(':')[0]}.{configuration.owner.incarnation}"
            if event.node != name:
                self.violate(
                    Rule.OWNER,
                    event.at,
                    f"{event.node} acknowledges in {configuration}, owned by {name}",
                )
            for topic, key in self._keys.items():
                if key in configuration.arc:
                    known = owners.setdefault((topic, configuration.epoch), event.node)
                    if known != event.node:
                        self.violate(
                            Rule.OWNER,
                            event.at,
                            f"{known} and {event.node} acknowledge in epoch {configuration.epoch} of {topic}",
                        )
        _ = numbers, epochs

    @property
    def _keys(self) -> dict[str, int]:
        from recado.overlay.identifier import topic_key

        return {topic: topic_key(topic) for topic in self.by_topic}

    # ── fields ────────────────────────────────────────────────────────────────────────────────────

    def _judge_field(self, topic: str, field: str, operations: list[Operation]) -> None:
        """Gibbons and Korach: a register whose written values differ is linearizable if its zones do not conflict."""
        writes: dict[bytes | None, Operation] = {}
        reads: dict[bytes | None, list[Operation]] = defaultdict(list)
        for operation in operations:
            match operation.submitted.operation, operation.answer:
                case SetField(name, value), _ if name == field:
                    if not isinstance(operation.answer, Refused) or operation.is_unknown:
                        writes[value] = operation
                    else:
                        writes.setdefault(value, operation)
                case GetField(name), FieldValue(value) if name == field:
                    reads[value].append(operation)
                case _:
                    pass
        zones: list[tuple[float, float, bytes | None]] = []
        for value in dict.fromkeys([*writes, *reads]):
            readers = reads.get(value, [])
            write = writes.get(value)
            if value is None:
                start, end = -1.0, -0.5
            elif write is None:
                self.violate(
                    Rule.FIELD, readers[0].end, f"{topic}.{field} reads {value!r}, never written"
                )
                continue
            elif isinstance(write.answer, Refused) and not write.is_unknown:
                if readers:
                    self.violate(
                        Rule.TWICE, readers[0].end, f"{topic}.{field}: refused {value!r} is read"
                    )
                continue
            elif write.is_unknown and not readers:
                continue  # it may not have been executed
            else:
                start, end = write.start, write.end
            for reader in readers:
                if reader.end < start:
                    self.violate(
                        Rule.FIELD,
                        reader.end,
                        f"{topic}.{field} reads {value!r} before it is written",
                    )
            first_end = min([end, *(reader.end for reader in readers)])
            last_start = max([start, *(reader.start for reader in readers)])
            zones.append((first_end, last_start, value))
        forward = [zone for zone in zones if zone[0] < zone[1]]
        backward = [zone for zone in zones if zone[0] >= zone[1]]
        for at, (low, high, value) in enumerate(forward):
            for other_low, other_high, other in forward[at + 1 :]:
                if low < other_high and other_low < high:
                    self.violate(
                        Rule.FIELD,
                        high,
                        f"{topic}.{field}: {value!r} and {other!r} are not linearizable",
                    )
            for other_high, other_low, other in backward:
                if low < other_low and other_high < high:
                    self.violate(
                        Rule.FIELD, other_high, f"{topic}.{field}: {other!r} is lost in {value!r}"
                    )

    # ── commands of upper layers ──────────────────────────────────────────────────────────────────

    def _judge_list(self, topic: str, operations: list[Operation]) -> None:
        """Tokens are appended once, in an order that agrees with time and with each origin."""
        reads = [
            (operation, (operation.answer.value or b"").split())
            for operation in operations
            if isinstance(operation.submitted.operation, GetField)
            and operation.submitted.operation.field == "list"
            and isinstance(operation.answer, FieldValue)
        ]
        reads += [
            (operation, operation.answer.result.split())
            for operation in operations
            if isinstance(operation.answer, Handled)
        ]
        if not reads:
            return
        longest = max((items for _, items in reads), key=len)
        for operation, items in reads:
            if longest[: len(items)] != items:
                self.violate(
                    Rule.LOST, operation.end, f"{topic}: {items} is no prefix of {longest}"
                )
        appended = {
            operation.submitted.operation.arguments: operation
            for operation in operations
            if isinstance(operation.submitted.operation, Handle)
        }
        places = {token: place for place, token in enumerate(longest)}
        if len(places) != len(longest):
            self.violate(
                Rule.TWICE, reads[-1][0].end, f"{topic}: a token is there twice in {longest}"
            )
        for token, operation in appended.items():
            place = places.get(token)
            if operation.is_done and place is None:
                self.violate(Rule.LOST, operation.end, f"{topic}: acknowledged {token!r} is lost")
            if place is not None and not operation.is_done and not operation.is_unknown:
                self.violate(Rule.TWICE, operation.end, f"{topic}: refused {token!r} was executed")
        known = [(places[token], each) for token, each in appended.items() if token in places]
        for operation, items in reads:
            if not isinstance(operation.submitted.operation, GetField):
                continue
            for place, each in known:
                if each.end < operation.start and place >= len(items):
                    self.violate(
                        Rule.LOST, operation.end, f"{topic}: a read does not see place {place}"
                    )
                if each.start > operation.end and place < len(items):
                    self.violate(Rule.ORDER, operation.end, f"{topic}: a read sees the future")
        for place, one in known:
            for other_place, other in known:
                if place < other_place:
                    continue
                if one.end < other.start:
                    self.violate(
                        Rule.ORDER, other.start, f"{topic}: place {other_place} is after {place}"
                    )
                if (
                    one.submitted.node == other.submitted.node
                    and one.submitted.request < other.submitted.request
                ):
                    self.violate(
                        Rule.ORDER, other.start, f"{topic}: an origin's commands are exchanged"
                    )

    def _judge_existence(self, topic: str, operations: list[Operation]) -> None:
        """No topic is deleted in these worlds, so one that was created is always there."""
        created = min(
            (
                operation.end
                for operation in operations
                if isinstance(operation.submitted.operation, CreateTopic) and operation.is_done
            ),
            default=inf,
        )
        for operation in operations:
            if (
                operation.start > created
                and isinstance(operation.answer, Refused)
                and operation.answer.reason is CommandRefusal.NO_SUCH_TOPIC
            ):
                self.violate(Rule.LOST, operation.end, f"{topic} was created, and is gone")

    # ── permissions ───────────────────────────────────────────────────────────────────────────────

    def _judge_permissions(self, topic: str, operations: list[Operation]) -> None:
        created = [
            operation
            for operation in operations
            if isinstance(operation.submitted.operation, CreateTopic) and operation.is_done
        ]
        if not created or not isinstance(created[0].submitted.operation, CreateTopic):
            return
        is_restricted = created[0].submitted.operation.restricted
        for operation in operations:
            action = _action(operation)
            if action is None or not isinstance(operation.answer, object):
                continue
            refused = (
                isinstance(operation.answer, Refused)
                and operation.answer.reason is CommandRefusal.NOT_PERMITTED
            )
            allowed = self._may(operations, operation, action, is_restricted, unsure=True)
            if operation.is_done and not allowed:
                self.violate(
                    Rule.PERMISSION,
                    operation.end,
                    f"{topic}: {action} by {operation.submitted.roles}",
                )
            if refused and self._may(operations, operation, action, is_restricted, unsure=False):
                self.violate(
                    Rule.PERMISSION,
                    operation.end,
                    f"{topic}: {action} refused to {operation.submitted.roles}",
                )

    def _may(
        self,
        operations: list[Operation],
        operation: Operation,
        action: Action,
        is_restricted: bool,
        unsure: bool,
    ) -> bool:
        """Whether a role may, in some order that agrees with time; with `unsure` False, in every order."""
        if not is_restricted or "admin" in operation.submitted.roles:
            return True
        changes = [
            (each, isinstance(each.submitted.operation, Grant))
            for each in operations
            if isinstance(each.submitted.operation, Grant | Revoke)
            and each.submitted.operation.role in operation.submitted.roles
            and action in each.submitted.operation.actions
            and (each.is_done or each.is_unknown)
        ]
        grants = [each for each, is_grant in changes if is_grant and each.start < operation.end]
        revokes = [
            each for each, is_grant in changes if not is_grant and each.start < operation.end
        ]
        if unsure:
            return any(
                not any(
                    revoke.is_done and grant.end < revoke.start and revoke.end < operation.start
                    for revoke in revokes
                )
                for grant in grants
            )
        return any(
            grant.is_done
            and grant.end < operation.start
            and all(revoke.is_done and revoke.end < grant.start for revoke in revokes)
            for grant in grants
        )

    # ── notifications ─────────────────────────────────────────────────────────────────────────────

    def _judge_notifications(self, topic: str, operations: list[Operation]) -> None:
        publishes: dict[bytes, Operation] = {}
        for operation in operations:
            if isinstance(operation.submitted.operation, Publish):
                publishes[operation.submitted.operation.message.body] = operation
        subscribes = {
            operation.submitted.operation.subscription: operation
            for operation in operations
            if isinstance(operation.submitted.operation, Subscribe)
        }
        unsubscribes: dict[SubscriptionId, Operation] = {}
        for operation in operations:
            if isinstance(operation.submitted.operation, Unsubscribe):
                unsubscribes.setdefault(operation.submitted.operation.subscription, operation)
        delivered: dict[SubscriptionId, list[DeliveryRecord]] = defaultdict(list)
        for event in self.history.of(DeliveryRecord):
            if event.topic == topic:
                delivered[event.subscription].append(event)
        for subscription, events in delivered.items():
            self._judge_delivered(topic, subscribes.get(subscription), events, publishes)
        for publish in publishes.values():
            for subscription, subscribe in subscribes.items():
                self._judge_expected(
                    topic,
                    publish,
                    subscribe,
                    unsubscribes.get(subscription),
                    delivered[subscription],
                )
            self._judge_report(topic, publish, subscribes, unsubscribes)

    def _judge_delivered(
        self,
        topic: str,
        subscribe: Operation | None,
        events: list[DeliveryRecord],
        publishes: dict[bytes, Operation],
    ) -> None:
        if subscribe is None or not isinstance(subscribe.submitted.operation, Subscribe):
            self.violate(Rule.PHANTOM, events[0].at, f"{topic}: {events[0]} without a subscription")
            return
        selector = subscribe.submitted.operation.selector
        seen: dict[bytes, float] = {}
        newest: dict[str, int] = {}
        for event in events:
            publish = publishes.get(event.body)
            if publish is None or not isinstance(publish.submitted.operation, Publish):
                self.violate(Rule.PHANTOM, event.at, f"{topic}: {event.body!r} was never published")
                continue
            if event.at < publish.start or (
                isinstance(publish.answer, Refused) and not publish.is_unknown
            ):
                self.violate(Rule.PHANTOM, event.at, f"{topic}: {event.body!r} was refused")
            if publish.end < subscribe.start and not self._retains(topic):
                self.violate(
                    Rule.PHANTOM, event.at, f"{topic}: {event.body!r} was published before"
                )
            if not _matches(selector, publish.submitted.operation.message):
                self.violate(
                    Rule.PHANTOM, event.at, f"{topic}: {event.body!r} does not match {selector}"
                )
            if event.body in seen:
                self.violate(
                    Rule.REPEATED,
                    event.at,
                    f"{topic}: {event.body!r} again to {event.subscription.number} at {event.node}",
                )
            seen[event.body] = event.at
            origin, request = publish.submitted.node, publish.submitted.request
            if newest.get(origin, 0) > request:
                self.violate(
                    Rule.ORDER, event.at, f"{topic}: {event.body!r} is late at {event.node}"
                )
            newest[origin] = request

    def _retains(self, topic: str) -> bool:
        return any(
            isinstance(each.submitted.operation, CreateTopic)
            and each.submitted.operation.retained_messages_max > 0
            for each in self.by_topic[topic]
        )

    def _judge_expected(
        self,
        topic: str,
        publish: Operation,
        subscribe: Operation,
        unsubscribe: Operation | None,
        events: list[DeliveryRecord],
    ) -> None:
        """A publish that was submitted after the subscription was answered must arrive."""
        if not (publish.is_done and subscribe.is_done and subscribe.end < publish.start):
            return
        node = subscribe.submitted.node
        if node in self.stopped or unsubscribe is not None:
            return
        if publish.end > self.end - SETTLED_S:
            return
        assert isinstance(publish.submitted.operation, Publish)
        assert isinstance(subscribe.submitted.operation, Subscribe)
        message = publish.submitted.operation.message
        if not _matches(subscribe.submitted.operation.selector, message):
            return
        self.verdict.counts["expected"] += 1
        if not any(event.body == message.body for event in events):
            self.violate(
                Rule.MISSED,
                publish.end,
                f"{topic}: {message.body!r} to {node} {subscribe.submitted.operation.subscription.number}",
            )

    def _judge_report(
        self,
        topic: str,
        publish: Operation,
        subscribes: dict[SubscriptionId, Operation],
        unsubscribes: dict[SubscriptionId, Operation],
    ) -> None:
        if not isinstance(publish.answer, PublishReport):
            return
        assert isinstance(publish.submitted.operation, Publish)
        message = publish.submitted.operation.message
        least = most = 0
        for subscription, subscribe in subscribes.items():
            operation = subscribe.submitted.operation
            assert isinstance(operation, Subscribe)
            if not _matches(operation.selector, message):
                continue
            unsubscribe = unsubscribes.get(subscription)
            stopped = self.stopped.get(subscribe.submitted.node)
            if subscribe.start < publish.end and (subscribe.is_done or subscribe.is_unknown):
                most += 1
            if (
                subscribe.is_done
                and subscribe.end < publish.start
                and (unsubscribe is None or unsubscribe.start > publish.end)
                and (stopped is None or stopped.at > publish.end)
            ):
                least += 1
        if not least <= publish.answer.matched <= most:
            self.violate(
                Rule.REPORT,
                publish.end,
                f"{topic}: {message.body!r} matched {publish.answer.matched}, not {least} to {most}",
            )

    # ── the end ───────────────────────────────────────────────────────────────────────────────────

    def _judge_progress(self) -> None:
        from .script import CHECKED_AT_S

        for operation in self.operations.values():
            node = operation.submitted.node
            if node in self.stopped:
                continue
            if operation.answer is None:
                self.violate(
                    Rule.PROGRESS, operation.start, f"{operation.submitted} is not answered"
                )
            elif operation.is_unknown and operation.start >= CHECKED_AT_S:
                self.violate(Rule.PROGRESS, operation.start, f"{operation.submitted} is refused")
        for evicted in self.history.of(Evicted):
            self.violate(Rule.EVICTED, evicted.at, f"{evicted.by} takes {evicted.node} for dead")
        for event in self.history.of(Judged):
            for problem in event.problems:
                self.violate(Rule.PLACED, event.at, problem)

    def _count(self) -> None:
        counts = self.verdict.counts
        counts["commands"] = len(self.operations)
        counts["done"] = sum(operation.is_done for operation in self.operations.values())
        counts["unavailable"] = sum(
            operation.is_unknown and operation.answer is not None
            for operation in self.operations.values()
        )
        counts["delivered"] = len(self.history.of(DeliveryRecord))
        counts["stopped"] = len(self.stopped)
        shares = [event.share for event in self.history.of(Disturbed)]
        counts["crashes alone"] = len(shares)
        counts["disturbed ppm"] = round(sum(shares) * 1_000_000)


def _action(operation: Operation) -> Action | None:
    match operation.submitted.operation:
        case Publish():
            return Action.PUBLISH
        case Subscribe():
            return Action.SUBSCRIBE
        case _:
            return None


_PREDICATES: dict[str, object] = {}


def _matches(selector: str | None, message: TopicMessage) -> bool:
    if selector is None:
        return True
    predicate = _PREDICATES.get(selector)
    if predicate is None:
        predicate = _PREDICATES[selector] = compile_predicate(parse(selector))
    return bool(predicate(message))  # type: ignore[operator]


_ = Done
