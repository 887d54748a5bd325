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
from collections.abc import Callable, Mapping
from os import PathLike, fspath
from threading import Thread, current_thread
from typing import Any, Self, TypeVar

from recado.broker.broker import Broker as Core
from recado.node.assembly import RunningNode, connectable_host, format_address, start_node
from recado.node.config import from_mapping
from recado.node.event_loop import new_runner
from recado.node.settings import Settings

T = TypeVar("T")


class Broker:
    """One broker, started by `with` or `async with`."""

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        data: str | PathLike[str] | None = None,
        config: Mapping[str, Mapping[str, object]] | None = None,
    ) -> None:
        """What is durable is kept in the folder `data`, if there is one.

        `config` has the sections of recado.toml: `{"broker": {"max_message_bytes": 1024}}`. What it says
        counts over the other arguments.
        """
        server = {"host": host, "port": port}
        node = {} if data is None else {"data": fspath(data)}
        self.settings = from_mapping(config or {}, server=server, node=node)
        self._running: RunningNode | None = None
        self._loop: asyncio.AbstractEventLoop
        self._thread: Thread | None = None

    @classmethod
    def from_settings(cls, settings: Settings) -> Self:
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
        return self._require_running().port

    @property
    def tls_port(self) -> int | None:
        return self._require_running().tls_port

    @property
    def url(self) -> str:
        """For any client: with name and password while there is the default user, else without."""
        default = (
            not self.settings.access.users
            and "guest" in self._require_running().server.broker.users
        )
        user = "guest:guest@" if default else ""
        return f"amqp://{user}{format_address(connectable_host(self.host), self.port)}/%2F"

    @property
    def address(self) -> str:
        return format_address(self.host, self.port)

    @property
    def failure(self) -> asyncio.Future[str]:
        """Done when the broker had to end itself, with the reason: what is on disk is not certain any more."""
        return self._require_running().server.failure

    def _require_running(self) -> RunningNode:
        if self._running is None:
            raise RuntimeError("the broker is not running: use `with` or `async with`")
        return self._running

    def _require_stopped(self) -> None:
        if self._running is not None:
            raise RuntimeError("the broker is running already")

    # --- its definitions

    def import_definitions(
        self, definitions: Mapping[str, object], vhost: str | None = None
    ) -> list[str]:
        """Import definitions in RabbitMQ's JSON format; gives what was left out, and why.

        A `DefinitionsError` says what is wrong, and then nothing was changed. With `vhost` all goes there.
        From another thread than the loop's it returns when all is on disk, if there is a data folder.
        """
        from recado.node.definitions.importer import import_definitions

        local = self.settings.access.loopback_users
        return self._run_on_broker(
            lambda broker, now: import_definitions(
                broker, definitions, now, vhost=vhost, loopback_users=local
            )
        )

    def export_definitions(self, vhost: str | None = None) -> dict[str, Any]:
        """All definitions, or those of one vhost, as RabbitMQ 3.10 imports them."""
        from recado.node.definitions.exporter import export_definitions

        return self._run_on_broker(lambda broker, _: export_definitions(broker, vhost))

    def delete_policy(self, name: str, vhost: str = "/", *, operator: bool = False) -> None:
        """Take a policy away, or an operator's, and undo what it made of queues and exchanges.

        A ValueError says that there is none.
        """
        from recado.node.definitions.document import DefinitionsError

        def delete(broker: Core, now: int) -> None:
            if vhost not in broker.vhosts:
                raise DefinitionsError(f"there is no vhost '{vhost}'")
            broker.delete_policy(vhost, name, now, operator=operator)

        self._run_on_broker(delete)

    def _run_on_broker(self, action: Callable[[Core, int], T]) -> T:
        """In the thread of the loop, whichever thread asks."""
        server = self._require_running().server
        if self._thread is None or self._thread is current_thread():
            return server.run_on_broker(action)

        async def there() -> T:
            result = server.run_on_broker(action)
            await server.wait_until_durable()
            return result

        return asyncio.run_coroutine_threadsafe(there(), server.loop).result()

    # --- in the running loop

    async def __aenter__(self) -> Self:
        self._require_stopped()
        self._running = await start_node(self.settings)
        return self

    async def __aexit__(self, *_: object) -> None:
        running, self._running = self._require_running(), None
        await running.stop()

    # --- in a thread of its own

    def __enter__(self) -> Self:
        self._require_stopped()
        runner = new_runner(self.settings)
        self._loop = runner.get_loop()
        self._thread = Thread(target=_run_thread, args=[runner], name="recado", daemon=True)
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
        assert self._thread is not None
        self._thread.join()
        self._thread = None


def _run_thread(runner: asyncio.Runner) -> None:
    """The life of a thread; it also ends its loop, which the caller cannot if it runs one itself."""
    with runner:
        runner.get_loop().run_forever()
