"""A small file system in memory, which a test can fill up."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted_disk(folder: Path, size_bytes: int) -> Iterator[Path]:
    """Create the folder and mount a tmpfs on it, which only root can do."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(folder)]
    if os.getuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        test = os.environ["PYTEST_CURRENT_TEST"].partition("::")[0]
        pytest.fail(f"a small disk has to be mounted: sudo ./dev test {test}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)
