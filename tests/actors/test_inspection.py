"""The inspector: every actor once, by page; the system's own only on request."""

from __future__ import annotations

import asyncio

import pytest

from recado.actors import inspection
from recado.actors.actor import Actor
from recado.actors.inspection import ActorInfo, Inspect, Inspector
from recado.actors.message import Message
from recado.actors.system import ActorSystem


class Wait(Message[None]):
    pass


class Sleeper(Actor[Wait]):
    async def receive(self, message: Wait) -> None:
        await asyncio.Event().wait()


async def all_seen(system: ActorSystem, *, internals: bool = False) -> list[ActorInfo]:
    inspector = system._internal_registry.by_name(inspection.INSPECTOR_NAME)
    assert inspector is not None
    seen: list[ActorInfo] = []
    while True:
        after = seen[-1].uid if seen else 0
        page = await inspector.ask(Inspect(after, internals), 5)
        if not page.seen:
            return seen
        assert len(page.seen) <= inspection.PAGE_ACTORS_MAX
        assert page.nodes == ()
        seen += page.seen


@pytest.mark.parametrize("count", [0, 1, 4, 5, 6, 17])
def test_every_actor_is_on_one_page(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspection, "PAGE_ACTORS_MAX", 5)

    async def work() -> list[str]:
        async with ActorSystem("office") as system:
            await system.spawn(Inspector, name=inspection.INSPECTOR_NAME, internal=True)
            for number in range(count):
                await system.spawn(Sleeper, name=f"sleeper.{number}")
            return [each.name for each in await all_seen(system)]

    assert asyncio.run(work()) == [f"sleeper.{number}" for number in range(count)]


def test_what_waits_is_counted() -> None:
    async def work() -> ActorInfo:
        async with ActorSystem("office") as system:
            await system.spawn(Inspector, name=inspection.INSPECTOR_NAME, internal=True)
            sleeper = await system.spawn(Sleeper)
            for _ in range(4):
                sleeper.tell(Wait())
            (seen,) = await all_seen(system)  # by then the first of them is being handled
            (own,) = await all_seen(system, internals=True)
            assert (own.name, own.kind, own.internal) == ("recado.inspector", "Inspector", True)
            await system.stop(sleeper, grace=0)
            return seen

    seen = asyncio.run(work())
    assert (seen.name, seen.kind, seen.state, seen.waiting) == ("", "Sleeper", "started", 3)
    assert (seen.restarts, seen.supervisor, seen.internal) == (0, "", False)
