"""`recado.Broker`: a broker inside your own program, for tests, scripts and services.

    async with recado.Broker() as broker:      # in the running event loop
        connection = await aio_pika.connect(broker.url)

    with recado.Broker() as broker:            # in a thread with a loop of its own
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))

An embedded broker reads no file and no environment, only its arguments. It listens on a free port unless one is
given. Leaving the block sends connection.close to all clients before their sockets are closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from os import PathLike, fspath
from threading import Thread, current_thread
from typing import Any, Self, TypeVar

from recado.broker.broker import Broker as Core
from recado.node.address import connectable_host, format_address
from recado.node.assembly import RunningNode, start_node
from recado.node.config import from_mapping
from recado.node.event_loop import new_runner
from recado.node.settings import Settings

T = TypeVar("T")


class Broker:
    """An embedded broker, started by `with` or `async with`."""

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        data: str | PathLike[str] | None = None,
        config: Mapping[str, Mapping[str, object]] | None = None,
    ) -> None:
        """Configure a broker without starting it.

        `host` and `port` are where to listen; port 0 is a free one. `data` is the folder for everything
        durable; without it nothing survives the process. `config` has the sections of recado.toml, such as
        `{"broker": {"max_message_bytes": 1024}}`, and overrides the other arguments. Raises `ConfigError`.
        """
        server = {"host": host, "port": port}
        node = {} if data is None else {"data": fspath(data)}
        self.settings = from_mapping(config or {}, server=server, node=node)
        self._running: RunningNode | None = None
        self._loop: asyncio.AbstractEventLoop
        self._thread: Thread | None = None

    @classmethod
    def from_settings(cls, settings: Settings) -> Self:
        """Return a broker with complete settings, as the command line reads them."""
        broker = cls()
        broker.settings = settings
        return broker

    # --- where it listens

    @property
    def host(self) -> str:
        """The host to listen on, as configured."""
        return self.settings.server.host

    @property
    def port(self) -> int:
        """The port it listens on. Raises `RuntimeError` if the broker is not running."""
        return self._require_running().port

    @property
    def tls_port(self) -> int | None:
        """The port of the TLS listener, if any. Raises `RuntimeError` if the broker is not running."""
        return self._require_running().tls_port

    @property
    def management_host(self) -> str:
        return self.settings.management.host or self.host

    @property
    def management_port(self) -> int | None:
        """The port of the HTTP API; None unless `management.port` is set."""
        management = self._require_running().management
        return management.port if management is not None else None

    @property
    def metrics_port(self) -> int | None:
        """The port for Prometheus; None unless `management.metrics_port` is set."""
        management = self._require_running().management
        return management.metrics_port if management is not None else None

    @property
    def url(self) -> str:
        """The AMQP URL, with the login of the default user guest if it exists.

        Raises `RuntimeError` if the broker is not running.
        """
        has_guest = (
            not self.settings.access.users
            and "guest" in self._require_running().server.broker.users
        )
        user = "guest:guest@" if has_guest else ""
        return f"amqp://{user}{format_address(connectable_host(self.host), self.port)}/%2F"

    @property
    def address(self) -> str:
        """Host and port, as in a URL. Raises `RuntimeError` if the broker is not running."""
        return format_address(self.host, self.port)

    @property
    def core(self) -> Core:
        """The state of the broker, to read in its event loop. Raises `RuntimeError` if it is not running."""
        return self._require_running().server.broker

    @property
    def failure(self) -> asyncio.Future[str]:
        """Completes with a reason if the broker had to stop because its journal cannot be written or read."""
        return self._require_running().server.failure

    def _require_running(self) -> RunningNode:
        if self._running is None:
            raise RuntimeError("the broker is not running: use `with` or `async with`")
        return self._running

    def _require_stopped(self) -> None:
        if self._running is not None:
            raise RuntimeError("the broker is running already")

    def reload_certificates(self) -> None:
        """Load the certificates of the TLS listeners soon, also if their files look unchanged.

        Changed files are found without this call, within ten seconds. The result is logged. Raises
        `RuntimeError` if the broker is not running.
        """
        running = self._require_running()
        if running.certificates is not None:
            running.server.loop.call_soon_threadsafe(running.certificates.request_reload)

    # --- its definitions

    def import_definitions(
        self, definitions: Mapping[str, object], vhost: str | None = None
    ) -> list[str]:
        """Import definitions in RabbitMQ's JSON format; return notes on skipped entries.

        With `vhost`, everything is imported into that vhost. Raises `DefinitionsError`, and then nothing was
        changed. Called from a thread other than that of the loop, it returns when everything is durable.
        """
        from recado.definitions.importer import import_definitions

        loopback_users = self.settings.access.loopback_users
        return self._run_on_broker(
            lambda broker, now: import_definitions(
                broker, definitions, now, vhost=vhost, loopback_users=loopback_users
            )
        )

    def export_definitions(self, vhost: str | None = None) -> dict[str, Any]:
        """Return all definitions, or those of one vhost, in the format of RabbitMQ 3.10.

        Raises `DefinitionsError` if the vhost does not exist.
        """
        from recado.definitions.exporter import export_definitions

        return self._run_on_broker(lambda broker, _: export_definitions(broker, vhost))

    def delete_policy(self, name: str, vhost: str = "/", *, operator: bool = False) -> None:
        """Delete a policy, or an operator policy, and undo its effects on queues and exchanges.

        Raises `ValueError` if the policy or the vhost does not exist.
        """
        from recado.definitions.document import DefinitionsError

        def delete(broker: Core, now: int) -> None:
            if vhost not in broker.vhosts:
                raise DefinitionsError(f"there is no vhost '{vhost}'")
            broker.delete_policy(vhost, name, now, operator=operator)

        self._run_on_broker(delete)

    def _run_on_broker(self, action: Callable[[Core, int], T]) -> T:
        """Call `action(broker, now)` in the thread of the loop, from any thread; return its result."""
        server = self._require_running().server
        if self._thread is None or self._thread is current_thread():
            return server.run_on_broker(action)

        async def run() -> T:
            result = server.run_on_broker(action)
            await server.wait_until_durable()
            return result

        return asyncio.run_coroutine_threadsafe(run(), server.loop).result()

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
    """Run the loop of the thread and close it, which a caller with a running loop cannot do."""
    with runner:
        runner.get_loop().run_forever()
