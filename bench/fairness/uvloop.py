"""uvloop, installed outside of the project's environment: inside it, every broker of every test would use it.

It is installed on first use, into a folder in .cache with its version in the name.
"""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from bench.book import NotMeasuredError

ROOT = Path(__file__).parents[2]
INSTALL_S = 300


@cache
def environment() -> dict[str, str]:
    """Return the environment variables with which a broker finds uvloop. Raises NotMeasuredError if it cannot
    be installed."""
    if find_spec("uvloop") is not None:
        return {}
    pins = (ROOT / "constraints.txt").read_text().splitlines()
    pin = next(line for line in pins if line.startswith("uvloop=="))
    folder = ROOT / ".cache" / f"{pin}-{sys.implementation.cache_tag}"
    stamp = folder / "complete"
    if not stamp.is_file():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade"]
        install = [*pip, "--target", str(folder), pin]
        done = subprocess.run(
            install, capture_output=True, text=True, check=False, timeout=INSTALL_S
        )
        if done.returncode:
            raise NotMeasuredError(f"uvloop cannot be installed: {done.stderr.strip()[-200:]}")
        stamp.touch()
    return {"PYTHONPATH": str(folder)}
