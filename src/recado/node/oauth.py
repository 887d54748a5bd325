"""Builds the check of OAuth 2 tokens from the settings. A node that accepts no tokens does not import this."""

from __future__ import annotations

import time

from recado.node.config import ConfigError
from recado.node.settings import OAuthSettings
from recado.node.tls import check_certificate
from recado.server.oauth.claims import TokenRules
from recado.server.oauth.keys import KeySet, parse_keys
from recado.server.oauth.source import KeySourceError, read_from_file, read_from_url
from recado.server.oauth.verifier import TokenVerifier


def build_verifier(settings: OAuthSettings) -> TokenVerifier:
    """Return the check of tokens; `keys.start()` then loads the keys. Raises `ConfigError`."""
    identifier, prefix = settings.resource_server_id, settings.scope_prefix
    assert identifier is not None
    rules = TokenRules(
        resource_server_id=identifier,
        scope_prefix=f"{identifier}." if prefix is None else prefix,
        issuer=settings.issuer,
        verify_audience=settings.verify_audience,
        leeway=settings.leeway,
        scope_aliases=settings.scope_aliases,
        additional_scopes_key=settings.additional_scopes_key,
        preferred_username_claims=settings.preferred_username_claims,
    )
    return TokenVerifier(rules, build_key_set(settings), settings.algorithms, time.time)


def build_key_set(settings: OAuthSettings) -> KeySet:
    """Return the keys of the provider, not loaded yet. A file is read once to find mistakes."""
    if settings.jwks_file is not None:
        source, read = settings.jwks_file, read_from_file(settings.jwks_file)
        try:
            parse_keys(read(), settings.algorithms)
        except KeySourceError as error:
            raise ConfigError(f"oauth.jwks_file {settings.jwks_file!r}: {error}") from error
    else:
        assert settings.jwks_url is not None
        if settings.ca is not None:
            check_certificate("oauth.ca", settings.ca)
        source = settings.jwks_url.partition("?")[0]
        read = read_from_url(settings.jwks_url, settings.ca)
    return KeySet(read, source, settings.algorithms, time.monotonic)
