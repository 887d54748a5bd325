"""What holds for every route of the API: a new one is tested by being in the table."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator

import pytest

import recado
from recado.console import management
from recado.console.access import Access
from recado.console.routes import API, CHANGING_METHODS, ApiRoute

from .http import Api
from .web.test_sessions import Browser

assert management.RESOURCES, "their import fills the table"
PUBLIC = {
    "GET /api/auth",
    "GET /api/session",
    "GET /api/session/oauth",
    "GET /api/session/oauth/callback",
    "GET /health/alarms",
    "GET /health/live",
    "GET /health/ready",
    "POST /api/login",
    "POST /api/session",
}
"""The routes without a login. None of them tells anything about the objects of the broker."""


def name_of(route: ApiRoute) -> str:
    return f"{route.method} {route.path}"


def path_of(route: ApiRoute) -> str:
    """A path whose vhost exists; other objects do not."""
    return re.sub(r"\{.+?\}", "none", route.path.replace("{vhost}", "%2F"))


CLOSED = [route for route in API.routes if route.access is not Access.PUBLIC]
CHANGING = [route for route in API.routes if route.method in CHANGING_METHODS]


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with recado.Broker(config={"management": {"port": 0}}) as broker:
        assert broker.management_port is not None
        guest = Api(broker.management_port)
        # RabbitMQ's hash is quick to check.
        salt = b"salt"
        hashed = base64.b64encode(salt + hashlib.sha256(salt + b"none").digest()).decode()
        assert guest.put("/api/users/none", {"password_hash": hashed, "tags": ""}) == 201
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        assert guest.put("/api/permissions/%2F/none", everything) == 201
        yield broker.management_port


def test_the_public_routes_are_few() -> None:
    assert {name_of(each) for each in API.routes if each.access is Access.PUBLIC} == PUBLIC


def test_a_user_without_a_tag_sees_nothing(port: int) -> None:
    """Although it has all permissions in the vhost, and so may do everything over AMQP."""
    user, nobody = Api(port, "none", "none"), Api(port, headers={})
    for route in CLOSED:
        reply = user.request(route.method, path_of(route), {})
        assert reply.status == 401, name_of(route)
        assert reply.body == {"error": "not_authorised", "reason": "Not management user"}
        assert nobody.request(route.method, path_of(route), {}).status == 401, name_of(route)


def test_no_change_is_made_without_the_token_of_the_session(port: int) -> None:
    browser = Browser(port)
    assert browser.sign_in().status == 200
    headers = {"cookie": browser.cookie}
    for route in CHANGING:
        if route.access is not Access.PUBLIC:
            for more in ({}, {"x-csrf-token": "none"}):
                reply = browser.api.request(route.method, path_of(route), {}, headers | more)
                assert reply.status == 403, name_of(route)
    assert browser.status() == 200, "nothing has happened, not even signing out"


@pytest.mark.parametrize(
    "foreign",
    [
        {"origin": "https://other.test"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_no_change_is_made_for_another_site(port: int, foreign: dict[str, str]) -> None:
    """Not even with the credentials of Basic authentication, which browsers store; and nobody is signed in."""
    guest = Api(port)
    for route in CHANGING:
        reply = guest.request(route.method, path_of(route), {}, foreign)
        assert (reply.status, reply.body["error"]) == (403, "forbidden"), name_of(route)
