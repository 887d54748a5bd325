"""`recado chat`: a chat for browsers, on a broker of its own or on any other."""

from __future__ import annotations

import argparse
import errno
import gc
import logging
import socket
import sqlite3
import sys
from collections.abc import Sequence

from recado.cli import EXIT_FAILED, EXIT_USAGE, describe_os_error, print_error
from recado.cli.feed_session import until_signal
from recado.client import ClientError
from recado.feeds.errors import FeedError
from recado.node.event_loop import new_runner
from recado.node.settings import Settings
from recado.server.open_files import raise_file_limit

EXTRA_HINT = "the chat needs aiohttp and pyarrow: pip install 'recado[chat]'"
DEFAULT_PORT = 8080
PORT_MAX = 65_535


def run_chat_command(options: Sequence[str]) -> int:
    args = build_parser().parse_args(options)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    raise_file_limit()
    try:
        with new_runner(Settings()) as runner:
            return runner.run(until_signal(serve(args)))
    except ModuleNotFoundError as error:
        if error.name in ("aiohttp", "pyarrow", "numpy"):
            return print_error(EXTRA_HINT, EXIT_FAILED)
        raise
    except (ClientError, FeedError) as error:
        return print_error(str(error), EXIT_FAILED)
    except ValueError as error:  # an invalid URL
        return print_error(str(error), EXIT_USAGE)
    except sqlite3.Error as error:
        return print_error(f"{args.data}: {error}", EXIT_FAILED)
    except OSError as error:
        return print_error(describe_start_error(error, args), EXIT_FAILED)


def describe_start_error(error: OSError, args: argparse.Namespace) -> str:
    """Return why the chat does not start, and the option to change."""
    if error.errno == errno.EADDRINUSE:
        return f"{args.host}:{args.port}: address already in use: choose another port with --port"
    if isinstance(error, socket.gaierror):
        return f"--host {args.host}: {error.strerror}"
    return describe_os_error(error)


def parse_port(text: str) -> int:
    port = int(text)
    if not 0 <= port <= PORT_MAX:
        raise argparse.ArgumentTypeError(f"{port} is not between 0 and {PORT_MAX}")
    return port


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="recado chat",
        description="Serve a chat for browsers, until Ctrl-C. Without --url it starts a broker of its own.",
    )
    parser.add_argument("--url", help="an AMQP broker to use: amqp://user:password@host:port/vhost")
    parser.add_argument(
        "--data", metavar="DIR", help="keep users and messages here; default: nothing is kept"
    )
    parser.add_argument("--host", default="127.0.0.1", help="default: %(default)s")
    parser.add_argument(
        "--port",
        type=parse_port,
        metavar="PORT",
        default=DEFAULT_PORT,
        help="0: a free one; default: %(default)s",
    )
    parser.add_argument("--demo", action="store_true", help="add rooms with talkative bots")
    return parser


async def serve(args: argparse.Namespace) -> int:
    from recado.apps.chat.server import ServerOptions, run_chat

    options = ServerOptions(
        url=args.url, data=args.data, host=args.host, port=args.port, demo=args.demo
    )
    async with run_chat(options) as running:
        gc.freeze()  # modules contain no garbage: later collections need not visit them
        print(f"chat on {running.url}", flush=True)
        print(f"recado: broker on {running.broker_url}", file=sys.stderr)
        error = await running.failure
    return print_error(f"the chat cannot continue: {error}", EXIT_FAILED)
