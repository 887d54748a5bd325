"""Reads the document with the keys of the identity provider (a JSON Web Key Set), from a URL or a file.

These functions block, so they are called in a thread. Size and time are limited, because the document comes
from another system. Redirects are refused: the keys decide who may log in, so their address is the configured
one.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from http.client import HTTPException, HTTPMessage
from pathlib import Path
from typing import IO, Final
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

DOCUMENT_MAX_BYTES: Final = 256 * 1024
READ_TIMEOUT_S: Final = 10.0  # for each operation of the socket, and for the whole body


class KeySourceError(Exception):
    """The document cannot be read; the text says why."""


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(
        self,
        req: Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> None:
        raise KeySourceError(f"status {code}, a redirect")


def read_from_url(url: str, ca: str | None) -> Callable[[], bytes]:
    """Return a function that downloads the document. `ca` is the file of the trusted authorities.

    Raises `OSError` if that file cannot be used.
    """
    opener = build_opener(HTTPSHandler(context=ssl.create_default_context(cafile=ca)), _NoRedirects)
    request = Request(url, headers={"accept": "application/json"})

    def read() -> bytes:
        deadline = time.monotonic() + READ_TIMEOUT_S
        parts, size = [], 0
        try:
            with opener.open(request, timeout=READ_TIMEOUT_S) as response:
                while part := response.read1(DOCUMENT_MAX_BYTES):
                    parts.append(part)
                    size += len(part)
                    if size > DOCUMENT_MAX_BYTES:
                        raise KeySourceError(f"more than {DOCUMENT_MAX_BYTES} bytes")
                    if time.monotonic() > deadline:
                        raise KeySourceError(f"it took more than {READ_TIMEOUT_S:.0f} s")
        except (OSError, HTTPException) as error:
            raise KeySourceError(str(error)) from error
        return b"".join(parts)

    return read


def read_from_file(file: str) -> Callable[[], bytes]:
    """Return a function that reads the document from a file."""

    def read() -> bytes:
        try:
            with Path(file).open("rb") as document:
                content = document.read(DOCUMENT_MAX_BYTES + 1)
        except OSError as error:
            raise KeySourceError(error.strerror) from error
        if len(content) > DOCUMENT_MAX_BYTES:
            raise KeySourceError(f"more than {DOCUMENT_MAX_BYTES} bytes")
        return content

    return read
