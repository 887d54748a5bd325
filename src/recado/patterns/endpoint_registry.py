"""The endpoints of an application: those that were declared, and those that run while it is started."""

import asyncio
from collections.abc import Callable, Sequence

from .asyncapi import EndpointDescription
from .endpoint import MessageEndpoint
from .errors import CompositionError
from .runtime import Runtime


class EndpointRegistry:
    """Starts and stops endpoints with the application; those that are added later start at once."""

    def __init__(self) -> None:
        self.running: dict[str, MessageEndpoint] = {}
        self._makers: dict[str, Callable[[Runtime], MessageEndpoint]] = {}
        self._descriptions: dict[str, Sequence[EndpointDescription]] = {}
        self._runtime: Runtime | None = None
        self._starting: set[asyncio.Task[None]] = set()

    @property
    def descriptions(self) -> list[EndpointDescription]:
        return [each for found in self._descriptions.values() for each in found]

    def add(
        self,
        tag: str,
        make: Callable[[Runtime], MessageEndpoint],
        *descriptions: EndpointDescription,
    ) -> None:
        """Add an endpoint; raises `CompositionError` if there is one with this tag."""
        if tag in self._makers:
            raise CompositionError(
                f"there are two endpoints with the tag '{tag}': name one with tag=…"
            )
        self._makers[tag] = make
        self._descriptions[tag] = descriptions
        if self._runtime is not None:
            endpoint = make(self._runtime)
            self._start(endpoint)
            task = asyncio.create_task(endpoint.wait_started())
            self._starting.add(task)
            task.add_done_callback(self._starting.discard)

    def _start(self, endpoint: MessageEndpoint) -> None:
        self.running[endpoint.tag] = endpoint
        endpoint.start()

    async def start(self, runtime: Runtime) -> None:
        """Start all endpoints, and wait until each consumes or is on standby."""
        self._runtime = runtime
        for make in self._makers.values():
            self._start(make(runtime))
        for endpoint in self.running.values():
            await endpoint.wait_started()

    async def wait_ready(self) -> None:
        """Wait until the endpoints that were added to a started application consume."""
        await asyncio.gather(*self._starting)

    async def stop(self, grace: float) -> None:
        """Stop all endpoints, waiting up to `grace` seconds for their handlers."""
        for task in self._starting:
            task.cancel()
        self._runtime = None
        endpoints = list(self.running.values())
        self.running.clear()
        await asyncio.gather(*(each.stop(grace) for each in endpoints))

    async def remove(self, tag: str, grace: float) -> None:
        """Stop an endpoint and forget it."""
        endpoint = self.running.pop(tag, None)
        if endpoint is None:
            raise KeyError(
                f"no endpoint '{tag}'; there are {', '.join(sorted(self.running)) or 'none'}"
            )
        del self._makers[tag]
        del self._descriptions[tag]
        await endpoint.stop(grace)
