"""Executes the faults of a script in a world."""

from __future__ import annotations

from random import Random
from typing import Protocol

from recado.simulator.schedule import Schedule

from .company import ARCHIVES
from .fault import (
    Blackout,
    Crash,
    Cut,
    CutOff,
    Fault,
    Halt,
    Leave,
    Outage,
    Slow,
    Stall,
    Storm,
)
from .media import Ether
from .nodes import Node
from .post import Post
from .script import Script


class Stage(Protocol):
    """The world, as far as faults touch it."""

    script: Script
    schedule: Schedule
    random: Random
    ether: Ether | None
    post: Post | None
    nodes: dict[str, Node]
    is_settled: bool

    def start(self, name: str) -> None: ...

    def crash(self, name: str) -> None: ...

    def leave(self, name: str) -> None: ...


class Faults:
    def __init__(self, world: Stage) -> None:
        self._world = world

    def befall(self, fault: Fault) -> None:
        world, after = self._world, self._world.schedule.call_later
        match fault:
            case Crash(name, down):
                world.crash(name)
                after(down, world.start, name)
            case Blackout(down):
                for number, name in enumerate(ARCHIVES, 1):
                    world.crash(name)
                    after(down * number, world.start, name)
            case Leave(name, down):
                world.leave(name)
                after(down, world.start, name)
            case Stall(name, seconds):
                if name in world.nodes:
                    node = world.nodes[name]
                    node.stall(world.schedule.now + seconds)
            case Slow(name, times, seconds):
                self._slow(name, times)
                after(seconds, self._slow, name, 1.0)
            case Cut(ways, seconds) if world.ether:
                for source, target in ways:
                    world.ether.network.cut(source, target)
                after(seconds, world.ether.network.heal)
            case Storm(weather, seconds) if world.ether:
                world.ether.network.conditions = weather
                after(seconds, self._clear_up)
            case CutOff(name, seconds) if world.post:
                if name in world.nodes:
                    address = world.nodes[name].address
                    world.post.cut_off(address)
                    after(seconds, world.post.connect, address)
            case Outage(seconds) if world.post:
                world.post.crash()
                after(seconds, self._end_outage)
            case Halt(seconds) if world.post:
                world.post.stop(seconds)
            case _:
                raise ValueError(f"{fault} does not befall this medium")

    def _slow(self, name: str, times: float) -> None:
        world = self._world
        if world.ether:
            world.ether.network.slow_down(name, times)
        elif world.post and name in world.nodes:
            world.post.wires.slow_down(world.nodes[name].address.text, times)

    def _clear_up(self) -> None:
        world = self._world
        if world.ether and not world.is_settled:
            world.ether.network.conditions = world.script.weather

    def _end_outage(self) -> None:
        """Each client notices it at its own time."""
        world = self._world
        if world.post:
            world.post.restart()
            for node in world.nodes.values():
                delay = world.random.uniform(0.0, 0.5)
                world.schedule.call_later(delay, world.post.connect, node.address)
