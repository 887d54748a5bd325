"""A file of a web application as an HTTP answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aiohttp import web

from .assets import Asset

SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_ALLOWED: Final = {"allow": "GET, HEAD, OPTIONS"}


def security_headers(*, trusted_types: str = "'none'") -> dict[str, str]:
    """Return the headers of every file: only files of this site are loaded, and text never becomes markup.

    `trusted_types` names the policies that scripts may create, for example to start a worker.
    """
    policy = (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' data:",
        "frame-ancestors 'none'",
        "base-uri 'none'",
        "form-action 'self'",
        # Assigning text to `innerHTML` and the like is an error.
        "require-trusted-types-for 'script'",
        f"trusted-types {trusted_types}",
    )
    return {
        "content-security-policy": "; ".join(policy),
        "cross-origin-resource-policy": "same-origin",
        "permissions-policy": "camera=(), geolocation=(), microphone=()",
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
        "x-frame-options": "DENY",
    }


def render_asset(
    request: web.BaseRequest, asset: Asset, security: Mapping[str, str]
) -> web.Response:
    """Return a file with the headers `security`; without its body if the browser has it."""
    if request.method == "OPTIONS":
        return web.Response(headers=_ALLOWED)
    if request.method not in SAFE_METHODS:
        return web.Response(status=405, headers=_ALLOWED)
    headers = {
        **security,
        "cache-control": asset.cache_control,
        "etag": asset.etag,
        "server": "recado",
        "vary": "accept-encoding",
    }
    if asset.etag in request.headers.get("if-none-match", ""):
        return web.Response(status=304, headers=headers)
    headers["content-type"] = asset.content_type
    body = asset.body
    if "gzip" in request.headers.get("accept-encoding", ""):
        headers["content-encoding"] = "gzip"
        body = asset.compressed
    return web.Response(headers=headers, body=body)
