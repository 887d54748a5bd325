"""Actors started for other nodes and abandoned by them: CN4 in any order, CN5."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado.actors.ref import ActorRef
from recado.actors.remote.peer import Peer
from recado.actors.remote.placement.creation import MAX_TOKENS, PlacementTokens


@dataclass
class Fake:
    """A node by its name, or an actor."""

    name: str
    stops: int = 0

    def stop(self) -> None:
        self.stops += 1


def peer(name: str) -> Peer:
    return cast(Peer, Fake(name))


def ref(actor: Fake) -> ActorRef[Any]:
    return cast("ActorRef[Any]", actor)


@given(st.permutations(["started", "abandoned"]), st.booleans())
def test_what_was_abandoned_is_stopped_once_if_who_says_so_wanted_it(
    order: list[str], stranger: bool
) -> None:
    unheard, actor = PlacementTokens(), Fake("actor")
    for what in order:
        if what == "started":
            unheard.record_started(peer("one"), "token", ref(actor))
        else:
            unheard.abandon(peer("other" if stranger else "one"), "token")
    assert actor.stops == (0 if stranger else 1)


@pytest.mark.parametrize("begins", [True, False])
def test_no_more_is_remembered_than_the_limit(begins: bool) -> None:
    unheard, one = PlacementTokens(), peer("one")
    actors = [Fake(str(number)) for number in range(MAX_TOKENS + 1)]

    def start() -> None:
        for actor in actors:
            unheard.record_started(one, actor.name, ref(actor))

    def abandon() -> None:
        for actor in actors:
            unheard.abandon(one, actor.name)

    for step in (start, abandon) if begins else (abandon, start):
        step()
    assert [actor.stops for actor in actors] == [0] + [1] * MAX_TOKENS
