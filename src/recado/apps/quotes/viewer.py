"""Show ticks: as a ticker in a terminal, or as a line for each tick.

`watch` shows the ticks of a subscription. A subscription that starts at the beginning of the feed first gets
all past ticks from the archive, while live ticks are buffered: the board ends up as if it had been there from
the beginning.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from time import monotonic
from typing import TYPE_CHECKING, Protocol, Self, TextIO

import msgspec

from recado.apps.quotes.board import Board, format_time
from recado.apps.quotes.tick import MARKET_KEY, Bell, Quote, Tick, Trade, decode

if TYPE_CHECKING:
    from rich.console import Console

    from recado.feeds.message import Message
    from recado.feeds.subscription import Subscription

REFRESH_INTERVAL_S = 0.25


class TickDisplay(Protocol):
    """Shows ticks. `live` is false while the subscription catches up on past ticks."""

    def __enter__(self) -> object: ...
    def __exit__(self, *exception: object) -> None: ...
    def show(self, messages: Sequence[Message], live: bool) -> None: ...
    def refresh(self) -> None: ...


async def watch(
    subscription: Subscription,
    display: TickDisplay,
    *,
    catching_up: bool = False,
    limit: int | None = None,
    until_live: bool = False,
) -> int:
    """Show ticks until `limit` is reached, or until the past is over (`until_live`), or for ever.

    The batch that reaches `limit` is shown as a whole, so a few more ticks may be shown.

    Set `catching_up` if the subscription starts in the past: then ticks are shown as live only after the
    subscription has caught up. Returns the number of ticks shown.
    """
    shown = 0
    async with refresh_periodically(subscription, display, until_live):
        async for batch in subscription.batches():
            display.show(batch, live=subscription.is_live or not catching_up)
            shown += len(batch)
            if limit is not None and shown >= limit:
                break
    return shown


@asynccontextmanager
async def refresh_periodically(
    subscription: Subscription, display: TickDisplay, until_live: bool
) -> AsyncIterator[None]:
    """Redraw a few times a second, whether or not ticks arrive.

    With `until_live`, close the subscription when it has caught up, which ends `watch`.
    """

    async def refresh() -> None:
        while not (until_live and subscription.is_live):
            await asyncio.sleep(REFRESH_INTERVAL_S)
            display.refresh()
        await subscription.close()

    with display:
        task = asyncio.create_task(refresh())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            display.refresh()


def symbol_selector(symbols: Sequence[str]) -> str:
    """Return a selector for these symbols, and for messages that concern the whole market."""
    quoted = ", ".join("'" + each.replace("'", "''") + "'" for each in (*symbols, MARKET_KEY))
    return f"key IN ({quoted})"


class TickLines:
    """A line for each tick, for pipes and logs."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._out.flush()

    def show(self, messages: Sequence[Message], live: bool) -> None:
        lines = (format_tick(decode(each.key, each.body)) for each in messages)
        self._out.writelines(f"{line}\n" for line in lines)

    def refresh(self) -> None:
        self._out.flush()


class TickJsonLines(TickLines):
    """A JSON object for each tick: the tick, its publisher and sequence, and its certainty."""

    def show(self, messages: Sequence[Message], live: bool) -> None:
        for message in messages:
            record = {
                **msgspec.to_builtins(decode(message.key, message.body)),
                "publisher": message.publisher.hex(),
                "sequence": message.sequence,
                "certainty": message.certainty.name.lower(),
            }
            self._out.write(msgspec.json.encode(record).decode() + "\n")


def format_tick(tick: Tick) -> str:
    at = format_time(tick.at)
    match tick:
        case Quote():
            quoted = f"{tick.bid:.2f} × {tick.bid_size}  {tick.ask:.2f} × {tick.ask_size}"
            return f"{at}  {tick.symbol:6}  quote  {quoted}"
        case Trade():
            return (
                f"{at}  {tick.symbol:6}  trade  {tick.price:.2f} × {tick.size}  {tick.side.value}"
            )
        case Bell():
            return f"{at}  {MARKET_KEY:6}  bell   {tick.phase.value}"


class Ticker:
    """The board, redrawn in place."""

    def __init__(self, console: Console, headline: str) -> None:
        from rich.live import Live

        self.board = Board()
        self._console = console
        self._headline = headline
        self._screen = Live(console=console, auto_refresh=False, screen=console.is_terminal)
        self._is_live = True
        self._since = monotonic()
        self._ticks_before = 0
        self._rate = 0.0

    def __enter__(self) -> Self:
        self._screen.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._screen.stop()

    def show(self, messages: Sequence[Message], live: bool) -> None:
        self._is_live = live
        for message in messages:
            self.board.update(decode(message.key, message.body))

    def refresh(self) -> None:
        from recado.apps.quotes.screen import render_board

        now = monotonic()
        if now - self._since >= 1.0:
            self._rate = (self.board.ticks - self._ticks_before) / (now - self._since)
            self._since, self._ticks_before = now, self.board.ticks
        state = "live" if self._is_live else "catching up"
        foot = f"{self.board.ticks:,} ticks · {self._rate:,.0f}/s · {state} · Ctrl-C ends"
        self._screen.update(
            render_board(self.board, self._headline, foot, self._console.height), refresh=True
        )
