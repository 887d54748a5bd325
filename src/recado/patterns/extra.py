"""Packages of extras, imported when something that needs one is used."""

from importlib import import_module
from typing import Any


def import_package(module: str, extra: str = "patterns") -> Any:
    """Return a module. Raises ImportError with the command that installs it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(
            f"{module.partition('.')[0]} is not installed: pip install 'recado[{extra}]'"
        ) from error
