"""Command-line flags for settings, and the resulting configuration."""

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
    """Return a parser with the flags for settings, whose `dest` is the key of the setting.

    Commands that only use the folder of a stopped node have no flags for listening.
    """
    parser = argparse.ArgumentParser(
        prog=f"recado {command}",
        description=description,
        # To read the terminal's width argparse would import shutil and all compression modules.
        formatter_class=lambda prog: argparse.HelpFormatter(prog, width=100),
    )
    parser.add_argument("--config", metavar="FILE", help="default: ./recado.toml")
    group = parser.add_argument_group(
        "settings (others: variables RECADO_SECTION_KEY, or the file)"
    )
    if has_listener:
        group.add_argument("--host", dest="server.host", metavar="H", help="default: 127.0.0.1")
        group.add_argument(
            "--port",
            dest="server.port",
            type=int,
            metavar="N",
            help="default: 5672; 0 selects a free port",
        )
        group.add_argument(
            "--tls-port", dest="server.tls_port", type=int, metavar="N", help="also listen with TLS"
        )
        group.add_argument(
            "--management-port",
            dest="management.port",
            type=int,
            metavar="N",
            help="serve the HTTP API (RabbitMQ's is on 15672); default: off",
        )
    data = "folder for durable data; default: in memory" if has_listener else "the data folder"
    group.add_argument("--data", dest="node.data", metavar="DIR", help=data)
    return parser


def suggest_journal_check(settings: Settings) -> str:
    """Return the hint for a damaged folder."""
    return f"run `recado journal check --data {settings.node.data}` to see all damage"


def load_config_from_flags(args: argparse.Namespace) -> Config:
    """Load the configuration: flags, environment and file."""
    flags = {key: value for key, value in vars(args).items() if "." in key}
    return load_config(file=find_file(args.config), environment=os.environ, flags=flags)
