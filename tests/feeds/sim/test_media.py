"""The media of the simulated feed: a network of datagrams, and a broker that loses what a broker may lose."""

from __future__ import annotations

from random import Random

import pytest

from bench.feeds_sim.media import Address, Ether
from bench.feeds_sim.post import Post
from recado.simulator.network import NetworkConditions
from recado.simulator.schedule import Schedule

P = Address("p#1", "p", False, False)
Q = Address("q#1", "q", False, False)
S = Address("s#1", "s", True, False)
A = Address("a#1", "a", True, True)
A_AGAIN = Address("a#2", "a", True, True)

Heard = tuple[str, bool, str, bytes, int]


class Ears:
    """Takes notes: node, whether on A, sender, packet, tag."""

    def __init__(self) -> None:
        self.heard: list[Heard] = []
        self.confirmations: list[tuple[str, int]] = []
        self.casts_again: list[str] = []

    def arrived(self, node: Address, on_a: bool, sender: Address, packet: bytes, tag: int) -> None:
        self.heard.append((node.text, on_a, sender.text, packet, tag))

    def confirmed(self, node: Address, upto: int) -> None:
        self.confirmations.append((node.text, upto))

    def cast_again(self, node: Address) -> None:
        self.casts_again.append(node.text)

    def by(self, node: Address) -> list[bytes]:
        return [packet for text, _, _, packet, _ in self.heard if text == node.text]


@pytest.fixture
def schedule() -> Schedule:
    return Schedule()


@pytest.fixture
def ears() -> Ears:
    return Ears()


@pytest.fixture
def ether(schedule: Schedule, ears: Ears) -> Ether:
    ether = Ether(schedule, Random(1), ears)
    for node in (P, S, A):
        ether.join(node)
    return ether


def new_post(schedule: Schedule, ears: Ears, *, one_order: bool = True) -> Post:
    post = Post(schedule, Random(1), ears, one_order=one_order)
    for node in (P, Q, S, A):
        post.join(node)
    return post


@pytest.fixture
def post(schedule: Schedule, ears: Ears) -> Post:
    return new_post(schedule, ears)


# ── datagrams ─────────────────────────────────────────────────────────────────────────────────────


def test_a_cast_reaches_all_and_who_casts(ether: Ether, schedule: Schedule, ears: Ears) -> None:
    ether.cast(P, b"hello", 3)
    schedule.run()
    assert sorted(ears.heard) == [(to, False, "p#1", b"hello", 0) for to in ("a#1", "p#1", "s#1")]
    assert ears.confirmations == [("p#1", 3)]


@pytest.mark.parametrize(
    ("to", "who"), [("members", ["a#1", "s#1"]), ("archives", ["a#1"]), ("s#1", ["s#1"])]
)
def test_who_is_meant_hears_it(
    ether: Ether, schedule: Schedule, ears: Ears, to: str, who: list[str]
) -> None:
    ether.send(S, to, b"psst")
    schedule.run()
    assert sorted(ears.heard) == [(each, True, "s#1", b"psst", 0) for each in who]


def test_the_next_life_does_not_hear_what_was_for_this_one(
    ether: Ether, schedule: Schedule, ears: Ears
) -> None:
    ether.send(S, "a#1", b"psst")
    ether.drop(A)
    ether.join(A_AGAIN)
    schedule.run()
    assert ears.heard == []


def test_calm_ends_all_that_was_wrong(ether: Ether, schedule: Schedule, ears: Ears) -> None:
    ether.network.conditions = NetworkConditions(loss_ratio=1.0)
    ether.network.cut("p", "s")
    ether.network.slow_down("a", 1000.0)
    ether.calm()
    ether.cast(P, b"hello", 0)
    schedule.run(0.02)
    assert sorted(each[0] for each in ears.heard) == ["a#1", "p#1", "s#1"]


# ── a broker ──────────────────────────────────────────────────────────────────────────────────────


def test_a_broker_carries_casts_to_members_alone_and_confirms(
    post: Post, schedule: Schedule, ears: Ears
) -> None:
    post.cast(P, b"one", 1)
    post.cast(P, b"two", 2)
    schedule.run()
    assert ears.by(S) == ears.by(A) == [b"one", b"two"]
    assert ears.by(P) == ears.by(Q) == []
    assert ears.confirmations == [("p#1", 1), ("p#1", 2)]
    post.send(S, "archives", b"psst")
    schedule.run()
    assert ears.heard[-1] == ("a#1", True, "s#1", b"psst", 0)


@pytest.mark.parametrize("one_order", [True, False])
def test_one_publisher_is_always_in_order_and_two_are_where_there_is_one_order(
    schedule: Schedule, ears: Ears, one_order: bool
) -> None:
    post = new_post(schedule, ears, one_order=one_order)
    for number in range(200):
        for node in (P, Q):
            packet = f"{node.name}{number:03}".encode()
            schedule.call_at(number / 1000, post.cast, node, packet, number + 1)
    schedule.run()
    for heard in (ears.by(S), ears.by(A)):
        for name in (b"p", b"q"):
            own = [packet for packet in heard if packet.startswith(name)]
            assert own == sorted(own)
    assert (ears.by(S) == ears.by(A)) is one_order


def test_who_is_cut_off_misses_what_is_live_and_an_archive_does_not(
    post: Post, schedule: Schedule, ears: Ears
) -> None:
    for node in (S, A):
        post.cut_off(node)
    post.cast(P, b"one", 1)
    schedule.run()
    assert ears.heard == []
    for node in (S, A):
        post.connect(node)
    post.cast(P, b"two", 2)
    schedule.run()
    assert ears.by(S) == [b"two"]
    assert ears.by(A) == [b"one", b"two"]


def test_what_an_archive_did_not_settle_comes_again_in_order(
    post: Post, schedule: Schedule, ears: Ears
) -> None:
    for number, packet in enumerate([b"one", b"two", b"three"], 1):
        post.cast(P, packet, number)
    schedule.run()
    assert [tag for node, *_, tag in ears.heard if node == "a#1"] == [1, 2, 3]
    post.settle(A, 1)
    post.drop(A)
    post.join(A_AGAIN)
    post.cast(P, b"four", 4)
    schedule.run()
    assert ears.by(A_AGAIN) == [b"two", b"three", b"four"]


def test_what_was_not_confirmed_is_cast_again(post: Post, schedule: Schedule, ears: Ears) -> None:
    post.cast(P, b"one", 1)
    post.send(S, "members", b"psst")
    for node in (P, S):
        post.cut_off(node)
    schedule.run()
    assert ears.heard == []
    post.cast(P, b"two", 2)
    for node in (P, S):
        post.connect(node)
    schedule.run()
    assert ears.by(S) == [b"one", b"two"]
    assert ears.confirmations == [("p#1", 1), ("p#1", 2)]
    assert ears.casts_again == ["p#1"]
    post.cut_off(P)
    post.connect(P)
    assert ears.casts_again == ["p#1"], "all is confirmed"


def test_a_broker_that_is_stopped_loses_nothing(post: Post, schedule: Schedule, ears: Ears) -> None:
    post.stop(5.0)
    post.cast(P, b"one", 1)
    post.send(S, "archives", b"psst")
    schedule.run(1.0)
    post.drop(P)
    post.cut_off(S)
    post.connect(S)
    post.cast(Q, b"two", 1)
    schedule.run(4.9)
    assert ears.heard == []
    assert ears.confirmations == []
    schedule.run(6.0)
    assert sorted(ears.by(A)) == [b"one", b"psst", b"two"]
    assert ears.by(S)[-1:] == [b"two"]
    assert ears.confirmations == [("q#1", 1)]


def test_a_broker_that_is_killed_while_it_is_stopped_loses_what_waits(
    post: Post, schedule: Schedule, ears: Ears
) -> None:
    post.stop(5.0)
    post.cast(P, b"one", 0)
    schedule.run(1.0)
    post.crash()
    post.calm()
    post.cast(P, b"two", 0)
    schedule.run(6.0)
    assert ears.by(S) == ears.by(A) == [b"two"]


def test_a_broker_that_restarts_keeps_what_it_confirmed(schedule: Schedule) -> None:
    """And of the rest what chance leaves to it; the publisher casts that again."""
    outcomes = set()
    for seed in range(20):
        ears = Ears()
        post = Post(schedule, Random(seed), ears, one_order=True)
        for node in (P, S, A):
            post.join(node)
        post.cut_off(A)
        start = schedule.now
        post.cast(P, b"safe", 1)
        schedule.run(start + 1.0)
        assert ears.confirmations == [("p#1", 1)]
        post.cast(P, b"maybe", 2)
        schedule.run(start + 1.0 + 0.012)
        if len(ears.confirmations) == 1:
            post.crash()
            post.cast(P, b"later", 3)
            schedule.run(start + 2.0)
            post.calm()
            schedule.run(start + 3.0)
            heard = ears.by(A)
            assert heard[0] == b"safe"
            assert heard[-2:] == [b"maybe", b"later"]
            outcomes.add(len(heard))
            assert ears.confirmations[-1] == ("p#1", 3)
    assert outcomes == {3, 4}
