"""The judge of the siege of feeds: each rule finds a planted violation, and what is allowed passes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from bench.feeds_siege import diary
from bench.feeds_siege.diary import (
    FOREVER,
    UNKNOWN,
    Diary,
    Got,
    Incarnation,
    Interval,
    Lost,
    Published,
    Saved,
    Sequences,
    ViewSeen,
    sequences_of,
)
from bench.feeds_siege.judge import (
    REUNION_S,
    Archived,
    Classes,
    Evidence,
    Kind,
    Recovery,
    Subscriber,
    judge,
)

P, Q = bytes(16), bytes([1] * 16)
NOW = 100.0
PUBLISHED = Published(tried={P: 5}, confirmed={P: 3}, confirmations={P: [(NOW + 5, 3)]})
"""Of P three messages were confirmed at NOW + 5, and two more were tried."""
OWED: Sequences = {P: {1, 2, 3}}


def got(first: int, last: int, certainty: str = "live", at: float = NOW) -> Got:
    return Got(at, P, first, last, certainty)


def incarnation(
    *events: Got | Lost | ViewSeen,
    born: float = NOW - 1,
    ended: float = NOW + 1,
    vector: Saved | None = None,
) -> Incarnation:
    return Incarnation(born, vector or Saved(), born, list(events), ended=ended)


def found(
    recovery: Recovery,
    *incarnations: Incarnation,
    owed: Sequences = OWED,
    interruptions: Sequence[Interval] = (),
    archives: Sequence[Archived] = (),
) -> list[Kind]:
    subscriber = Subscriber("desk", recovery, incarnations)
    evidence = Evidence(PUBLISHED, owed, [subscriber], archives, {"desk": interruptions})
    return sorted({each.kind for each in judge(evidence).violations}, key=lambda kind: kind.name)


def test_a_run_without_faults_passes() -> None:
    assert found(Recovery.ARCHIVES, incarnation(got(1, 3))) == []
    assert found(Recovery.SAVED, incarnation(got(1, 5))) == []  # unconfirmed messages may come
    assert (
        found(Recovery.SAVED, incarnation(got(1, 2)), incarnation(got(2, 3), vector=Saved({P: 1})))
        == []
    )
    assert (
        found(
            Recovery.ARCHIVES,
            incarnation(got(1, 2)),
            incarnation(got(2, 2, "uncertain"), got(3, 3)),
        )
        == []
    )
    assert found(Recovery.ARCHIVES, incarnation(got(1, 2)), incarnation(got(3, 3, "missed"))) == []
    assert found(Recovery.NONE, incarnation(got(2, 2))) == []  # it began in the middle
    assert (
        found(
            Recovery.COMMITTED, incarnation(got(1, 2)), incarnation(got(3, 3), vector=Saved({P: 2}))
        )
        == []
    )


def test_lost() -> None:
    assert found(Recovery.ARCHIVES, incarnation(got(1, 2))) == [Kind.LOST]
    assert found(Recovery.SAVED, incarnation(got(1, 2))) == [Kind.LOST]
    assert found(Recovery.COMMITTED, incarnation(got(1, 2))) == [Kind.LOST]
    assert found(Recovery.ARCHIVES, incarnation(got(1, 2)), owed={P: {1, 2}}) == []


def test_phantom() -> None:
    assert found(Recovery.SAVED, incarnation(got(1, 6))) == [Kind.PHANTOM]
    broken = Got(NOW, P, 3, 3, whole=False)
    assert found(Recovery.SAVED, incarnation(got(1, 2), broken)) == [Kind.PHANTOM]


def test_disorder() -> None:
    assert Kind.DISORDER in found(Recovery.SAVED, incarnation(got(1, 1), got(3, 3), got(2, 2)))
    assert found(Recovery.SAVED, incarnation(got(1, 2), got(2, 3))) == [Kind.DISORDER]


def test_gap() -> None:
    assert Kind.GAP in found(Recovery.SAVED, incarnation(got(1, 1), got(3, 3)))
    assert Kind.GAP in found(Recovery.SAVED, incarnation(got(2, 3)))  # behind its vector
    assert found(Recovery.NONE, incarnation(got(1, 1), got(3, 3))) == [Kind.GAP]
    assert found(Recovery.NONE, incarnation(got(1, 2), ended=FOREVER)) == [Kind.GAP]  # at its end
    earlier = incarnation(got(1, 2))
    assert found(Recovery.ARCHIVES, earlier, incarnation(got(3, 3))) == []
    told = incarnation(got(1, 3), Lost(NOW, P, 4, 4), got(5, 5))
    assert found(Recovery.SAVED, told) == []


def test_twice() -> None:
    again = incarnation(got(2, 3), vector=Saved({P: 1}))
    assert found(Recovery.COMMITTED, incarnation(got(1, 2)), again) == [Kind.TWICE]


def test_repeated() -> None:
    again = incarnation(got(2, 3), vector=Saved({P: 2}))
    assert found(Recovery.SAVED, incarnation(got(1, 2)), again) == [Kind.REPEATED]


def test_a_message_out_of_a_hole_of_the_vector_is_not_repeated() -> None:
    holed = Saved({P: 2}, {P: {1}})
    assert (
        found(
            Recovery.SAVED,
            incarnation(got(2, 2), vector=Saved({P: 1})),
            incarnation(got(1, 1), got(3, 3), vector=holed),
        )
        == []
    )
    assert found(Recovery.SAVED, incarnation(got(1, 1)), incarnation(got(2, 3), vector=holed)) == [
        Kind.REPEATED
    ]


def test_unmarked() -> None:
    for certainty in ("live", "missed"):
        again = incarnation(got(2, 3, certainty))
        assert found(Recovery.ARCHIVES, incarnation(got(1, 2)), again) == [Kind.UNMARKED]
    late = NOW + 10  # all is confirmed
    again = incarnation(got(2, 3, at=late), born=late)
    assert Kind.UNMARKED in found(Recovery.NONE, incarnation(got(1, 2)), again)


def test_without_recovery_a_message_that_was_not_confirmed_may_be_repeated() -> None:
    assert found(Recovery.NONE, incarnation(got(1, 2)), incarnation(got(2, 3))) == []


def test_a_subscriber_that_died_before_it_was_heard_again_is_exempt() -> None:
    stop = Interval("stop", NOW - 1, NOW + 1)
    soon = incarnation(got(1, 2), ended=stop.end + REUNION_S - 1)
    late = incarnation(got(1, 2), ended=stop.end + REUNION_S + 1)
    again = incarnation(got(1, 3, "missed"), born=NOW + 50, ended=FOREVER)
    assert found(Recovery.ARCHIVES, soon, again, interruptions=[stop]) == []
    assert found(Recovery.ARCHIVES, late, again, interruptions=[stop]) == [Kind.UNMARKED]
    stalled = incarnation(got(1, 2), ended=NOW + 2)
    stalled.stalls.append((NOW - 1, NOW + 1))
    assert found(Recovery.ARCHIVES, stalled, again) == []
    early = incarnation(got(1, 2, at=NOW - 5), ended=NOW + 2)  # before the interruption
    assert found(Recovery.ARCHIVES, early, again, interruptions=[stop]) == [Kind.UNMARKED]


def test_stale() -> None:
    late = NOW + 10
    assert found(Recovery.NONE, incarnation(got(1, 3, at=late), born=late)) == [Kind.STALE]
    assert found(Recovery.NONE, incarnation(got(4, 5, at=late), born=late)) == []


def test_false_loss() -> None:
    told = incarnation(got(1, 1), Lost(NOW, P, 2, 2), got(3, 3))
    assert found(Recovery.NONE, told) == []
    assert found(Recovery.SAVED, told) == [Kind.FALSE, Kind.LOST]


def test_hole() -> None:
    content = [Archived("one", {P: {1, 2, 3}}), Archived("two", {P: {1, 3}})]
    assert found(Recovery.ARCHIVES, incarnation(got(1, 3)), archives=content) == [Kind.HOLE]
    more = [Archived("one", {P: {1, 2, 3, 4}}), Archived("two", {P: {1, 2, 3}})]
    assert found(Recovery.ARCHIVES, incarnation(got(1, 3)), archives=more) == [Kind.HOLE]


@pytest.mark.parametrize("recovery", [Recovery.ARCHIVES, Recovery.COMMITTED])
def test_class(recovery: Recovery) -> None:
    def classified(name: str, interruptions: Sequence[Interval] = ()) -> list[Kind]:
        classes = {"desk": Classes({P: [(1, 2, "uncertain"), (3, 4, name)]})}
        content = [Archived("one", {P: {1, 2, 3, 4}}, classes=classes)]
        only = incarnation(got(1, 3))
        return found(recovery, only, archives=content, interruptions=interruptions)

    assert classified("uncertain") == []
    assert classified("delivered") == [Kind.CLASS]  # 4 was not
    assert classified("missed") == [Kind.CLASS]  # 3 was not
    assert classified("missed", [Interval("cut", NOW - 1, NOW + 1)]) == []


def test_views() -> None:
    def seen(members: str, cut: dict[bytes, int] | None = None) -> ViewSeen:
        with_cut = None if cut is None else frozenset(cut.items())
        return ViewSeen((7, "ab"), frozenset(members), with_cut)

    def differ(view: ViewSeen, *others: ViewSeen) -> list[Kind]:
        content = [
            Archived(str(number), {P: {1, 2, 3}}, [each]) for number, each in enumerate(others)
        ]
        return found(Recovery.ARCHIVES, incarnation(got(1, 1), view, got(2, 3)), archives=content)

    assert differ(seen("ab"), seen("ab", {P: 1}), seen("ab", {P: 1})) == []
    assert differ(seen("ab"), seen("abc", {P: 1})) == [Kind.VIEWS]
    assert differ(seen("ab"), seen("ab", {P: 1}), seen("ab", {P: 0})) == [Kind.VIEWS]
    assert differ(seen("ab"), seen("ab", {P: 2})) == [Kind.VIEWS], "2 came behind the view"


def test_violations_are_told_as_ranges() -> None:
    subscriber = Subscriber("desk", Recovery.ARCHIVES, [incarnation(got(3, 3))])
    wanted: Sequences = {P: {1, 2, 3, 5}}
    lost = [
        each
        for each in judge(Evidence(PUBLISHED, wanted, [subscriber])).violations
        if each.kind is Kind.LOST
    ]
    assert list(map(str, lost)) == [
        "lost: desk: messages 1–2 of 00000000",
        "lost: desk: messages 5–5 of 00000000",
    ]
    assert [each.count for each in lost] == [2, 1]


# --- diaries


def test_diaries_are_read_up_to_the_last_complete_line(tmp_path: Path) -> None:
    file = tmp_path / "publisher.diary"
    with Diary(file) as written:
        written.note(f"1.0 born {P.hex()}", "1.1 tried 4", "1.5 confirmed 4", "2.0 tried 9")
        written.note(f"3.0 born {Q.hex()}", "3.1 tried 1")
    with file.open("a") as cut:
        cut.write("3.5 confirmed 1")
    published = Published()
    diary.read_publisher(file, published)
    assert (published.tried, published.confirmed) == ({P: 9, Q: 1}, {P: 4, Q: 0})
    assert published.confirmed_before(P, 1.5) == 0
    assert published.confirmed_before(P, 1.6) == 4


def test_the_diary_of_a_subscriber(tmp_path: Path) -> None:
    file = tmp_path / "desk.diary"
    with Diary(file) as written:
        written.note("1.0 born ", "1.5 joined", f"2.0 got {P.hex()} 1 2 live whole")
        written.note(f"2.1 view 3 ab one@{P.hex()},two@{Q.hex()}", "2.5 stalled 1.5")
        written.note("3.0 failed RecoveryFailed: no archive answers")
        written.note(f"4.0 born {P.hex()}:9/2-3/5-5,{Q.hex()}:2", f"4.5 lost {P.hex()} 2 3")
        written.note(f"5.0 got {P.hex()} 4 4 missed broken")
    first, second = diary.read_subscriber(file)
    assert (first.born, first.joined, first.ended) == (1.0, 1.5, 3.0)
    assert first.got == [Got(2.0, P, 1, 2)]
    members = frozenset([f"one@{P.hex()}", f"two@{Q.hex()}"])
    assert first.views == [ViewSeen((3, "ab"), members)]
    assert first.stalls == [(1.0, 2.5)]
    assert (second.vector, second.ended) == (Saved({P: 9, Q: 2}, {P: {2, 3, 5}}), FOREVER)
    assert second.events == [Lost(4.5, P, 2, 3), Got(5.0, P, 4, 4, "missed", whole=False)]
    assert sequences_of(second.got) == {P: {4}}
    assert diary.read_output(tmp_path / "none.sqlite") == []
    diary.add_output([first, second], [Got(2.2, P, 3, 3, UNKNOWN), Got(6.0, P, 5, 5, UNKNOWN)])
    assert [each.at for each in first.events] == [2.0, 2.1, 2.2]
    assert [each.at for each in second.events] == [4.5, 5.0, 6.0]


def test_the_diary_of_the_siege(tmp_path: Path) -> None:
    file = tmp_path / "siege.diary"
    with Diary(file) as written:
        written.note("1.0 kill desk", "2.0 kill-ended desk", "3.0 stop desk", "3.5 cut broker")
        written.note("4.0 cut-ended broker")
    faults = diary.read_faults(file)
    assert faults["desk"] == [Interval("kill", 1.0, 2.0), Interval("stop", 3.0, FOREVER)]
    assert faults["broker"] == [Interval("cut", 3.5, 4.0)]
