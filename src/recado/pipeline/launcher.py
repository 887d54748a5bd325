"""Launcher scripts: small shell scripts that run another program with changed options."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path


def cache_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the directory for launchers. It belongs to this user, so no other user can replace a script."""
    return Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache", "recado")


def write_launcher(program: Path, text: str) -> Path:
    """Write a script unless it has this text already, and return its path.

    The file is replaced atomically, because several processes may write it at once.
    """
    if not program.is_file() or program.read_text() != text:
        program.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=program.parent, delete=False) as file:
            file.write(text)
        Path(file.name).chmod(0o755)
        Path(file.name).replace(program)
    return program
