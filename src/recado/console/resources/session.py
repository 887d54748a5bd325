"""Signing in to the web console, and out."""

from __future__ import annotations

import logging
from typing import Annotated, Any, Final

import msgspec

from ..access import MANAGEMENT_TAGS, Access, is_monitor
from ..body import read_body
from ..request import Answer, ApiError, ApiRequest, not_authorised
from ..routes import API
from ..sessions import ConsoleSession

log = logging.getLogger("recado.console")

NO_STORE: Final = {"cache-control": "no-store"}


class SignIn(msgspec.Struct):
    """Name and password of a user, or an OAuth 2 token as the password."""

    username: Annotated[str, msgspec.Meta(max_length=255)]
    password: Annotated[str, msgspec.Meta(max_length=16_384)]


@API.add("GET", "/api/session", Access.PUBLIC)
def get_session(request: ApiRequest) -> Answer:
    """Return the user that has signed in with the cookie of this request; `user` is null without one.

    It also returns the token that changing requests of this session need in the header `X-CSRF-Token`.
    """
    return _describe(request, request.session)


@API.add("POST", "/api/session", Access.PUBLIC, answers=(200, 401, 429), body=SignIn)
def sign_in(request: ApiRequest) -> Answer:
    """Sign in to the web console: set a cookie with a new session. A session of an earlier cookie ends."""
    credentials, console = read_body(request, SignIn), request.console

    async def wait() -> Answer:
        name, password = credentials.username, credentials.password
        try:
            user = await console.authenticate(name, password, request.peer)
        except ApiError as error:
            if error.status != 401:
                raise
            # Without a header that makes browsers ask for name and password themselves.
            raise ApiError(401, "not_signed_in", "wrong user name or password") from error
        if MANAGEMENT_TAGS.isdisjoint(user.tags):
            raise not_authorised("Not management user")
        if request.session_id:
            console.sessions.close(request.session_id)
        session_id, session = console.sessions.open(user, console.server.loop.time())
        log.info("signed in to the console (user=%r peer=%s)", user.name, request.peer)
        answer = _describe(request, session)
        cookie = request.cookie.render(session_id)
        return msgspec.structs.replace(answer, headers={**NO_STORE, "set-cookie": cookie})

    return Answer(wait=wait, is_change=False)


@API.add("DELETE", "/api/session", Access.MANAGEMENT)
def sign_out(request: ApiRequest) -> Answer:
    """Sign out of the web console: end the session of the cookie."""
    if request.session_id:
        request.console.sessions.close(request.session_id)
    cookie = request.cookie.render("")
    return Answer(204, headers={**NO_STORE, "set-cookie": cookie}, is_change=False)


def _describe(request: ApiRequest, session: ConsoleSession | None) -> Answer:
    console = request.console
    body: dict[str, Any] = {"user": None}
    if session is not None:
        user = session.user
        body = {
            "user": user.name,
            "tags": sorted(user.tags),
            "is_monitor": is_monitor(user),
            "may_reveal": console.message_policy.may_reveal(user),
            "csrf_token": session.csrf_token,
            "node": console.node_name,
            "cluster_name": console.cluster_name,
            "version": console.version,
        }
    return Answer(body=body, headers=NO_STORE)
