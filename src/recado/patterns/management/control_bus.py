"""Control bus: commands to the endpoints of running programs, by messages.

    ControlBus(app, detours={"validation": detour})                      # this program obeys commands to `app.name`

    console = ControlConsole(other_app)
    states = await console.ask(PauseEndpoint("handle"), "shop", count=2)    # the two programs named "shop"

Commands go through the topic exchange `recado.control` with the name of the application as routing key, so each
program of that name gets each command. It obeys every command that it gets: restrict by the permissions of the
broker who may write to that exchange. The answer, the state of the program after the command, goes to the return
address only.

A command holds until the program ends; it is not stored.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Final, TypeAlias
from uuid import uuid4

import msgspec

from ..destination import PublishSubscribe
from ..endpoint import EndpointState, MessageEndpoint
from ..errors import CompositionError, MessagingError
from ..message import Message
from ..messaging import Messaging
from ..processor import HandlerProcessor
from ..return_address import REPLY_ERROR_HEADER
from .detour import Detour

log = logging.getLogger("recado.patterns")

CONTROL_EXCHANGE: Final = PublishSubscribe("recado.control")
CONTROL_BUS_TAG: Final = "control-bus"
CONTROL_CONSOLE_TAG: Final = "control-console"
MAX_CONCURRENCY_COUNT: Final = 1_000
MAX_ANSWERS_COUNT: Final = 10_000
_ANSWER_EXCHANGE: Final = PublishSubscribe("recado.control.answers", type="direct")


class ReadState(msgspec.Struct, frozen=True, tag="read"):
    """Asks for the state of a program and changes nothing; `program` "" means all of that name."""

    program: str = ""


class PauseEndpoint(msgspec.Struct, frozen=True, tag="pause"):
    """Stops consuming at an endpoint; its running handlers end first."""

    endpoint: str
    program: str = ""


class ResumeEndpoint(msgspec.Struct, frozen=True, tag="resume"):
    """Consumes again at a paused endpoint."""

    endpoint: str
    program: str = ""


class SetConcurrency(msgspec.Struct, frozen=True, tag="concurrency"):
    """Sets how many messages an endpoint handles at the same time."""

    endpoint: str
    concurrency: int
    program: str = ""


class SetDetour(msgspec.Struct, frozen=True, tag="detour"):
    """Opens or closes a detour."""

    detour: str
    open: bool
    program: str = ""


ControlCommand: TypeAlias = ReadState | PauseEndpoint | ResumeEndpoint | SetConcurrency | SetDetour


class EndpointStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """The state of an endpoint, and its counts since the program started."""

    tag: str
    queue: str
    state: str
    concurrency: int
    running: int
    handled: int
    failed: int
    error: str | None = None


class ProgramState(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of one program; `error` says why it has not obeyed."""

    app: str
    program: str
    endpoints: list[EndpointStatistics] = []
    detours: dict[str, bool] = {}
    error: str | None = None


class ControlBus:
    """Makes an application obey commands to its name; `program` tells its processes apart."""

    def __init__(self, app: Messaging, *, detours: Mapping[str, Detour] | None = None) -> None:
        self.program: Final = f"{socket.gethostname()}.{os.getpid()}.{uuid4().hex[:4]}"
        self._app = app
        self._detours = dict(detours or {})
        app.subscribe(CONTROL_EXCHANGE, key=app.name, tag=CONTROL_BUS_TAG)(self._obey)

    async def _obey(self, command: ControlCommand) -> ProgramState | None:
        if command.program not in ("", self.program):
            return None
        error = None
        try:
            await self._execute(command)
        except MessagingError as failure:
            error = str(failure)
        if not isinstance(command, ReadState):
            log.info("control command executed (command=%s error=%s)", command, error)
        return self.read_state(error)

    async def _execute(self, command: ControlCommand) -> None:
        match command:
            case PauseEndpoint(endpoint=tag):
                await self._find_endpoint(tag).pause(self._app.shutdown_timeout)
            case ResumeEndpoint(endpoint=tag):
                self._find_endpoint(tag).resume()
            case SetConcurrency(endpoint=tag, concurrency=concurrency):
                await self._set_concurrency(self._find_endpoint(tag), concurrency)
            case SetDetour(detour=name, open=is_open):
                if name not in self._detours:
                    raise CompositionError(f"no detour '{name:.100}'")
                self._detours[name].open = is_open
            case ReadState():
                pass

    def _find_endpoint(self, tag: str) -> MessageEndpoint:
        endpoint = self._app.endpoints.get(tag)
        if endpoint is None:
            raise CompositionError(f"no endpoint '{tag:.100}'")
        if tag == CONTROL_BUS_TAG:
            raise CompositionError("the control bus cannot change its own endpoint")
        return endpoint

    async def _set_concurrency(self, endpoint: MessageEndpoint, concurrency: int) -> None:
        processor = endpoint.processor
        if not isinstance(processor, HandlerProcessor):
            raise CompositionError(f"endpoint '{endpoint.tag}' has no concurrency")
        if not 1 <= concurrency <= MAX_CONCURRENCY_COUNT:
            raise CompositionError(
                f"concurrency {concurrency} must be from 1 to {MAX_CONCURRENCY_COUNT}"
            )
        was_paused = endpoint.state is EndpointState.PAUSED
        await endpoint.pause(self._app.shutdown_timeout)
        processor.set_concurrency(concurrency)
        counts_attempts = processor.options.retry.attempts > 1
        endpoint.prefetch = concurrency if counts_attempts else max(endpoint.prefetch, concurrency)
        if not was_paused:
            endpoint.resume()

    def read_state(self, error: str | None = None) -> ProgramState:
        """Return the state of this program, as it answers."""
        return ProgramState(
            app=self._app.name,
            program=self.program,
            endpoints=[_read_statistics(each) for each in self._app.endpoints.values()],
            detours={name: detour.open for name, detour in self._detours.items()},
            error=error,
        )


def _read_statistics(endpoint: MessageEndpoint) -> EndpointStatistics:
    processor = endpoint.processor
    return EndpointStatistics(
        tag=endpoint.tag,
        queue=endpoint.queue,
        state=endpoint.state.value,
        concurrency=processor.options.concurrency if isinstance(processor, HandlerProcessor) else 1,
        running=processor.running_count,
        handled=processor.handled_count,
        failed=processor.failed_count,
        error=None if endpoint.error is None else str(endpoint.error),
    )


class ControlConsole:
    """Sends commands to applications, and collects the answers."""

    def __init__(self, app: Messaging) -> None:
        self._app = app
        self._answers: dict[str, asyncio.Queue[ProgramState]] = {}
        app.subscribe(_ANSWER_EXCHANGE, key=uuid4().hex, tag=CONTROL_CONSOLE_TAG)(self._collect)

    async def ask(
        self,
        command: ControlCommand,
        app: str,
        *,
        timeout: float = 2.0,  # noqa: ASYNC109  the end of collecting, not an error
        count: int | None = None,
    ) -> list[ProgramState]:
        """Send a command to the programs of an application, and return their answers.

        Collects until `count` programs have answered, or for `timeout` seconds.
        """
        token = uuid4().hex
        answers = self._answers[token] = asyncio.Queue(MAX_ANSWERS_COUNT)
        found: list[ProgramState] = []
        try:
            request = Message(
                body=command,
                key=app,
                reply_to=self._app.endpoints[CONTROL_CONSOLE_TAG].queue,
                correlation_id=token,
                expiration=timeout,
                persistent=False,
            )
            await self._app.publish(CONTROL_EXCHANGE, request)
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    while count is None or len(found) < count:
                        found.append(await answers.get())
        finally:
            del self._answers[token]
        return found

    async def _collect(self, answer: Message[ProgramState | None]) -> None:
        """Keep an answer for `ask`. A program that does not know the command answers with an error only."""
        answers = self._answers.get(answer.correlation_id or "")
        if answers is None:
            log.debug("late answer of the control bus dropped")
            return
        state = answer.body
        if state is None:
            error = str(answer.headers.get(REPLY_ERROR_HEADER))
            state = ProgramState(app="", program="", error=error)
        with suppress(asyncio.QueueFull):
            answers.put_nowait(state)
