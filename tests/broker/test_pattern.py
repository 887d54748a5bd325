"""Regex exchange: the whole key, linear time, and late import of the engine."""

import re
import subprocess
import sys
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado.amqp.errors import PreconditionFailedError
from recado.broker import pattern as module
from recado.broker.binding import Binding
from recado.broker.pattern import (
    MAX_PATTERN_BYTES,
    PatternMatcher,
    compile_name_pattern,
    compile_pattern,
    escape_pattern,
)
from recado.broker.steps import StepTask

from .stage import found


def bind(pattern: str, serial: int = 0) -> Binding[str]:
    return Binding("x", "q", pattern, {}, serial)


def matches(pattern: str, key: str) -> bool:
    matcher: PatternMatcher[str] = PatternMatcher()
    matcher.add(bind(pattern))
    return bool(found(matcher, key))


@pytest.mark.parametrize(
    ("pattern", "key"),
    [
        ("", ""),
        ("a", "a"),
        ("a|b", "b"),
        ("a.*", "abc"),
        (r"\d+", "2024"),
        ("^a$", "a"),
        ("(?i)abc", "ABC"),
        ("é.", "éü"),
    ],
)
def test_the_whole_key_matches(pattern: str, key: str) -> None:
    assert matches(pattern, key)


@pytest.mark.parametrize(
    ("pattern", "key"),
    [("a", ""), ("a", "ab"), ("a", "ba"), ("a|b", "ab"), (r"\d+", "2024x"), ("é.", "éüa")],
)
def test_a_part_of_the_key_is_not_enough(pattern: str, key: str) -> None:
    assert not matches(pattern, key)


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(", "missing \\)"),
        ("*", "no argument for repetition operator"),
        ("(?=a)", "invalid perl operator"),
        (r"(a)\1", "invalid escape sequence"),
        ("((((a{100}){100}){100}){100})", "invalid repetition size"),
        (r"\pL{5}", "too complex: [0-9]+ instructions, at most 2000 are allowed"),
        ("a" * (MAX_PATTERN_BYTES + 1), "longer than 1024 bytes"),
        ("é" * (MAX_PATTERN_BYTES // 2 + 1), "longer than 1024 bytes"),
    ],
)
def test_a_bad_pattern_is_refused_and_not_kept(pattern: str, reason: str) -> None:
    matcher: PatternMatcher[str] = PatternMatcher()
    with pytest.raises(PreconditionFailedError, match=f"invalid pattern '.*': {reason}"):
        matcher.add(bind(pattern))
    assert found(matcher, pattern) == []


def test_the_longest_pattern() -> None:
    assert matches("a" * MAX_PATTERN_BYTES, "a" * MAX_PATTERN_BYTES)


def test_bindings_share_a_pattern() -> None:
    matcher: PatternMatcher[str] = PatternMatcher()
    first, second, other = bind("a+", 0), bind("a+", 1), bind("a", 2)
    for binding in (first, second, other):
        matcher.add(binding)
    assert found(matcher, "a") == [first, second, other]
    matcher.remove(first)
    assert found(matcher, "aa") == [second]
    matcher.remove(second)
    assert found(matcher, "aa") == []
    assert found(matcher, "a") == [other]


def test_what_makes_others_backtrack_is_harmless() -> None:
    assert not matches("(a*)*(a*)*b", "a" * 255)


@pytest.mark.parametrize("text", ["", "plain", "a.b", ".*", "a{2}", "é|b", "\\", "[x]"])
def test_a_quoted_text_finds_itself_alone(text: str) -> None:
    quoted = compile_pattern(escape_pattern(text))
    assert quoted.fullmatch(text.encode()) is not None
    assert quoted.fullmatch(b"aab") is None


def test_the_engine_is_imported_when_it_is_needed() -> None:
    program = (
        "import sys; from recado.broker import access, vhost;"
        "access.PermissionChecker(access.User('u', permissions={'/': access.Permission('.*', '', '^$')}), '/');"
        "assert 're2' not in sys.modules; access.Permission('a');"
        "assert 're2' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


# ── patterns of names ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("pattern", "found", "missed"),
    [
        ("", ["", "a"], []),
        ("a", ["a", "bab"], ["b"]),
        (r"^(?!amq\.).*", ["", "a", "amqp", "x.amq."], ["amq.", "amq.gen-1"]),
        (r"^(?!amq\.)(?=.*orders)", ["my-orders"], ["amq.orders", "mine"]),
        ("^(?!a|b)", ["c", ""], ["a", "b"]),
        ("^(?!a)(x|y)", ["x"], ["a", "z"]),
        (r"^(?!(a|b)\))[a-z]", ["ab", "ax)"], ["a)", "b)"]),
        ("^(?![)(|]a)b?", ["a", "ba"], [")a", "|a"]),
        ("^(?![]^)]a)", ["b"], ["]a", "^a"]),
        ("^(?![^)]a)", [")a"], ["ba"]),
        ("^(?![^])a])", [")a"], ["ba"]),
        (r"^(?![\])])", ["a"], ["]", ")"]),
        ("^(?![[:digit:])])", ["a"], ["1", ")"]),
        ("^(?![[:])", ["a"], ["[", ":"]),
        ("^(?!é)", ["e"], ["éa"]),
        ("^(?=a)a$", ["a"], ["ab"]),
    ],
)
def test_names_that_a_pattern_finds(pattern: str, found: list[str], missed: list[str]) -> None:
    finds = compile_name_pattern(pattern)
    assert [name for name in found if not finds(name)] == []
    assert [name for name in missed if finds(name)] == []


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        "^(?!a",
        "^(?!(a)",
        "^(?![a)",
        "(?!a)b",  # not at the start
        "^(?!a)b|c",
        "^(?!a(?!b))",
        "^(?!a)*",
        "^(?!a" + "b" * MAX_PATTERN_BYTES + ")",
    ],
)
def test_patterns_that_cannot_be(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        compile_name_pattern(pattern)


NAMES = st.text(st.sampled_from("ab|()[]^.\\"), max_size=6)


@given(ahead=NAMES, rest=NAMES, name=NAMES, wanted=st.booleans())
def test_looking_ahead_is_what_python_takes_it_for(
    ahead: str, rest: str, name: str, wanted: bool
) -> None:
    pattern = f"^(?{'=' if wanted else '!'}{ahead}){rest}"
    try:
        finds = compile_name_pattern(pattern)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # reserved for later meanings
            expected = re.search(pattern, name) is not None
    except (ValueError, re.error):
        return  # the two engines refuse different patterns
    assert finds(name) == expected


# ── sets ────────────────────────────────────────────────────────────────────────────────────────


def test_many_patterns_are_matched_in_sets() -> None:
    """One by one they take 8 ms per key; a set is one step."""
    matcher: PatternMatcher[str] = PatternMatcher()
    bindings = [bind(f"x{i}.*[a-z]+y", i) for i in range(4500)]
    for binding in bindings:
        matcher.add(binding)
    assert len(matcher._singles) < 100
    assert len(matcher._sets) < 150
    assert found(matcher, "x7zzzy") == [bindings[7]]
    assert found(matcher, "x7zzz") == []
    assert len(list(matcher.search("x7zzzy", {}, {}))) < 250


def test_a_match_is_charged_its_worst_case_and_no_more_at_a_time() -> None:
    matcher: PatternMatcher[str] = PatternMatcher()
    for i in range(2000):
        matcher.add(bind(f".*{i}", i))
    steps = list(matcher.search("k" * 255, {}, {}))
    assert sum(steps) >= matcher._instructions * 255 // module._MATCH_STEPS_PER_UNIT
    assert max(steps) <= 1 + module._SET_INSTRUCTIONS_MAX * 255 // module._MATCH_STEPS_PER_UNIT


def test_what_was_removed_from_a_set_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SET_INSTRUCTIONS_MAX", 100)
    matcher: PatternMatcher[str] = PatternMatcher()
    bindings = [bind(f"a{{0,{i}}}", i) for i in range(1, 12)]
    for binding in bindings:
        matcher.add(binding)
    (group,) = matcher._sets
    matcher.remove(bindings[0])
    assert matcher._sets == {group: None}
    assert {*found(matcher, "a")} == {*bindings[1:]}


def test_a_set_of_which_half_is_gone_is_broken_up() -> None:
    matcher: PatternMatcher[str] = PatternMatcher()
    bindings = [bind(f"{i}a*", i) for i in range(1000)]
    for binding in bindings:
        matcher.add(binding)
    for binding in bindings[::2] + bindings[1:960:2]:
        matcher.remove(binding)
    assert sum(len(group.entries) for group in matcher._sets) <= 2 * 40 + 1
    assert [found(matcher, f"{i}aa") for i in (0, 1, 961)] == [[], [], [bindings[961]]]
    for binding in bindings[961::2]:
        matcher.remove(binding)
    assert not matcher._sets
    assert not matcher._singles
    assert matcher._instructions == matcher._single_instructions == 0


texts = st.sampled_from(
    ["a", "b", "a|b", "a*", "(ab)*", ".", ".*", "[ab]+", "", "^a", "b$", "a{2}"]
)


@given(
    st.lists(texts, max_size=12),
    st.lists(st.integers(0, 11), max_size=12),
    st.lists(st.text("ab", max_size=4), max_size=4),
)
def test_sets_agree_with_single_patterns(
    bound: list[str], removed: list[int], published: list[str]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_SET_INSTRUCTIONS_MAX", 25)
        matcher: PatternMatcher[str] = PatternMatcher()
        bindings = [bind(text, serial) for serial, text in enumerate(bound)]
        for binding in bindings:
            matcher.add(binding)
        for serial in dict.fromkeys(removed):
            for binding in [each for each in bindings if each.serial == serial]:
                matcher.remove(binding)
                bindings.remove(binding)
        for key in published:
            expected = {
                each
                for each in bindings
                if compile_pattern(each.routing_key).fullmatch(key.encode())
            }
            assert {*found(matcher, key)} == expected


def test_a_pattern_that_becomes_part_of_a_set_meanwhile_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_SET_INSTRUCTIONS_MAX", 25)
    matcher: PatternMatcher[str] = PatternMatcher()
    bindings = [bind(f"a{{0,{i}}}", i) for i in range(1, 8)]
    for binding in bindings:
        matcher.add(binding)
    assert matcher._sets
    assert matcher._singles
    taken: dict[Binding[str], None] = {}
    work = StepTask(matcher.search("a", {}, taken))
    work.advance(1)
    for i in range(10, 20):
        matcher.add(bind(f"b{{0,{i}}}", i))
    while not work.is_done:
        work.advance(1)
    assert {*taken} >= {*bindings}
