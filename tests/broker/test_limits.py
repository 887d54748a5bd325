"""Limits of vhosts and users, and the default queue type."""

import msgspec
import pytest

from recado.amqp.errors import NotAllowedError, PreconditionFailedError
from recado.amqp.values import FieldTable
from recado.broker.access import User
from recado.broker.arguments import QueueType, parse_queue_arguments
from recado.broker.broker import Broker
from recado.broker.limits import Usage, UserLimits, VhostLimits
from recado.broker.store import MessageStore
from recado.broker.vhost import VhostSettings

from .stage import close_channel, consume, new_broker, new_queue, open_channel

NO_LIMITS = VhostLimits()


def limited(**limits: int) -> Usage:
    return Usage({"ana": User("ana", limits=UserLimits(**limits))})


# ── connections and channels ──────────────────────────────────────────────────────────────────────────


def test_connections_of_a_vhost_are_those_of_all_users() -> None:
    usage, limits = limited(), VhostLimits(max_connections=2)
    for user in ("ana", "bob"):
        usage.check_connection(user, "v", limits)
        usage.add_connection(user, "v")
    usage.check_connection("ana", "other", limits)
    with pytest.raises(NotAllowedError) as refused:
        usage.check_connection("eve", "v", limits)
    assert str(refused.value) == (
        "access to vhost 'v' refused for user 'eve': connection limit (2) is reached"
    )
    usage.remove_connection("bob", "v")
    usage.check_connection("eve", "v", limits)


def test_connections_of_a_user_are_those_to_all_vhosts() -> None:
    usage = limited(max_connections=2)
    for vhost in ("a", "b"):
        usage.check_connection("ana", vhost, NO_LIMITS)
        usage.add_connection("ana", vhost)
    usage.check_connection("bob", "a", NO_LIMITS)
    with pytest.raises(NotAllowedError) as refused:
        usage.check_connection("ana", "c", NO_LIMITS)
    assert str(refused.value) == (
        "connection refused for user 'ana': user connection limit (2) is reached"
    )


def test_the_limit_of_the_vhost_is_checked_first() -> None:
    with pytest.raises(NotAllowedError, match="access to vhost"):
        limited(max_connections=0).check_connection("ana", "v", VhostLimits(max_connections=0))


def test_channels_of_a_user() -> None:
    usage = limited(max_channels=1)
    usage.add_channel("ana")
    with pytest.raises(NotAllowedError) as refused:
        usage.add_channel("ana")
    assert str(refused.value) == (
        "number of channels opened for user 'ana' has reached the maximum allowed user limit of (1)"
    )
    usage.remove_channel("ana")
    usage.add_channel("ana")
    for _ in range(2):
        usage.add_channel("bob")


def test_open_connections_and_channels_are_counted() -> None:
    usage = limited()
    for user in ("ana", "ana", "bob"):
        usage.add_connection(user, "v")
        usage.add_channel(user)
    usage.add_channel("ana")
    usage.remove_connection("bob", "v")
    usage.remove_channel("bob")
    assert [usage.count_connections(user) for user in ("ana", "bob", "eve", None)] == [2, 0, 0, 2]
    assert [usage.count_channels(user) for user in ("ana", "bob", "eve", None)] == [3, 0, 0, 3]
    assert (usage.connections_created, usage.channels_created) == (3, 4), "totals since the start"


def test_a_user_is_let_in_only_below_the_limits() -> None:
    broker = new_broker()
    guest = broker.users["guest"]
    broker.configure_vhost("/", VhostSettings(limits=VhostLimits(max_connections=1)))
    broker.grant_access(guest, "/")
    broker.usage.add_connection("guest", "/")
    with pytest.raises(NotAllowedError, match=r"connection limit \(1\) is reached"):
        broker.grant_access(guest, "/")


def test_the_limits_of_today_hold_for_who_logged_in_before() -> None:
    broker = new_broker()
    guest = broker.users["guest"]
    broker.add_user(msgspec.structs.replace(guest, limits=UserLimits(max_connections=0)))
    with pytest.raises(NotAllowedError, match="user connection limit"):
        broker.grant_access(guest, "/")


# ── queues ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_vhost_has_at_most_as_many_queues() -> None:
    broker = new_broker()
    vhost = broker.vhosts["/"]
    broker.configure_vhost("/", VhostSettings(limits=VhostLimits(max_queues=1)))
    broker.create_reply_queue(vhost, 0)  # not a queue for clients
    broker.check_queue_limit(vhost, "a")
    queue = new_queue(broker, "a")
    with pytest.raises(PreconditionFailedError) as refused:
        broker.check_queue_limit(vhost, "b")
    assert str(refused.value) == (
        "cannot declare queue 'b': queue limit in vhost '/' (1) is reached"
    )
    broker.delete_queue(queue, 0)
    broker.check_queue_limit(vhost, "b")
    broker.configure_vhost("/", VhostSettings())
    new_queue(broker, "b")
    broker.check_queue_limit(vhost, "c")


# ── bindings and consumers ────────────────────────────────────────────────────────────────────────────


def test_a_vhost_has_at_most_as_many_bindings() -> None:
    broker = new_broker()
    vhost = broker.vhosts["/"]
    broker.configure_vhost("/", VhostSettings(limits=VhostLimits(max_bindings=2)))
    queue = new_queue(broker, "q")
    vhost.declare_exchange("e", "direct")
    vhost.bind_queue("q", "e", "a")
    vhost.bind_exchange("e", "amq.fanout", "")
    vhost.bind_queue("q", "e", "a")  # exists
    with pytest.raises(PreconditionFailedError) as refused:
        vhost.bind_queue("q", "e", "b")
    assert str(refused.value) == (
        "cannot bind 'q' to exchange 'e': binding limit in vhost '/' (2) is reached"
    )
    with pytest.raises(PreconditionFailedError, match=r"binding limit in vhost '/' \(2\)"):
        vhost.bind_exchange("e", "amq.topic", "")
    vhost.unbind_queue("q", "e", "a")
    vhost.bind_queue("q", "amq.direct", "b")
    broker.check()
    vhost.delete_exchange("e")
    assert vhost.binding_count == 1
    broker.delete_queue(queue, 0)
    assert vhost.binding_count == 0
    broker.check()


def test_a_vhost_has_at_most_as_many_consumers() -> None:
    broker = new_broker()
    vhost = broker.vhosts["/"]
    broker.configure_vhost("/", VhostSettings(limits=VhostLimits(max_consumers=2)))
    one, two = open_channel(broker), open_channel(broker)
    queue, other = new_queue(broker, "q"), new_queue(broker, "other")
    reply_queue = broker.create_reply_queue(vhost, 0)
    reply_consumer = consume(one, reply_queue, "replies", no_ack=True)  # not counted
    cancelled = consume(one, queue, "a")
    consume(two, queue, "b", no_ack=True, wire_tap=True)
    broker.check()
    with pytest.raises(PreconditionFailedError) as refused:
        consume(two, other, "c")
    assert str(refused.value) == (
        "cannot consume from queue 'other': consumer limit in vhost '/' (2) is reached"
    )
    broker.cancel(cancelled, 0)
    broker.cancel(reply_consumer, 0)
    assert vhost.consumer_count == 1
    consume(two, other, "c")
    broker.check()
    broker.delete_queue(other, 0)
    assert vhost.consumer_count == 1
    close_channel(two)
    assert vhost.consumer_count == 0
    broker.check()


@pytest.mark.parametrize("default", ["classic", "quorum", "stream"])
@pytest.mark.parametrize(
    ("flags", "suits"),
    [
        ({"durable": True}, True),
        ({"durable": False}, False),
        ({"durable": True, "exclusive": True}, False),
        ({"durable": True, "auto_delete": True}, False),
    ],
)
def test_the_default_type_is_for_queues_that_can_be_of_it(
    default: QueueType, flags: dict[str, bool], suits: bool
) -> None:
    declared = {"durable": False, "exclusive": False, "auto_delete": False} | flags
    given: FieldTable = {}
    settings = parse_queue_arguments("q", "/", **declared, arguments=given, default_type=default)
    assert settings.queue_type == (default if suits else "classic")
    assert settings.arguments == {"x-queue-type": settings.queue_type}
    assert not given


def test_the_default_type_is_not_for_queues_that_name_one() -> None:
    settings = parse_queue_arguments(
        "q",
        "/",
        durable=True,
        exclusive=False,
        auto_delete=False,
        arguments={"x-queue-type": "classic"},
        default_type="quorum",
    )
    assert settings.queue_type == "classic"


# ── what lasts ────────────────────────────────────────────────────────────────────────────────────────


class MetadataStore(MessageStore):
    def __init__(self) -> None:
        self.metadata: dict[tuple[str, str, str], bytes] = {}

    def set_metadata(self, kind: str, vhost: str, name: str, value: bytes | None) -> None:
        assert value is not None
        self.metadata[kind, vhost, name] = value


def test_settings_of_vhosts_and_users_are_recalled() -> None:
    store = MetadataStore()
    broker = new_broker(store)
    settings = VhostSettings("stream", VhostLimits(max_connections=5, max_queues=0))
    ana = User("ana", limits=UserLimits(max_channels=3))
    broker.configure_vhost("/", settings)
    broker.add_vhost("plain", persist=True)
    broker.add_user(ana, persist=True)
    again = Broker(str, (), store=MessageStore())
    again.restore_metadata(store.metadata, 0)
    assert again.vhosts["/"].settings == settings
    assert again.vhosts["plain"].settings == VhostSettings()
    assert again.users["ana"] == ana
