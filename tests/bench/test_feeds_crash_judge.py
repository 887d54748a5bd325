"""The judge of feeds under kill -9: each fault is found, and nothing else is one."""

from __future__ import annotations

from pathlib import Path

from bench.feeds_crash import diary
from bench.feeds_crash.diary import Diary, Got, Life, Published
from bench.feeds_crash.judge import Kind, judge_lives, judge_output

P, Q = bytes(16), bytes([1] * 16)
PUBLISHED = Published(tried={P: 5}, confirmed={P: 3})


def got(*sequences: int, certainty: str = "live", whole: bool = True) -> list[Got]:
    return [Got((P, each), certainty, whole) for each in sequences]


def kinds(lives: list[Life], *, marks: bool = False) -> list[Kind]:
    verdict = judge_lives("desk", lives, PUBLISHED, marks=marks)
    return [each.kind for each in verdict.violations]


def test_what_may_be() -> None:
    assert kinds([Life({}, got(1, 2, 3))]) == []
    assert kinds([Life({}, got(1, 2, 3, 4, 5))]) == []  # unconfirmed ones may come
    assert kinds([Life({}, got(1, 2)), Life({P: 1}, got(2, 3))]) == []
    again = Life({}, got(2, certainty="uncertain") + got(3))
    assert kinds([Life({}, got(1, 2)), again], marks=True) == []
    assert judge_output("desk", got(1, 2, 3), PUBLISHED).violations == []


def test_what_may_not() -> None:
    assert kinds([Life({}, got(1, 3))]) == [Kind.LOST]
    assert kinds([Life({}, got(1, 2, 3, 6))]) == [Kind.PHANTOM]
    assert kinds([Life({}, got(1, 2) + got(3, whole=False))]) == [Kind.PHANTOM]
    assert kinds([Life({}, got(1, 3, 2))]) == [Kind.DISORDER]
    assert kinds([Life({}, got(1, 2)), Life({P: 2}, got(2, 3))]) == [Kind.REPEATED]
    assert kinds([Life({}, got(1, 2)), Life({}, got(2, 3))], marks=True) == [Kind.UNMARKED]
    twice = judge_output("desk", got(1, 2, 2, 3), PUBLISHED).violations
    assert {each.kind for each in twice} == {Kind.TWICE, Kind.DISORDER}
    lost = judge_output("desk", got(1, 2), PUBLISHED).violations
    assert [str(each) for each in lost] == ["lost: message 3 of 00000000, by desk"]


def test_diaries_are_read_up_to_the_last_whole_line(tmp_path: Path) -> None:
    file = tmp_path / "publisher.diary"
    with Diary(file) as written:
        written.note(f"born {P.hex()}", "tried 4", "confirmed 4", "tried 9")
        written.note(f"born {Q.hex()}", "tried 1")
    with file.open("a") as cut:
        cut.write("confirmed 1")
    published = Published()
    diary.read_publisher(file, published)
    assert published == Published(tried={P: 9, Q: 1}, confirmed={P: 4, Q: 0})
    file = tmp_path / "desk.diary"
    with Diary(file) as written:
        written.note("born ", f"got {P.hex()} 1 live whole")
        written.note(f"born {P.hex()}:1,{Q.hex()}:2", f"got {P.hex()} 2 missed broken")
    first, second = diary.read_subscriber(file)
    assert first == Life({}, got(1))
    assert second == Life({P: 1, Q: 2}, got(2, certainty="missed", whole=False))
    assert diary.read_output(tmp_path / "none.sqlite") == []
