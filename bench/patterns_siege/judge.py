"""Whether the evidence is consistent with the guarantees: pure functions of what was noted.

`attempts.py` decides about the numbers of attempts. The other rules compare what was published with what has arrived at
the end of each flow, where a message counts once for each message id: an output is published at least once, always
with the same id.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, Final

import msgspec

from .attempts import TASKS, Attempt, Explanation, Kill, Kills, read_attempts
from .roles import (
    ATTEMPTS_COUNT,
    ITEMS_PER_LIST_COUNT,
    LISTS_PER_PAIR_COUNT,
    OUTCOMES,
    SEEN,
)

PARKED_KINDS: Final = ("bad", "poison", "stuck")
REASONS: Final = {
    "fine": ("HandlerTimeoutError", "WorkerLostError"),
    "flaky": ("HandlerTimeoutError", "WorkerLostError"),
    "bad": ("ValueError: bad", "HandlerTimeoutError", "WorkerLostError"),
    "poison": ("HandlerTimeoutError", "WorkerLostError"),
    "stuck": ("HandlerTimeoutError", "WorkerLostError"),
}
"""Why a task may be parked. A handler that is held exceeds its limit of time."""
GARBLED: Final = "garbled "  # how the bodies of tasks begin that cannot be decoded


class Kind(Enum):
    """What is wrong."""

    LOST = "lost"
    ATTEMPTS = "attempts"
    PARKED = "parked"
    AGGREGATES = "aggregates"
    SAGAS = "sagas"
    OUTBOX = "outbox"
    ORDER = "order"
    LEFT = "left"


class Published(msgspec.Struct, frozen=True):
    """A task that was confirmed."""

    number: int
    kind: str
    began: float
    ended: float
    has_id: bool = True


class Evidence(msgspec.Struct, kw_only=True):
    """What was done to the programs, and what they have noted."""

    tasks: Mapping[int, Published]
    garbled_count: int
    lists_count: int
    orders_count: int
    shuffled_count: int
    sales: set[tuple[int, int]]
    notes: Sequence[Mapping[str, Any]]
    collected: Sequence[Mapping[str, Any]]
    kills: Sequence[Kill]
    left: Mapping[str, int]
    open_groups_count: int


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
    _judge_garbled(evidence, collected["tasks.invalid"], verdict)
    _judge_aggregates(evidence, collected["booked"], verdict)
    _judge_sagas(evidence, collected["outcomes"], verdict)
    _judge_sales(evidence, collected[SEEN], collected["sold"], verdict)
    _judge_order(evidence, collected["ordered"], verdict)
    for queue in ("dead-letters", "invalid-messages"):
        for each in collected[queue]:
            verdict.add(Kind.PARKED, f"{queue}: {each['body']:.100} ({each['reason']})")
    for place, count in evidence.left.items():
        if count:
            verdict.add(Kind.LEFT, f"{count} in {place}")
    return verdict


# ── tasks ─────────────────────────────────────────────────────────────────────────────────────────────────


def _judge_tasks(evidence: Evidence, parked: Iterable[Mapping[str, Any]], verdict: Verdict) -> None:
    attempts = read_attempts(evidence.notes)
    kills = Kills(evidence.kills, attempts)
    by_number: dict[int, list[Attempt]] = defaultdict(list)
    for attempt in attempts:
        by_number[attempt.task].append(attempt)
    dead: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    for each in parked:
        dead[json.loads(each["body"])["number"]].append(each)
    for number, task in evidence.tasks.items():
        _judge_task(task, by_number[number], dead[number], kills, verdict)
    _judge_interruptions(evidence.kills, attempts, verdict)


def _judge_task(
    task: Published,
    attempts: Sequence[Attempt],
    dead: Sequence[Mapping[str, Any]],
    kills: Kills,
    verdict: Verdict,
) -> None:
    numbers = [f"{each.number} {each.outcome or 'killed'}" for each in attempts]
    about = f"task {task.number} ({task.kind}, {'with' if task.has_id else 'without'} id)"
    about += f", attempts {numbers}"
    has_ended = any(each.outcome == "end" for each in attempts)
    verdict.counts[task.kind] += 1
    if not has_ended and not dead:
        is_waiting = not attempts or task.kind not in PARKED_KINDS
        kind = Kind.LOST if is_waiting else Kind.PARKED
        verdict.add(kind, f"{about}: neither handled nor parked")
        if is_waiting:
            return
    if task.kind in PARKED_KINDS and has_ended:
        verdict.add(Kind.PARKED, f"{about}: has ended")
    for each in dead:
        if not each["reason"].startswith(REASONS[task.kind]):
            verdict.add(Kind.PARKED, f"{about}: parked because of {each['reason']}")
    published = task.began, task.ended
    ids = [each["id"] for each in dead]
    explanation = Explanation(task.number, published, attempts, ids, kills, ATTEMPTS_COUNT)
    if explanation.exists():
        verdict.counts["exact" if not explanation.is_doubtful else "doubtful"] += 1
    elif explanation.reached < len(attempts):
        which = "with id" if task.has_id else "without id"
        verdict.counts[f"attempts {which}"] += 1
        verdict.add(Kind.ATTEMPTS, f"{about}: attempt {explanation.reached + 1} is unexplained")
    else:
        verdict.add(Kind.PARKED, f"{about}: parked {[each['attempt'] for each in dead]}")


def _judge_interruptions(
    kills: Sequence[Kill], attempts: Sequence[Attempt], verdict: Verdict
) -> None:
    """A killed worker interrupts the handler of one task, unless others were left from a lost connection."""
    interrupted = Counter(each.pid for each in attempts if each.outcome is None)
    killed = {kill.pid for kill in kills if kill.name == TASKS}
    for pid, count in interrupted.items():
        if pid not in killed:
            verdict.add(
                Kind.ATTEMPTS, f"{count} handlers of worker {pid}, which lives, have no end"
            )
    verdict.counts["interrupted"] = sum(interrupted.values())


def _judge_garbled(
    evidence: Evidence, invalid: Iterable[Mapping[str, Any]], verdict: Verdict
) -> None:
    found = set()
    for each in invalid:
        found.add(each["body"])
        if not (each["reason"] or "").startswith("TranslationError"):
            verdict.add(Kind.PARKED, f"{each['body']}: invalid because of {each['reason']}")
    expected = {f"{GARBLED}{number}" for number in range(evidence.garbled_count)}
    for body in sorted(expected - found):
        verdict.add(Kind.LOST, f"{body} is not among the invalid messages")
    for body in sorted(found - expected):
        verdict.add(Kind.PARKED, f"{body} was parked as invalid")


# ── flows and sales ───────────────────────────────────────────────────────────────────────────────────────


def _once(collected: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the first message of each id, in the order of their arrival."""
    found: dict[Any, Mapping[str, Any]] = {}
    for each in collected:
        found.setdefault(each["id"], each)
    return list(found.values())


def _judge_aggregates(
    evidence: Evidence, booked: Iterable[Mapping[str, Any]], verdict: Verdict
) -> None:
    """Each pair is combined from all its items, and booked once: the numbers of the ledger have no gap."""
    size = LISTS_PER_PAIR_COUNT * ITEMS_PER_LIST_COUNT
    bodies = [json.loads(each["body"]) for each in _once(booked)]
    found = Counter(body["pair"] for body in bodies)
    for pair in range(evidence.lists_count // LISTS_PER_PAIR_COUNT):
        if found[pair] != 1:
            verdict.add(Kind.AGGREGATES, f"pair {pair} was combined {found[pair]} times")
    for body in bodies:
        expected = list(range(body["pair"] * size, (body["pair"] + 1) * size))
        if body["items"] != expected:
            verdict.add(Kind.AGGREGATES, f"pair {body['pair']} has {body['items']}")
    if evidence.open_groups_count:
        verdict.add(Kind.AGGREGATES, f"{evidence.open_groups_count} groups are incomplete")
    numbers = [body["booked"] for body in bodies]
    if numbers != list(range(1, len(numbers) + 1)):
        verdict.add(Kind.AGGREGATES, f"pairs were booked {_describe_gap(numbers)}")


def _judge_sagas(
    evidence: Evidence, outcomes: Iterable[Mapping[str, Any]], verdict: Verdict
) -> None:
    found: dict[int, list[str]] = defaultdict(list)
    for each in _once(outcomes):
        body = json.loads(each["body"])
        found[body["order"]].append(body["outcome"])
    for order in range(evidence.orders_count):
        expected = OUTCOMES[order % len(OUTCOMES)]
        if found[order] != [expected]:
            verdict.add(Kind.SAGAS, f"order {order}: {found[order]}, not once {expected}")


def _judge_sales(
    evidence: Evidence,
    seen: Iterable[Mapping[str, Any]],
    sold: Iterable[Mapping[str, Any]],
    verdict: Verdict,
) -> None:
    """Each sale is published with one id, those of an account in order, and booked once.

    They may be booked in another order: a frozen process still has the messages that were delivered to it.
    """
    made: dict[int, list[int]] = defaultdict(list)
    for account, number in sorted(evidence.sales):
        made[account].append(number)
    published, booked = _by_account(seen), _by_account(sold)
    for account in sorted(made.keys() | published.keys() | booked.keys()):
        numbers = [body["number"] for body in published[account]]
        if numbers != made[account]:
            text = _describe_gap([number + 1 for number in numbers])
            verdict.add(
                Kind.OUTBOX,
                f"account {account}: {len(numbers)} of {len(made[account])} sales published, {text}",
            )
        booked_numbers = [body["number"] for body in booked[account]]
        entries = [body["booked"] for body in booked[account]]
        if sorted(booked_numbers) != made[account] or entries != list(range(1, len(entries) + 1)):
            verdict.add(
                Kind.OUTBOX,
                f"account {account}: {len(entries)} of {len(made[account])} sales booked, {_describe_gap(entries)}",
            )


def _by_account(collected: Iterable[Mapping[str, Any]]) -> dict[int, list[Mapping[str, Any]]]:
    found: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    for each in _once(collected):
        body = json.loads(each["body"])
        found[body["account"]].append(body)
    return found


def _judge_order(
    evidence: Evidence, ordered: Iterable[Mapping[str, Any]], verdict: Verdict
) -> None:
    numbers = [json.loads(each["body"])["number"] for each in _once(ordered)]
    if numbers != list(range(1, evidence.shuffled_count + 1)):
        verdict.add(
            Kind.ORDER,
            f"{len(numbers)} of {evidence.shuffled_count}, {_describe_gap(numbers)}",
        )


def _describe_gap(numbers: Sequence[int]) -> str:
    """Return where numbers are not 1, 2, 3, …."""
    for expected, number in enumerate(numbers, 1):
        if number != expected:
            return f"with {number} instead of {expected}"
    return f"up to {len(numbers)}"
