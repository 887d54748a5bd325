"""Who is told when what is durable."""

import pytest

from recado.server.ledger.tickets import Later, Tickets


class Listener:
    def __init__(self, failure: Exception | None = None) -> None:
        self.told = 0
        self._failure = failure

    def kept(self) -> None:
        self.told += 1
        if self._failure is not None:
            raise self._failure


def test_one_who_fails_does_not_keep_it_from_the_others() -> None:
    tickets = Tickets()
    listeners = [Listener(), Listener(ValueError("1")), Listener(ValueError("2")), Listener()]
    for each in listeners:
        tickets.tell(each)
    ticket = tickets.next_ticket()
    late = Listener()
    tickets.tell(late)
    with pytest.raises(ValueError, match="1"):
        tickets.reached(ticket)
    assert [each.told for each in listeners] == [1, 1, 1, 1]
    assert late.told == 0
    tickets.reached(tickets.next_ticket())
    assert [each.told for each in (*listeners, late)] == [1, 1, 1, 1, 1]


def test_what_is_for_later_is_done_once_all_before_it_is_safe() -> None:
    tickets = Tickets()
    later = Later(tickets)
    done: list[str] = []
    later.add(lambda: done.append("a"))
    first = tickets.next_ticket()
    later.add(lambda: done.append("b"))
    tickets.reached(first)
    assert done == ["a"]
    assert later
    tickets.reached(tickets.next_ticket())
    assert done == ["a", "b"]
    assert not later
