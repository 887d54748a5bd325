"""Small programs of ours that run another one a little differently, in a folder of this user."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path


def cache_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """A folder of this user only, for another could put a program of his own there."""
    return Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache", "recado")


def write_launcher(program: Path, text: str) -> Path:
    """The program with this text: whole at any moment, whoever else writes it."""
    if not program.is_file() or program.read_text() != text:
        program.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=program.parent, delete=False) as file:
            file.write(text)
        Path(file.name).chmod(0o755)
        Path(file.name).replace(program)
    return program
