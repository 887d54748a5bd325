"""The processes of the Trading System: exchange, clients, and the network between them."""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import signal
from collections.abc import Coroutine
from typing import Any

import msgspec

from recado.cli import DONE, FAILED, WRONG_USAGE, complain
from recado.node.config import load
from recado.node.loop import new_runner


def play(verb: str, chosen: argparse.Namespace) -> int:
    match verb:
        case "network":
            return pass_on(chosen)
        case "serve":
            return serve(chosen)
        case _:
            return trade(chosen)


def pass_on(chosen: argparse.Namespace) -> int:
    from recado.apps.trading.network import network, precise_loop

    async def until_signal() -> int:
        host, port = chosen.behind
        async with network(host, port, chosen.latency / 1e6) as way:
            say({"port": way.port})
            await signalled()
        return DONE

    with asyncio.Runner(loop_factory=precise_loop) as runner:
        return runner.run(until_signal())


def serve(chosen: argparse.Namespace) -> int:
    from recado.apps.trading.roles import serve_exchange

    return perform(serve_exchange(chosen.transport, chosen.url, say, signalled))


def trade(chosen: argparse.Namespace) -> int:
    from recado.apps.trading.figures import Transport
    from recado.apps.trading.roles import Trade
    from recado.apps.trading.roles import trade as trade_all

    if chosen.transport is Transport.TCP and chosen.url is None:
        return complain("--url tcp://HOST:PORT says where the exchange listens", WRONG_USAGE)
    if chosen.asks % chosen.clients:
        shared = f"{chosen.asks} asks cannot be shared evenly by {chosen.clients} clients"
        return complain(shared, WRONG_USAGE)
    over = chosen.broker or ("broker" if chosen.transport is Transport.AMQP else None)
    many = chosen.clients, chosen.asks, chosen.feed_url
    wanted = Trade(chosen.transport, chosen.url, *many, chosen.run, over, chosen.latency)
    return perform(trade_all(wanted, say))


def perform(work: Coroutine[Any, Any, None]) -> int:
    """On the loop that any program would have. One that looks before it sleeps, as the broker's does, halves
    the time of an ask point to point where each process has a core, and takes the cores from a third one."""
    from recado.actors.errors import ActorError
    from recado.actors.remote.faults import RemoteFailure
    from recado.apps.trading.clients import Disagreement
    from recado.client.errors import ClientError

    settings = load(file=None, environment=os.environ, flags={}).settings
    gc.freeze()  # what was loaded stays: the collector need not look at it while asks are timed
    try:
        with new_runner(settings) as runner:
            runner.run(work)
    except (ActorError, RemoteFailure, ClientError, Disagreement) as error:
        return complain(str(error), FAILED)
    return DONE


async def signalled() -> None:
    """Until SIGTERM or Ctrl-C."""
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    await stopped.wait()


def say(fact: dict[str, object]) -> None:
    """To whoever started us, and waits for it."""
    print(msgspec.json.encode(fact).decode(), flush=True)
