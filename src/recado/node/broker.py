"""`recado.Broker`: a broker inside your own program, for tests, scripts and services.

    async with recado.Broker() as broker:      # in the running event loop
        connection = await aio_pika.connect(broker.url)

    with recado.Broker() as broker:            # in a thread with a loop of its own
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))

An embedded broker reads no file and no environment: it is what the program says. Its port is a
free one unless given, and leaving the block closes the clients properly before the sockets; a
client that left before is not waited for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from threading import Thread
from typing import Self

from recado.node.assembly import Running, at, start
from recado.node.config import from_mapping
from recado.node.loop import new_runner
from recado.node.settings import Settings

# Addresses to listen on that are none to connect to, and the one of theirs that lets guest in.
EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}


class Broker:
    """One broker, started by `with` or `async with`."""

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        config: Mapping[str, Mapping[str, object]] | None = None,
    ) -> None:
        """`config` has the sections of recado.toml: `{"broker": {"max_message_size": 1024}}`.

        A `[server]` host or port in it counts over the arguments.
        """
        self.settings = from_mapping(config or {}, host=host, port=port)
        self._running: Running | None = None
        self._loop: asyncio.AbstractEventLoop
        self._thread: Thread

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """A broker with settings that were found and checked elsewhere, as by the command line."""
        broker = cls()
        broker.settings = settings
        return broker

    # --- where it listens

    @property
    def host(self) -> str:
        return self.settings.server.host

    @property
    def port(self) -> int:
        return self._now().port

    @property
    def tls_port(self) -> int | None:
        return self._now().tls_port

    @property
    def url(self) -> str:
        """For any client: with name and password while there is the default user, else without."""
        user = "" if self.settings.access.users else "guest:guest@"
        host = EVERYWHERE.get(self.host, self.host)
        return f"amqp://{user}{at(host, self.port)}/%2F"

    @property
    def address(self) -> str:
        return at(self.host, self.port)

    def _now(self) -> Running:
        if self._running is None:
            raise RuntimeError("the broker is not running: use `with` or `async with`")
        return self._running

    def _refuse_second_start(self) -> None:
        if self._running is not None:
            raise RuntimeError("the broker is running already")

    # --- in the running loop

    async def __aenter__(self) -> Self:
        self._refuse_second_start()
        self._running = await start(self.settings)
        return self

    async def __aexit__(self, *_: object) -> None:
        running, self._running = self._now(), None
        await running.stop()

    # --- in a thread of its own

    def __enter__(self) -> Self:
        self._refuse_second_start()
        runner = new_runner(self.settings)
        self._loop = runner.get_loop()
        self._thread = Thread(target=live, args=[runner], name="recado", daemon=True)
        self._thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self.__aenter__(), self._loop).result()
        except BaseException:
            self._end_thread()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            asyncio.run_coroutine_threadsafe(self.__aexit__(), self._loop).result()
        finally:
            self._end_thread()

    def _end_thread(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


def live(runner: asyncio.Runner) -> None:
    """The life of a thread; it also ends its loop, which the caller cannot if it runs one itself."""
    with runner:
        runner.get_loop().run_forever()
