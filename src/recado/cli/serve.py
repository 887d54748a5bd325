"""`recado serve`: run a broker until SIGTERM or Ctrl-C."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence

from recado.cli.flags import build_parser, load_config_from_flags

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def run_serve(options: Sequence[str]) -> int:
    parser = build_parser("serve", "Run a broker until SIGTERM or Ctrl-C.")
    parser.add_argument("--welcome", action="store_true", help="also print a first example")
    args = parser.parse_args(options)
    settings = load_config_from_flags(args).settings
    logging.basicConfig(format=LOG_FORMAT, level=settings.node.log.upper())
    if settings.server.tls_port is None and settings.management.port is None:
        import_asyncio_without_tls()
    from recado.cli.broker_process import run_broker

    return run_broker(settings, welcome=args.welcome)


def import_asyncio_without_tls() -> None:
    """Import asyncio as on a Python that was built without ssl, which asyncio supports.

    OpenSSL takes 10 ms of the 150 ms for a start, and 4 MB, in a process that never uses TLS.
    """
    if "asyncio" not in sys.modules and "ssl" not in sys.modules:
        sys.modules["ssl"] = None  # type: ignore[assignment] # that is how an import is made to fail
        try:
            import asyncio  # noqa: F401 - its modules store that ssl is missing
        finally:
            del sys.modules["ssl"]
