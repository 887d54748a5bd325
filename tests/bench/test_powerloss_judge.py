"""The judge of the power-loss benchmark: what it adds to the checker of crashes, each rule broken and kept.

Right beside what it must find is the nearest thing that it must allow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, cast

import pytest

from bench.crash import history as h
from bench.crash.verdict import Kind, Verdict
from bench.powerloss import history as p
from bench.powerloss.judge import judge
from bench.powerloss.topology import RECEIPTS

Part: TypeAlias = h.Event | Sequence[h.Event]

M1, M2, M3 = ("p", 1), ("p", 2), ("p", 3)
RECEIPT = ("c-receipts", 1)


def sent(message: h.Message = M1, queue: str = "q", **facts: object) -> h.Sent:
    return h.Sent(1, message, (queue,), **facts)  # type: ignore[arg-type]


def published(*messages: h.Message, queue: str = "q") -> list[h.Event]:
    events: list[h.Event] = []
    for message in messages:
        events += [sent(message, queue), h.Confirmed(message)]
    return events


def got(
    message: h.Message = M1, queue: str = "q", *, incarnation: int = 1, flag: bool = False
) -> h.Delivered:
    return h.Delivered(incarnation, f"c-{incarnation}", queue, message, flag)


def taken(message: h.Message = M1, queue: str = "q", **facts: object) -> list[h.Event]:
    return [got(message, queue, **facts), h.Acked(queue, message)]  # type: ignore[arg-type]


def crash(incarnation: int = 2) -> list[h.Event]:
    return [h.Died(incarnation - 1), h.Began(incarnation)]


def shown(offset: int, message: h.Message, incarnation: int = 1) -> p.Shown:
    return p.Shown(incarnation, "s", offset, message)


SYNC = "sync"
"""Stands for a sync of all that is before it."""


def judged(*parts: Part | str) -> Verdict:
    events: list[h.Event] = [h.Began(1)]
    for part in parts:
        if isinstance(part, str):
            events.append(p.Synced(len(events)))
        else:
            events += [part] if isinstance(part, h.Event) else part
    return judge(cast(list[p.AnyEvent], events))


def kinds(*parts: Part | str) -> list[Kind]:
    return [violation.kind for violation in judged(*parts).violations]


# ── P1: what a sync covers ────────────────────────────────────────────────────────────────────────


def test_an_ack_that_no_sync_covered_may_be_forgotten() -> None:
    verdict = judged(published(M1), taken(), crash(), taken(incarnation=2))
    assert verdict.violations == []
    assert verdict.counts["again"] == 1


def test_an_ack_that_a_sync_covered_may_not() -> None:
    assert kinds(published(M1), taken(), SYNC, crash(), taken(incarnation=2, flag=True)) == [
        Kind.DUPLICATE
    ]


def test_a_sync_covers_what_was_before_it() -> None:
    covered = p.Synced(4)  # begun, sent, confirmed, delivered
    assert kinds(published(M1), taken(), covered, crash(), taken(incarnation=2, flag=True)) == []


def test_a_mark_that_no_sync_covered_may_be_forgotten() -> None:
    assert kinds(published(M1), got(), crash(), taken(incarnation=2)) == []
    assert kinds(published(M1), got(), SYNC, crash(), taken(incarnation=2)) == [Kind.FLAG]
    assert kinds(published(M1), got(), SYNC, crash(), taken(incarnation=2, flag=True)) == []


def test_who_need_not_ack_leaves_no_mark() -> None:
    delivered = [got(), p.Unmarked("q", M1), h.Acked("q", M1)]
    forgotten = p.Synced(4)
    assert kinds(published(M1), delivered, forgotten, crash(), taken(incarnation=2)) == []


def test_what_nobody_was_given_is_not_marked() -> None:
    assert kinds(published(M1), crash(), taken(incarnation=2, flag=True)) == [Kind.FLAG]


def test_what_is_forgotten_comes_again_in_order() -> None:
    both = [got(M1), got(M2)]
    again = [*taken(M1, incarnation=2), *taken(M2, incarnation=2)]
    assert kinds(published(M1, M2), both, crash(), again) == []
    assert kinds(published(M1, M2), got(M2), SYNC, crash(), taken(M1, incarnation=2)) == [
        Kind.DISORDER,
        Kind.LOST,
    ]


def test_a_queue_without_an_order() -> None:
    mixed = [*taken(M2), *taken(M1)]
    assert kinds(published(M1, M2), mixed) == [Kind.DISORDER]
    assert kinds(p.Trait("q", unordered=True), published(M1, M2), mixed) == []


def test_a_rejected_message_may_come_again_with_at_least_once_dead_letters() -> None:
    rejected = [got(), h.Rejected("q", M1)]
    again = taken(incarnation=2, flag=True)
    assert kinds(published(M1), rejected, SYNC, crash(), again) == [Kind.DUPLICATE]
    at_least_once = p.Trait("q", at_least_once=True)
    assert kinds(at_least_once, published(M1), rejected, SYNC, crash(), again) == []


@pytest.mark.parametrize(("incarnations", "fine"), [(2, True), (1, False)])
def test_what_dies_by_itself_may_do_so_once_in_each_incarnation(
    incarnations: int, fine: bool
) -> None:
    history: list[Part] = [h.Lettered("q", "dead", expires=True), published(M1)]
    if incarnations == 2:
        history.append(crash())
    twice = [
        *taken(M1, "dead", incarnation=incarnations),
        *taken(M1, "dead", incarnation=incarnations),
    ]
    assert kinds(*history, twice) == ([] if fine else [Kind.DUPLICATE])


# ── P2: purges, and queues of the same name ───────────────────────────────────────────────────────


def test_a_purge_excuses_what_was_there() -> None:
    assert kinds(published(M1)) == [Kind.LOST]
    assert kinds(published(M1), p.PurgeAsked("q")) == []
    assert kinds(published(M1), p.PurgeAsked("q"), p.Purged("q")) == []
    assert kinds(p.PurgeAsked("q"), p.Purged("q"), published(M1)) == [Kind.LOST]


def test_what_was_purged_never_comes_once_that_was_answered() -> None:
    asked, answered = p.PurgeAsked("q"), p.Purged("q")
    assert kinds(published(M1), asked, crash(), taken(incarnation=2)) == []
    assert kinds(published(M1), asked, answered, crash(), taken(incarnation=2)) == [Kind.PHANTOM]


def test_what_somebody_has_is_not_purged() -> None:
    purge = [p.PurgeAsked("q"), p.Purged("q")]
    assert kinds(published(M1), got(), purge, crash(), taken(incarnation=2)) == []
    returned = [got(), h.Requeued("q", M1)]
    assert kinds(published(M1), returned, purge, crash(), taken(incarnation=2)) == [Kind.PHANTOM]


def test_what_was_acked_is_not_purged() -> None:
    """A purge that finds nothing waits for nothing."""
    gone = h.Gone(1, "c-1", "q")
    purge = [p.PurgeAsked("q"), p.Purged("q")]
    assert (
        kinds(published(M1), taken(), gone, purge, crash(), taken(incarnation=2, flag=True)) == []
    )
    assert kinds(published(M1), got(), gone, purge, crash(), taken(incarnation=2, flag=True)) == [
        Kind.PHANTOM
    ]


def test_what_went_with_its_queue_is_excused() -> None:
    declared: list[h.Event] = [h.Asked("queue q#1"), h.Declared("queue q#1")]
    deletion = h.Asked("queue q#1")
    messages = published(M1, queue="q#1")
    assert kinds(declared, messages, deletion, h.Deleted("queue q#1")) == []
    assert kinds(declared, messages, deletion, crash(), h.Missed("queue q#1")) == []
    found = h.Found("queue q#1")
    assert kinds(declared, messages, deletion, crash(), found) == [Kind.LOST]
    assert kinds(declared, messages, crash(), h.Missed("queue q#1")) == [Kind.TOPOLOGY]


def test_what_was_found_once_stays() -> None:
    asked = h.Asked("queue q#1")
    found, missed = h.Found("queue q#1"), h.Missed("queue q#1")
    assert kinds(asked, crash(), found, crash(3), missed) == [Kind.TOPOLOGY]
    assert kinds(asked, crash(), missed, crash(3), found) == [Kind.TOPOLOGY]


# ── P3: transactions ──────────────────────────────────────────────────────────────────────────────


def transaction(*messages: h.Message, answered: bool) -> list[h.Event]:
    events: list[h.Event] = [sent(each, transaction=1) for each in messages]
    events.append(h.CommitAsked("p", 1))
    return [*events, h.Committed("p", 1)] if answered else events


def test_a_transaction_that_nobody_answered_is_lost_as_a_whole() -> None:
    asked = transaction(M1, M2, answered=False)
    assert kinds(asked, crash()) == []
    assert kinds(asked, got(M1), crash()) == [], "what was delivered had no promise"
    assert kinds(asked, crash(), taken(M1, incarnation=2), taken(M2, incarnation=2)) == []
    assert kinds(asked, crash(), taken(M1, incarnation=2)) == [Kind.TORN]
    assert kinds(transaction(M1, answered=True), crash()) == [Kind.LOST]


def test_acks_and_receipt_stay_together() -> None:
    before = [*transaction(M1, answered=True), *taken()]
    commit: list[h.Event] = [
        h.Sent(1, RECEIPT, (RECEIPTS,), transaction=1),
        p.Receipted("q", (M1,), RECEIPT),
        h.CommitAsked("c-receipts", 1),
    ]
    receipt = taken(RECEIPT, RECEIPTS, incarnation=2)
    again = taken(incarnation=2, flag=True)
    assert kinds(before, commit, crash(), receipt) == []
    assert kinds(before, commit, crash(), again) == []
    assert kinds(before, commit, crash(), receipt, again) == [Kind.TORN]
    assert kinds(before, commit, crash()) == [Kind.TORN]


def test_what_was_lost_with_its_own_transaction_leaves_no_ack_behind() -> None:
    before = [*transaction(M1, answered=False), *taken()]
    receipt = h.Sent(1, RECEIPT, (RECEIPTS,), transaction=1)
    commit = [receipt, p.Receipted("q", (M1,), RECEIPT), h.CommitAsked("c-receipts", 1)]
    assert kinds(before, commit, crash()) == []


# ── P4: streams ───────────────────────────────────────────────────────────────────────────────────


def test_offsets_stand_for_one_message() -> None:
    two = published(M1, M2, queue="s")
    fine = [shown(0, M1), shown(1, M2)]
    assert kinds(two, fine, crash(), shown(0, M1, 2), shown(1, M2, 2)) == []
    assert kinds(two, fine, crash(), shown(0, M2, 2)) == [Kind.DUPLICATE, Kind.DUPLICATE]


def test_a_stream_has_no_gaps() -> None:
    three = published(M1, M2, M3, queue="s")
    gap = [shown(0, M1), shown(2, M3)]
    assert kinds(three, gap) == [Kind.LOST, Kind.LOST]
    assert Kind.LOST in kinds(p.Trait("s", trimmed=True), three, gap), "only before the first"
    assert kinds(p.Trait("s", trimmed=True), three, shown(1, M2), shown(2, M3)) == []
    assert kinds(p.Trait("s", trimmed=True), three) == [Kind.LOST] * 3, "the last stays"


def test_a_stream_shows_only_what_was_sent_to_it() -> None:
    assert kinds(shown(0, M1)) == [Kind.PHANTOM]
    assert kinds(sent(M1, "s"), h.Refused(M1), shown(0, M1)) == [Kind.PHANTOM]


def test_letters_may_come_twice_into_a_stream() -> None:
    twice = [got(), h.Rejected("q", M1), shown(0, M1), shown(1, M1)]
    assert kinds(h.Lettered("q", "s"), published(M1), twice) == []
    assert kinds(published(M1, queue="s"), shown(0, M1), shown(1, M1)) == [Kind.DUPLICATE]


# ── P5: what was to be remembered ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("found", "fine"), [(0, False), (1, True), (2, True), (3, False)])
def test_notes(found: int, fine: bool) -> None:
    told = [p.Noted("n", 1), p.NoteKept("n", 1), p.Noted("n", 2)]
    assert kinds(told, crash(), p.NoteFound("n", found)) == ([] if fine else [Kind.TOPOLOGY])


def test_what_was_found_of_a_note_stays() -> None:
    told = [p.Noted("n", 1), *crash(), p.NoteFound("n", 1), *crash(3), p.NoteFound("n", 0)]
    assert kinds(told) == [Kind.TOPOLOGY]


# ── duplicates that were sent on purpose ──────────────────────────────────────────────────────────


def test_what_is_sent_again_is_taken_once() -> None:
    again = [p.Resent(1, M1), h.Confirmed(M1)]
    assert kinds(published(M1), again, taken()) == []
    assert kinds(published(M1), taken(), again, got()) == [Kind.DUPLICATE]
    assert kinds(published(M1), again) == [Kind.LOST]


def test_what_is_sent_again_after_a_crash_may_be_transient() -> None:
    fleeting = [sent(persistent=False), *crash()]
    assert kinds(fleeting, taken(incarnation=2)) == [Kind.PHANTOM]
    assert kinds(fleeting, p.Resent(2, M1), taken(incarnation=2)) == []
