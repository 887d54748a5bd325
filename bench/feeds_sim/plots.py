"""Combinations of faults that would rarely occur by chance.

All archives are down for longer than members wait for a message that no present member has; a member is stopped
for as long, perhaps with a gap or in recovery. A machine is cut off and then fails; two halves of a feed each
continue with an archive; an archive returns when the others fail; a member hears and is not heard; a returning
member first meets one that lags. The last packets of a failed publisher wait on a stopped broker. Messages of a
failed publisher reach only subscribers, only a part of the members, or none; all programs fail at the same
time. The members and moments are random. No member returns while archives are partitioned: their classification
for a subscriber that runs unheard is not guaranteed until then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TypeAlias

from recado.simulator.network import Direction

from .company import ARCHIVES, Company
from .fault import Crash, Cut, CutOff, Fault, Halt, Leave, Stall

MOMENT = 1e-6  # seconds: after other faults that end at the same time

Troubles: TypeAlias = tuple[tuple[float, Fault], ...]
"""Faults, with their times."""


def machine_lost(random: Random, company: Company) -> Troubles:
    """A publisher and a subscriber are cut off together, and the subscriber fails there: no other member has
    seen its last deliveries, perhaps of a publisher that has started there. It returns when the partition
    heals: the other members may not have the messages yet. Or the publisher is cut off for longer, and is heard
    only after the return."""
    begins = random.random() < 0.5
    longer = random.uniform(1.0, 2.0) if random.random() < 0.5 else 0.0
    return _lost(random, company, begins=begins, longer=longer)


def half_back(random: Random, company: Company) -> Troubles:
    """The same, and a publisher that has started there is not heard before the archives have determined what
    the subscriber can have received."""
    return _lost(random, company, begins=True, longer=random.uniform(3.0, 3.5))


def heard_late(random: Random, company: Company) -> Troubles:
    """The same, and archives have stored messages of a publisher that has begun there when the subscriber
    returns."""
    return _lost(random, company, begins=True, longer=0.0, away=random.uniform(1.0, 2.0))


def _lost(
    random: Random, company: Company, *, begins: bool, longer: float, away: float = 0.0
) -> Troubles:
    publisher, subscriber = random.choice(company.publishers), random.choice(company.subscribers)
    begin = random.uniform(5.0, 6.0)
    mended = begin + random.uniform(7.0, 8.0)
    crash = begin + random.uniform(2.0, 6.0)
    back = mended + away + random.uniform(0.0, 0.3)
    machine = (publisher, subscriber)
    troubles: list[tuple[float, Fault]] = [
        (begin, Cut(apart(machine, company.besides(*machine)), mended - begin)),
        (crash, Crash(subscriber, back - crash)),
    ]
    if begins:
        troubles.insert(1, (begin + random.uniform(0.2, 1.0), Crash(publisher, 0.1)))
    if longer:
        alone = apart((publisher,), company.besides(publisher))
        troubles.append((mended + MOMENT, Cut(alone, longer)))
    return tuple(troubles)


def halves(random: Random, company: Company) -> Troubles:
    """A subscriber and an archive are cut off from the other members, while publishers are heard by all. The
    others install a later view; then the subscriber fails, and only that archive knew it."""
    subscriber, archive = random.choice(company.subscribers), random.choice(ARCHIVES)
    others = company.besides(subscriber, archive, *company.publishers)
    begin = random.uniform(2.9, 3.1)
    mended = begin + random.uniform(9.9, 10.1)
    leaving = begin + random.uniform(3.5, 5.0)
    crash = begin + random.uniform(9.0, 9.8)
    back = mended + random.uniform(3.1, 3.5)
    return (
        (begin, Cut(apart((subscriber, archive), others), mended - begin)),
        (leaving, Leave(random.choice(others), back - leaving)),
        (crash, Crash(subscriber, back - crash)),
    )


def by_turns(random: Random, company: Company) -> Troubles:
    """A subscriber leaves and an archive fails; the subscriber returns for a while, with the other archives;
    and they have failed when the first archive returns."""
    subscriber = random.choice(company.subscribers)
    first, *others = random.sample(ARCHIVES, len(ARCHIVES))
    left = random.uniform(5.5, 6.0)
    fails = left + random.uniform(0.3, 0.6)
    returns = fails + random.uniform(0.3, 1.0)
    crash = returns + random.uniform(3.0, 5.0)
    turn = crash + random.uniform(0.1, 0.5)
    again = turn + random.uniform(2.0, 3.0)
    return (
        (left, Leave(subscriber, returns - left)),
        (fails, Crash(first, turn + 0.1 - fails)),
        (crash, Crash(subscriber, again - crash)),
        *((turn, Crash(other, random.uniform(3.0, 4.0))) for other in others),
    )


def witnesses(random: Random, company: Company) -> Troubles:
    """An archive is cut off from the other members, while publishers are heard by all. A subscriber fails among
    the others, then the other archives do. The subscriber returns when the partition heals: only other
    subscribers know its last views. If there are none it does not fail, because its archive could not know
    them."""
    archive, subscriber = random.choice(ARCHIVES), random.choice(company.subscribers)
    others = company.besides(archive, *company.publishers)
    begin = random.uniform(2.9, 3.1)
    crash = begin + random.uniform(8.0, 8.3)
    dark = crash + random.uniform(0.1, 0.3)
    mended = dark + random.uniform(0.5, 0.8)
    back = mended + random.uniform(2.0, 2.5)
    troubles: list[tuple[float, Fault]] = [
        (begin, Cut(apart((archive,), others), mended - begin)),
        *((dark, Crash(each, back + 1.0 - dark)) for each in ARCHIVES if each != archive),
    ]
    if len(company.subscribers) > 1:
        troubles.insert(1, (crash, Crash(subscriber, back - crash)))
    return tuple(troubles)


def unheard(random: Random, company: Company) -> Troubles:
    """A subscriber is cut off until it is in a view of its own, and then hears the others, but is not heard: it
    knows its gaps and cannot request them, for longer than it takes to report a loss; and a publisher that
    could resend has failed. It is heard again before any member stops for good: messages delivered to it
    meanwhile are not classified as missed."""
    publisher, subscriber = random.choice(company.publishers), random.choice(company.subscribers)
    ways = apart((subscriber,), company.besides(subscriber))
    begin = random.uniform(3.2, 3.5)
    hears = begin + random.uniform(2.8, 3.1)
    heard = hears + random.uniform(8.6, 8.9)
    silent = tuple(way for way in ways if way[0] == subscriber)
    return (
        (begin, Cut(ways, hears - begin)),
        (hears + MOMENT, Cut(silent, heard - hears)),
        (hears + random.uniform(1.2, 2.0), Crash(publisher, 0.5)),
    )


def laggards(random: Random, company: Company) -> Troubles:
    """A member is cut off from the broker until it is in a view of its own. When it returns the others are
    busy: a subscriber has failed twice in a row, and they wait for its first incarnation. The third incarnation is
    first heard by the lagging member, and joins it."""
    subscriber = random.choice(company.subscribers)
    laggard = random.choice(company.besides(subscriber, *company.publishers))
    begin = random.uniform(4.0, 8.0)
    back = begin + random.uniform(4.0, 5.0)
    first = back - random.uniform(0.5, 0.7)
    second = back - random.uniform(0.1, 0.3)
    return (
        (begin, CutOff(laggard, back - begin)),
        (first, Crash(subscriber, 0.1)),
        (second, Crash(subscriber, back + random.uniform(0.01, 0.1) - second)),
    )


def stalls(random: Random, company: Company) -> Troubles:
    """Programs stop for longer than the failure timeout, one after the other or at the same time, and then
    continue: an archive first, because the oldest member, which determines the total order, usually is one;
    then any."""
    begin = random.uniform(3.0, 5.0)
    troubles: list[tuple[float, Fault]] = []
    for number in range(random.randint(2, 4)):
        name = random.choice(company.everybody if number else ARCHIVES)
        troubles.append((begin, Stall(name, random.uniform(3.0, 7.0))))
        begin += random.uniform(0.0, 3.0)
    return tuple(troubles)


def away(random: Random, company: Company) -> Troubles:
    """All archives are down for longer than `gap_timeout`, a subscriber is cut off for a while, and all members
    that could send it the missed messages fail: only archives have them. When they return it returns, too."""
    subscriber = random.choice(company.subscribers)
    others = [name for name in company.subscribers if name != subscriber]
    begin = random.uniform(4.0, 4.3)
    back = begin + random.uniform(10.0, 10.3)
    mended = begin + random.uniform(0.0, 0.2)
    cut = begin - random.uniform(1.0, 1.5)
    return (
        (cut, Cut(apart((subscriber,), company.besides(subscriber)), mended - cut)),
        *((begin, Crash(archive, back - begin)) for archive in ARCHIVES),
        *((begin, Crash(name, 0.3)) for name in (*others, *company.publishers)),
        (back + random.uniform(1.5, 2.0), Crash(subscriber, 0.2)),
    )


def away_from_broker(random: Random, company: Company) -> Troubles:
    """The same; here it is in the queues of the archives."""
    subscriber = random.choice(company.subscribers)
    others = [name for name in company.subscribers if name != subscriber]
    begin = random.uniform(3.0, 3.3)
    back = begin + random.uniform(11.0, 11.5)
    cut = begin + random.uniform(0.1, 0.5)
    seconds = random.uniform(0.7, 1.2)
    return (
        *((begin, Crash(archive, back - begin)) for archive in ARCHIVES),
        (cut, CutOff(subscriber, seconds)),
        *((cut + seconds, Crash(name, 0.3)) for name in others),
        (back + random.uniform(1.5, 2.0), Crash(subscriber, 0.2)),
    )


def mistaken(random: Random, company: Company) -> Troubles:
    """An archive does not hear the publishers for a while, which then fail, and before the others have sent it
    the missed messages it is cut off from all, for longer than `gap_timeout`: it records messages as lost that
    the others have."""
    archive = random.choice(ARCHIVES)
    begin = random.uniform(3.5, 4.5)
    alone = begin + random.uniform(0.8, 1.5)
    mended = alone + random.uniform(9.0, 10.0)
    deaf = tuple((publisher, archive) for publisher in company.publishers)
    return (
        (begin, Cut(deaf, alone - begin)),
        (alone + MOMENT, Cut(apart((archive,), company.besides(archive)), mended - alone)),
        *((alone, Crash(name, 0.2)) for name in company.publishers),
    )


def newcomers(random: Random, company: Company) -> Troubles:
    """A publisher ends. Later, while all archives are down, subscribers start that have never heard of it; then
    the archives return, and know it."""
    publisher = random.choice(company.publishers)
    ends = random.uniform(3.2, 3.4)
    crash = random.uniform(4.0, 4.5)
    back = random.uniform(12.5, 13.5)
    begin = ends + random.uniform(6.2, 6.5)
    return (
        (ends, Crash(publisher, 0.2)),
        *((crash, Crash(archive, back - crash)) for archive in ARCHIVES),
        *((begin, Crash(name, random.uniform(0.1, 1.0))) for name in company.subscribers),
    )


def stopped(random: Random, company: Company) -> Troubles:
    """A member is stopped for longer than `patience`, and a publisher fails meanwhile. When the member runs
    again, time seems to have passed that it has not lived through."""
    begin = random.uniform(3.2, 5.0)
    name = random.choice((*ARCHIVES, *company.subscribers))
    fails = begin + random.uniform(0.0, 2.0)
    return (
        (begin, Stall(name, random.uniform(8.5, 11.0))),
        (fails, Crash(random.choice(company.publishers), 0.2)),
    )


def stopped_in_recovery(random: Random, company: Company) -> Troubles:
    """A subscriber returns while all archives are down, and is stopped for longer than it would wait for one.
    When it runs again they are back, and it recovers."""
    name = random.choice(company.subscribers)
    begin = random.uniform(3.1, 3.3)
    back = begin + random.uniform(4.0, 5.0)
    return (
        *((begin, Crash(archive, back - begin)) for archive in ARCHIVES),
        (begin, Crash(name, 0.1)),
        (begin + random.uniform(3.0, 3.3), Stall(name, random.uniform(10.1, 10.3))),
    )


def stopped_with_gap(random: Random, company: Company) -> Troubles:
    """An archive is cut off from the other members until it is in a view of its own, and does not hear the
    publishers for a while. Then it hears them and is not heard; they fail, and it is stopped for longer than
    `gap_timeout`. Only the others have the messages that it lacks. It hears them when it runs again."""
    archive = random.choice(ARCHIVES)
    begin = random.uniform(2.5, 2.7)
    deaf = begin + random.uniform(2.0, 2.2)
    hears = deaf + random.uniform(0.6, 0.9)
    stops = hears + random.uniform(1.1, 1.2)
    runs = stops + random.uniform(8.7, 9.0)
    mended = runs + random.uniform(0.0, 0.3)
    members = apart((archive,), company.besides(archive, *company.publishers))
    return (
        (begin, Cut(members, hears - begin)),
        (deaf, Cut(tuple((one, archive) for one in company.publishers), hears - deaf)),
        (hears + MOMENT, Cut(members, mended - hears)),
        (hears + MOMENT, Cut(tuple((archive, one) for one in company.publishers), mended - hears)),
        (stops, Stall(archive, runs - stops)),
        *((stops, Crash(one, 0.2)) for one in company.publishers),
    )


def untold(random: Random, company: Company) -> Troubles:
    """All archives restart, so that a subscriber is the oldest member and determines the total order. Later the
    archives do not hear a publisher, which then fails: only subscribers know its last messages."""
    publisher = random.choice(company.publishers)
    restart = random.uniform(3.0, 3.5)
    begin = random.uniform(12.0, 12.5)
    fails = begin + random.uniform(1.0, 1.4)
    return (
        *((restart, Crash(archive, 0.3)) for archive in ARCHIVES),
        (begin, Cut(apart((publisher,), ARCHIVES), fails - begin + 0.1)),
        (fails, Crash(publisher, 0.5)),
    )


def partly_heard(random: Random, company: Company) -> Troubles:
    """An archive and a subscriber are cut off from the other members and miss messages of the publishers. Then
    they hear the publishers again and are not heard, so they know their gaps; and the publishers fail. The
    other members, which have the messages, return before `gap_timeout` has elapsed."""
    group = (random.choice(ARCHIVES), random.choice(company.subscribers))
    others = company.besides(*group, *company.publishers)
    begin = random.uniform(3.0, 3.3)
    hears = begin + random.uniform(0.8, 1.2)
    fails = hears + random.uniform(1.1, 1.3)
    mended = begin + random.uniform(6.0, 6.5)
    deaf = tuple((one, member) for one in company.publishers for member in group)
    unheard = tuple((member, one) for one, member in deaf)
    return (
        (begin, Cut((*apart(group, others), *deaf), hears - begin)),
        (hears + MOMENT, Cut((*apart(group, others), *unheard), mended - hears)),
        *((fails, Crash(one, 0.2)) for one in company.publishers),
    )


def vanished(random: Random, company: Company) -> Troubles:
    """Messages of a publisher reach no member. Then all hear how many there were, but the publisher does not
    hear them, and it fails: the messages are lost. A subscriber that was notified of that restarts."""
    publisher = random.choice(company.publishers)
    others = company.besides(publisher)
    begin = random.uniform(2.9, 3.1)
    hears = begin + random.uniform(0.8, 1.0)
    fails = hears + random.uniform(1.1, 1.3)
    restart = random.uniform(15.3, 15.7)
    return (
        (begin, Cut(tuple((publisher, one) for one in others), hears - begin)),
        (hears + MOMENT, Cut(tuple((one, publisher) for one in others), fails - hears + 0.1)),
        (fails, Crash(publisher, 0.2)),
        (restart, Crash(random.choice(company.subscribers), 0.3)),
    )


def muted(random: Random, company: Company) -> Troubles:
    """The last messages of a publisher, before it publishes no more, reach no member at first."""
    publisher = random.choice(company.publishers)
    begin = random.uniform(14.0, 15.5)
    return ((begin, Cut(apart((publisher,), company.besides(publisher)), 3.0)),)


def held_up(random: Random, company: Company) -> Troubles:
    """A publisher starts and is stopped. The archives fail; the subscribers restart, and have not heard the
    publisher when the broker is stopped. Then the publisher continues and fails: its last packets, with its
    age, reach the subscribers when the broker runs again. Later the archives return with its first messages."""
    publisher = random.choice(company.publishers)
    begin = random.uniform(3.2, 3.5)
    stops = begin + random.uniform(1.0, 1.3)
    dark = stops + random.uniform(0.1, 0.2)
    restart = dark + random.uniform(0.1, 0.2)
    halt = restart + random.uniform(2.0, 2.3)
    runs = halt + random.uniform(0.1, 0.3)
    fails = runs + random.uniform(0.1, 0.5)
    back = random.uniform(12.5, 13.0)
    return (
        (begin, Crash(publisher, 0.1)),
        (stops, Stall(publisher, runs - stops)),
        *((dark, Crash(archive, back - dark)) for archive in ARCHIVES),
        *((restart, Crash(name, 0.1)) for name in company.subscribers),
        (halt, Halt(fails - halt + random.uniform(2.5, 4.0))),
        (fails, Crash(publisher, 0.2)),
    )


def power_cuts(random: Random, company: Company) -> Troubles:
    """All programs fail at the same time, repeatedly; the broker continues."""
    moments = [3.0 + 2.5 * number + random.uniform(0.0, 1.0) for number in range(5)]
    return tuple(
        (moment, Crash(name, random.uniform(0.1, 0.5)))
        for moment in moments
        for name in company.everybody
    )


def stops_without_broker(random: Random, company: Company) -> Troubles:
    usual, share = stopped(random, company), random.random()
    if share < 0.4:
        return stopped_with_gap(random, company)
    return stopped_in_recovery(random, company) if share >= 0.7 else usual


def stops_with_broker(random: Random, company: Company) -> Troubles:
    usual = stopped(random, company)
    return stopped_in_recovery(random, company) if random.random() >= 0.6 else usual


Plot: TypeAlias = Callable[[Random, Company], Troubles]
ANYWHERE: tuple[Plot, ...] = (by_turns, newcomers)
"""For all media."""
WITHOUT_BROKER: tuple[Plot, ...] = (
    *ANYWHERE,
    stops_without_broker,
    machine_lost,
    halves,
    witnesses,
    half_back,
    heard_late,
    unheard,
    away,
    mistaken,
    untold,
    partly_heard,
    vanished,
    muted,
)
WITH_BROKER: tuple[Plot, ...] = (
    *ANYWHERE,
    stops_with_broker,
    laggards,
    away_from_broker,
    power_cuts,
    held_up,
)


def apart(group: Sequence[str], others: Sequence[str]) -> tuple[Direction, ...]:
    """Return all directions between them."""
    there = [(one, other) for one in group for other in others]
    return (*there, *((other, one) for one, other in there))
