"""What is said in the Trading System. All of it travels as JSON.

An order is answered by the book that it is for, however many actors it went through on its way there.
"""

from __future__ import annotations

from typing import Any

from recado.actors import ActorRef, Message
from recado.actors.remote import register_exception

from .book import InvalidOrderError, Totals

register_exception(InvalidOrderError)


class Confirmed(Message[None]):
    """The book has the order under this number; so much of it was traded at once."""

    number: int
    traded: int


class Bid(Message[Confirmed]):
    """To buy: at most at this price."""

    symbol: str
    price: int
    volume: int


class Ask(Message[Confirmed]):
    """To sell: at least at this price."""

    symbol: str
    price: int
    volume: int


Order = Bid | Ask


class Receivers(Message[None]):
    """Whom orders may be sent to."""

    receivers: tuple[ActorRef[Any], ...]


class FindReceivers(Message[Receivers]):
    """Of the receptionist, once."""


class TotalsReply(Message[None]):
    totals: Totals


class GetTotals(Message[TotalsReply]):
    """What went through all books that somebody is responsible for."""


class AskTimes(Message[None]):
    """How long a client's asks took: when each began, and how many ns it took."""

    began: tuple[int, ...]
    nanoseconds: tuple[int, ...]


class PlaceOrders(Message[AskTimes]):
    """To a client: send so many orders, one after the other."""

    orders: int
