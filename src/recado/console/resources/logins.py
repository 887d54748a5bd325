"""The ways to log in, and the numbers of logins."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs

from recado.server.passwords import hash_password

from ..access import MANAGEMENT_TAGS, Access
from ..request import NO_CONTENT, Answer, ApiError, ApiRequest, bad_request, not_authorised
from ..routes import API, Content
from .overview import check_node


@API.add("GET", "/api/auth", Access.PUBLIC)
def get_auth(request: ApiRequest) -> Answer:
    """Return the OAuth settings of RabbitMQ's web pages: off, because the console has its own sign-in."""
    return Answer(body={"oauth_enabled": False})


@API.add("POST", "/api/login", Access.PUBLIC, answers=(200, 401))
def log_in(request: ApiRequest) -> Answer:
    """Check the `username` and `password` of a form. Unlike RabbitMQ's, the answer sets no cookie."""
    try:
        form = parse_qs(request.content.decode(), keep_blank_values=True, max_num_fields=10)
    except ValueError as error:
        raise bad_request("the body is not a form") from error
    name, password = (form.get(field, [""])[0] for field in ("username", "password"))
    if not name:
        raise ApiError(401, "not_authorized", "Not_Authorized")

    async def wait() -> Answer:
        user = await request.console.authenticate(name, password, request.peer)
        if MANAGEMENT_TAGS.isdisjoint(user.tags):
            raise not_authorised("Not management user")
        return Answer(body="ok")

    return Answer(wait=wait, is_change=False)


@API.add("GET", "/api/auth/hash_password/{password}", Access.ADMINISTRATOR)
def get_password_hash(request: ApiRequest) -> Answer:
    """Return a `password_hash` for a password."""
    return Answer(body={"ok": hash_password(request.parameters["password"])})


@API.add("GET", "/api/auth/attempts/{node}", Access.MONITORING, content=Content.LIST)
def list_login_attempts(request: ApiRequest) -> Answer:
    """Return the numbers of logins by protocol."""
    check_node(request)
    return Answer(body=[_attempts_object(request, each) for each in _protocols(request)])


def _protocols(request: ApiRequest) -> list[str]:
    return sorted(request.console.server.authenticator.attempts)


def _attempts_object(request: ApiRequest, protocol: str) -> dict[str, Any]:
    attempts = request.console.server.authenticator.attempts[protocol]
    return {
        "protocol": protocol,
        "auth_attempts": attempts.succeeded + attempts.failed,
        "auth_attempts_failed": attempts.failed,
        "auth_attempts_succeeded": attempts.succeeded,
    }


@API.add("GET", "/api/auth/attempts/{node}/source", Access.MONITORING, content=Content.LIST)
def list_login_attempts_by_source(request: ApiRequest) -> Answer:
    """Return the numbers of logins by address: none, as in a RabbitMQ that is not configured to track them."""
    check_node(request)
    return Answer(body=[])


@API.add("DELETE", "/api/auth/attempts/{node}", Access.MONITORING)
@API.add("DELETE", "/api/auth/attempts/{node}/source", Access.MONITORING)
def reset_login_attempts(request: ApiRequest) -> Answer:
    """Count logins from zero again."""
    check_node(request)
    request.console.server.authenticator.attempts.clear()
    return NO_CONTENT
