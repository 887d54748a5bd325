"""Permissions: patterns of names, the default exchange, topics, and inaccessible vhosts."""

import pytest

from recado.amqp.errors import AccessRefusedError, NotAllowedError
from recado.broker.access import Permission, PermissionChecker, TopicPermission, User


def user(
    *,
    configure: str = "",
    write: str = "",
    read: str = "",
    name: str = "ana",
    topic: TopicPermission | None = None,
) -> User:
    return User(
        name,
        permissions={"/": Permission(configure, write, read)},
        topic_permissions={} if topic is None else {("/", "news"): topic},
    )


def allows(pattern: str, name: str, kind: str = "queue") -> bool:
    access = PermissionChecker(user(read=pattern), "/")
    try:
        access.check_read(kind, name)
    except AccessRefusedError:
        return False
    return True


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        (".*", "anything"),
        ("a", "has an a"),
        ("^a", "abc"),
        ("^(orders|bills)$", "bills"),
        ("é", "café"),
        ("^$", ""),
        ("", ""),
    ],
)
def test_allowed_names(pattern: str, name: str) -> None:
    assert allows(pattern, name)
    assert allows(pattern, name)


@pytest.mark.parametrize(
    ("pattern", "name"),
    [("", "a"), ("^$", "a"), ("^a", "ba"), ("^(orders|bills)$", "billsx"), ("A", "a")],
)
def test_refused_names(pattern: str, name: str) -> None:
    assert not allows(pattern, name)
    assert not allows(pattern, name)


def test_the_default_exchange_has_a_name_here() -> None:
    assert allows("^amq\\.default$", "", kind="exchange")
    assert not allows("^$", "", kind="exchange")
    with pytest.raises(AccessRefusedError) as refusal:
        PermissionChecker(user(), "/").check_write("exchange", "")
    assert str(refusal.value) == (
        "access to exchange 'amq.default' in vhost '/' refused for user 'ana'"
    )


def test_each_right_by_itself() -> None:
    access = PermissionChecker(user(configure="^c", write="^w", read="^r"), "/")
    access.check_configure("queue", "c")
    access.check_write("queue", "w")
    access.check_read("queue", "r")
    for check, name in (
        (access.check_configure, "w"),
        (access.check_write, "r"),
        (access.check_read, "c"),
    ):
        with pytest.raises(AccessRefusedError) as refusal:
            check("exchange", name)
        assert refusal.value.reply_text == (
            f"ACCESS_REFUSED - access to exchange '{name}' in vhost '/' refused for user 'ana'"
        )


def test_a_vhost_that_is_not_named_is_closed() -> None:
    with pytest.raises(NotAllowedError) as refusal:
        PermissionChecker(user(configure=".*", write=".*", read=".*"), "other")
    assert refusal.value.reply_text == (
        "NOT_ALLOWED - access to vhost 'other' refused for user 'ana'"
    )


@pytest.mark.parametrize("pattern", ["(", "(?<!a)b", "a" * 1_025])
def test_a_bad_pattern_is_known_at_once(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"missing|invalid|longer"):
        Permission(configure=pattern)
    with pytest.raises(ValueError, match=r"missing|invalid|longer"):
        TopicPermission(read=pattern)


def test_topics_are_free_unless_narrowed() -> None:
    access = PermissionChecker(user(topic=TopicPermission(write="^a\\.", read="^b\\.")), "/")
    access.check_topic_write("other", "b.c")
    access.check_topic_read("other", "a.c")
    access.check_topic_write("news", "a.c")
    access.check_topic_read("news", "b.c")
    with pytest.raises(AccessRefusedError) as refusal:
        access.check_topic_write("news", "b.c")
    assert str(refusal.value) == (
        "access to topic 'b.c' in exchange 'news' in vhost '/' refused for user 'ana'"
    )
    with pytest.raises(AccessRefusedError):
        access.check_topic_read("news", "a.c")


def test_topics_by_the_names_of_user_and_vhost() -> None:
    topic = TopicPermission(write="^{username}\\.{vhost}$")
    access = PermissionChecker(user(name="a.b", topic=topic), "/")
    access.check_topic_write("news", "a.b./")
    for key in ("aXb./", "a.b.other"):
        with pytest.raises(AccessRefusedError):
            access.check_topic_write("news", key)


def test_a_pattern_that_names_make_too_long_allows_nothing() -> None:
    topic = TopicPermission(write="{username}" + "a?" * 500)
    access = PermissionChecker(user(name="u" * 100, topic=topic), "/")
    with pytest.raises(AccessRefusedError):
        access.check_topic_write("news", "u" * 100)


def test_a_new_user_may_do_nothing() -> None:
    nobody = User("nobody")
    assert not nobody.loopback_only
    with pytest.raises(NotAllowedError):
        PermissionChecker(nobody, "/")
