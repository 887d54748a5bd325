"""The broker: users and vhosts, the lifecycle of queues, and timers."""

import pytest

from recado.amqp.errors import AccessRefusedError, NotAllowedError, PreconditionFailedError
from recado.amqp.properties import Properties
from recado.broker.access import Permission, User
from recado.broker.arguments import QueueSettings
from recado.broker.broker import Broker
from recado.broker.queue import Queue
from recado.broker.queue_timers import QueueTimers

from .stage import GUEST, close_channel, consume, new_broker, new_queue, open_channel, run_of


@pytest.fixture
def broker() -> Broker:
    return new_broker()


class Connection:
    """The part of a connection that owns queues."""

    has_ended = False

    def __init__(self) -> None:
        self.exclusive_queues: dict[Queue, None] = {}


def is_there(queue: Queue) -> bool:
    return queue.vhost.queues.get(queue.name) is queue


# ── users ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_user_is_let_into_its_vhosts(broker: Broker) -> None:
    broker.add_vhost("other")
    assert broker.grant_access(GUEST, "/") is broker.grant_access(GUEST, "/")
    with pytest.raises(NotAllowedError, match="vhost nope not found"):
        broker.grant_access(GUEST, "nope")
    with pytest.raises(NotAllowedError, match="access to vhost 'other' refused for user 'guest'"):
        broker.grant_access(GUEST, "other")


def test_a_login_opens_a_vhost_with_the_permissions_of_today(broker: Broker) -> None:
    """The client decides how long its login lasts before it opens a vhost."""
    before = broker.grant_access(GUEST, "/")
    login, changed = broker.users["guest"], User("guest", permissions={"/": Permission()})
    broker.add_user(changed)
    assert broker.grant_access(login, "/") is before
    assert before.user is changed
    broker.add_user(User("guest"))
    with pytest.raises(NotAllowedError, match="access to vhost '/' refused for user 'guest'"):
        broker.grant_access(login, "/")


def test_the_login_of_a_deleted_user_opens_nothing(broker: Broker) -> None:
    login = broker.users["guest"]
    broker.delete_user("guest")
    with pytest.raises(NotAllowedError, match="access to vhost '/' refused for user 'guest'"):
        broker.grant_access(login, "/")


def test_a_login_from_before_a_change_does_not_hide_later_changes(broker: Broker) -> None:
    login = broker.users["guest"]
    broker.add_user(User("guest", permissions={"/": Permission(".*", ".*", ".*")}))
    accesses = [broker.grant_access(user, "/") for user in (broker.users["guest"], login)]
    broker.add_user(User("guest", permissions={"/": Permission()}))
    for access in accesses:
        with pytest.raises(AccessRefusedError):
            access.permissions.check_read("queue", "q")


# ── queues ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_queue_is_deleted_with_its_messages_and_its_owner_knows(broker: Broker) -> None:
    owner = Connection()
    settings = QueueSettings(exclusive=True)
    queue = broker.create_queue(broker.vhosts["/"], "q", settings, owner, 0)
    assert owner.exclusive_queues == {queue: None}
    queue.publish(run_of([b"1", b"2"]), 0)
    told: list[int] = []
    broker.delete_queue(queue, 0, on_deleted=told.append)
    assert told == [2]
    assert (queue.deleted, queue.owner, owner.exclusive_queues) == (True, None, {})
    assert broker.vhosts["/"].queues == {}


def test_a_queue_in_use_or_not_empty_may_be_spared(broker: Broker) -> None:
    queue = new_queue(broker)
    queue.publish(run_of([b"1"]), 0)
    with pytest.raises(PreconditionFailedError, match="queue 'q' in vhost '/' not empty"):
        broker.delete_queue(queue, 0, if_empty=True)
    consume(open_channel(broker), queue)
    with pytest.raises(PreconditionFailedError, match="queue 'q' in vhost '/' in use"):
        broker.delete_queue(queue, 0, if_unused=True)
    broker.delete_queue(queue, 0, if_empty=True)


def test_an_auto_delete_queue_goes_with_its_last_consumer(broker: Broker) -> None:
    queue = new_queue(broker, auto_delete=True)
    channel = open_channel(broker)
    one, two = consume(channel, queue, "one"), consume(channel, queue, "two")
    tap = consume(channel, queue, "tap", no_ack=True, wire_tap=True)
    broker.cancel(one, 0)
    broker.cancel(tap, 0)
    assert is_there(queue)
    broker.cancel(two, 0)
    assert not is_there(queue)
    broker.delete_if_unused([queue, new_queue(broker, "kept")], 0)
    assert broker.vhosts["/"].queues.keys() == {"kept"}


def test_an_address_for_replies_is_nobodys_queue(broker: Broker) -> None:
    address = broker.create_reply_queue(broker.vhosts["/"], 0)
    assert address.is_reply_address
    assert address.owner is broker
    assert list(address.publish(run_of([b"lost"]), 0)) == []
    consumer = consume(open_channel(broker), address, no_ack=True)
    broker.cancel(consumer, 0)
    assert broker.vhosts["/"].queues == {}
    assert broker.exclusive_queues == {}


# ── time ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_messages_expire_when_their_time_has_come(broker: Broker) -> None:
    assert broker.deadline() is None
    queue = new_queue(broker, message_ttl_ms=50)
    queue.publish(run_of([b"1"]), 100)
    queue.publish(run_of([b"2"]), 120)
    assert broker.deadline() == 150
    broker.tick(149)
    assert queue.ready == 2
    broker.tick(150)
    assert queue.ready == 1
    assert broker.deadline() == 170
    broker.tick(170)
    assert queue.ready == 0
    broker.tick(1000)
    assert broker.deadline() is None


def test_a_message_that_becomes_the_first_is_waited_for(broker: Broker) -> None:
    queue = new_queue(broker, max_length=1)
    for expiration in ("30", "5"):
        queue.publish(run_of([b"x"], Properties(expiration=expiration)), 0)
    assert broker.deadline() == 5


def test_a_queue_that_nobody_uses_expires(broker: Broker) -> None:
    queue = new_queue(broker, expires_ms=50)
    assert broker.deadline() == 50
    queue.touch(40)
    broker.tick(50)
    assert is_there(queue)
    assert broker.deadline() == 90
    queue.get(80)
    broker.tick(90)
    consumer = consume(open_channel(broker), queue, now=100)
    broker.tick(1000)
    assert is_there(queue)
    broker.cancel(consumer, 1000)
    close_channel(consumer.channel, 1000)
    broker.tick(1049)
    assert is_there(queue)
    broker.tick(1050)
    assert not is_there(queue)
    assert broker.deadline() is None


def test_a_wire_tap_does_not_keep_a_queue(broker: Broker) -> None:
    queue = new_queue(broker, expires_ms=50)
    consume(open_channel(broker), queue, no_ack=True, wire_tap=True, now=40)
    broker.tick(50)
    assert not is_there(queue)


def test_a_deleted_queue_sets_no_alarm(broker: Broker) -> None:
    queue = new_queue(broker, message_ttl_ms=5, expires_ms=50)
    queue.publish(run_of([b"x"]), 0)
    broker.delete_queue(queue, 0)
    queue.touch(1)
    broker.tick(100)
    assert broker.deadline() is None


def test_queues_that_come_and_go_do_not_fill_the_memory(broker: Broker) -> None:
    kept = new_queue(broker, "kept", expires_ms=10_000)
    for i in range(1000):
        broker.delete_queue(new_queue(broker, str(i), expires_ms=10_000), 0)
    alarms = broker._timers
    assert len(alarms._heap) < 100  # not observable otherwise
    broker.tick(10_000)
    assert not is_there(kept)


def test_an_alarm_rings_once_at_the_last_time_it_was_set_for(broker: Broker) -> None:
    alarms = QueueTimers()
    one, two = new_queue(broker, "one"), new_queue(broker, "two")
    assert alarms.next_due() is None
    assert alarms.pop_due(100) is None
    alarms.set(one, 10)
    alarms.set(two, 7)
    alarms.set(one, 5)
    assert alarms.next_due() == 5
    assert alarms.pop_due(4) is None
    assert alarms.pop_due(100) is one
    assert alarms.pop_due(100) is two
    assert alarms.pop_due(100) is None
    alarms.cancel(one)


def test_an_address_for_replies_has_nothing_and_takes_everything(broker: Broker) -> None:
    address = broker.create_reply_queue(broker.vhosts["/"], 0)
    assert address.get(0) is None
    assert not address.would_reject(run_of([b"reply"]))
    assert address.on_timer(0) == 0
