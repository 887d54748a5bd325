"""The simulated network: loss, duplication, reordering, cuts and slow nodes."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado.simulator.network import NetworkConditions, SimulatedNetwork
from recado.simulator.schedule import Schedule

Arrival = tuple[float, str, str, int]


class World:
    def __init__(self, conditions: NetworkConditions, seed: int = 1) -> None:
        self.schedule = Schedule()
        self.arrivals: list[Arrival] = []
        self.network: SimulatedNetwork[int] = SimulatedNetwork(
            self.schedule, Random(seed), self.arrive, conditions
        )

    def arrive(self, source: str, target: str, packet: int) -> None:
        self.arrivals.append((self.schedule.now, source, target, packet))

    def send_many(self, count: int = 1000, ways: tuple[str, ...] = ("ab",)) -> list[Arrival]:
        """One each millisecond; packets are numbered."""
        for number in range(count):
            way = ways[number % len(ways)]
            self.schedule.call_at(number / 1000, self.network.send, way[0], way[1], number)
        self.schedule.run()
        return self.arrivals

    def packets(self) -> list[int]:
        return [packet for *_, packet in self.arrivals]


def test_a_good_network_brings_everything_within_the_delay() -> None:
    world = World(NetworkConditions(delay=(0.01, 0.02)))
    for moment, source, target, packet in world.send_many():
        assert (source, target) == ("a", "b")
        assert 0.01 <= moment - packet / 1000 <= 0.02 + 1e-9
    assert sorted(world.packets()) == list(range(1000))


def test_some_are_lost() -> None:
    world = World(NetworkConditions(loss_ratio=0.3))
    world.send_many()
    assert 600 < len(world.packets()) < 800
    assert len(set(world.packets())) == len(world.packets())
    assert world.network.lost == 1000 - len(world.packets())


def test_some_come_twice() -> None:
    world = World(NetworkConditions(duplicate_ratio=0.3))
    world.send_many()
    times = Counter(Counter(world.packets()).values())
    assert set(times) == {1, 2}
    assert 200 < times[2] < 400


def test_some_stray_and_come_behind_later_ones() -> None:
    straight = World(NetworkConditions(delay=(0.001, 0.001)))
    straight.send_many()
    assert straight.packets() == list(range(1000))
    world = World(NetworkConditions(delay=(0.001, 0.001), reorder_ratio=0.2, reorder_delay=0.05))
    world.send_many()
    assert sorted(world.packets()) == list(range(1000))
    assert any(one > other for one, other in pairwise(world.packets()))


@given(seed=st.integers(0, 1000), slow=st.booleans())
def test_an_ordered_network_keeps_the_order_of_each_way(seed: int, slow: bool) -> None:
    conditions = NetworkConditions(
        (0.001, 0.1),
        loss_ratio=0.1,
        duplicate_ratio=0.1,
        reorder_ratio=0.2,
        reorder_delay=0.5,
        ordered=True,
    )
    world = World(conditions, seed)
    world.network.slow_down("a", 10.0 if slow else 1.0)
    world.send_many(60, ("ab", "ba", "ac"))
    for way in ("ab", "ba", "ac"):
        own = [packet for _, *ends, packet in world.arrivals if "".join(map(str, ends)) == way]
        assert own == sorted(own)


def test_a_way_that_is_cut_is_cut_in_one_direction_until_it_is_mended() -> None:
    world = World(NetworkConditions(delay=(0.001, 0.001)))
    network, schedule = world.network, world.schedule
    schedule.call_at(0.0995, network.cut, "a", "b")
    schedule.call_at(0.1995, network.heal)
    world.send_many(300, ("ab", "ba"))
    lost = sorted(set(range(300)).difference(world.packets()))
    assert lost == list(range(100, 200, 2))


@pytest.mark.parametrize("node", ["a", "b"])
def test_all_of_a_slow_node_takes_longer(node: str) -> None:
    world = World(NetworkConditions(delay=(0.01, 0.01)))
    world.network.slow_down(node, 20.0)
    world.send_many(10, ("ab", "cd"))
    for moment, source, _, packet in world.arrivals:
        expected = 0.2 if source == "a" else 0.01
        assert moment - packet / 1000 == pytest.approx(expected)


def test_packets_delayed_beyond_the_maximum_are_lost() -> None:
    world = World(NetworkConditions(delay=(0.01, 0.01), max_delay=0.1))
    world.network.slow_down("a", 20.0)
    world.send_many(10, ("ab", "cd"))
    assert {source for _, source, _, _ in world.arrivals} == {"c"}
    assert world.network.lost == 5


def test_the_same_seed_produces_the_same_arrivals() -> None:
    conditions = NetworkConditions(loss_ratio=0.1, duplicate_ratio=0.1, reorder_ratio=0.1)
    first, second, other = World(conditions, 7), World(conditions, 7), World(conditions, 8)
    assert first.send_many() == second.send_many() != other.send_many()


def test_a_loss_does_not_change_the_fate_of_later_packets() -> None:
    world, calm = World(NetworkConditions(loss_ratio=0.2)), World(NetworkConditions())
    world.send_many()
    calm.send_many()
    assert set(world.arrivals) < set(calm.arrivals)
