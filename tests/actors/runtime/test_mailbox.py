"""Mailboxes: every envelope is returned once, in order."""

from __future__ import annotations

from collections import deque
from queue import Empty

from hypothesis import given
from hypothesis import strategies as st

from recado.actors.runtime.mailbox import MessageEnvelope, RequeueMailbox, UnboundedMailbox, drain

steps = st.lists(st.just("put") | st.just("get") | st.integers(0, 3), max_size=50)


@given(steps)
def test_what_is_put_back_is_before_what_was_put(steps: list[str | int]) -> None:  # MB1
    mailbox, model, number = RequeueMailbox(UnboundedMailbox()), deque[MessageEnvelope](), 0
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
            envelopes: list[MessageEnvelope] = [(number + n, None, None) for n in range(int(step))]
            mailbox.requeue(envelopes)
            model.extendleft(reversed(envelopes))
        assert mailbox.qsize() == len(model)
    assert drain(mailbox) == list(model)
    assert drain(mailbox) == []
