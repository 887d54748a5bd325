"""`recado serve`: a broker until SIGTERM or Ctrl-C."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence

from recado.cli.flags import effective, grammar

LOG_LINE = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def serve(options: Sequence[str]) -> int:
    parser = grammar("serve", "Run a broker until SIGTERM or Ctrl-C.")
    parser.add_argument("--welcome", action="store_true", help="also print a first thing to try")
    chosen = parser.parse_args(options)
    settings = effective(chosen).settings
    logging.basicConfig(format=LOG_LINE, level=settings.node.log.upper())
    if settings.server.tls_port is None:
        import_asyncio_without_tls()
    from recado.cli.process import run

    return run(settings, welcome=chosen.welcome)


def import_asyncio_without_tls() -> None:
    """As on a Python that was built without ssl, which asyncio is prepared for: OpenSSL takes 10 ms of the 150
    that there are for a start, and 4 MB, in a process that never speaks TLS."""
    if "asyncio" not in sys.modules and "ssl" not in sys.modules:
        sys.modules["ssl"] = None  # type: ignore[assignment] # that is how an import is made to fail
        try:
            import asyncio  # noqa: F401 - for what it remembers
        finally:
            del sys.modules["ssl"]
