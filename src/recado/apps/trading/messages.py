"""The messages of the Trading System. All of them are sent as JSON.

The reply to an order comes from its book, however many actors have forwarded it.
"""

from __future__ import annotations

from typing import Any

from recado.actors import ActorRef, Message
from recado.actors.remote import register_exception

from .book import InvalidOrderError, Totals

register_exception(InvalidOrderError)


class Confirmed(Message[None]):
    """The book has accepted an order under this number; the volume `traded` was traded at once."""

    number: int
    traded: int


class BuyOrder(Message[Confirmed]):
    """An order to buy, at most at this price."""

    symbol: str
    price: int
    volume: int


class SellOrder(Message[Confirmed]):
    """An order to sell, at least at this price."""

    symbol: str
    price: int
    volume: int


Order = BuyOrder | SellOrder


class Receivers(Message[None]):
    """The actors that accept orders."""

    receivers: tuple[ActorRef[Any], ...]


class FindReceivers(Message[Receivers]):
    """Ask the receptionist for the receivers."""


class TotalsReply(Message[None]):
    totals: Totals


class GetTotals(Message[TotalsReply]):
    """Ask for the totals of the books below an actor."""


class AskTimes(Message[None]):
    """The times of the asks of a client: when each began, and how long it took, in ns."""

    began: tuple[int, ...]
    nanoseconds: tuple[int, ...]


class PlaceOrders(Message[AskTimes]):
    """Tell a client to send this number of orders, one after the other."""

    orders: int
