"""Topic exchange: words, wildcards, and hostile patterns."""

import random
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado.amqp.errors import PreconditionFailedError
from recado.broker.binding import Binding
from recado.broker.steps import STEP_UNITS_MAX, StepTask
from recado.broker.topic import TopicMatcher

from .stage import found


def bind(pattern: str, serial: int = 0) -> Binding[str]:
    return Binding("x", pattern, pattern, {}, serial)


def matcher_of(patterns: Iterable[str]) -> TopicMatcher[str]:
    matcher: TopicMatcher[str] = TopicMatcher()
    for pattern in patterns:
        matcher.add(bind(pattern))
    return matcher


def matches(pattern: str, key: str) -> bool:
    return bool(found(matcher_of([pattern]), key))


def naive(pattern: list[str], key: list[str]) -> bool:
    """The definition of the specification, word by word."""
    if not pattern:
        return not key
    word, *rest = pattern
    if word == "#":
        return naive(rest, key) or (bool(key) and naive(pattern, key[1:]))
    return bool(key) and word in ("*", key[0]) and naive(rest, key[1:])


def words(key: str) -> list[str]:
    return key.split(".") if key else []


@pytest.mark.parametrize(
    ("pattern", "key"),
    [
        ("", ""),
        ("#", ""),
        ("#", "a"),
        ("#", "a.b.c"),
        ("#.#", ""),
        ("#.#.#", "a.b"),
        ("a", "a"),
        ("*", "a"),
        ("*", "*"),
        ("#", "#"),
        ("a.#", "a"),
        ("a.#", "a.b.c"),
        ("#.c", "c"),
        ("#.c", "a.b.c"),
        ("a.*.c", "a.b.c"),
        ("a.#.c", "a.c"),
        ("a.#.#.c", "a.c"),
        ("a.#.c", "a.c.b.c"),
        ("*.#", "a"),
        ("#.*", "a.b"),
        ("*.*", "."),
        ("a..b", "a..b"),
        ("stock.*.nyse", "stock.ibm.nyse"),
    ],
)
def test_matches(pattern: str, key: str) -> None:
    assert matches(pattern, key)


@pytest.mark.parametrize(
    ("pattern", "key"),
    [
        ("", "a"),
        ("a", ""),
        ("*", ""),
        ("*", "a.b"),
        ("a", "b"),
        ("a", "A"),
        ("a.*", "a"),
        ("a.#", "b"),
        ("a.#", "ab"),
        ("*.#.*", "a"),
        ("#.c", "a.b"),
        ("a.*.c", "a.b.b.c"),
        ("a*", "ab"),
        ("#a", "ba"),
        ("a", "*"),
        ("a", "#"),
    ],
)
def test_does_not_match(pattern: str, key: str) -> None:
    assert not matches(pattern, key)


def test_a_binding_comes_once_however_many_ways_lead_to_it() -> None:
    assert len(found(matcher_of(["#.a.#.a.#"]), "a.a.a.a")) == 1


def test_a_repeated_word_enters_the_hash_behind_it_once() -> None:
    matcher = matcher_of(["#.a.#", "#.a.b"])  # the second retains the node of `#.a` for another `a`
    assert [each.routing_key for each in found(matcher, "a.a")] == ["#.a.#"]


def test_bindings_with_one_pattern_all_match() -> None:
    matcher: TopicMatcher[str] = TopicMatcher()
    first, second = bind("a.#", 0), bind("a.#", 1)
    matcher.add(first)
    matcher.add(second)
    assert found(matcher, "a") == [first, second]
    matcher.remove(first)
    assert found(matcher, "a") == [second]


patterns = st.lists(st.sampled_from(["a", "b", "", "*", "#"]), max_size=6).map(".".join)
keys = st.lists(st.sampled_from(["a", "b", "", "*", "#"]), max_size=6).map(".".join)


@given(st.lists(patterns, max_size=12), st.lists(keys, max_size=6), st.data())
def test_agrees_with_the_definition(
    bound: list[str], published: list[str], data: st.DataObject
) -> None:
    matcher: TopicMatcher[str] = TopicMatcher()
    bindings = [bind(pattern, serial) for serial, pattern in enumerate(bound)]
    for binding in bindings:
        matcher.add(binding)
    for removed in data.draw(st.sets(st.integers(0, len(bound)))):
        for binding in [binding for binding in bindings if binding.serial == removed]:
            matcher.remove(binding)
            bindings.remove(binding)
    for key in published:
        expected = [
            binding for binding in bindings if naive(words(binding.routing_key), words(key))
        ]
        taken = found(matcher, key)
        assert sorted(taken, key=lambda binding: binding.serial) == expected


@given(st.permutations(["", "#", "*", "a", "a.b", "a.b.c", "a.*", "a.#", "#.a.#", "*.*.#"]))
def test_nothing_is_left_of_what_was_removed(order: list[str]) -> None:
    matcher: TopicMatcher[str] = TopicMatcher()
    bindings = [bind(pattern) for pattern in sorted(order)]
    for binding in bindings:
        matcher.add(binding)
    for pattern in order:
        matcher.remove(bindings[sorted(order).index(pattern)])
    assert matcher._root.is_empty


def test_hostile_patterns_cost_no_more_than_words_times_nodes() -> None:
    """Following each alternative separately would take exponential time."""
    matcher = matcher_of([".".join(["#.a"] * 8), ".".join(["#.*"] * 8), ".".join(["#"] * 120)])
    key = ".".join(["a"] * 120)
    assert len(found(matcher, key + ".b")) == 2
    assert len(found(matcher, key)) == 3


def test_a_pattern_has_a_limited_number_of_hashes() -> None:
    with pytest.raises(PreconditionFailedError, match="8 '#'"):
        matcher_of([".".join(["#.a"] * 9)])


def hostile(patterns: int, seed: int = 1) -> TopicMatcher[str]:
    """Patterns with several `#`, of which most match a long key."""
    draw = random.Random(seed)
    dead_letters = (draw.choices("abcdefgh", k=4) for _ in range(patterns))
    return matcher_of("#.{}.#.{}.#.{}.#.{}.#".format(*each) for each in dead_letters)


def costs(matcher: TopicMatcher[str], key: str) -> list[int]:
    return list(matcher.search(key, {}, {}))


def test_a_hash_is_looked_at_once_however_long_the_key_is() -> None:
    """The search costs about the number of nodes, not nodes × words: 3,000 patterns have 9,000 nodes."""
    matcher = hostile(3000)
    key = ".".join(random.Random(2).choices("abcdefgh", k=100))
    assert sum(costs(matcher, key)) < 6000
    twice = sum(costs(matcher, f"{key}.{key}"))
    assert twice < sum(costs(matcher, key)) * 1.5


@pytest.mark.parametrize(
    "matcher",
    [
        hostile(3000),
        matcher_of(
            f"{'*.' * (i % 9)}#.a.#.{i}.#.a" for i in range(3000)
        ),  # each reached repeatedly
        matcher_of(f"#.*.#.*.a.{i}" for i in range(3000)),
        matcher_of(["#"] * 5000),
    ],
    ids=["nested", "repeated", "any", "one"],
)
def test_no_step_is_long(matcher: TopicMatcher[str]) -> None:
    key = ".".join(["a", "b", "1", "c", "2"] * 20)
    assert max(costs(matcher, key)) <= 3 * STEP_UNITS_MAX


@given(
    st.lists(patterns, max_size=8, unique=True),
    st.lists(patterns, max_size=4, unique=True),
    keys,
    st.data(),
)
def test_bindings_may_change_between_two_steps(
    lasting: list[str], passing: list[str], key: str, data: st.DataObject
) -> None:
    """Bindings that exist all the time are found; those that are added or removed may be."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("recado.broker.topic._NODES_PER_STEP", 1)
        matcher: TopicMatcher[str] = TopicMatcher()
        kept = [bind(pattern) for pattern in lasting]
        changing = {bind(pattern): False for pattern in passing}
        for binding in kept:
            matcher.add(binding)
        taken: dict[Binding[str], None] = {}
        work = StepTask(matcher.search(key, {}, taken))
        while not work.is_done:
            for pattern in data.draw(st.sets(st.sampled_from(passing))) if passing else ():
                for each, there in list(changing.items()):
                    if each.routing_key == pattern:
                        (matcher.remove if there else matcher.add)(each)
                        changing[each] = not there
            work.advance(1)
    matching = {each for each in (*kept, *changing) if naive(words(each.routing_key), words(key))}
    assert {*taken} <= matching
    assert {*taken} >= matching - {*changing}
