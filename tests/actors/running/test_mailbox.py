"""Mailboxes: what was put is got once, in order."""

from __future__ import annotations

from collections import deque
from queue import Empty

from hypothesis import given
from hypothesis import strategies as st

from recado.actors.running.mailbox import Ahead, Letter, Unbounded, emptied

steps = st.lists(st.just("put") | st.just("get") | st.integers(0, 3), max_size=50)


@given(steps)
def test_what_is_put_back_is_before_what_was_put(steps: list[str | int]) -> None:  # MB1
    mailbox, model, number = Ahead(Unbounded()), deque[Letter](), 0
    for step in steps:
        number += 10
        if step == "put":
            mailbox.put((number, None, None))
            model.append((number, None, None))
        elif step == "get":
            try:
                assert mailbox.get_nowait() == model.popleft()
            except (Empty, IndexError):
                assert not model
        else:
            letters: list[Letter] = [(number + n, None, None) for n in range(int(step))]
            mailbox.put_first(letters)
            model.extendleft(reversed(letters))
        assert mailbox.qsize() == len(model)
    assert emptied(mailbox) == list(model)
    assert emptied(mailbox) == []
