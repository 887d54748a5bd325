"""Actors and messages that many tests use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from recado.actors import Actor, ActorRef, Message, Signal


class Say(Message[None]):
    text: str


class Read(Message[tuple[str, ...]]):
    pass


class Break(Message[None]):
    why: str = "told to"


class Echo(Message[str]):
    text: str


class BrokenError(Exception):
    pass


class Notebook(Actor[Say | Read | Break | Echo]):
    """Writes down what it hears; breaks when told to. `diary` outlives its instances."""

    def __init__(self, diary: list[str] | None = None) -> None:
        self.lines: list[str] = []
        self.diary = [] if diary is None else diary

    def receive(self, message: Say | Read | Break | Echo) -> None:
        match message:
            case Say(text):
                self.lines.append(text)
                self.diary.append(text)
            case Read():
                self.reply(tuple(self.lines))
            case Echo(text):
                self.reply(text)
            case Break(why):
                raise BrokenError(why)
            case _:
                self.unhandled(message)

    def pre_start(self) -> None:
        self.diary.append("started")

    def post_stop(self) -> None:
        self.diary.append("stopped")

    def pre_restart(self, reason: BaseException, message: Any) -> None:
        self.diary.append(f"pre_restart {reason} after {len(self.lines)}")

    def post_restart(self, reason: BaseException) -> None:
        self.diary.append(f"post_restart {reason} with {len(self.lines)}")


class Named(Notebook):
    def __init__(self, diary: list[str], name: str) -> None:
        super().__init__()
        self.name = name
        self.diary = diary

    def pre_start(self) -> None:
        self.diary.append(f"{self.name} up")

    def post_stop(self) -> None:
        self.diary.append(f"{self.name} gone")

    def pre_restart(self, reason: BaseException, message: Any) -> None:
        self.diary.append(f"{self.name} down")

    def post_restart(self, reason: BaseException) -> None:
        pass


def notebook(diary: list[str]) -> Callable[[], Notebook]:
    return lambda: Notebook(diary)


class Do(Message[Any]):
    """For a Stage: call this in its handler, answer what it returns."""

    by_reference: ClassVar[bool] = True

    act: Callable[[Stage], Any]


class Stage(Actor[Do]):
    """Does what a test wants an actor to do."""

    def __init__(self) -> None:
        self.signals: list[Signal] = []

    async def receive(self, message: Do) -> None:
        result = message.act(self)
        if hasattr(result, "__await__"):
            result = await result
        self.reply_if_asked(result)

    def on_signal(self, signal: Signal) -> None:
        self.signals.append(signal)


async def signals(stage: ActorRef[Do]) -> tuple[Signal, ...]:
    return tuple(await stage.ask(Do(lambda stage: stage.signals)))
