"""Virtual environments of the peers that are not in that of the project: created on first use, in .cache.

Some are too large for it: xoscar needs pandas and SciPy, Ray half a gigabyte. The file `peers.txt` of a benchmark
pins their versions. The name of the folder is derived from them, so new versions get a new environment. It is
created by Python's own venv and pip, with the configured index and certificates.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

from bench.book import NotMeasuredError

CACHE = Path(__file__).parents[1] / ".cache"
LONGEST_S = 900


def python_of_peers(pins: Path, cache: Path = CACHE) -> Path:
    """Return the Python that has the peers of this file. Raises NotMeasuredError if they cannot be installed."""
    decides = pins.read_bytes() + sys.version.encode()
    folder = cache / f"{pins.parent.name}-peers-{hashlib.sha256(decides).hexdigest()[:12]}"
    stamp = folder / "complete"
    python = folder / "bin" / "python"
    if not stamp.is_file():
        print(
            f"installing the peers of {pins.parent.name}, once: this takes some minutes", flush=True
        )
        cache.mkdir(exist_ok=True)
        step([sys.executable, "-m", "venv", "--clear", str(folder)])
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        step([*pip, "--requirement", str(pins)])
        stamp.touch()
    return python


def step(command: list[str]) -> None:
    try:
        subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_S, check=True)
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or ["no error output"])[-1]
        raise NotMeasuredError(f"the peers cannot be installed: {last}") from None
    except subprocess.TimeoutExpired:
        raise NotMeasuredError(f"the peers were not installed within {LONGEST_S} s") from None
