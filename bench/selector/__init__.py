"""The benchmark of selectors: how many messages one is asked about in a second, and what no text can do to it.

    rate.py    evaluations a second, beside simpleeval, which many Python programs use for such filters
    texts.py   a text at random, and what became of it
    fuzz.py    a million of them

`--seed` repeats a run, and `python -m bench.selector SEED NUMBER` shows one text of it again.
"""

from __future__ import annotations

from collections.abc import Iterator

from bench.book import Book
from bench.plan import Plan
from bench.selector import fuzz, rate

SCENARIOS = (*rate.SCENARIOS, *fuzz.SCENARIOS)


def run(plan: Plan, book: Book) -> Iterator[str]:
    """Takes all samples; yields the name of each scenario when it is finished."""
    yield from rate.run(plan, book)
    yield from fuzz.run(plan, book)
