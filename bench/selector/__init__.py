"""The benchmark of selectors: evaluations per second, and robustness against any text.

    rate.py    evaluations per second, compared with simpleeval, which many Python programs use for such filters
    texts.py   a random text, and its checks
    fuzz.py    a million of them

`--seed` repeats a run, and `python -m bench.selector SEED NUMBER` repeats one text of it.
"""

from __future__ import annotations

from collections.abc import Iterator

from bench.book import Book
from bench.plan import Plan
from bench.selector import fuzz, rate

SCENARIOS = (*rate.SCENARIOS, *fuzz.SCENARIOS)


def run(plan: Plan, book: Book) -> Iterator[str]:
    """Take all samples; yield the name of each scenario when it is finished."""
    yield from rate.run(plan, book)
    yield from fuzz.run(plan, book)
