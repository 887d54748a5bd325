"""Changes by an administrator at run time: users, vhosts, global parameters; and what statistics read."""

import msgspec
import pytest

from recado.amqp.errors import AccessRefusedError
from recado.broker.access import Permission, TopicPermission, User
from recado.broker.arguments import QueueSettings
from recado.broker.broker import Broker
from recado.broker.channel import Settlement
from recado.broker.policy import Policy
from recado.broker.store import MessageStore

from .stage import consume, new_broker, new_queue, open_channel, run_of

ALL = Permission(".*", ".*", ".*")


class MetadataStore(MessageStore):
    """Remembers the last value of each piece of metadata; None for a deleted one."""

    def __init__(self) -> None:
        self.metadata: dict[tuple[str, str, str], bytes | None] = {}

    def set_metadata(self, kind: str, vhost: str, name: str, value: bytes | None) -> None:
        self.metadata[kind, vhost, name] = value


def test_changed_permissions_apply_to_open_connections() -> None:
    broker = new_broker()
    access = broker.grant_access(broker.users["guest"], "/")
    access.permissions.check_write("exchange", "orders")
    broker.add_user(User("guest", permissions={"/": Permission(".*", "^mine", ".*")}))
    with pytest.raises(AccessRefusedError):
        access.permissions.check_write("exchange", "orders")
    access.permissions.check_write("exchange", "mine")
    broker.add_user(User("guest"))
    with pytest.raises(AccessRefusedError):
        access.permissions.check_write("exchange", "mine")


def test_other_users_are_not_affected() -> None:
    broker = new_broker()
    broker.add_user(User("ana", permissions={"/": ALL}))
    access = broker.grant_access(broker.users["guest"], "/")
    broker.add_user(User("ana"))
    access.permissions.check_configure("queue", "q")


def test_a_deleted_user_has_no_permissions_and_is_not_restored() -> None:
    store = MetadataStore()
    broker = new_broker(store)
    broker.add_user(User("ana", permissions={"/": ALL}), persist=True)
    access = broker.grant_access(broker.users["ana"], "/")
    broker.delete_user("ana")
    with pytest.raises(AccessRefusedError):
        access.permissions.check_read("queue", "q")
    assert "ana" not in broker.users
    assert store.metadata["user", "", "ana"] is None


def test_a_deleted_vhost_takes_everything_with_it() -> None:
    store = MetadataStore()
    broker = new_broker(store)
    broker.add_vhost("shop", persist=True)
    topics = {("shop", "amq.topic"): TopicPermission(write="a"), ("/", "t"): TopicPermission()}
    broker.add_user(User("ana", permissions={"shop": ALL}, topic_permissions=topics))
    broker.grant_access(broker.users["ana"], "shop")
    vhost = broker.vhosts["shop"]
    queues = [broker.create_queue(vhost, name, QueueSettings(), None, 0) for name in "ab"]
    vhost.declare_exchange("ex", "direct")
    vhost.declare_exchange("auto", "direct", auto_delete=True)
    vhost.bind_queue("a", "auto", "k")
    policy = Policy(name="p", pattern=".*", definition={"max-length": 1})
    broker.set_policies("shop", [policy], 0)
    deleted: list[bool] = []
    broker.delete_vhost("shop", 0, lambda: deleted.append(True))
    while not deleted:
        broker.tick(0)
    assert all(queue.deleted for queue in queues)
    assert "shop" not in broker.vhosts
    assert not broker.deleting_vhosts
    assert broker.users["ana"].permissions == {}
    assert list(broker.users["ana"].topic_permissions) == [("/", "t")]
    assert store.metadata["vhost", "shop", ""] is None
    assert store.metadata["policy", "shop", "p"] is None
    broker.add_vhost("shop")
    assert not broker.vhosts["shop"].queues


def test_users_that_change_while_a_vhost_is_deleted_stay_changed() -> None:
    broker = new_broker()
    broker.add_vhost("shop")
    for number in range(3_000):
        broker.add_user(User(str(number), permissions={"shop": ALL}))
    deleted: list[bool] = []
    broker.delete_vhost("shop", 0, lambda: deleted.append(True))
    assert not deleted  # so many users are changed in the background
    broker.delete_user("2999")
    broker.add_user(User("2998", "new hash", permissions={"shop": ALL, "/": ALL}))
    while not deleted:
        broker.tick(0)
    assert "2999" not in broker.users
    assert broker.users["2998"] == User("2998", "new hash", permissions={"/": ALL})
    assert not any(user.has_access_data("shop") for user in broker.users.values())


def test_queues_that_are_deleted_meanwhile_are_skipped() -> None:
    broker = new_broker()
    broker.add_vhost("shop")
    vhost = broker.vhosts["shop"]
    queues = [broker.create_queue(vhost, str(n), QueueSettings(), None, 0) for n in range(3_000)]
    vhost.declare_exchange("ex", "direct")
    deleted: list[bool] = []
    broker.delete_vhost("shop", 0, lambda: deleted.append(True))
    assert not deleted  # so many queues are deleted in the background
    assert broker.deleting_vhosts == {"shop"}
    broker.delete_queue(queues[-1], 0)
    vhost.delete_exchange("ex")
    while not deleted:
        broker.tick(0)
    assert all(queue.deleted for queue in queues)


def test_global_parameters_are_persisted_and_restored() -> None:
    store = MetadataStore()
    broker = new_broker(store)
    broker.set_global_parameter("a", {"b": [1]})
    broker.set_global_parameter("gone", 1)
    broker.set_global_parameter("gone", msgspec.UNSET)
    assert broker.global_parameters == {"a": {"b": [1]}}
    metadata = {key: value for key, value in store.metadata.items() if value is not None}
    restored = Broker(lambda: "name")
    restored.restore_metadata(metadata, 0)
    assert restored.global_parameters == {"a": {"b": [1]}}


def test_parts_of_an_import_are_persisted_and_restored() -> None:
    store = MetadataStore()
    broker = new_broker(store)
    broker.stage_import("0", b"part")
    broker.stage_import("1", b"other")
    broker.stage_import("1", None)
    metadata = {key: value for key, value in store.metadata.items() if value is not None}
    restored = Broker(lambda: "name")
    restored.restore_metadata(metadata, 0)
    assert restored.staged_imports == {"0": b"part"}
    assert list(restored.vhosts) == ["/"]


def test_stored_policies_apply_to_existing_queues_when_they_are_applied() -> None:
    store = MetadataStore()
    broker = new_broker(store)
    vhost = broker.vhosts["/"]
    old = broker.create_queue(vhost, "old", QueueSettings(), None, 0)
    policy = Policy(name="p", pattern=".*", definition={"max-length": 1})
    other = Policy(name="o", pattern="^none", definition={"max-length": 2}, priority=2)
    broker.store_policies("/", [policy, other])
    new = broker.create_queue(vhost, "new", QueueSettings(), None, 0)
    assert (old.settings.max_length, new.settings.max_length) == (None, 1)
    assert {("policy", "/", "p"), ("policy", "/", "o")} <= store.metadata.keys()
    broker.apply_policies("/", 0)
    assert old.settings.max_length == 1


def test_the_policy_that_applies() -> None:
    broker = new_broker()
    policies = broker.vhosts["/"].policies
    for policy in (
        Policy(name="low", pattern="^q", definition={"max-length": 1}),
        Policy(
            name="high", pattern="^q", definition={"max-length": 2}, priority=5, apply_to="queues"
        ),
        Policy(name="stream", pattern="^q", definition={"max-age": "1h"}, priority=9),
        Policy(name="op", pattern="^q", definition={"max-length": 2}, operator=True),
    ):
        policies.set(policy)
    found = policies.find_policy("q", "queues", "classic")
    assert found is not None
    assert found.name == "high"
    found = policies.find_policy("q", "exchanges")
    assert found is not None
    assert found.name == "stream"
    found = policies.find_policy("q", "queues", "classic", operator=True)
    assert found is not None
    assert found.name == "op"
    assert policies.find_policy("other", "queues", "classic") is None


def test_counters_of_queues_and_channels() -> None:
    broker = new_broker()
    queue, channel = new_queue(broker), open_channel(broker)
    assert not channel.get(queue, no_ack=True, now=0)
    queue.publish(run_of([b"1", b"2", b"3", b"4", b"5", b"6"]), 0)
    channel.get(queue, no_ack=False, now=0)
    channel.get(queue, no_ack=True, now=0)
    consumer = consume(channel, queue, prefetch=2)
    channel.settle(Settlement.REQUEUE, 3, 0, multiple=False)
    assert channel.unacked.count_unsettled() == 3
    counts = (queue.published_count, queue.get_count, queue.get_no_ack_count, queue.get_empty_count)
    assert counts == (6, 1, 1, 1)
    assert (queue.delivered_count, queue.redelivered_count) == (3, 1)
    assert channel.redelivered_count == 1
    channel.settle(Settlement.ACK, 1, 0, multiple=False)
    assert queue.acknowledged_count == 1
    assert queue.is_active(consumer)
    assert queue.active_consumer_tag is None
    assert queue.last_used_ms == 0
    channel.settle(Settlement.REQUEUE, 0, 0, multiple=True)
    while channel.get(queue, no_ack=True, now=0):
        pass
    assert channel.redelivered_count > 1


def test_counters_of_consumers_that_auto_ack() -> None:
    broker = new_broker()
    queue, channel = new_queue(broker), open_channel(broker)
    holder = open_channel(broker, number=2)
    queue.publish(run_of([b"1", b"2"]), 0)
    holder.get(queue, no_ack=False, now=0)
    holder.settle(Settlement.REQUEUE, 1, 0, multiple=False)
    consume(channel, queue, no_ack=True)
    assert (queue.delivered_no_ack_count, channel.delivered_no_ack_count) == (2, 2)
    assert (queue.redelivered_count, channel.redelivered_count) == (1, 1)


def test_the_single_active_consumer() -> None:
    broker = new_broker()
    queue, channel = new_queue(broker, single_active_consumer=True), open_channel(broker)
    first, second = consume(channel, queue, "first"), consume(channel, queue, "second")
    assert (queue.is_active(first), queue.is_active(second)) == (True, False)
    assert queue.active_consumer_tag == "first"
