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

from recado.cli import EXIT_FAILED, EXIT_OK, EXIT_USAGE, print_error
from recado.node.config import load_config
from recado.node.event_loop import new_runner


def run_role(verb: str, args: argparse.Namespace) -> int:
    match verb:
        case "network":
            return run_network(args)
        case "serve":
            return run_exchange(args)
        case _:
            return run_clients(args)


def run_network(args: argparse.Namespace) -> int:
    from recado.apps.trading.delay_proxy import delay_proxy, precise_loop

    async def until_signal() -> int:
        host, port = args.behind
        async with delay_proxy(host, port, args.latency / 1e6) as proxy:
            print_fact({"port": proxy.port})
            await wait_for_signal()
        return EXIT_OK

    with asyncio.Runner(loop_factory=precise_loop) as runner:
        return runner.run(until_signal())


def run_exchange(args: argparse.Namespace) -> int:
    from recado.apps.trading.roles import serve_exchange

    return run_work(serve_exchange(args.transport, args.url, print_fact, wait_for_signal))


def run_clients(args: argparse.Namespace) -> int:
    from recado.apps.trading.figures import TransportKind
    from recado.apps.trading.roles import ClientsTask
    from recado.apps.trading.roles import run_clients as trade_all

    if args.transport is TransportKind.TCP and args.url is None:
        return print_error("missing --url tcp://HOST:PORT of the exchange", EXIT_USAGE)
    if args.asks % args.clients:
        return print_error(
            f"{args.asks} asks cannot be divided evenly among {args.clients} clients", EXIT_USAGE
        )
    broker = args.broker or ("broker" if args.transport is TransportKind.AMQP else None)
    counts = args.clients, args.asks, args.feed_url
    task = ClientsTask(args.transport, args.url, *counts, args.run, broker, args.latency)
    return run_work(trade_all(task, print_fact))


def run_work(work: Coroutine[Any, Any, None]) -> int:
    """Run a coroutine on the default event loop.

    A busy-polling loop, as the broker has, would halve the time of an ask over TCP if each process had a
    core, but would take the cores from a third process.
    """
    from recado.actors.errors import ActorError
    from recado.actors.remote.errors import RemoteActorError
    from recado.apps.trading.clients import TotalsMismatchError
    from recado.client.errors import ClientError

    settings = load_config(file=None, environment=os.environ, flags={}).settings
    gc.freeze()  # loaded objects stay: keep the collector from scanning them while asks are timed
    try:
        with new_runner(settings) as runner:
            runner.run(work)
    except (ActorError, RemoteActorError, ClientError, TotalsMismatchError) as error:
        return print_error(str(error), EXIT_FAILED)
    return EXIT_OK


async def wait_for_signal() -> None:
    """Wait for SIGTERM or Ctrl-C."""
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    await stopped.wait()


def print_fact(fact: dict[str, object]) -> None:
    """Print a JSON line for the parent process, which waits for it."""
    print(msgspec.json.encode(fact).decode(), flush=True)
