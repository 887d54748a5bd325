"""Whether the evidence is consistent with the guarantees: pure functions of what was noted.

An attempt is a begin in the notes of a handler. The first one of a message has the number 1, and each following
one the next number. A number may be higher than that by at most one for each kill since the attempt before: the
message had been delivered, but its handler had not begun. It is never lower, and it may be repeated only if the
message has forked: its failure was followed by a kill so soon that both the retry and the original exist, or it
was published while the broker was away, so that the client may have published it twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any

import msgspec

from .worker import ATTEMPTS_COUNT, ITEMS_PER_LIST_COUNT, LISTS_PER_PAIR_COUNT

FORK_WINDOW_S = 1.0  # from a failure to the confirm of its retry
BROKER_NAME = "broker"
PARKED_KINDS = ("bad", "poison")


class Kind(Enum):
    """What is wrong."""

    LOST = "lost"
    ATTEMPTS = "attempts"
    PARKED = "parked"
    AGGREGATES = "aggregates"
    SAGAS = "sagas"
    OUTBOX = "outbox"
    ORDER = "order"


class Kill(msgspec.Struct, frozen=True):
    """A process that was killed, or a broker that was away, for some time."""

    name: str
    pid: int
    began: float
    ended: float

    def overlaps(self, began: float, ended: float) -> bool:
        return self.began <= ended and began <= self.ended


class Published(msgspec.Struct, frozen=True):
    """A task that was confirmed."""

    number: int
    kind: str
    began: float
    ended: float


class Evidence(msgspec.Struct, kw_only=True):
    """What was done to the programs, and what they have noted."""

    tasks: Mapping[int, Published]
    lists_count: int
    orders_count: int
    shuffled_count: int
    sales: set[tuple[int, int]]
    notes: Sequence[Mapping[str, Any]]
    collected: Sequence[Mapping[str, Any]]
    kills: Sequence[Kill]


class Verdict(msgspec.Struct):
    """All violations, and how much the evidence has exercised."""

    violations: dict[Kind, list[str]] = msgspec.field(
        default_factory=lambda: {kind: [] for kind in Kind}
    )
    counts: dict[str, int] = msgspec.field(default_factory=lambda: defaultdict(int))

    def add(self, kind: Kind, text: str) -> None:
        self.violations[kind].append(text)

    @property
    def is_sound(self) -> bool:
        return not any(self.violations.values())

    @property
    def texts(self) -> list[str]:
        return [f"{kind.value}: {text}" for kind in Kind for text in self.violations[kind]]


def judge(evidence: Evidence) -> Verdict:
    verdict = Verdict()
    collected: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for each in evidence.collected:
        collected[each["queue"]].append(each)
    _judge_tasks(evidence, collected["tasks.dead"], verdict)
    _judge_aggregates(evidence, collected["sums"], verdict)
    _judge_sagas(evidence, collected["outcomes"], verdict)
    _judge_sales(evidence, collected["sales"], verdict)
    _judge_order(evidence, collected["ordered"], verdict)
    return verdict


def _judge_tasks(evidence: Evidence, parked: Iterable[Mapping[str, Any]], verdict: Verdict) -> None:
    by_number: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    for note in evidence.notes:
        by_number[note["n"]].append(note)
    dead: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    for each in parked:
        dead[each["body"]["number"]].append(each)
    for number, task in evidence.tasks.items():
        notes = by_number[number]
        about = f"task {number} ({task.kind})"
        attempts = [note["attempt"] for note in notes if note["event"] == "begin"]
        has_ended = any(note["event"] == "end" for note in notes)
        if not has_ended and number not in dead:
            verdict.add(Kind.LOST, f"{about}: neither handled nor parked, attempts {attempts}")
        if _has_forked(task, notes, evidence.kills):
            verdict.counts["forked"] += 1
            continue
        problem, excess = _check_attempts(task, notes, evidence.kills, verdict)
        if problem:
            verdict.add(Kind.ATTEMPTS, f"{about}: {problem}, attempts {attempts}")
        elif not has_ended and number not in dead:
            continue
        elif task.kind in PARKED_KINDS:
            ends = [each["attempt"] for each in dead[number]]
            # After the last failure, more deliveries whose handler did not begin may have been counted.
            if has_ended or len(ends) != 1 or (not excess and attempts[-1] != ATTEMPTS_COUNT):
                verdict.add(Kind.PARKED, f"{about}: parked {ends} after attempts {attempts}")
            else:
                verdict.counts[task.kind] += 1
        elif number in dead and not excess:
            verdict.add(Kind.PARKED, f"{about}: parked after attempts {attempts}")


def _has_forked(task: Published, notes: Iterable[Mapping[str, Any]], kills: Iterable[Kill]) -> bool:
    failures = [note for note in notes if note["event"] == "fail"]
    for kill in kills:
        if kill.name == BROKER_NAME and kill.overlaps(task.began, task.ended):
            return True
        if any(
            kill.overlaps(note["at"], note["at"] + FORK_WINDOW_S)
            for note in failures
            if kill.name == BROKER_NAME or kill.pid == note["pid"]
        ):
            return True
    return False


def _check_attempts(
    task: Published,
    notes: Sequence[Mapping[str, Any]],
    kills: Sequence[Kill],
    verdict: Verdict,
) -> tuple[str, int]:
    """Return what is wrong with the numbers of the attempts, and by how much they are explained by kills."""
    number, since, excess = 0, task.began, 0
    external = [kill for kill in kills if kill.name in (BROKER_NAME, "tasks")]
    for position, note in enumerate(notes):
        if note["event"] != "begin":
            since = note["at"]
            continue
        was_interrupted = position > 0 and notes[position - 1]["event"] == "begin"
        killed = [kill for kill in external if kill.overlaps(since, note["at"])]
        # One of the kills is the one that has interrupted the attempt before.
        explained = len(killed)
        more = note["attempt"] - (number + 1)
        if more < 0:
            return f"number {note['attempt']} after {number}", excess
        if more > explained:
            return f"number {note['attempt']} after {number} with {explained} kills", excess
        if was_interrupted and not more:
            verdict.counts["interrupted-exact"] += 1
        number, since = note["attempt"], note["at"]
        excess += more
    late = [kill for kill in external if kill.overlaps(since, since + FORK_WINDOW_S)]
    return "", excess + len(late)


def _judge_aggregates(
    evidence: Evidence, sums: Iterable[Mapping[str, Any]], verdict: Verdict
) -> None:
    found: dict[int, dict[str, Any]] = defaultdict(dict)
    for each in sums:
        found[each["body"]["pair"]][each["id"]] = each["body"]["items"]
    size = LISTS_PER_PAIR_COUNT * ITEMS_PER_LIST_COUNT
    for pair in range(evidence.lists_count // LISTS_PER_PAIR_COUNT):
        expected = list(range(pair * size, (pair + 1) * size))
        if list(found[pair].values()) != [expected]:
            verdict.add(Kind.AGGREGATES, f"pair {pair}: {found[pair]}")


def _judge_sagas(
    evidence: Evidence, outcomes: Iterable[Mapping[str, Any]], verdict: Verdict
) -> None:
    found: dict[int, dict[str, str]] = defaultdict(dict)
    for each in outcomes:
        found[each["body"]["order"]][each["id"]] = each["body"]["outcome"]
    for order in range(evidence.orders_count):
        expected = "paid" if order % 2 == 0 else "refunded"
        if list(found[order].values()) != [expected]:
            verdict.add(Kind.SAGAS, f"order {order}: {found[order]}, not once {expected}")


def _judge_sales(evidence: Evidence, sales: Iterable[Mapping[str, Any]], verdict: Verdict) -> None:
    ids: dict[tuple[int, int], set[str]] = defaultdict(set)
    last: dict[int, int] = defaultdict(lambda: -1)
    for each in sales:
        sale = each["body"]["account"], each["body"]["number"]
        if sale not in ids:
            if sale[1] != last[sale[0]] + 1:
                verdict.add(Kind.OUTBOX, f"sale {sale} follows {last[sale[0]]}")
            last[sale[0]] = sale[1]
        ids[sale].add(each["id"])
    for sale in sorted(evidence.sales - ids.keys()):
        verdict.add(Kind.OUTBOX, f"sale {sale} has no message")
    for sale in sorted(ids.keys() - evidence.sales):
        verdict.add(Kind.OUTBOX, f"sale {sale} was never made")
    for sale, several in sorted(ids.items()):
        if len(several) > 1:
            verdict.add(Kind.OUTBOX, f"sale {sale} has the ids {several}")


def _judge_order(
    evidence: Evidence, ordered: Iterable[Mapping[str, Any]], verdict: Verdict
) -> None:
    first = list(dict.fromkeys(each["id"] for each in ordered))
    numbers = {each["id"]: each["body"]["number"] for each in ordered}
    found = [numbers[each] for each in first]
    if found != list(range(1, evidence.shuffled_count + 1)):
        wrong = next((at for at, each in enumerate(found, 1) if each != at), len(found) + 1)
        verdict.add(
            Kind.ORDER, f"{len(found)} of {evidence.shuffled_count}, not in order from {wrong}"
        )
