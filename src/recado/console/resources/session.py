"""Signing in to the web console, and out."""

from __future__ import annotations

import logging
from typing import Annotated, Any, Final

import msgspec

from ..access import MANAGEMENT_TAGS, Access, is_monitor
from ..body import read_body
from ..identity_provider import PendingSignIn
from ..provider_sign_in import ProviderSignIn, SignInError
from ..query import QueryParameter
from ..request import Answer, ApiError, ApiRequest, not_authorised, not_found
from ..routes import API
from ..sessions import ConsoleSession

log = logging.getLogger("recado.console")

CODE: Final = QueryParameter("code", "The authorization code of the identity provider.")
STATE: Final = QueryParameter("state", "The state with which the sign-in has begun.")
ISSUER: Final = QueryParameter("iss", "The identity provider that answers.")
ERROR: Final = QueryParameter("error", "Why the user could not sign in.")
SHOWN_ERROR_MAX_COUNT: Final = 80  # characters of an error in the log
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


# ── at an identity provider ─────────────────────────────────────────────────────────────────────────


@API.add("GET", "/api/session/oauth", Access.PUBLIC, answers=(303, 404))
def begin_sign_in(request: ApiRequest) -> Answer:
    """Lead a browser to the identity provider, where its user signs in."""
    sign_in = _find_sign_in(request)

    async def wait() -> Answer:
        try:
            pending, address = await sign_in.begin(_redirect_uri(request))
        except SignInError as error:
            return _refuse_sign_in(request, error, "../../")
        cookie = request.cookie.render_sign_in(pending.render())
        return Answer(303, headers={**NO_STORE, "location": address, "set-cookie": cookie})

    return Answer(wait=wait)


@API.add(
    "GET",
    "/api/session/oauth/callback",
    Access.PUBLIC,
    answers=(303, 404),
    query=(CODE, STATE, ISSUER, ERROR),
)
def finish_sign_in(request: ApiRequest) -> Answer:
    """Open a session for a user that the identity provider has sent back, and lead the browser to the console."""
    sign_in = _find_sign_in(request)

    async def wait() -> Answer:
        try:
            session_id, session = await _redeem(request, sign_in)
        except SignInError as error:
            return _refuse_sign_in(request, error, "../../../")
        if request.session_id:
            request.console.sessions.close(request.session_id)
        log.info("signed in to the console (user=%r peer=%s)", session.user.name, request.peer)
        cookie = request.cookie.render(session_id)
        return Answer(303, headers={**NO_STORE, "location": "../../../", "set-cookie": cookie})

    return Answer(wait=wait)


async def _redeem(request: ApiRequest, sign_in: ProviderSignIn) -> tuple[str, ConsoleSession]:
    """Open a session for the answer of the provider; return its id as well. Raises `SignInError`."""
    query, pending = request.query, PendingSignIn.parse(request.sign_in_cookie)
    code, error = query.get(CODE.name, ""), query.get(ERROR.name, "")
    if pending is None or not pending.accepts(query.get(STATE.name, "")):
        raise SignInError("expired", "this browser has not begun to sign in, or too long ago")
    if ISSUER.name in query and not sign_in.is_issuer(query[ISSUER.name]):
        raise SignInError("provider", "the answer is of another issuer")
    if error or not code:
        problem = "denied" if error == "access_denied" else "provider"
        raise SignInError(problem, f"the provider answers {error[:SHOWN_ERROR_MAX_COUNT]!r}")
    return await sign_in.finish(pending, code, _redirect_uri(request), request.peer)


def _find_sign_in(request: ApiRequest) -> ProviderSignIn:
    if request.console.sign_in is None:
        raise not_found()
    return request.console.sign_in


def _redirect_uri(request: ApiRequest) -> str:
    return f"{request.base_url}/api/session/oauth/callback"


def _refuse_sign_in(request: ApiRequest, error: SignInError, root: str) -> Answer:
    """Return the answer that leads back to the console, which explains the problem."""
    log.warning("sign-in at the identity provider failed: %s (peer=%s)", error, request.peer)
    location = f"{root}#/sign-in?problem={error.problem}"
    return Answer(303, headers={**NO_STORE, "location": location})


def _describe(request: ApiRequest, session: ConsoleSession | None) -> Answer:
    console = request.console
    body: dict[str, Any] = {"user": None}
    if console.sign_in is not None:
        body["provider"] = console.sign_in.provider_name
    if session is not None:
        user = session.user
        body |= {
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
