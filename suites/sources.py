"""Where a suite comes from: a source distribution of the package index, or a repository.

Both end as a folder of downloads, named by the version, that later runs find in place.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path

from suites.catalogue import Distribution, Repository, Suite
from suites.places import CONSTRAINTS, NotAvailableError, command, downloads


def obtain(suite: Suite, checkout: Path | None = None) -> tuple[Path, str]:
    """The unpacked suite and its version; downloaded unless an earlier run did."""
    match suite.source:
        case Distribution(package):
            version = pinned(package)
            folder = distribution(package, version)
        case Repository(url, commit, variable):
            version = commit[:10]
            given = checkout or os.environ.get(variable)
            folder = repository(suite.name, url, commit, Path(given) if given else None, variable)
    if not (folder / suite.tests).is_dir():
        raise NotAvailableError(f"{folder.name} has no folder {suite.tests}")
    return folder, version


def pinned(package: str) -> str:
    """The version of a client that the project is tested with."""
    for file in CONSTRAINTS:
        found = re.search(rf"^{re.escape(package)}==(\S+)$", file.read_text(), re.MULTILINE)
        if found:
            return found[1]
    raise NotAvailableError(f"constraints.txt does not pin {package}")


def distribution(package: str, version: str) -> Path:
    """A source distribution, by pip: it knows the index and the certificates of the user."""
    with downloads() as cache:
        folder = cache / f"{package}-{version}"
        if folder.is_dir():
            return folder
        with tempfile.TemporaryDirectory(dir=cache) as name:
            place = Path(name)
            pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download"]
            # Its source, while the tools that pip needs to read its metadata may come as wheels.
            pip += ["--no-binary", package, "--no-deps", "--dest", str(place)]
            command([*pip, f"{package}=={version}"], f"{package} could not be downloaded")
            (archive,) = place.glob("*.tar.gz")
            with tarfile.open(archive) as packed:
                packed.extractall(place, filter="data")
            (place / folder.name).rename(folder)
        return folder


def repository(name: str, url: str, commit: str, given: Path | None, variable: str) -> Path:
    """One commit of a repository, cloned from a checkout on this machine or from its home."""
    with downloads() as cache:
        folder = cache / f"{name}-{commit[:10]}"
        if folder.is_dir():
            return folder
        origin = str(given.resolve()) if given else url
        help_ = (
            f"{origin} could not be cloned at {commit[:10]}. Clone {url} where the network allows,"
            f" and give it by `./dev suites {name} --checkout DIR` or {variable}=DIR"
        )
        with tempfile.TemporaryDirectory(dir=cache) as place:
            clone = Path(place) / "clone"
            # Asking for a password would wait for ever where nobody sits.
            quiet = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
            git = ["git", "-c", "advice.detachedHead=false"]
            command([*git, "clone", "--quiet", origin, clone], help_, environment=quiet)
            command([*git, "-C", clone, "checkout", "--quiet", commit], help_, environment=quiet)
            shutil.rmtree(clone / ".git")
            clone.rename(folder)
        return folder
