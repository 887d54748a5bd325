"""From the claims of a verified token to a user: validity, audience, name, and scopes.

Texts of errors are for the log. They never contain the token; of its claims, they name those that are wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from recado.broker.scopes import TokenUser, make_token_user

SCOPES_MAX_COUNT: Final = 1_000
USERNAME_MAX_BYTES: Final = 255  # as the name of any user
USERNAME_CLAIMS: Final = ("sub", "client_id")
UNKNOWN_USERNAME: Final = "unknown"

Claims = Mapping[str, Any]


class TokenError(Exception):
    """A token that is refused; the text says why, for the log."""


class TokenRules(msgspec.Struct, frozen=True):
    """Which tokens are accepted, and what they mean. See the settings of the section `oauth`."""

    resource_server_id: str
    scope_prefix: str
    issuer: str | None = None
    verify_audience: bool = True
    leeway: float = 0.0
    scope_aliases: Mapping[str, Sequence[str]] = {}
    additional_scopes_key: str | None = None
    preferred_username_claims: Sequence[str] = ()


def is_token(password: bytes) -> bool:
    """Whether a password has the form of a JWT: three parts in base64, of which the first is a JSON object.

    Only the beginning of the first part is checked: `ey` is base64 of `{` and a quote or a space.
    """
    return password.startswith(b"ey") and password.count(b".") == 2


def read_user(claims: Claims, rules: TokenRules, now: float) -> TokenUser:
    """Return the user of a token whose signature was verified. Raises `TokenError` if it is not for this broker.

    `now` is in seconds since 1970.
    """
    expires_at = _read_time(claims, "exp")
    if expires_at is None:
        raise TokenError("the token has no claim 'exp'")
    if expires_at + rules.leeway <= now:
        raise TokenError(f"the token expired {now - expires_at:.0f} s ago")
    not_before = _read_time(claims, "nbf")
    if not_before is not None and now < not_before - rules.leeway:
        raise TokenError(f"the token is not valid before {not_before - now:.0f} s from now")
    if rules.issuer is not None and claims.get("iss") != rules.issuer:
        raise TokenError("the token is of another issuer (setting=oauth.issuer)")
    if rules.verify_audience and rules.resource_server_id not in _read_words(claims.get("aud")):
        raise TokenError("the token is for another audience (setting=oauth.resource_server_id)")
    return make_token_user(
        _read_username(claims, rules), _read_scopes(claims, rules), expires_at + rules.leeway
    )


def _read_time(claims: Claims, name: str) -> float | None:
    time = claims.get(name)
    if time is None:
        return None
    if isinstance(time, bool) or not isinstance(time, int | float):
        raise TokenError(f"the claim '{name}' of the token is not a number")
    return float(time)


def _read_username(claims: Claims, rules: TokenRules) -> str:
    names = (*rules.preferred_username_claims, *USERNAME_CLAIMS)
    found = (claims.get(name) for name in names)
    username = next((each for each in found if isinstance(each, str) and each), UNKNOWN_USERNAME)
    if len(username.encode()) > USERNAME_MAX_BYTES:
        raise TokenError(f"the user name in the token is longer than {USERNAME_MAX_BYTES} bytes")
    return username


def _read_scopes(claims: Claims, rules: TokenRules) -> list[str]:
    """Return the scopes for this broker, without their prefix."""
    scopes = _read_words(claims.get("scope"))
    if rules.additional_scopes_key is not None:
        found = _find_claim(claims, rules.additional_scopes_key)
        if isinstance(found, dict):  # the scopes of each resource server, without their prefix
            own = _read_words(found.get(rules.resource_server_id))
            scopes += [f"{rules.resource_server_id}.{scope}" for scope in own]
        else:
            scopes += _read_words(found)
    scopes += [each for scope in scopes for each in rules.scope_aliases.get(scope, ())]
    prefix = rules.scope_prefix
    chosen = [scope.removeprefix(prefix) for scope in scopes if scope.startswith(prefix)]
    if len(chosen) > SCOPES_MAX_COUNT:
        raise TokenError(f"the token has more than {SCOPES_MAX_COUNT} scopes")
    return chosen


def _find_claim(claims: Claims, path: str) -> Any:
    """Return a claim, or one within others: `realm_access.roles`. None if there is none."""
    if path in claims:  # the names of some providers are URLs, with dots
        return claims[path]
    found: Any = claims
    for name in path.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _read_words(claim: Any) -> list[str]:
    """Return the words of a claim: a list of texts, or one text with spaces between them."""
    if isinstance(claim, str):
        return claim.split()
    if isinstance(claim, list):
        return [word for word in claim if isinstance(word, str)]
    return []
