"""The event stream: which subscribers get which events."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from recado.actors.actor_events import ActorEvent, DeadLetter, Restarted, Stopped
from recado.actors.message import Message
from recado.actors.supervision.strategy import OneForOne
from recado.actors.system import ActorSystem
from recado.actors.testkit import Probe

from .stories import BrokenError, Diary, Listener, Note, told


class Event(Message[None]):
    number: int = 0


class Special(Event):
    pass


class Other(Message[None]):
    pass


def test_subscribers_of_a_class_hear_its_events_and_those_of_derived_classes_once() -> None:
    async def story(system: ActorSystem) -> None:
        general, special, both, everything = [await Probe[Any].spawn(system) for _ in range(4)]
        events = system.events
        events.subscribe(general.ref, Event)
        events.subscribe(special.ref, Special)
        events.subscribe(both.ref, Event, Special)
        events.subscribe(everything.ref, object)
        for event in (Event(1), Special(2), Other()):
            events.publish(event)
        assert [await general.next(), await general.next()] == [Event(1), Special(2)]
        assert await special.next() == Special(2)
        assert [await both.next(), await both.next()] == [Event(1), Special(2)]
        assert [await everything.next() for _ in range(3)] == [Event(1), Special(2), Other()]
        events.unsubscribe(both.ref, Event)
        events.unsubscribe(general.ref)
        events.unsubscribe(general.ref, Other)
        events.publish(Event(3))
        events.publish(Special(4))
        assert await both.next() == Special(4)
        for probe in (general, both):
            await probe.expect_no_message()

    told(story)


def test_who_has_stopped_is_subscribed_to_nothing() -> None:
    async def story(system: ActorSystem) -> None:
        probe = await Probe[Any].spawn(system)
        system.events.subscribe(probe.ref, Event)
        await system.stop(probe.ref)
        system.events.publish(Event())
        assert system.dead_letter_count == 0
        assert system.events._subscribers == {}

    told(story)


def test_who_could_not_be_started_is_subscribed_to_nothing() -> None:  # EV3
    class Eager(Listener):
        def pre_start(self) -> None:
            self.system.events.subscribe(self.ref, Event)
            raise BrokenError

    async def story(system: ActorSystem) -> None:
        with pytest.raises(BrokenError):
            await system.spawn(lambda: Eager(Diary()))
        assert system.events._subscribers == {}

    told(story)


def test_what_happens_to_actors_is_an_event() -> None:
    async def story(system: ActorSystem) -> None:
        probe = await Probe[Any].spawn(system)
        system.events.subscribe(probe.ref, ActorEvent)
        ref = await system.spawn(
            lambda: Listener(Diary()), supervisor_strategy=OneForOne(1, within=None)
        )
        ref.tell(Note(0, 0, fails=True))
        restarted = await probe.expect(Restarted)
        assert restarted.ref == ref
        assert isinstance(restarted.reason, BrokenError)
        ref.stop()
        assert (await probe.expect(Stopped)).ref == ref
        ref.tell(Note(0, 1))
        dead_letter = await probe.expect(DeadLetter)
        assert (dead_letter.message, dead_letter.recipient, dead_letter.sender) == (
            Note(0, 1),
            ref,
            None,
        )

    told(story)


def test_a_dead_letter_about_a_dead_letter_is_not_published() -> None:
    async def story(system: ActorSystem) -> None:
        probe = await Probe[Any].spawn(system)
        gone = await Probe[Any].spawn(system)
        await system.stop(gone.ref)
        system.events.subscribe(gone.ref, DeadLetter)  # by somebody who does not know
        system.events.subscribe(probe.ref, DeadLetter)
        gone.ref.tell(Event(1))
        assert (await probe.expect(DeadLetter)).message == Event(1)
        await probe.expect_no_message()
        assert system.dead_letter_count == 2

    told(story)


def test_any_thread_may_publish_and_the_order_of_each_is_kept() -> None:
    async def story() -> None:
        async with ActorSystem("test") as system:
            diary = Diary()
            ref = await system.spawn(lambda: Listener(diary))
            events = system.events
            events.subscribe(ref, Note)

            def publish(sender: int) -> None:
                for number in range(200):
                    events.publish(Note(sender, number))

            threads = [threading.Thread(target=publish, args=(each,)) for each in range(3)]
            for thread in threads:
                thread.start()
            for _ in range(50):  # the table of who is told is made anew meanwhile
                events.subscribe(ref, Note)
                await asyncio.sleep(0)
            for thread in threads:
                await asyncio.to_thread(thread.join)
            assert await ref.ask(Note(3, 0)) == 0
            diary.check()
            assert len(diary.notes) == 601

    asyncio.run(story())
