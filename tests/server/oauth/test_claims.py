"""From claims to users: validity, audience, names and scopes, as RabbitMQ reads them."""

from __future__ import annotations

from typing import Any

import pytest

from recado.server.oauth.claims import (
    SCOPES_MAX_COUNT,
    TokenError,
    TokenRules,
    is_token,
    read_user,
)

NOW = 1_000_000.0
RULES = TokenRules("rabbitmq", "rabbitmq.")
CLAIMS: dict[str, Any] = {"sub": "ana", "aud": "rabbitmq", "exp": NOW + 60}


def change(**options: Any) -> TokenRules:
    return TokenRules(**{"resource_server_id": "rabbitmq", "scope_prefix": "rabbitmq.", **options})


def refuse(claims: dict[str, Any], rules: TokenRules = RULES, now: float = NOW) -> str:
    with pytest.raises(TokenError) as refusal:
        read_user({**CLAIMS, **claims}, rules, now)
    return str(refusal.value)


def read_rights(claims: dict[str, Any], rules: TokenRules = RULES) -> set[str]:
    """Return the rights to the queue q in /, and tags."""
    user = read_user({**CLAIMS, **claims}, rules, NOW)
    if not user.may_enter("/"):
        return set(user.tags)
    rights = zip(("configure", "write", "read"), user.name_predicates("/"), strict=True)
    return {right for right, allows in rights if allows("q")} | set(user.tags)


@pytest.mark.parametrize(
    ("password", "expected"),
    [
        (b"eyJhbGciOiJub25lIn0.e30.", True),
        (b"ey..", True),
        (b"eyJhbGciOiJub25lIn0.e30", False),
        (b"eyJ.a.b.c", False),
        (b"a.b.c", False),
        (b"secret", False),
        (b"", False),
    ],
)
def test_tokens_are_recognised_by_their_form(password: bytes, expected: bool) -> None:
    assert is_token(password) is expected


# ── validity ──────────────────────────────────────────────────────────────────────────────────────────────


def test_time() -> None:
    user = read_user(CLAIMS, RULES, NOW + 59)
    assert user.expires_at == NOW + 60
    assert refuse({}, now=NOW + 60) == "the token expired 0 s ago"
    assert refuse({"nbf": NOW + 5}) == "the token is not valid before 5 s from now"
    read_user({**CLAIMS, "nbf": NOW}, RULES, NOW)
    assert refuse({"exp": None}) == "the token has no claim 'exp'"


def test_leeway() -> None:
    rules = change(leeway=10.0)
    assert read_user({**CLAIMS, "nbf": NOW + 10}, rules, NOW).expires_at == NOW + 70
    read_user(CLAIMS, rules, NOW + 69)
    assert refuse({}, rules, NOW + 70) == "the token expired 10 s ago"
    assert refuse({"nbf": NOW + 11}, rules) == "the token is not valid before 11 s from now"


@pytest.mark.parametrize("value", ["1000060", True, [NOW + 60], {}])
@pytest.mark.parametrize("name", ["exp", "nbf"])
def test_times_are_numbers(name: str, value: object) -> None:
    assert refuse({name: value}) == f"the claim '{name}' of the token is not a number"


@pytest.mark.parametrize(
    ("audience", "accepted"),
    [
        ("rabbitmq", True),
        (["rabbitmq"], True),
        (["other", "rabbitmq"], True),
        ("other rabbitmq", True),
        ("other", False),
        (["other"], False),
        ("rabbitmq2", False),
        ([], False),
        ("", False),
        (None, False),
        ({"rabbitmq": 1}, False),
        ([["rabbitmq"], 1, None], False),
    ],
)
def test_audience(audience: object, accepted: bool) -> None:
    if accepted:
        read_user({**CLAIMS, "aud": audience}, RULES, NOW)
    else:
        assert refuse({"aud": audience}).startswith("the token is for another audience")
    read_user({**CLAIMS, "aud": audience}, change(verify_audience=False), NOW)


def test_issuer() -> None:
    rules = change(issuer="https://a.test")
    read_user({**CLAIMS, "iss": "https://a.test"}, rules, NOW)
    for issuer in ("https://a.test/", "https://b.test", None, ["https://a.test"]):
        assert refuse({"iss": issuer}, rules).startswith("the token is of another issuer")


# ── names ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("claims", "name"),
    [
        ({}, "ana"),
        ({"client_id": "app"}, "ana"),
        ({"sub": None, "client_id": "app"}, "app"),
        ({"sub": None}, "unknown"),
        ({"sub": ""}, "unknown"),
        ({"sub": 5}, "unknown"),
        ({"email": "ana@a.test"}, "ana@a.test"),
        ({"user_name": "Ana", "email": "ana@a.test"}, "Ana"),
        ({"user_name": ["Ana"], "email": "ana@a.test"}, "ana@a.test"),
    ],
)
def test_names(claims: dict[str, Any], name: str) -> None:
    rules = change(preferred_username_claims=["user_name", "email"])
    assert read_user({**CLAIMS, **claims}, rules, NOW).name == name


def test_names_are_as_short_as_those_of_other_users() -> None:
    assert read_user({**CLAIMS, "sub": "a" * 255}, RULES, NOW).name == "a" * 255
    assert "longer than 255 bytes" in refuse({"sub": "é" * 128})


# ── scopes ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("claims", "rights"),
    [
        ({"scope": ["rabbitmq.read:*/*", "rabbitmq.tag:administrator"]}, {"read", "administrator"}),
        ({"scope": "rabbitmq.read:*/* rabbitmq.write:%2F/q  openid"}, {"read", "write"}),
        ({"scope": ["read:*/*", "other.read:*/*", "Rabbitmq.read:*/*"]}, set()),
        ({"scope": [["rabbitmq.read:*/*"], 5, None]}, set()),
        ({"scope": {"rabbitmq": "read:*/*"}}, set()),
        ({}, set()),
    ],
)
def test_scopes(claims: dict[str, Any], rights: set[str]) -> None:
    assert read_rights(claims) == rights


def test_the_prefix_can_be_chosen() -> None:
    scopes = {"scope": ["api://read:*/*", "rabbitmq.write:*/*", "configure:*/*"]}
    assert read_rights(scopes, change(scope_prefix="api://")) == {"read"}
    assert read_rights(scopes, change(scope_prefix="")) == {"configure"}


@pytest.mark.parametrize(
    ("claim", "rights"),
    [
        (["rabbitmq.read:*/*"], {"write", "read"}),
        ("rabbitmq.read:*/* rabbitmq.configure:*/*", {"write", "read", "configure"}),
        ({"rabbitmq": ["read:*/*"], "other": ["configure:*/*"]}, {"write", "read"}),
        ({"rabbitmq": "read:*/* tag:monitoring"}, {"write", "read", "monitoring"}),
        ({"other": ["read:*/*"]}, {"write"}),
        ({"rabbitmq": 5}, {"write"}),
        (5, {"write"}),
        (None, {"write"}),
    ],
)
@pytest.mark.parametrize("key", ["extra", "https://a.test/roles", "realm.access.roles"])
def test_scopes_in_another_claim(key: str, claim: object, rights: set[str]) -> None:
    rules = change(additional_scopes_key=key)
    assert read_rights({"scope": "rabbitmq.write:*/*", key: claim}, rules) == rights


def test_scopes_within_another_claim() -> None:
    rules = change(additional_scopes_key="realm_access.roles")
    claims = {"realm_access": {"roles": ["rabbitmq.read:*/*"]}}
    assert read_rights(claims, rules) == {"read"}
    for other in (5, {}, ["roles"], {"roles": None}):
        assert read_rights({"realm_access": other}, rules) == set()


def test_aliases() -> None:
    """The example of RabbitMQ's documentation; the names of roles may also be in the other claim."""
    rules = change(
        scope_aliases={
            "admin": ["rabbitmq.tag:administrator", "rabbitmq.read:*/*"],
            "rabbitmq.developer": ["rabbitmq.write:*/*"],
        },
        additional_scopes_key="roles",
    )
    assert read_rights({"scope": "admin"}, rules) == {"administrator", "read"}
    assert read_rights({"scope": ["rabbitmq.developer", "x"]}, rules) == {"write"}
    assert read_rights({"roles": ["admin", "rabbitmq.configure:*/*"]}, rules) == {
        "administrator",
        "read",
        "configure",
    }


def test_the_number_of_scopes_is_limited() -> None:
    scopes = [f"rabbitmq.read:*/{number}" for number in range(SCOPES_MAX_COUNT + 1)]
    read_user({**CLAIMS, "scope": [*scopes[1:], *["other"] * 5]}, RULES, NOW)
    assert refuse({"scope": scopes}) == f"the token has more than {SCOPES_MAX_COUNT} scopes"
