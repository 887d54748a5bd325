"""LIKE, compared with regular expressions, and its running time."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recado.selector.pattern import PatternError, compile_matcher, parse_pattern

LETTERS = "ab"
texts = st.text(LETTERS + "é😀\n", max_size=12) | st.text(LETTERS, max_size=20)
patterns = st.text(LETTERS + "é😀%_", max_size=8) | st.text("ab_%", max_size=12)


@settings(max_examples=500)
@given(patterns, texts)
def test_it_finds_what_a_regular_expression_finds(pattern: str, text: str) -> None:
    parts = {"%": ".*", "_": "."}
    expected = re.fullmatch("".join(parts.get(each, each) for each in pattern), text, re.DOTALL)
    assert compile_matcher(parse_pattern(pattern, None))(text) is (expected is not None)


@given(st.text("ab%_!\\", max_size=8), st.sampled_from("!\\+"))
def test_written_again_it_means_the_same(pattern: str, escape: str) -> None:
    read = parse_pattern(pattern, None)
    assert parse_pattern(read.to_text(escape), escape) == read


@pytest.mark.parametrize(
    ("pattern", "escape", "text"),
    [
        ("50!%", "!", "50%"),
        ("a!_b", "!", "a_b"),
        ("!!", "!", "!"),
        ("aa%", "a", "a and more"),
        ("%%", None, ""),
        ("a%%%b", None, "ab"),
    ],
)
def test_escapes(pattern: str, escape: str | None, text: str) -> None:
    assert compile_matcher(parse_pattern(pattern, escape))(text)


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("%a_b%", "aaab", True),
        ("%a_é%", "aaab", False),
        ("%é_b%", "xé😀bx", True),
        ("%é_b%", "xé😀cb", False),
        ("%a_😀%", "aa_😀", True),
        ("%a_b%c_d%", "axbcxd", True),
        ("%a_b%c_d%", "cxdaxb", False),
        ("%a_b%", "a\udc80b", True),
        ("%a%__b__%", "axxbxx", True),
        ("%a%__b__%", "xbxxxa", False),  # too short behind the a
        ("a%_a_b_%b", "a_axb_b", True),
        ("a%_a_b_%b", "a_axbb", False),
    ],
)
def test_places(pattern: str, text: str, found: bool) -> None:
    assert compile_matcher(parse_pattern(pattern, None))(text) is found


@pytest.mark.parametrize("pattern", ["a!", "!a", "!!!"])
def test_an_escape_needs_something_to_escape(pattern: str) -> None:
    with pytest.raises(PatternError, match="behind the escape character !"):
        parse_pattern(pattern, "!")


@pytest.mark.parametrize(
    "pattern",
    [
        "%" + "a%" * 500 + "b%",
        "%" + "a" * 1000 + "b%",
        "%a" + "_" * 1900 + "b%",
        "%" + "a_" * 900 + "b%",
        "%" + "_" * 900 + "a" * 900 + "_b%",
        "%a_b" * 400 + "%",
        "%a_b" * 400 + "c",
    ],
)
def test_no_pattern_takes_long(pattern: str) -> None:
    """A regular expression that backtracks would take longer than we live, one that does not some minutes."""
    matches = compile_matcher(parse_pattern(pattern, None))
    for text in ("a" * (1 << 20), "aab" * (1 << 18), "é😀b" * (1 << 18), "ab" * (1 << 19)):
        begun = time.process_time()
        matches(text)
        assert time.process_time() - begun < 2
