"""Systems: finding actors, stopping them, and the system's own."""

from __future__ import annotations

import random
from typing import Any

import pytest

import recado
from recado.actors import (
    Actor,
    ActorStoppedError,
    ActorSystem,
    Address,
    NameTakenError,
    NoSuchActorError,
)
from tests.feeds.io.loop import in_the_loop

from .cast import Do, Echo, Notebook, Stage


class Diary(Notebook):
    pass


@in_the_loop
async def test_actors_are_found_by_id_name_and_class() -> None:
    async with ActorSystem("exchange") as system:
        book = await system.spawn(Notebook, name="book")
        diary, stage = await system.spawn(Diary), await system.spawn(Stage)
        registry = system.registry
        assert registry.by_name("book") == book
        assert registry.by_name("nobody") is None
        assert registry.by_id(diary.address.uid) == diary
        assert registry.by_id(1) is None
        assert registry.by_class(Notebook) == [book, diary]
        assert list(registry) == [book, diary, stage]
        assert len(registry) == 3
        assert system.actor("book", Notebook) is book
        assert system.actor("book", node="exchange") is book
        assert system.ref(Address("exchange", "book")) is book
        with pytest.raises(NoSuchActorError):
            system.actor("nobody")
        with pytest.raises(NoSuchActorError, match="not a Stage"):
            system.actor("book", Stage)


@in_the_loop
async def test_a_name_belongs_to_one_living_actor() -> None:  # RG1
    async with ActorSystem() as system:
        first = await system.spawn(Notebook, name="book")
        with pytest.raises(NameTakenError):
            await system.spawn(Notebook, name="book")
        assert system.actor("book") == first
        await system.stop(first)
        second = await system.spawn(Notebook, name="book")
        assert first != second  # AD2
        assert system.ref(first.address) == first
        with pytest.raises(ActorStoppedError):
            await system.ref(str(first)).ask(Echo("?"))


@in_the_loop
async def test_all_of_a_class_are_stopped_but_not_the_systems_own() -> None:  # SY3
    async with ActorSystem() as system:
        for _ in range(2):
            await system.spawn(Notebook)
        own = await system.spawn(Stage, name="own", internal=True)
        child = await own.ask(Do(lambda own: own.start_link(Stage)))
        await system.spawn(Stage)
        await system.stop_all(Notebook)
        assert len(system.registry) == 1
        await system.stop_all()
        assert len(system.registry) == 0
        assert len(system._internal_registry) == 2
        assert system.ref(str(own)) is own
        assert system.ref(str(child)) == child
        assert await own.ask(Do(lambda own: own.children)) == (child,)
    assert len(system._internal_registry) == 0


@in_the_loop
async def test_what_closes_with_it_is_closed_last_first() -> None:
    order: list[str] = []

    async def later() -> None:
        order.append("later")

    async with ActorSystem() as system:
        system.on_close(lambda: order.append(f"first, {len(system.registry)} actors"))
        system.on_close(later)
        await system.spawn(Notebook)
    assert order == ["later", "first, 0 actors"]


@in_the_loop
async def test_names_are_limited() -> None:
    for name in ("", "x" * 256):
        with pytest.raises(ValueError, match="255"):
            ActorSystem(name)
    async with ActorSystem() as system:
        with pytest.raises(ValueError, match="255"):
            await system.spawn(Notebook, name="x" * 256)


@in_the_loop
async def test_chance_is_given() -> None:
    uids = []
    for _ in range(2):
        async with ActorSystem(rng=random.Random(7)) as system:
            uids.append((await system.spawn(Notebook)).address.uid)
    assert uids[0] == uids[1]


def test_the_public_names_are_there() -> None:
    assert recado.ActorSystem is ActorSystem
    assert recado.Actor is Actor
    for name in recado.actors.__all__:
        assert getattr(recado.actors, name) is not None
    with pytest.raises(AttributeError):
        recado.actors.nothing  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize("wrong", [Notebook(), Stage(), "Notebook", None])
@in_the_loop
async def test_to_spawn_what_makes_no_actor_says_what_to_do(wrong: Any) -> None:
    async with ActorSystem() as system:
        kind = type(wrong).__name__ if isinstance(wrong, Actor) else "Book"
        with pytest.raises(TypeError, match=rf"Use spawn\({kind}\), or spawn\(lambda: {kind}"):
            await system.spawn(wrong, name="book")
        book = await system.spawn(Notebook, name="book")  # the name is free
        assert await book.ask(Echo("a")) == "a"
