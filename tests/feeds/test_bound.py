"""What comes live to one that has returned, by what an archive has told of its earlier lives: SYNC alone."""

import pytest

from recado.feeds.boundary import Channel, Policy
from recado.feeds.layer import Changed, Heard, Messages
from recado.feeds.layers.reception import Reception
from recado.feeds.layers.sync import Sync
from recado.feeds.packet import Answer, Bound, Doubt
from recado.feeds.vector import Vector
from recado.feeds.views import Certainty

from .test_layers import OTHER, Between, P, batch, record


class Returned:
    """A subscriber that began at 10 s and is live again, with what an archive has told of its earlier lives;
    `suspect` is 2 s."""

    def __init__(self, bound: dict[bytes, int], *, ordered: bool = False) -> None:
        self.reception = Reception(10_000)
        self.reception.begin({}, 10.0)
        self.reception.limit = None
        self.sync = Between(
            lambda site: Sync(site, self.reception), recovery=Policy.PESSIMISTIC, ordered=ordered
        )
        self.sync.layer.site.view = record(1, "a").view
        self.sync.layer.start(10.0)
        self.sync.layer.up(Changed(record(1, "a")), 10.0)
        self.sync.layer.up(Heard(Channel.A, OTHER, Answer(0, Vector(), [], 0, False, {})), 10.0)
        self.bound(bound, 10.0)

    def bound(self, bound: dict[bytes, int], now: float) -> None:
        self.sync.layer.up(Heard(Channel.A, OTHER, Bound(bound)), now)

    def comes(self, sequence: int, now: float) -> Certainty:
        """What the next message of P is called."""
        message = batch(sequence)
        assert self.reception.take(message, now)
        self.sync.layer.up(Messages(message), now)
        risen = self.sync.risen[-1]
        assert isinstance(risen, Messages)
        return risen.batch.certainty

    def asks(self, now: float) -> bool:
        self.sync.fallen.clear()
        self.sync.layer.tick(now)
        return Doubt() in self.sync.packets()


def test_of_a_publisher_that_no_archive_has_named_nothing_is_known() -> None:
    """S6: it is asked for until one does."""
    returned = Returned({})
    assert returned.sync.layer.deadline() is None
    returned.reception.tell(P, 2, 90.0, 20.0)
    assert returned.comes(1, 20.0) is Certainty.UNCERTAIN
    assert returned.asks(20.0)
    returned.bound({}, 20.1)
    assert returned.comes(2, 20.2) is Certainty.UNCERTAIN
    assert not returned.asks(20.2), "not with every message"
    assert returned.asks(21.0)
    returned.bound({P: 2}, 21.1)
    assert returned.comes(3, 21.2) is Certainty.LIVE
    assert returned.sync.layer.deadline() is None


def test_one_that_an_archive_names_with_nothing_was_not_heard_before() -> None:
    """S6."""
    returned = Returned({P: 0})
    returned.reception.tell(P, 1, 90.0, 20.0)
    assert returned.comes(1, 20.0) is Certainty.LIVE
    assert returned.sync.layer.deadline() is None


@pytest.mark.parametrize(("age", "certainty"), [(5.0, Certainty.LIVE), (9.0, Certainty.UNCERTAIN)])
def test_one_that_began_after_us_was_not_heard_before(age: float, certainty: Certainty) -> None:
    """S6: by more than what it tells can have been under way."""
    returned = Returned({})
    returned.reception.tell(P, 1, age - 0.5, 19.5)
    returned.reception.tell(P, 1, age, 20.0)
    assert returned.comes(1, 20.0) is certainty


def test_one_whose_reports_were_delayed_may_have_begun_before_us() -> None:
    """S6: they come together, and the last one is as old as the silence behind it."""
    returned = Returned({})
    returned.reception.tell(P, 1, 4.5, 20.0)
    returned.reception.tell(P, 1, 5.0, 20.0)
    assert returned.comes(1, 20.0) is Certainty.UNCERTAIN


def test_with_one_order_an_archive_has_heard_all_that_was_before() -> None:
    """S6."""
    returned = Returned({}, ordered=True)
    assert returned.comes(1, 20.0) is Certainty.LIVE
