"""The port of the chat: it accepts connections, and closes those on which no request arrives.

CHL1  A connection without a first request is closed after `REQUEST_TIMEOUT_S`. The keep-alive timeout of aiohttp limits
     the wait for a further one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler
from aiohttp.web_protocol import RequestHandler

REQUEST_TIMEOUT_S: Final = 30.0
BACKLOG_COUNT: Final = 1_024
SHUTDOWN_TIMEOUT_S: Final = 1.0
LINGERING_S: Final = 1.0
"""How long the rest of a body is read that no handler has wanted."""


@asynccontextmanager
async def listen(application: web.Application, host: str, port: int) -> AsyncIterator[str]:
    """Serve an application while the block lasts; return its address. Raises `OSError`."""
    deadlines = RequestDeadlines()
    application.middlewares.append(deadlines.middleware)
    runner = web.AppRunner(
        application,
        access_log=None,
        shutdown_timeout=SHUTDOWN_TIMEOUT_S,
        lingering_time=LINGERING_S,
    )
    await runner.setup()
    try:
        assert runner.server is not None, "the runner is set up"
        deadlines.server = runner.server
        loop = asyncio.get_running_loop()
        server = await loop.create_server(deadlines.accept, host, port, backlog=BACKLOG_COUNT)
        try:
            bound_host, bound_port = server.sockets[0].getsockname()[:2]
            shown = f"[{bound_host}]" if ":" in bound_host else bound_host
            yield f"http://{shown}:{bound_port}/"
        finally:
            server.close()
    finally:
        await runner.cleanup()


class RequestDeadlines:
    """Closes connections whose first request does not arrive in time (CHL1)."""

    def __init__(self) -> None:
        self.server: web.Server
        self._waiting: dict[RequestHandler, asyncio.TimerHandle] = {}

    def accept(self) -> RequestHandler:
        """Return the protocol of a new connection."""
        handler = self.server()
        loop = asyncio.get_running_loop()
        self._waiting[handler] = loop.call_later(REQUEST_TIMEOUT_S, self._close, handler)
        return handler

    def _close(self, handler: RequestHandler) -> None:
        del self._waiting[handler]
        handler.force_close()

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        timer = self._waiting.pop(request.protocol, None)
        if timer is not None:
            timer.cancel()
        return await handler(request)
