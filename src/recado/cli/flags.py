"""The flags that set something, and the configuration that results from them and everything else."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from recado.node.config import Config, find_file, load_config

if TYPE_CHECKING:
    from recado.node.settings import Settings


def build_parser(
    command: str, description: str, *, has_listener: bool = True
) -> argparse.ArgumentParser:
    """A parser with the flags for settings. `dest` is the key: that is how a value finds its place.

    Commands for a folder whose node is stopped do not listen, and have none of the flags for that.
    """
    parser = argparse.ArgumentParser(
        prog=f"recado {command}",
        description=description,
        # To ask for the terminal's width argparse imports shutil and every compression with it.
        formatter_class=lambda prog: argparse.HelpFormatter(prog, width=100),
    )
    parser.add_argument("--config", metavar="FILE", help="default: ./recado.toml")
    group = parser.add_argument_group("settings (for every other: RECADO_SECTION_KEY, or the file)")
    if has_listener:
        group.add_argument("--host", dest="server.host", metavar="H", help="default: 127.0.0.1")
        group.add_argument(
            "--port",
            dest="server.port",
            type=int,
            metavar="N",
            help="default: 5672; 0 takes a free one",
        )
        group.add_argument(
            "--tls-port", dest="server.tls_port", type=int, metavar="N", help="also listen with TLS"
        )
    data = (
        "keep what is durable in this folder; default: in memory" if has_listener else "the folder"
    )
    group.add_argument("--data", dest="node.data", metavar="DIR", help=data)
    return parser


def suggest_journal_check(settings: Settings) -> str:
    """How to go on with a damaged folder."""
    return f"`recado journal check --data {settings.node.data}` shows all that is damaged"


def load_config_from_flags(chosen: argparse.Namespace) -> Config:
    """The configuration that a command with these arguments runs under."""
    flags = {key: value for key, value in vars(chosen).items() if "." in key}
    return load_config(file=find_file(chosen.config), environment=os.environ, flags=flags)
