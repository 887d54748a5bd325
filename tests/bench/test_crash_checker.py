"""The checker of the crash benchmark: histories made by hand, good ones and each kind of broken one.

A checker that finds nothing always passes; so every rule of its list has here what it must find, and,
right beside it, the nearest thing that it must allow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import pytest

from bench.crash import history as h
from bench.crash.checker import check
from bench.crash.verdict import Kind, Verdict

Part: TypeAlias = h.AnyEvent | Sequence[h.AnyEvent]

M1, M2, M3 = ("p", 1), ("p", 2), ("p", 3)


def sent(message: h.Message = M1, *queues: str, incarnation: int = 1, **facts: object) -> h.Sent:
    return h.Sent(incarnation, message, queues or ("q",), **facts)  # type: ignore[arg-type]


def got(
    message: h.Message = M1,
    queue: str = "q",
    *,
    incarnation: int = 1,
    by: str = "c",
    flag: bool = False,
) -> h.Delivered:
    return h.Delivered(incarnation, f"{by}-{incarnation}", queue, message, flag)


def taken(message: h.Message = M1, queue: str = "q", **facts: object) -> list[h.AnyEvent]:
    """Delivered, and acked at once."""
    return [got(message, queue, **facts), h.Acked(queue, message)]  # type: ignore[arg-type]


def kept(message: h.Message = M1, queue: str = "q") -> h.Kept:
    return h.Kept(queue, (message,))


def published(*messages: h.Message) -> list[h.AnyEvent]:
    """To `q`, in the first incarnation, with confirms."""
    events: list[h.AnyEvent] = []
    for message in messages:
        events += [sent(message), h.Confirmed(message)]
    return events


def crash(incarnation: int) -> list[h.AnyEvent]:
    """Before this incarnation."""
    return [h.Died(incarnation - 1), h.Began(incarnation)]


def judged(*parts: Part) -> Verdict:
    events: list[h.AnyEvent] = [h.Began(1)]
    for part in parts:
        events += [part] if isinstance(part, h.Event) else part
    return check(events)


def kinds(verdict: Verdict) -> list[Kind]:
    return [violation.kind for violation in verdict.violations]


def assert_fine(*parts: Part) -> Verdict:
    verdict = judged(*parts)
    assert verdict.violations == []
    return verdict


# ── C1: lost ──────────────────────────────────────────────────────────────────────────────────────


def test_a_quiet_life_is_fine() -> None:
    verdict = assert_fine(published(M1, M2), taken(M1), taken(M2))
    assert verdict.counts == {
        "incarnations": 1,
        "sent": 2,
        "confirmed": 2,
        "delivered": 2,
        "acked": 2,
    }


def test_what_was_confirmed_and_never_came_is_lost() -> None:
    verdict = judged(published(M1, M2), taken(M1))
    assert kinds(verdict) == [Kind.LOST]
    assert str(verdict.violations[0]) == "lost: p 2, sent to q in incarnation 1, never delivered"
    assert verdict.of(Kind.LOST) == verdict.violations
    assert verdict.of(Kind.TORN) == []


def test_what_was_delivered_and_not_acked_must_come_again() -> None:
    verdict = judged(published(M1), got(M1), crash(2))
    assert kinds(verdict) == [Kind.LOST]
    assert "not acked since incarnation 1" in verdict.violations[0].text
    assert_fine(published(M1), got(M1), crash(2), taken(M1, incarnation=2, flag=True))


def test_what_was_requeued_must_come_again() -> None:
    back = h.Requeued("q", M1)
    assert kinds(judged(published(M1), got(M1), back)) == [Kind.LOST]
    assert_fine(published(M1), got(M1), back, taken(M1, flag=True))


def test_every_queue_of_a_fan_out_gets_its_copy() -> None:
    events = [sent(M1, "q", "r"), h.Confirmed(M1), *taken(M1, "q")]
    verdict = judged(events)
    assert kinds(verdict) == [Kind.LOST]
    assert "sent to r" in verdict.violations[0].text
    assert_fine(events, taken(M1, "r"))


def test_what_was_not_confirmed_or_is_transient_may_be_lost() -> None:
    assert_fine(sent(M1))
    assert_fine(sent(M1, persistent=False), h.Confirmed(M1), crash(2))


def test_what_was_returned_is_confirmed_and_not_lost() -> None:
    assert_fine(sent(M1), h.Returned(M1), h.Confirmed(M1))


def test_whose_ack_was_lost_on_the_way_is_not_lost() -> None:
    assert_fine(published(M1), taken(M1), crash(2), got(M1, incarnation=2, flag=True), crash(3))


# ── C2, C3: phantoms and damage ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("before", "why"),
    [
        ([], "never sent"),
        ([sent(M1, "r")], "sent to r"),
        ([sent(M1), h.Refused(M1)], "refused"),
        ([sent(M1), h.Returned(M1)], "returned"),
        ([sent(M1), h.Returned(M1), h.Confirmed(M1)], "returned"),
        ([sent(M1, transaction=1)], "not committed"),
        ([sent(M1, transaction=1), h.RolledBack("p", 1)], "not committed"),
        ([sent(M1, transaction=1), h.CommitAsked("p", 2)], "not committed"),
        ([sent(M1, transaction=1), h.CommitAsked("o", 1)], "not committed"),
    ],
)
def test_phantoms(before: list[h.AnyEvent], why: str) -> None:
    verdict = judged(before, taken(M1))
    assert kinds(verdict) == [Kind.PHANTOM]
    assert why in verdict.violations[0].text


def test_a_transient_message_does_not_outlive_its_broker() -> None:
    passing = sent(M1, persistent=False)
    assert_fine(passing, taken(M1))
    assert kinds(judged(passing, crash(2), taken(M1, incarnation=2))) == [Kind.PHANTOM]


def test_what_was_not_confirmed_may_come_all_the_same() -> None:
    assert_fine(sent(M1), crash(2), taken(M1, incarnation=2))


def test_damage() -> None:
    assert kinds(judged(h.Damaged("q", "b'oops'"))) == [Kind.DAMAGED]


# ── C4: order ─────────────────────────────────────────────────────────────────────────────────────


def test_first_deliveries_are_in_order() -> None:
    verdict = judged(published(M1, M2), taken(M2), taken(M1))
    assert kinds(verdict) == [Kind.DISORDER]
    assert verdict.violations[0].text == "q gave p 1 to c-1 in incarnation 1 after number 2"


def test_a_gap_is_no_disorder() -> None:
    assert_fine(sent(M1), published(M2), sent(M3), taken(M2), taken(M3))


def test_publishers_queues_and_priorities_have_their_own_order() -> None:
    assert_fine(published(M2, ("o", 1)), taken(M2), taken(("o", 1)))
    both = [sent(M1, "q"), sent(M2, "r"), sent(M3, "q")]
    assert_fine(both, taken(M2, "r"), taken(M1, "q"), taken(M3, "q"))
    assert_fine(sent(M1), sent(M2, priority=1), taken(M2), taken(M1))


def test_what_two_consumers_get_is_not_compared() -> None:
    assert_fine(published(M1, M2), taken(M2, by="a"), taken(M1, by="b"))


def test_order_holds_over_lives() -> None:
    before = [*published(M1, M2), *taken(M2, by="a")]
    assert kinds(judged(before, crash(2), taken(M1, incarnation=2))) == [Kind.DISORDER]
    # M1 was on the way to somebody who could not read it any more.
    assert_fine(before, crash(2), taken(M1, incarnation=2, flag=True))


def test_what_comes_again_after_a_crash_is_in_order_too() -> None:
    before = [*published(M1, M2, M3), got(M1), got(M2), *crash(2)]
    again = [
        *taken(M2, incarnation=2, flag=True),
        *taken(M1, incarnation=2, flag=True),
        *taken(M3, incarnation=2),
    ]
    assert kinds(judged(before, again)) == [Kind.DISORDER]
    again = [
        *taken(M1, incarnation=2, flag=True),
        *taken(M2, incarnation=2, flag=True),
        *taken(M3, incarnation=2),
    ]
    assert_fine(before, again)


def test_what_was_requeued_may_come_late() -> None:
    assert_fine(
        published(M1, M2), got(M1), taken(M2), h.Requeued("q", M1), taken(M1, by="d", flag=True)
    )


def test_what_one_who_left_had_not_read_may_come_late() -> None:
    gone = h.Gone(1, "d-1", "q")
    assert_fine(published(M1, M2), taken(M2), gone, taken(M1, flag=True))
    verdict = judged(published(M1, M2, M3), gone, taken(M3), taken(M2), taken(M1, flag=True))
    assert kinds(verdict) == [Kind.DISORDER]


# ── C5: duplicates ────────────────────────────────────────────────────────────────────────────────


def test_what_somebody_has_is_not_given_to_another() -> None:
    verdict = judged(published(M1), got(M1), taken(M1, by="d", flag=True))
    assert kinds(verdict) == [Kind.DUPLICATE]
    assert "c-1 still has it" in verdict.violations[0].text


def test_what_was_acked_does_not_come_again_in_the_same_incarnation() -> None:
    verdict = judged(published(M1), taken(M1), taken(M1, flag=True))
    assert kinds(verdict) == [Kind.DUPLICATE]
    assert "c-1 settled it" in verdict.violations[0].text


def test_what_was_acked_may_come_again_when_the_ack_may_be_lost() -> None:
    verdict = assert_fine(published(M1), taken(M1), crash(2), taken(M1, incarnation=2, flag=True))
    assert verdict.counts["again"] == 1
    gone = h.Gone(1, "c-1", "q")
    verdict = assert_fine(published(M1), taken(M1), gone, taken(M1, by="d", flag=True))
    assert verdict.counts["again"] == 1


def test_what_was_acked_for_certain_does_not_come_again() -> None:
    verdict = judged(
        published(M1), taken(M1), kept(), crash(2), taken(M1, incarnation=2, flag=True)
    )
    assert kinds(verdict) == [Kind.DUPLICATE]
    assert "settled durably" in verdict.violations[0].text


def test_what_was_not_acked_comes_again_when_its_consumer_or_the_broker_went() -> None:
    verdict = assert_fine(published(M1), got(M1), crash(2), taken(M1, incarnation=2, flag=True))
    assert verdict.counts["again"] == 0
    assert_fine(published(M1), got(M1), h.Gone(1, "c-1", "q"), taken(M1, by="d", flag=True))


def test_that_another_consumer_went_is_no_reason() -> None:
    gone = h.Gone(1, "e-1", "q")
    verdict = judged(published(M1), got(M1), gone, taken(M1, by="d", flag=True))
    assert kinds(verdict) == [Kind.DUPLICATE]
    verdict = judged(published(M1), got(M1), h.Gone(1, "c-1", "r"), taken(M1, by="d", flag=True))
    assert kinds(verdict) == [Kind.DUPLICATE]


# ── C6: flags ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "between",
    [
        crash(2),
        [*crash(2), *crash(3)],
        [h.Requeued("q", M1)],
        [h.Gone(1, "c-1", "q")],
        [h.Acked("q", M1), *crash(2)],
    ],
)
def test_what_came_before_is_marked(between: list[h.AnyEvent]) -> None:
    incarnation = max([1, *(event.incarnation for event in between if isinstance(event, h.Began))])
    before = [*published(M1), got(M1), *between]
    assert kinds(judged(before, taken(M1, incarnation=incarnation, by="d"))) == [Kind.FLAG]
    assert_fine(before, taken(M1, incarnation=incarnation, by="d", flag=True))


def test_what_did_not_come_before_is_not_marked() -> None:
    assert kinds(judged(published(M1), taken(M1, flag=True))) == [Kind.FLAG]


def test_what_nobody_saw_may_be_marked() -> None:
    assert_fine(published(M1), crash(2), taken(M1, incarnation=2, flag=True))
    assert_fine(published(M1), h.Gone(1, "d-1", "q"), taken(M1, flag=True))


# ── C7: transactions ──────────────────────────────────────────────────────────────────────────────


def transaction(*ends: h.AnyEvent) -> list[h.AnyEvent]:
    """Two messages, of which the second goes to two queues."""
    return [sent(M1, "q", transaction=1), sent(M2, "q", "r", transaction=1), *ends]


ASKED, DONE = h.CommitAsked("p", 1), h.Committed("p", 1)
WHOLE = [*taken(M1), *taken(M2), *taken(M2, "r")]


def test_what_was_committed_arrives() -> None:
    assert_fine(transaction(ASKED, DONE), WHOLE)
    assert kinds(judged(transaction(ASKED, DONE))) == [Kind.LOST] * 3
    assert kinds(judged(transaction(ASKED, DONE), taken(M1), taken(M2))) == [Kind.LOST]


def test_of_what_may_be_committed_everything_arrives_or_nothing() -> None:
    assert_fine(transaction(ASKED), WHOLE)
    assert_fine(transaction(ASKED))
    assert kinds(judged(transaction(ASKED), taken(M1), taken(M2))) == [Kind.TORN]
    assert kinds(judged(transaction(ASKED), taken(M2, "r"))) == [Kind.TORN] * 2


def test_of_what_was_rolled_back_nothing_arrives() -> None:
    assert_fine(transaction(h.RolledBack("p", 1)))
    assert kinds(judged(transaction(h.RolledBack("p", 1)), taken(M2, "r"))) == [Kind.PHANTOM]


# ── dead letters ──────────────────────────────────────────────────────────────────────────────────

LETTERED = h.Lettered("q", "dead")
EXPIRING = h.Lettered("q", "dead", expires=True)
DIED: list[h.AnyEvent] = [got(M1), h.Rejected("q", M1)]


def test_the_dead_arrive_among_the_dead() -> None:
    assert_fine(LETTERED, published(M1), DIED, taken(M1, "dead"))
    assert kinds(judged(LETTERED, published(M1), DIED)) == [Kind.LOST]
    assert kinds(judged(LETTERED, published(M1), DIED, got(M1, "dead"))) == [Kind.LOST]


def test_only_the_dead_do() -> None:
    verdict = judged(LETTERED, published(M1), taken(M1), taken(M1, "dead"))
    assert kinds(verdict) == [Kind.PHANTOM]
    assert "did not die in q" in verdict.violations[0].text
    assert kinds(judged(LETTERED, sent(M1, "r"), taken(M1, "dead"))) == [Kind.PHANTOM]


def test_what_expires_dies_unseen() -> None:
    assert_fine(EXPIRING, published(M1), taken(M1, "dead"))
    assert kinds(judged(EXPIRING, published(M1))) == [Kind.LOST]


def test_the_dead_have_an_order_of_their_own() -> None:
    assert_fine(EXPIRING, published(M1, M2), taken(M2, "dead"), taken(M1, "dead"))


def test_a_message_dies_again_when_its_reject_was_lost_on_the_way() -> None:
    once: list[h.AnyEvent] = [
        LETTERED,
        *published(M1),
        *DIED,
        *taken(M1, "dead"),
        kept(M1, "dead"),
        *crash(2),
    ]
    twice = [*once, got(M1, incarnation=2, flag=True), h.Rejected("q", M1)]
    verdict = assert_fine(twice, taken(M1, "dead", incarnation=2))
    assert verdict.counts["again"] == 2
    # But no more often than it was rejected.
    thrice = [*twice, *taken(M1, "dead", incarnation=2), *taken(M1, "dead", incarnation=2)]
    assert kinds(judged(thrice)) == [Kind.DUPLICATE]
    assert kinds(judged(once, taken(M1, "dead", incarnation=2, flag=True))) == [Kind.DUPLICATE]


def test_a_message_that_expires_does_so_once_a_incarnation() -> None:
    once: list[h.AnyEvent] = [EXPIRING, *published(M1), *taken(M1, "dead"), kept(M1, "dead")]
    verdict = assert_fine(once, crash(2), taken(M1, "dead", incarnation=2))
    assert verdict.counts["again"] == 1
    assert kinds(judged(once, taken(M1, "dead"))) == [Kind.DUPLICATE]


# ── C8: topology ──────────────────────────────────────────────────────────────────────────────────


def test_topology() -> None:
    thing = "queue q"
    asked, there, gone = h.Asked(thing), h.Declared(thing), h.Deleted(thing)
    assert_fine(h.Missed(thing), asked, there, h.Found(thing), asked, gone, h.Missed(thing))
    assert_fine(asked, h.Missed(thing), asked, h.Found(thing))
    assert_fine(asked, there, asked, h.Missed(thing))
    assert kinds(judged(asked, there, h.Missed(thing))) == [Kind.TOPOLOGY]
    assert kinds(judged(asked, gone, h.Found(thing))) == [Kind.TOPOLOGY]
