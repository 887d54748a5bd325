"""recado answers protocol errors as RabbitMQ 3.10 does, except where the table of differences says otherwise.

Some 2,700 connections to each broker: every method in every state of a connection and a channel, malformed
versions of each, and frames that are wrong by themselves. Reply codes and the ids of the failed method must be
equal; reply texts may differ.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from recado.amqp import methods as m
from workshop.peers import Server

from .protocol_cases import Outcome, cases, outcomes
from .protocol_differences import DIFFERENCES, Difference

PAGE = Path(__file__).parents[2] / "docs" / "compatibility.md"
HEADING = "### Protocol errors"

Pair = tuple[Outcome, Outcome]


@pytest.fixture(scope="module")
def differing(rabbitmq_server: Server, recado_server: Server) -> dict[str, Pair]:
    """The cases in which the brokers differ, with what RabbitMQ and recado do."""

    async def both() -> tuple[dict[str, Outcome], dict[str, Outcome]]:
        every = cases()
        one, other = await asyncio.gather(
            outcomes(rabbitmq_server, every), outcomes(recado_server, every)
        )
        return one, other

    rabbitmq, recado = asyncio.run(both())
    return {
        name: (rabbitmq[name], recado[name]) for name in rabbitmq if rabbitmq[name] != recado[name]
    }


def explanation(name: str, pair: Pair) -> Difference | None:
    return next((each for each in DIFFERENCES if each.covers(name, *pair)), None)


def test_every_method_is_sent_in_every_state() -> None:
    names = {case.name for case in cases()}
    states = {name.split(": ")[0] for name in names}
    assert len(states) == 17
    assert all(f"{state}: {of.name}" in names for state in states for of in m.METHODS.values())


def test_the_brokers_differ_only_as_listed(differing: dict[str, Pair]) -> None:
    unexplained = {
        name: f"RabbitMQ: {' '.join(pair[0])}; recado: {' '.join(pair[1])}"
        for name, pair in differing.items()
        if explanation(name, pair) is None
    }
    assert unexplained == {}


def test_every_listed_difference_exists(differing: dict[str, Pair]) -> None:
    found = {explanation(name, pair) for name, pair in differing.items()}
    assert [each.what for each in DIFFERENCES if each not in found] == []


def table_of_the_page() -> Iterator[tuple[str, ...]]:
    section = PAGE.read_text().split(HEADING)[1].split("\n#")[0].split("<!--")[0]
    rows = [line for line in section.splitlines() if line.startswith("|")]
    for row in rows[2:]:
        yield tuple(cell.strip() for cell in row.strip("|").split("|"))


def test_the_documentation_lists_the_same_differences() -> None:
    assert list(table_of_the_page()) == [each.row for each in DIFFERENCES]
