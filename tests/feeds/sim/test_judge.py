"""The judge of the simulated feed, and doctored histories: beside what is wrong, the nearest thing allowed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import pytest

from bench.feeds_sim import history as h
from bench.feeds_sim.history import Incarnation, Mark, Policy
from bench.feeds_sim.judge import judge
from bench.feeds_sim.verdict import Rule

Part: TypeAlias = h.AnyEvent | Sequence[h.AnyEvent]

S1, S2, T1 = ("s", 1), ("s", 2), ("t", 1)
MEMBERS = (S1, T1)


def published(upto: int = 9, publisher: str = "p", first: int = 1) -> h.Published:
    return h.Published(0, publisher, first, tuple(range(first, upto + 1)))


def began(
    incarnation: Incarnation = S1,
    policy: Policy = Policy.VECTOR,
    vector: dict[str, int] | None = None,
    **qualities: Any,
) -> list[h.AnyEvent]:
    """And in a view at once."""
    begins = h.Began(0, incarnation, policy, vector or {}, **qualities)
    return [begins, viewed(incarnation, members=(incarnation,))]


def viewed(
    incarnation: Incarnation = S1,
    view: str | None = None,
    cut: dict[str, int] | None = None,
    members: tuple[Incarnation, ...] = MEMBERS,
    archives: int = 3,
) -> h.Installed:
    return h.Installed(0, incarnation, view or f"1 {incarnation}", members, archives, cut or {})


def got(
    *sequences: int,
    incarnation: Incarnation = S1,
    mark: Mark = Mark.LIVE,
    publisher: str = "p",
    view: str | None = None,
) -> list[h.AnyEvent]:
    """One by one; the content of a message is its sequence."""
    return [
        h.Delivered(0, incarnation, publisher, each, (each,), view or f"1 {incarnation}", mark)
        for each in sequences
    ]


def kept(*archives: str, upto: int = 9, publisher: str = "p") -> list[h.AnyEvent]:
    return [h.Kept(0, archive, publisher, 1, upto) for archive in archives]


def archive_has(archive: str, *sequences: int, publisher: str = "p") -> h.ArchiveRead:
    return h.ArchiveRead(0, archive, tuple((publisher, each, each, "1") for each in sequences))


def broken(*parts: Part) -> list[Rule]:
    events: list[h.AnyEvent] = []
    for part in parts:
        events += [part] if isinstance(part, h.Event) else part
    return [violation.rule for violation in judge(events).violations]


# ── deliveries to one incarnation ────────────────────────────────────────────────────────────────────────


def test_all_in_order_is_right() -> None:
    assert broken(published(), began(), got(1, 2, 3)) == []
    other = published(publisher="q")
    assert broken(published(), other, began(), got(1), got(1, 2, publisher="q"), got(2)) == []


def test_what_was_never_published_or_is_changed_is_not_intact() -> None:
    assert broken(published(2), began(), got(1, 2, 3)) == [Rule.INTACT]
    damaged = h.Delivered(0, S1, "p", 1, (77,), f"1 {S1}", Mark.LIVE)
    assert broken(published(2), began(), damaged) == [Rule.INTACT]
    assert broken(began(), got(1)) == [Rule.INTACT]


def test_order() -> None:
    assert broken(published(), began(), got(1, 2, 3, 2)) == [Rule.FIFO]
    assert broken(published(), began(), got(1, 2, 2)) == [Rule.REPEAT]
    assert broken(published(), began(), got(1, 3, 4)) == [Rule.GAP]


@pytest.mark.parametrize("policy", list(Policy))
def test_no_policy_allows_a_gap_within_a_incarnation(policy: Policy) -> None:
    assert broken(published(), began(policy=policy), got(1, 2, 3)) == []
    assert broken(published(), began(policy=policy), got(1, 3)) == [Rule.GAP]


# ── where an incarnation begins ───────────────────────────────────────────────────────────────────────────


def test_a_vector_is_followed_by_the_next_message() -> None:
    vector = {"p": 3}
    assert broken(published(), began(vector=vector), got(4, 5)) == []
    assert broken(published(), began(vector=vector), got(5)) == [Rule.GAP]
    assert broken(published(), began(vector=vector), got(3, 4)) == [Rule.REPEAT]
    assert broken(published(publisher="q"), began(vector=vector), got(2, publisher="q")) == [
        Rule.GAP
    ]


def test_a_vector_may_be_older_than_what_was_given_but_hides_no_gap() -> None:
    before = [published(), *began(), *got(1, 2, 3, 4, 5), h.Ended(0, S1)]
    again = began(S2, vector={"p": 2})
    assert broken(before, again, got(3, 4, 5, 6, incarnation=S2)) == []
    assert broken(before, again, got(6, incarnation=S2)) == [Rule.GAP]


def test_who_wants_nothing_resent_begins_anywhere_but_gets_nothing_twice() -> None:
    policy = Policy.NONE
    assert broken(published(), began(policy=policy), got(4, 5)) == []
    before = [published(), *began(), *got(1, 2, 3), h.Ended(0, S1)]
    assert broken(before, began(S2, policy), got(6, 7, incarnation=S2)) == []
    assert broken(before, began(S2, policy), got(3, 4, incarnation=S2)) == [Rule.REPEAT]


def test_what_was_not_confirmed_may_come_twice_if_it_is_sent_again() -> None:
    """To a subscriber without recovery, while it runs."""
    before = [published(), h.Confirmed(0, "p", 2), *began(), *got(1, 2, 3), h.Ended(0, S1)]
    again: list[h.AnyEvent] = [h.Began(1, S2, Policy.NONE, {}), viewed(S2, members=(S2,))]
    cast_again = h.CastAgain(2, "p")
    assert broken(before, again, cast_again, got(3, 4, incarnation=S2)) == []
    assert broken(before, again, cast_again, got(2, 3, incarnation=S2)) == [Rule.REPEAT], (
        "confirmed"
    )
    assert broken(before, h.CastAgain(0.5, "p"), again, got(3, 4, incarnation=S2)) == [Rule.REPEAT]
    assert broken(before, again, h.CastAgain(2, "q"), got(3, 4, incarnation=S2)) == [Rule.REPEAT]
    known = viewed(S2, "2", {"p": 3}, (S2, T1))
    late = got(3, 4, incarnation=S2, view="2")
    assert broken(before, again, known, cast_again, late) == [Rule.VIEWS], "a member has it"


def test_an_archive_need_not_know_what_an_excluded_subscriber_got() -> None:
    """Until the subscriber is in a view again, or if an archive has it in its view."""
    both, alone = (S1, ("a1", 1)), (("a1", 1),)
    before = [published(), *began(), viewed(("a1", 1), "1", members=both), *got(1)]
    excluded = [viewed(("a1", 1), "2", members=alone), *got(2)]
    missed = h.Classified(0, "a1", "s", "p", 2, 1, Mark.MISSED)
    assert broken(before, excluded, missed) == []
    again = [*began(S2, Policy.PESSIMISTIC), *got(2, incarnation=S2, mark=Mark.MISSED)]
    assert broken(before, excluded, h.Ended(0, S1), again) == []
    earlier = h.Classified(0, "a1", "s", "p", 1, 1, Mark.MISSED)
    assert broken(before, excluded, earlier) == [Rule.CERTAINTY]
    with_another = viewed(("a2", 1), "1", members=(S1, ("a2", 1)))
    assert Rule.CERTAINTY in broken(before, with_another, excluded, missed)
    returned = viewed(S1, "3", {"p": 2}, both)
    assert Rule.CERTAINTY in broken(before, excluded, returned, missed)
    unknown = [published(), *began(), viewed(("a1", 1), "2", members=alone), *got(1, 2)]
    assert Rule.CERTAINTY in broken(unknown, missed), "it was never in a view with an archive"


@pytest.mark.parametrize("policy", [Policy.PESSIMISTIC, Policy.ARCHIVE])
def test_the_pessimist_has_no_gap_and_repeats_are_uncertain(policy: Policy) -> None:
    before = [published(), *began(), *got(1, 2, 3), h.Ended(0, S1)]
    again = began(S2, policy)

    def second(*sequences: int, mark: Mark) -> list[h.AnyEvent]:
        return got(*sequences, incarnation=S2, mark=mark)

    assert broken(before, again, second(4, mark=Mark.MISSED), second(5, mark=Mark.LIVE)) == []
    assert broken(before, again, second(2, 3, 4, mark=Mark.UNCERTAIN)) == []
    assert broken(before, again, second(5, mark=Mark.MISSED)) == [Rule.GAP]
    assert broken(before, again, second(3, 4, mark=Mark.MISSED)) == [Rule.MARK]
    assert broken(before, again, second(3, mark=Mark.LIVE)) == [Rule.MARK]
    other = [published(publisher="q"), *got(2, publisher="q", incarnation=S2, mark=Mark.MISSED)]
    assert broken(before, again, other) == [Rule.GAP]


def test_who_never_began_at_the_beginning_has_no_claim_to_it() -> None:
    before = [published(), *began(policy=Policy.NONE), *got(4), h.Ended(0, S1)]
    again = began(S2, Policy.PESSIMISTIC)
    assert broken(before, again, got(5, incarnation=S2)) == []
    assert broken(before, again, got(6, incarnation=S2)) == [Rule.GAP]
    other = [published(publisher="q"), *got(2, publisher="q", incarnation=S2)]
    assert broken(before, again, other) == []


def test_what_an_earlier_life_was_given_is_no_gap_for_the_pessimist() -> None:
    """The second incarnation was told to repeat it, and did not come that far."""
    before = [published(), *began(), *got(1, 2, 3, 4, 5), h.Ended(0, S1)]
    second = [*began(S2, vector={"p": 2}), *got(3, incarnation=S2), h.Ended(0, S2)]
    third = began(("s", 3), Policy.PESSIMISTIC)
    assert broken(before, second, third, got(6, incarnation=("s", 3))) == []
    assert broken(before, second, third, got(7, incarnation=("s", 3))) == [Rule.GAP]


# ── certainty ─────────────────────────────────────────────────────────────────────────────────────


def test_nothing_that_was_given_is_missed() -> None:
    before = [published(), *began(), *got(1, 2, 3), h.Ended(0, S1)]
    again = began(S2, vector={"p": 2})
    assert broken(before, again, got(3, incarnation=S2, mark=Mark.UNCERTAIN)) == []
    assert broken(before, again, got(3, incarnation=S2, mark=Mark.MISSED)) == [Rule.CERTAINTY]


def test_what_an_archive_says_of_one_that_is_down() -> None:
    before = [published(), *began(), *got(1, 2, 3), h.Ended(0, S1)]

    def said(sequence: int, mark: Mark) -> list[Rule]:
        return broken(before, h.Classified(0, "a", "s", "p", sequence, 1, mark))

    assert said(3, Mark.DELIVERED) == said(4, Mark.MISSED) == []
    assert said(3, Mark.UNCERTAIN) == said(4, Mark.UNCERTAIN) == []
    assert said(4, Mark.DELIVERED) == said(3, Mark.MISSED) == [Rule.CERTAINTY]


# ── uniform delivery and total order ──────────────────────────────────────────────────────────────


def test_uniform_is_what_most_archives_have_on_disk_before() -> None:
    start = [published(), *began(uniform=True)]
    assert broken(start, kept("a", "b"), got(1)) == []
    assert broken(start, kept("a"), got(1)) == [Rule.UNIFORM]
    assert broken(start, kept("a"), got(1), kept("b")) == [Rule.UNIFORM]
    assert broken(start, kept("a", "b", upto=1), got(1, 2)) == [Rule.UNIFORM]
    assert broken(published(), began(), got(1)) == []
    many = [published(), *began(uniform=True, copies=3)]
    assert broken(many, kept("a", "b", "c"), got(1)) == []
    assert broken(many, kept("a", "b"), got(1)) == [Rule.UNIFORM]
    agreed = h.Agreed(0, S1, "2", 1)
    assert broken(start, kept("a"), agreed, got(1)) == []
    assert broken(start, kept("a"), got(1), agreed) == [Rule.UNIFORM]
    assert broken(start, agreed, got(1)) == [Rule.UNIFORM]
    assert broken(start, kept("a"), h.Agreed(0, S1, "1½", 3), agreed, got(1)) == [Rule.UNIFORM]
    later = [viewed(S1, "2", archives=1), viewed(S1, "3")]
    assert broken(start, kept("a"), agreed, later[0], got(1, view="2")) == []
    assert broken(start, kept("a"), agreed, later, got(1, view="3")) == [Rule.UNIFORM]


def test_total_order_is_that_of_all_in_a_view() -> None:
    start = [published(), published(publisher="q")]
    both = [*began(total=True), *began(T1, total=True)]
    views = [viewed(S1, "2"), viewed(T1, "2")]
    one = [*got(1, view="2"), *got(1, publisher="q", view="2"), *got(2, view="2")]
    same = [
        *got(1, incarnation=T1, view="2"),
        *got(1, publisher="q", incarnation=T1, view="2"),
        *got(2, incarnation=T1, view="2"),
    ]
    other = [
        *got(1, publisher="q", incarnation=T1, view="2"),
        *got(1, 2, incarnation=T1, view="2"),
    ]
    cut = {"p": 2, "q": 1}
    together = [viewed(S1, "3", cut), viewed(T1, "3", cut)]
    apart = [viewed(S1, "3", cut, (S1,)), viewed(T1, "4", cut, (T1,))]
    assert broken(start, both, views, one, same) == []
    assert broken(start, both, views, one, same[:1]) == []
    assert broken(start, both, views, one, other) == [Rule.TOTAL]
    assert broken(start, both, views, one, other, together) == [Rule.TOTAL]
    assert broken(start, both, views, one, other, apart) == []
    assert broken(start, both, views, one, h.Ended(0, S1), other) == []
    unordered = [*began(), *began(T1)]
    assert broken(start, unordered, views, one, other) == []


# ── views ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_view_is_the_same_for_all() -> None:
    start = [published(), *began(), *began(T1)]
    assert broken(start, viewed(S1, "2"), viewed(T1, "2")) == []
    assert broken(start, viewed(S1, "2"), viewed(T1, "2", {"p": 1})) == [Rule.VIEWS]
    assert broken(start, viewed(S1, "2"), viewed(T1, "2", members=(T1,))) == [Rule.VIEWS]
    assert broken(start, viewed(S1, "2", members=(T1,))) == [Rule.VIEWS]


def test_a_view_comes_behind_all_before_it_and_before_the_rest() -> None:
    start = [published(), *began(), *got(1, 2)]
    assert broken(start, viewed(S1, "2", {"p": 2}), got(3, view="2")) == []
    assert broken(start, viewed(S1, "2", {"p": 3})) == [Rule.VIEWS]
    assert broken(start, viewed(S1, "2", {"p": 1})) == [Rule.VIEWS]
    assert broken(start, viewed(S1, "2", {"p": 2}), got(3)) == [Rule.VIEWS]
    fresh = [published(), *began(), viewed(S1, "2", {"p": 2})]
    assert broken(fresh, got(1, 2, mark=Mark.MISSED, view="1"), got(3, view="2")) == []
    assert broken(fresh, got(1, 2, view="2")) == [Rule.VIEWS, Rule.VIEWS]
    assert broken(published(), h.Began(0, S1, Policy.NONE, {}), got(1)) == [Rule.VIEWS]


# ── the end ───────────────────────────────────────────────────────────────────────────────────────


def test_archives_have_all_once_in_order() -> None:
    assert broken(published(3), archive_has("a", 1, 2, 3)) == []
    assert broken(published(3), h.PublisherEnded(0, "p"), archive_has("a", 1, 3)) == [Rule.ARCHIVE]
    assert broken(published(3), archive_has("a", 1, 2, 2, 3)) == [Rule.ARCHIVE]
    assert broken(published(3), archive_has("a", 1, 2, 3, 4)) == [Rule.INTACT]


def test_what_is_on_disk_stays() -> None:
    ended = h.PublisherEnded(0, "p")
    assert broken(published(3), ended, kept("a", upto=2), archive_has("a", 1, 2)) == []
    assert broken(published(3), ended, kept("a", upto=2), archive_has("a", 1)) == [Rule.ARCHIVE]


def test_archives_end_alike() -> None:
    ended = h.PublisherEnded(0, "p")
    assert broken(published(3), ended, archive_has("a", 1, 2), archive_has("b", 1, 2)) == []
    assert broken(published(3), ended, archive_has("a", 1, 2), archive_has("b", 1)) == [
        Rule.CONVERGE
    ]


def test_archives_end_with_the_same_records() -> None:
    def recorded(archive: str, **facts: str) -> h.Recorded:
        return h.Recorded(0, archive, facts)

    one, other = recorded("a", view="s at p:1"), recorded("b", view="s at p:1")
    assert broken(one, other, recorded("c", view="s at p:1")) == []
    assert broken(one, other, recorded("c", view="s at p:2")) == [Rule.CONVERGE]
    assert broken(one, other, recorded("c")) == [Rule.CONVERGE]
    assert broken(recorded("c"), one, other) == [Rule.CONVERGE]
    assert broken(one, recorded("c", view="s at p:1", reach="p:1"), other) == [Rule.CONVERGE] * 2


def test_what_was_confirmed_or_is_with_a_living_publisher_is_archived() -> None:
    ended = h.PublisherEnded(0, "p")
    assert broken(published(3), ended, h.Confirmed(0, "p", 2), archive_has("a", 1, 2)) == []
    assert broken(published(3), ended, h.Confirmed(0, "p", 3), archive_has("a", 1, 2)) == [
        Rule.LOST
    ]
    assert broken(published(3), archive_has("a", 1, 2)) == [Rule.LOST]


def test_who_is_alive_has_all_in_the_end() -> None:
    content = archive_has("a", *range(1, 10))
    assert broken(published(), began(), got(*range(1, 10)), content) == []
    assert broken(published(), began(), got(*range(1, 9)), content) == [Rule.BEHIND]
    assert broken(published(), began(), got(1), h.Ended(0, S1), content) == []
    gave_up = h.GaveUp(11, S1, "no archive")
    assert broken(published(), began(), got(1), gave_up, content) == [Rule.BEHIND]
    assert broken(published(), began(), got(1), gave_up, h.Ended(0, S1), content) == []
    lenient = began(policy=Policy.NONE)
    assert broken(published(), lenient, content) == []
    assert broken(published(), lenient, got(5), content) == [Rule.BEHIND]
    late: list[h.AnyEvent] = [
        h.Settled(1),
        h.Published(2, "p", 10, (10,)),
        archive_has("a", *range(1, 11)),
    ]
    assert broken(published(), lenient, late) == [Rule.BEHIND]
    before = [published(), *began(), *got(*range(1, 10)), h.Ended(0, S1)]
    assert broken(before, began(S2, Policy.PESSIMISTIC), content) == []
    before = [published(), *began(), *got(*range(1, 9)), h.Ended(0, S1)]
    assert broken(before, began(S2, Policy.PESSIMISTIC), content) == [Rule.BEHIND]


def test_who_begins_when_all_is_well_does_not_give_up() -> None:
    early = [published(), *began(), *got(1)]
    late: list[h.AnyEvent] = [
        h.Settled(1),
        h.Began(1, S2, Policy.VECTOR, {"p": 1}),
        viewed(S2, members=(S2,)),
    ]
    gave_up, ended = h.GaveUp(12, S1, "no archive"), h.Ended(12, S1)
    assert broken(early, h.Settled(1), gave_up, ended) == []
    gave_up_late, ended_late = h.GaveUp(12, S2, "no archive"), h.Ended(12, S2)
    assert broken(early, h.Ended(0, S1), late, gave_up_late, ended_late) == [Rule.BEHIND]


def test_what_is_lost_is_told_and_really_lost() -> None:
    told = h.ToldLost(0, S1, "p", 2, 3)
    ended = h.PublisherEnded(0, "p")
    start = [published(), *began()]
    assert broken(start, got(1), told, got(4)) == []
    assert broken(start, told) == [Rule.GAP]
    assert broken(start, got(1, 2), told) == [Rule.REPEAT]
    content = h.ArchiveRead(0, "a", (("p", 1, 1, "1"), ("p", 4, 4, "1")), (("p", 2, 3),))
    assert broken(start, ended, got(1), told, got(4), content) == []
    assert broken(start, ended, got(1), told, got(4), archive_has("a", 1, 2, 3, 4)) == [Rule.LOST]
    confirmed = h.Confirmed(0, "p", 2)
    assert broken(start, confirmed, got(1), told) == [Rule.LOST]
    later = [*got(1), h.Ended(0, S1), *began(S2, Policy.PESSIMISTIC)]
    told_later = h.ToldLost(0, S2, "p", 2, 3)
    assert broken(start, later, told_later, got(4, incarnation=S2)) == []


def test_a_history_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="published 5 after 3"):
        broken(published(3), published(6, first=5))


# ── what was passed over ──────────────────────────────────────────────────────────────────────────


def test_what_comes_out_of_a_hole_comes_first() -> None:
    holes = {"p": ((2, 3),)}
    has = began(vector={"p": 5}, holes=holes)
    assert broken(published(), has, got(2, 3, 6)) == []
    assert broken(published(), has, got(6)) == []
    assert broken(published(), has, got(4)) == [Rule.REPEAT]
    assert broken(published(), has, got(6, 2)) == [Rule.FIFO]
    assert broken(published(), has, got(2, 2)) == [Rule.REPEAT]


def test_what_all_archives_had_comes_out_of_a_hole() -> None:
    archives = ("a1", "a2", "a3")
    contents = [archive_has(name, 1, 2, 3, 4, 5) for name in archives]
    has = began(vector={"p": 5}, holes={"p": ((2, 3),)})
    assert broken(published(5), kept(*archives, upto=5), has, got(2, 3), *contents) == []
    assert broken(published(5), kept(*archives, upto=5), has, got(3), *contents) == [Rule.BEHIND]
    assert broken(published(5), has, kept(*archives, upto=5), *contents) == []


def test_what_a_name_was_told_to_be_lost_it_may_get_later() -> None:
    first = [*began(), *got(1), h.ToldLost(0, S1, "p", 2, 3), *got(4), h.Ended(0, S1)]
    again = began(S2, Policy.PESSIMISTIC)
    missed = got(2, 3, incarnation=S2, mark=Mark.MISSED)
    assert broken(published(), first, again, missed, got(5, incarnation=S2)) == []
    assert broken(published(), first, again, missed, got(6, incarnation=S2)) == [Rule.GAP]


@pytest.mark.parametrize(
    ("policy", "archives", "rules"),
    [
        (Policy.NONE, 0, []),
        (Policy.NONE, 1, [Rule.LOST]),
        (Policy.VECTOR, 0, [Rule.LOST]),
    ],
)
def test_who_may_be_told_that_something_is_lost(
    policy: Policy, archives: int, rules: list[Rule]
) -> None:
    told = [h.Agreed(0, S1, "1", archives), *got(1), h.ToldLost(0, S1, "p", 2, 2), *got(3)]
    assert broken(published(3), began(policy=policy), told, archive_has("a", 1, 2, 3)) == rules


@pytest.mark.parametrize(
    ("began_at", "policy", "rules"),
    [(9, Policy.NONE, [Rule.HISTORY]), (3, Policy.NONE, []), (9, Policy.VECTOR, [])],
)
def test_without_recovery_nothing_comes_of_one_that_had_ended(
    began_at: float, policy: Policy, rules: list[Rule]
) -> None:
    ended = h.PublisherEnded(1, "p")
    begins = h.Began(began_at, S1, policy, {})
    assert broken(published(), ended, begins, viewed(members=(S1,)), got(1)) == rules


@pytest.mark.parametrize(
    ("stops", "lost_at", "rules"),
    [
        ([], 8.1, []),
        ([], 7.9, [Rule.EARLY]),
        ([(1, 11)], 12.0, [Rule.EARLY]),
        ([(1, 11)], 17.0, []),
        ([(1, 9), (2, 11)], 12.0, [Rule.EARLY]),
        ([(1, 30)], 14.0, []),  # all settle at 6
    ],
)
def test_an_archive_takes_for_lost_what_it_had_time_to_get(
    stops: list[tuple[float, float]], lost_at: float, rules: list[Rule]
) -> None:
    archive = ("a", 1)
    stopped = [h.Stopped(at, archive, until) for at, until in stops]
    settled = [h.Settled(6)] if (1, 30) in stops else []
    lost = h.RecordedLost(lost_at, archive, "p", 3, 4)
    assert broken(published(), h.PublisherEnded(0, "p"), stopped, settled, lost) == rules


def test_who_was_stopped_does_not_give_up_sooner() -> None:
    stopped = h.Stopped(2, S1, 12)
    assert broken(began(), stopped, h.GaveUp(13, S1, "")) == [Rule.EARLY]
    assert broken(began(), stopped, h.GaveUp(20, S1, "")) == []
    assert broken(began(), stopped, h.GaveUp(10, T1, "")) == [], "an archive may at any time"
