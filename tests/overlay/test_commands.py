"""Commands of users on a network of four nodes: topics, subscriptions, fields, permissions, publishes, upper layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from recado.overlay.command import (
    DONE,
    Action,
    CommandId,
    CommandRefusal,
    CreateTopic,
    DeleteTopic,
    DeliveryMethod,
    FieldValue,
    GetField,
    Grant,
    Handle,
    Handled,
    Operation,
    Overflow,
    Publish,
    PublishReport,
    Refused,
    Revoke,
    SetField,
    Subscribe,
    SubscriptionId,
    TopicCommand,
    TopicMessage,
    Unsubscribe,
)
from recado.overlay.identifier import topic_key
from recado.overlay.messages import Answers, Commands, Notified, Notify
from recado.overlay.node import OverlaySettings
from recado.overlay.peer_address import PeerAddress
from recado.overlay.peer_view import PeerAdded
from recado.overlay.topic import (
    FIELD_BYTES_MAX,
    FIELDS_MAX,
    MESSAGE_BYTES_MAX,
    NAME_BYTES_MAX,
    RETAINED_MESSAGES_MAX,
    ROLES_MAX,
)

from .network import Envelope, TestNetwork

NEWS = "news"


def count(
    fields: Mapping[str, bytes], arguments: bytes
) -> tuple[Sequence[tuple[str, bytes | None]], bytes]:
    if arguments == b"refuse":
        raise ValueError("this command wants to be refused")
    value = b"%d" % (int(fields.get("count", b"0")) + int(arguments))
    return [("count", value)], value


def start_network() -> TestNetwork:
    network = TestNetwork(OverlaySettings(subscriber_expiry_s=3.0), {"count": count})
    network.start(1, 5, 9, 13)
    network.run(2.0)
    return network


@pytest.fixture
def network() -> TestNetwork:
    return start_network()


def _peers(network: TestNetwork) -> list[PeerAddress]:
    return list(network.nodes)


def _away(network: TestNetwork, topic: str = NEWS) -> PeerAddress:
    """Return a node that neither owns nor stores a topic."""
    for peer, node in network.nodes.items():
        if not any(
            topic_key(topic) in each.configuration.arc
            for each in node.replication.replicas.values()
        ):
            return peer
    raise AssertionError("all nodes store the topic")


def _publish(body: str, team: str | None = None) -> Publish:
    return Publish(TopicMessage(body=body.encode(), headers={"team": team} if team else None))


def _bodies(network: TestNetwork, number: int) -> list[bytes]:
    return [
        effect.message.body
        for _, effect in network.delivered
        if effect.subscription.number == number
    ]


def _reason(answer: object) -> CommandRefusal:
    assert isinstance(answer, Refused)
    assert answer.text
    return answer.reason


# ── publish and subscribe ─────────────────────────────────────────────────────────────────────────


def test_a_publish_reaches_the_subscriptions_whose_selector_is_true(network: TestNetwork) -> None:
    """With the filters of LuaPS, figure 4.3 and section 4.2.2."""
    a, b, c, d = _peers(network)
    assert network.ask(a, NEWS, CreateTopic()) == DONE
    assert _reason(network.ask(b, NEWS, CreateTopic())) is CommandRefusal.TOPIC_EXISTS
    selectors = {
        1: (b, "body LIKE '%carro%'"),
        2: (c, "headers.team = 'X' AND NOT body LIKE '%derrota%'"),
        3: (d, None),
    }
    for number, (peer, selector) in selectors.items():
        assert network.ask(peer, NEWS, Subscribe(SubscriptionId(peer, number), selector)) == DONE
    assert network.ask(a, NEWS, _publish("vendo carro", "Y")) == PublishReport(2, 0, 0)
    assert network.ask(b, NEWS, _publish("gol", "X")) == PublishReport(2, 0, 0)
    assert network.ask(c, NEWS, _publish("derrota", "X")) == PublishReport(1, 0, 0)
    network.run(0.5)
    assert _bodies(network, 1) == [b"vendo carro"]
    assert _bodies(network, 2) == [b"gol"]
    assert _bodies(network, 3) == [b"vendo carro", b"gol", b"derrota"]
    assert network.ask(d, NEWS, Unsubscribe(SubscriptionId(d, 3))) == DONE
    assert network.ask(d, NEWS, _publish("casa")) == PublishReport(0, 0, 0)
    assert network.ask(a, NEWS, DeleteTopic()) == DONE
    assert _reason(network.ask(b, NEWS, _publish("late"))) is CommandRefusal.NO_SUCH_TOPIC
    assert _reason(network.ask(b, NEWS, GetField("x"))) is CommandRefusal.NO_SUCH_TOPIC


def test_later_subscribers_get_the_retained_messages(network: TestNetwork) -> None:
    a, b, *_ = _peers(network)
    network.ask(a, NEWS, CreateTopic(retained_messages_max=2))
    for body in ("one carro", "two", "three carro"):
        assert network.ask(a, NEWS, _publish(body)) == PublishReport(0, 1, 0)
    subscribe = Subscribe(SubscriptionId(b, 1), "body LIKE '%carro%'")
    assert network.ask(b, NEWS, subscribe) == DONE
    assert network.ask(b, NEWS, subscribe) == DONE, "renewed: the same again has no effect"
    network.ask(b, NEWS, Subscribe(SubscriptionId(b, 2), "body LIKE 'nothing'"))
    network.run(0.5)
    assert _bodies(network, 1) == [b"three carro"]
    assert _bodies(network, 2) == []


@pytest.mark.parametrize(
    ("operation", "reason"),
    [
        (Subscribe, CommandRefusal.INVALID),
        (SetField("f", bytes(FIELD_BYTES_MAX + 1)), CommandRefusal.INVALID),
        (Publish(TopicMessage(body=bytes(MESSAGE_BYTES_MAX))), CommandRefusal.INVALID),
        (Handle("unknown", b""), CommandRefusal.INVALID),
        (Handle("count", b"refuse"), CommandRefusal.INVALID),
    ],
)
def test_wrong_commands_are_refused(
    network: TestNetwork, operation: Operation | type, reason: CommandRefusal
) -> None:
    a, *_ = _peers(network)
    network.ask(a, NEWS, CreateTopic())
    if isinstance(operation, type):
        operation = Subscribe(SubscriptionId(a, 1), "nonsense >")
    assert _reason(network.ask(a, NEWS, operation)) is reason


def test_topics_have_bounds(network: TestNetwork) -> None:
    a, *_ = _peers(network)
    long = "x" * (NAME_BYTES_MAX + 1)
    assert _reason(network.ask(a, long, CreateTopic())) is CommandRefusal.INVALID
    too_many = CreateTopic(retained_messages_max=RETAINED_MESSAGES_MAX + 1)
    assert _reason(network.ask(a, NEWS, too_many)) is CommandRefusal.INVALID
    network.ask(a, NEWS, CreateTopic())
    for number in range(FIELDS_MAX):
        assert network.ask(a, NEWS, SetField(f"f{number}", b"")) == DONE
    assert _reason(network.ask(a, NEWS, SetField("one more", b""))) is CommandRefusal.FULL
    assert network.ask(a, NEWS, SetField("f0", None)) == DONE
    assert network.ask(a, NEWS, GetField("f0")) == FieldValue(None)
    assert network.ask(a, NEWS, SetField("one more", b"")) == DONE
    requests = [
        network.submit(a, NEWS, Grant(f"role {number}", (Action.READ,)))
        for number in range(ROLES_MAX + 1)
    ]
    network.run(2.0)
    answers = [network.answers[request] for request in requests]
    assert answers[:-1] == [DONE] * ROLES_MAX
    assert _reason(answers[-1]) is CommandRefusal.FULL


# ── permissions ───────────────────────────────────────────────────────────────────────────────────


def test_readers_publish_classifieds_only_and_journalists_everything_else(
    network: TestNetwork,
) -> None:
    """The newspaper of LuaPS, section 4.2.2."""
    a, b, *_ = _peers(network)
    readers, journalists, editor = ("reader",), ("journalist",), ("editor",)
    for topic, role in (("economy", "journalist"), ("classifieds", "reader")):
        assert network.ask(a, topic, CreateTopic(restricted=True), editor) == DONE
        assert network.ask(a, topic, Grant(role, (Action.PUBLISH,)), editor) == DONE
        for each in ("reader", "journalist"):
            assert network.ask(a, topic, Grant(each, (Action.SUBSCRIBE,)), editor) == DONE
    assert network.ask(b, "classifieds", _publish("carro"), readers) == PublishReport(0, 0, 0)
    assert network.ask(b, "economy", _publish("juros"), journalists) == PublishReport(0, 0, 0)
    for topic, roles in (("economy", readers), ("classifieds", journalists)):
        assert _reason(network.ask(b, topic, _publish("no"), roles)) is CommandRefusal.NOT_PERMITTED
        subscription = Subscribe(SubscriptionId(b, 1 + len(topic)))
        assert network.ask(b, topic, subscription, roles) == DONE
    for operation in (Grant("reader", (Action.PUBLISH,)), DeleteTopic(), SetField("f", b"")):
        answer = network.ask(b, "economy", operation, readers)
        assert _reason(answer) is CommandRefusal.NOT_PERMITTED
    assert (
        _reason(network.ask(b, "economy", GetField("f"), readers)) is CommandRefusal.NOT_PERMITTED
    )
    assert network.ask(a, "economy", Revoke("journalist", (Action.PUBLISH,)), editor) == DONE
    answer = network.ask(b, "economy", _publish("juros"), journalists)
    assert _reason(answer) is CommandRefusal.NOT_PERMITTED
    revoke_all = Revoke("journalist", tuple(Action))
    assert network.ask(a, "economy", revoke_all, editor) == DONE
    assert network.ask(a, "economy", revoke_all, editor) == DONE


# ── exactly once ──────────────────────────────────────────────────────────────────────────────────


def test_a_command_whose_answers_are_lost_is_executed_once(network: TestNetwork) -> None:
    peer = _away(network)
    network.ask(peer, NEWS, CreateTopic())
    network.is_lost = lambda envelope: any(
        isinstance(message, Answers) for message in envelope.messages
    )
    request = network.submit(peer, NEWS, Handle("count", b"1"))
    publish = network.submit(peer, "other", CreateTopic())
    network.run(2.0)
    assert request not in network.answers
    network.is_lost = lambda _: False
    network.run(1.0)
    assert network.answers[request] == Handled(b"1")
    assert network.answers[publish] == DONE
    assert network.ask(peer, NEWS, GetField("count")) == FieldValue(b"1")


def test_a_publish_that_is_sent_again_gets_its_report_before_and_after_delivery(
    network: TestNetwork,
) -> None:
    peer = _away(network)
    network.ask(peer, NEWS, CreateTopic())
    network.ask(peer, NEWS, Subscribe(SubscriptionId(peer, 1)))
    for held in (Answers, Notified):
        network.is_lost = lambda envelope, held=held: any(  # type: ignore[misc]
            isinstance(message, Answers | held) for message in envelope.messages
        )
        request = network.submit(peer, NEWS, _publish(held.__name__))
        network.run(1.0)
        network.is_lost = lambda envelope: any(
            isinstance(message, Notified) for message in envelope.messages
        )
        network.run(1.0)
        assert network.answers[request] == PublishReport(1, 0, 0)
    network.is_lost = lambda _: False
    network.run(1.0)
    assert _bodies(network, 1) == [b"Answers", b"Notified"]


def test_an_old_copy_of_a_command_has_no_effect(network: TestNetwork) -> None:
    peer = _away(network)
    network.ask(peer, NEWS, CreateTopic())
    network.sent.clear()
    network.ask(peer, NEWS, SetField("f", b"old"))
    (old,) = (
        envelope
        for envelope in network.sent
        if any(isinstance(message, Commands) for message in envelope.messages)
    )
    network.ask(peer, NEWS, SetField("f", b"new"))
    network._post.append(old)
    network.deliver()
    assert network.ask(peer, NEWS, GetField("f")) == FieldValue(b"new")
    restarted = network.restart(peer)
    network.run(2.0)
    network.ask(restarted, NEWS, SetField("f", b"newest"))
    network._post.append(old)
    network.deliver()
    assert network.ask(restarted, NEWS, GetField("f")) == FieldValue(b"newest")


def test_a_late_copy_of_a_command_that_was_given_up_is_not_executed(network: TestNetwork) -> None:
    """Its origin has executed a later command on the topic, so the order would be wrong."""
    peer = _away(network)
    network.ask(peer, NEWS, CreateTopic())
    network.ask(peer, NEWS, SetField("f", b"first"))
    held: list[Envelope] = []

    def holds_commands(envelope: Envelope) -> bool:
        is_held = any(isinstance(message, Commands) for message in envelope.messages)
        held.extend([envelope] * is_held)
        return is_held

    network.is_lost = holds_commands
    request = network.submit(peer, NEWS, SetField("f", b"late"), timeout=1.0)
    other = network.submit(peer, "other", CreateTopic(), timeout=8.0)
    network.run(1.5)
    assert _reason(network.answers[request]) is CommandRefusal.UNAVAILABLE
    network.is_lost = lambda envelope: any(
        isinstance(message, Commands) and message.commands[0].topic == "other"
        for message in envelope.messages
    )
    assert other not in network.answers, "so the numbers below are not settled"
    assert network.ask(peer, NEWS, SetField("f", b"later")) == DONE
    network.is_lost = lambda _: False
    network._post.append(next(each for each in held if _is_about(each, NEWS)))
    network.run(0.5)
    assert network.ask(peer, NEWS, GetField("f")) == FieldValue(b"later")


def _is_about(envelope: Envelope, topic: str) -> bool:
    return any(
        isinstance(message, Commands) and message.commands[0].topic == topic
        for message in envelope.messages
    )


def test_commands_of_upper_layers_do_not_interleave(network: TestNetwork) -> None:
    peers = _peers(network)
    network.ask(peers[0], NEWS, CreateTopic())
    requests = [
        network.submit(peers[number % 4], NEWS, Handle("count", b"1")) for number in range(40)
    ]
    network.run(3.0)
    results = [network.answers[request] for request in requests]
    values = sorted(int(result.result) for result in results if isinstance(result, Handled))
    assert values == list(range(1, 41))
    assert (
        _reason(network.ask(peers[0], "none", Handle("count", b"1")))
        is CommandRefusal.NO_SUCH_TOPIC
    )


# ── slow subscribers ──────────────────────────────────────────────────────────────────────────────


def _subscribe_slowly(network: TestNetwork, overflow: Overflow) -> tuple[PeerAddress, PeerAddress]:
    """Return the publisher and a subscriber whose acknowledgements are lost from now on."""
    peer = _away(network)
    other = next(each for each in network.nodes if each != peer)
    network.ask(peer, NEWS, CreateTopic())
    delivery = DeliveryMethod(queue_notifications_max=3, overflow=overflow)
    network.ask(peer, NEWS, Subscribe(SubscriptionId(peer, 1), None, delivery))
    network.ask(other, NEWS, Subscribe(SubscriptionId(other, 2)))
    network.run(0.5)
    network.is_lost = lambda envelope: (
        envelope.sender == peer
        and any(isinstance(message, Notified) for message in envelope.messages)
    )
    return other, peer


def test_block_holds_publishes_until_the_subscriber_has_caught_up(network: TestNetwork) -> None:
    publisher, _ = _subscribe_slowly(network, Overflow.BLOCK)
    requests = [network.submit(publisher, NEWS, _publish(f"{number}")) for number in range(3)]
    network.run(0.5)
    requests += [network.submit(publisher, NEWS, _publish(f"{number}")) for number in range(3, 6)]
    network.run(0.5)
    assert [request in network.answers for request in requests] == [True] * 3 + [False] * 3
    network.is_lost = lambda _: False
    network.run(2.0)
    assert [network.answers[request] for request in requests] == [PublishReport(2, 0, 0)] * 6
    assert _bodies(network, 1) == _bodies(network, 2) == [b"%d" % number for number in range(6)]


def test_disconnect_ends_the_subscription_and_tells_its_node(network: TestNetwork) -> None:
    publisher, _ = _subscribe_slowly(network, Overflow.DISCONNECT)
    for number in range(5):
        network.ask(publisher, NEWS, _publish(f"{number}"))
    network.run(1.0)
    assert network.ended == [1]
    assert network.ask(publisher, NEWS, _publish("last")) == PublishReport(1, 0, 0)
    assert _bodies(network, 2)[-1] == b"last"


def test_drop_oldest_loses_what_was_not_sent(network: TestNetwork) -> None:
    from recado.overlay import delivery

    publisher, _ = _subscribe_slowly(network, Overflow.DROP_OLDEST)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delivery, "WINDOW_NOTIFICATIONS_MAX", 1)
        reports = [network.ask(publisher, NEWS, _publish(f"{number}")) for number in range(6)]
        network.is_lost = lambda _: False
        network.run(3.0)
    assert reports == [PublishReport(2, 0, 0)] * 3 + [PublishReport(2, 0, 1)] * 3
    assert _bodies(network, 1) == [b"0", b"4", b"5"]
    assert _bodies(network, 2) == [b"%d" % number for number in range(6)]


def test_registered_deliveries_run_at_the_owner(network: TestNetwork) -> None:
    peer = _away(network)
    network.ask(peer, NEWS, CreateTopic(retained_messages_max=1))
    network.ask(peer, NEWS, _publish("before"))
    delivery = DeliveryMethod("queue", (("name", "orders"),), overflow=Overflow.BLOCK)
    network.ask(peer, NEWS, Subscribe(SubscriptionId(peer, 1), None, delivery))
    network.ask(peer, NEWS, _publish("after"))
    network.run(0.5)
    (owner,) = network.owners(topic_key(NEWS))
    assert [each for each, _ in network.delivered] == [owner, owner]
    assert _bodies(network, 1) == [b"before", b"after"]
    assert {effect.notification.delivery for _, effect in network.delivered} == {delivery}


# ── failures ──────────────────────────────────────────────────────────────────────────────────────


def test_subscriptions_of_a_node_that_is_gone_end_after_a_while(network: TestNetwork) -> None:
    peer = _away(network)
    other = next(each for each in network.nodes if each != peer)
    network.ask(other, NEWS, CreateTopic())
    network.ask(peer, NEWS, Subscribe(SubscriptionId(peer, 1)))
    network.run(0.5)
    network.crash(peer)
    assert network.ask(other, NEWS, _publish("missed")) == PublishReport(1, 0, 0)
    network.run(5.0)
    assert network.ask(other, NEWS, _publish("later")) == PublishReport(0, 0, 0)
    (owner,) = network.owners(topic_key(NEWS))
    state = network.nodes[owner].replication.owner_of(topic_key(NEWS))
    assert state is not None
    assert state.replica.state is not None
    network.run(1.0)
    assert not state.replica.state.pending


def test_subscriptions_of_a_node_that_was_out_of_reach_are_renewed(network: TestNetwork) -> None:
    peer = _away(network)
    other = next(each for each in network.nodes if each != peer)
    network.ask(other, NEWS, CreateTopic())
    network.ask(peer, NEWS, Subscribe(SubscriptionId(peer, 1)))
    network.is_lost = lambda envelope: peer in (envelope.sender, envelope.target)
    others = [each for each in network.nodes if each != peer]
    for each in others:
        network.lose_sight(each, peer)
    network.run(5.0)
    assert network.ask(other, NEWS, _publish("missed")) == PublishReport(0, 0, 0)
    for each in others:
        network.lose_sight(peer, each)
    network.is_lost = lambda _: False
    for each in others:
        network.handle(peer, PeerAdded(each))
        network.handle(each, PeerAdded(peer))
    network.run(3.0)
    assert network.ask(other, NEWS, _publish("found")) == PublishReport(1, 0, 0)
    network.run(0.5)
    assert _bodies(network, 1) == [b"found"]


def test_the_smaller_side_of_a_partition_refuses_and_the_larger_goes_on(
    network: TestNetwork,
) -> None:
    (owner,) = network.owners(topic_key(NEWS))
    others = [each for each in network.nodes if each != owner]
    network.ask(owner, NEWS, CreateTopic())
    network.ask(owner, NEWS, SetField("f", b"before"))
    network.is_lost = lambda envelope: owner in (envelope.sender, envelope.target)
    write = network.submit(owner, NEWS, SetField("f", b"lost"), timeout=2.0)
    read = network.submit(owner, "news", GetField("f"), timeout=2.0)
    for each in others:
        network.lose_sight(owner, each)
        network.lose_sight(each, owner)
    network.run(3.0)
    for request in (write, read):
        assert _reason(network.answers[request]) is CommandRefusal.UNAVAILABLE
    assert network.ask(others[0], NEWS, SetField("f", b"after")) == DONE
    network.is_lost = lambda _: False
    for each in others:
        network.handle(owner, PeerAdded(each))
        network.handle(each, PeerAdded(owner))
    network.run(4.0)
    assert network.ask(owner, NEWS, GetField("f")) == FieldValue(b"after")
    assert len(network.owners(topic_key(NEWS))) == 1


def test_a_new_owner_delivers_what_the_old_one_has_not(network: TestNetwork) -> None:
    peer = _away(network)
    network.ask(peer, NEWS, CreateTopic(retained_messages_max=1))
    network.ask(peer, NEWS, _publish("before"))
    network.is_lost = lambda envelope: any(
        isinstance(message, Notify) for message in envelope.messages
    )
    network.ask(peer, NEWS, Subscribe(SubscriptionId(peer, 1)))
    assert network.ask(peer, NEWS, _publish("after")) == PublishReport(1, 1, 0)
    assert _bodies(network, 1) == []
    (owner,) = network.owners(topic_key(NEWS))
    network.crash(owner)
    network.is_lost = lambda _: False
    network.run(3.0)
    assert _bodies(network, 1) == [b"before", b"after"]


def test_an_owner_without_a_majority_answers_no_reads(network: TestNetwork) -> None:
    """It cannot know whether another owner has changed the topic meanwhile."""
    (owner,) = network.owners(topic_key(NEWS))
    network.ask(owner, NEWS, CreateTopic())
    network.ask(owner, NEWS, SetField("f", b"old"))
    network.is_lost = lambda envelope: owner in (envelope.sender, envelope.target)
    request = network.submit(owner, NEWS, GetField("f"), timeout=2.0)
    network.run(2.5)
    assert _reason(network.answers[request]) is CommandRefusal.UNAVAILABLE


def test_commands_of_one_node_on_a_topic_stay_in_order(network: TestNetwork) -> None:
    peer = _away(network)
    network.ask(peer, NEWS, CreateTopic())
    network.ask(peer, NEWS, Subscribe(SubscriptionId(peer, 1)))
    lost = 0

    def loses_some(envelope: object) -> bool:
        nonlocal lost
        lost += 1
        return lost % 3 == 0

    network.is_lost = loses_some
    requests = [network.submit(peer, NEWS, _publish(f"{number}")) for number in range(20)]
    network.run(8.0)
    assert all(network.answers[request] == PublishReport(1, 0, 0) for request in requests)
    network.run(3.0)
    assert _bodies(network, 1) == [b"%d" % number for number in range(20)]


def test_a_copy_of_a_command_from_an_earlier_start_of_its_origin_is_refused(
    network: TestNetwork,
) -> None:
    (owner,) = network.owners(topic_key(NEWS))
    network.ask(owner, NEWS, CreateTopic())
    node = network.nodes[owner].replication.owner_of(topic_key(NEWS))
    assert node is not None
    old = PeerAddress(owner.node_id, type(owner.incarnation)(0), owner.network_id, owner.address)
    command = TopicCommand(CommandId(old, 1), NEWS, topic_key(NEWS), SetField("f", b"old"))
    node.submit(command, network.now)
    ((_, answer),) = node.answers
    assert _reason(answer) is CommandRefusal.OUT_OF_ORDER
