"""Scopes of OAuth 2 tokens: the examples of RabbitMQ's documentation and of its plugin's tests, as facts."""

import pytest

from recado.amqp.errors import AccessRefusedError, NotAllowedError
from recado.broker.access import PermissionChecker
from recado.broker.broker import Broker
from recado.broker.scopes import make_token_user, parse_pattern, parse_scope

EXAMPLE_VHOSTS = ["/", "foo", "*", "foo/bar", "юникод"]
EXAMPLE_NAMES = ["foo", "foo/bar", "*", "*/*", "юникод"]


def matches(name: str, pattern: str) -> bool:
    parsed = parse_pattern(pattern)
    return parsed is not None and parsed.matches(name)


@pytest.mark.parametrize(
    ("name", "pattern", "expected"),
    [
        # exact
        ("value", "value", True),
        (
            "string with / special % characters",
            "string%20with%20%2F%20special%20%25%20characters",
            True,
        ),
        ("pattern with  plus  spaces", "pattern+with++plus++spaces", True),
        ("plus and * wildcard encoded", "plus+and+%2A+wildcard+encoded", True),
        ("case with * special / characters", "case+with+%2a+special+%2f+characters", True),
        ("casesensitive", "CaseSensitive", False),
        ("foo", "fo", False),
        ("foo", "fooo", False),
        ("string with unescaped % character", "string with unescaped % character", False),
        ("wildcard * is matched by wildcard", "wildcard * is matched by wildcard", True),
        (
            "wildcard * and anything else is matched by wildcard",
            "wildcard * is matched by wildcard",
            True,
        ),
        ("wildcard * is matched by urlencoded", "wildcard+%2a+is+matched+by+urlencoded", True),
        ("wildcard * and extra is not matched", "wildcard+%2a+is+not+matched", False),
        ("pattern with  spaces", "pattern with  spaces", True),
        ("юникод", "%D1%8E%D0%BD%D0%B8%D0%BA%D0%BE%D0%B4", True),
        ("юникод", "юни*", True),
        ("", "", True),
        ("", "*", True),
        ("a", "", False),
        # the end
        ("foo", "*oo", True),
        ("foo", "*foo", True),
        ("foo", "*", True),
        ("line * with * special * characters", "*+characters", True),
        ("line * with * special * characters", "*special+%2A+characters", True),
        ("foo", "*r", False),
        ("foo", "*foobar", False),
        # the start
        ("foo", "fo*", True),
        ("foo", "foo*", True),
        ("line * with * special * characters", "line+*", True),
        ("line * with * special * characters", "line+%2a*", True),
        ("string with unescaped *", "string+with+unescaped+*", True),
        ("foo", "b*", False),
        ("foo", "barfoo*", False),
        # several
        ("string", "*str*ing*", True),
        ("str*ing", "*str*ing*", True),
        ("some long string", "some*string", True),
        ("some long string", "some*long*string", True),
        ("some long string", "*some*string*", True),
        ("some long string", "*long*", True),
        ("some long string", "*+*+*", True),
        ("some string", "*+*+*", False),
        ("some long string", "some*other*string", False),
        ("some long string", "s*e*str*", True),
        ("some long string", "s*z*str*", False),
        ("string", "*some*", False),
        ("string", "*some*string*", False),
        ("foo", "**", True),
        ("foo", "f**o", True),
        # Texts before and after a wildcard do not overlap; the last one is at the end.
        ("aba", "ab*ba", False),
        ("abba", "ab*ba", True),
        ("x-orders-orders", "*-orders", True),
        ("abcb", "a*b*b", True),
        ("acb", "a*b*b", False),
        ("a", "%6", False),
        ("a", "%zz", False),
        ("a", "%61", True),
    ],
)
def test_patterns(name: str, pattern: str, expected: bool) -> None:
    assert matches(name, pattern) is expected


# ── rights ────────────────────────────────────────────────────────────────────────────────────────


def allowed_rights(vhost: str, name: str, *scopes: str) -> set[str]:
    """Return which rights the scopes give to a name."""
    try:
        checker = PermissionChecker(make_token_user("ana", scopes, 0), vhost)
    except NotAllowedError:
        return set()
    found = set()
    for right in ("configure", "write", "read"):
        try:
            getattr(checker, f"check_{right}")("queue", name)
            getattr(checker, f"check_{right}")("exchange", name)
            found.add(right)
        except AccessRefusedError:
            pass
    return found


def allows_topic(vhost: str, exchange: str, key: str, *scopes: str) -> set[str]:
    checker = PermissionChecker(make_token_user("ana", (*scopes, "read:*/none"), 0), vhost)
    found = set()
    for right in ("write", "read"):
        try:
            getattr(checker, f"check_topic_{right}")(exchange, key)
            found.add(right)
        except AccessRefusedError:
            pass
    return found


@pytest.mark.parametrize("right", ["configure", "write", "read"])
@pytest.mark.parametrize("suffix", ["", "/*"])
class TestRights:
    def test_everywhere(self, right: str, suffix: str) -> None:
        for vhost in EXAMPLE_VHOSTS:
            for name in EXAMPLE_NAMES:
                assert allowed_rights(vhost, name, f"{right}:*/*{suffix}") == {right}

    def test_in_one_vhost(self, right: str, suffix: str) -> None:
        encoded = f"{right}:foo%2Fbar%2F%2A%2F/*{suffix}"
        for name in EXAMPLE_NAMES:
            assert allowed_rights("foo", name, f"{right}:foo/*{suffix}", "tag:management") == {
                right
            }
            assert allowed_rights("foo/bar/*/", name, encoded) == {right}
            assert allowed_rights("foo", name, encoded) == set()
            assert allowed_rights("foo/bar/*/", name, f"{right}:foo/*{suffix}") == set()

    def test_of_one_name(self, right: str, suffix: str) -> None:
        scope = f"{right}:*/bar%2A%2Fbaz{suffix}"
        for vhost in EXAMPLE_VHOSTS:
            assert allowed_rights(vhost, "bar*/baz", scope) == {right}
            for name in EXAMPLE_NAMES:
                assert allowed_rights(vhost, name, scope) == set()


@pytest.mark.parametrize("right", ["write", "read"])
def test_topics(right: str) -> None:
    keys = ["rout", "norout", "some_other"]
    for key in keys:
        for vhost in EXAMPLE_VHOSTS:
            for exchange in EXAMPLE_NAMES:
                assert allows_topic(vhost, exchange, key, f"{right}:*/*/*") == {right}
                assert allows_topic(vhost, exchange, key, f"{right}:vhost/*/*") == set()
                assert allows_topic(vhost, exchange, key, f"{right}:*/exchange/*") == set()
                suffix = allows_topic(vhost, exchange, key, f"{right}:*/*/*rout")
                assert suffix == ({right} if key.endswith("rout") else set())
                exact = allows_topic(vhost, exchange, key, f"{right}:*/*/rout")
                assert exact == ({right} if key == "rout" else set())
        assert allows_topic("vhost", "x", key, f"{right}:vhost/*/*") == {right}
        assert allows_topic("/", "exchange", key, f"{right}:*/exchange/*") == {right}


def test_a_topic_needs_a_scope_of_three_parts() -> None:
    """As RabbitMQ has it: `write:*/*` is not enough for a topic exchange."""
    assert allows_topic("/", "amq.topic", "a", "write:*/*") == set()
    assert allows_topic("/", "amq.topic", "a", "write:*/*", "write:%2F/amq.topic/*") == {"write"}


def test_topic_refusals_name_the_key() -> None:
    checker = PermissionChecker(make_token_user("ana", ["write:*/*/a"], 0), "/")
    with pytest.raises(AccessRefusedError) as refusal:
        checker.check_topic_write("amq.topic", "b")
    assert str(refusal.value) == (
        "access to topic 'b' in exchange 'amq.topic' in vhost '/' refused for user 'ana'"
    )


def test_the_default_exchange_has_its_name() -> None:
    checker = PermissionChecker(make_token_user("ana", ["write:*/amq.default"], 0), "/")
    checker.check_write("exchange", "")


def test_scopes_add_up() -> None:
    scopes = ["read:*/a", "write:/b", "write:%2F/a", "configure:*/x*"]
    assert allowed_rights("/", "a", *scopes) == {"read", "write"}
    assert allowed_rights("/", "xy", *scopes) == {"configure"}
    assert allowed_rights("other", "a", *scopes) == {"read"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "read",
        "read:",
        "read:a",
        "read:a/b/c/d",
        "READ:*/*",
        "reads:*/*",
        "delete:*/*",
        "read:%/*",
        "read:*/%",
        "read:*/*/%",
        "openid",
        "tag:administrator",
        "rabbitmq.read:*/*",
    ],
)
def test_other_scopes_are_ignored(text: str) -> None:
    assert parse_scope(text) is None
    assert not make_token_user("ana", [text], 0).may_enter("/")


def test_tags() -> None:
    user = make_token_user(
        "ana", ["tag:monitoring", "read:*/*", "tag:management", "tag:monitoring"], 5
    )
    assert user.tags == ("management", "monitoring")
    assert user.expires_at == 5


# ── in a broker ───────────────────────────────────────────────────────────────────────────────────


def test_the_broker_keeps_nothing_of_a_token() -> None:
    """Otherwise its memory would grow with the names in tokens."""
    broker = Broker(lambda: "x")
    user = make_token_user("ana", ["read:%2F/*"], 0)
    one, two = broker.grant_access(user, "/"), broker.grant_access(user, "/")
    assert one is not two
    assert "ana" not in broker.users
    with pytest.raises(NotAllowedError, match="access to vhost '/' refused for user 'ana'"):
        broker.grant_access(make_token_user("ana", ["read:other/*"], 0), "/")


def test_a_new_token_changes_one_connection_only() -> None:
    broker = Broker(lambda: "x")
    user = make_token_user("ana", ["read:*/*"], 0)
    one, two = broker.grant_access(user, "/"), broker.grant_access(user, "/")
    one.set_user(make_token_user("ana", ["write:*/*"], 0))
    one.permissions.check_write("queue", "q")
    two.permissions.check_read("queue", "q")
    for check in (one.permissions.check_read, two.permissions.check_write):
        with pytest.raises(AccessRefusedError):
            check("queue", "q")
