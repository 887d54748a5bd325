"""Which listeners are notified when an LSN becomes durable."""

import pytest

from recado.server.store.lsn import DeferredActions, LsnTracker


class Listener:
    def __init__(self, failure: Exception | None = None) -> None:
        self.told = 0
        self._failure = failure

    def on_durable(self) -> None:
        self.told += 1
        if self._failure is not None:
            raise self._failure


def test_a_failing_listener_does_not_prevent_other_notifications() -> None:
    lsns = LsnTracker()
    listeners = [Listener(), Listener(ValueError("1")), Listener(ValueError("2")), Listener()]
    for each in listeners:
        lsns.notify_when_durable(each)
    lsn = lsns.advance_lsn()
    late = Listener()
    lsns.notify_when_durable(late)
    with pytest.raises(ValueError, match="1"):
        lsns.mark_durable(lsn)
    assert [each.told for each in listeners] == [1, 1, 1, 1]
    assert late.told == 0
    lsns.mark_durable(lsns.advance_lsn())
    assert [each.told for each in (*listeners, late)] == [1, 1, 1, 1, 1]


def test_deferred_actions_run_once_earlier_operations_are_durable() -> None:
    lsns = LsnTracker()
    later = DeferredActions(lsns)
    done: list[str] = []
    later.add(lambda: done.append("a"))
    first = lsns.advance_lsn()
    later.add(lambda: done.append("b"))
    lsns.mark_durable(first)
    assert done == ["a"]
    assert later
    lsns.mark_durable(lsns.advance_lsn())
    assert done == ["a", "b"]
    assert not later
