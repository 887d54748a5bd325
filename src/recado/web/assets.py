"""The files of a web application, in memory: a page, its scripts, styles and licences.

All files are read once, at the first request, in a thread. A request looks its path up in a table, so no path ever
reaches the file system. Scripts and styles have addresses that contain a digest of all files but the page
(`static/1f0c9a2b77de/main.js`): browsers store them for ever, and a new version has new addresses. Addresses are
relative, so a page works under any path of a reverse proxy. The JavaScript of other projects is in one folder for all
applications, which see the files that they name as `static/…/vendor/preact.js`.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

import msgspec

VENDOR_FOLDER: Final = Path(__file__).parent / "vendor"
PAGE: Final = "index.html"
TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".LICENSE": "text/plain; charset=utf-8",
}
DIGEST_DIGITS_COUNT: Final = 12


class Asset(msgspec.Struct, frozen=True):
    """One file as it is answered."""

    content_type: str
    body: bytes
    compressed: bytes
    etag: str
    cache_control: str


class WebAssets:
    """Finds the answer to a path."""

    def __init__(self, folder: Path, *, vendored: Collection[str] = ()) -> None:
        """Serve the files of a folder, and those of `vendor` whose names without suffix are in `vendored`."""
        self._folder = folder
        self._vendored = vendored
        self._loading: asyncio.Task[dict[str, Asset]] | None = None

    async def find(self, path: str) -> Asset | None:
        """Return the file at a path, which begins with a slash; None if there is none."""
        if path != "/" and not path.startswith("/static/"):
            return None
        if self._loading is None:
            loading = asyncio.to_thread(load_assets, self._folder, self._vendored)
            self._loading = asyncio.get_running_loop().create_task(loading)
        return (await asyncio.shield(self._loading)).get(path)


def load_assets(folder: Path, vendored: Collection[str] = ()) -> dict[str, Asset]:
    """Return all files of a folder, and the given ones of other projects, by path; the page is at `/`."""
    files = {name: path.read_bytes() for name, path in sorted(_find_files(folder, vendored))}
    page = files.pop(PAGE)
    digest = hashlib.sha256()
    for name, data in files.items():
        digest.update(name.encode() + b"\0" + data + b"\0")
    static = f"static/{digest.hexdigest()[:DIGEST_DIGITS_COUNT]}"
    # The browser then requests all modules at once, not one after the other as they import each other.
    modules = [name for name in files if name.endswith(".js") and not name.startswith("early")]
    preloads = "\n".join(f'<link rel="modulepreload" href="{static}/{name}">' for name in modules)
    text = page.decode().replace("{static}", static).replace("{preloads}", preloads)
    assets = {"/": _asset(PAGE, text.encode(), "no-cache")}
    for name, data in files.items():
        assets[f"/{static}/{name}"] = _asset(name, data, "public, max-age=31536000, immutable")
    return assets


def _find_files(folder: Path, vendored: Collection[str]) -> Iterator[tuple[str, Path]]:
    for path in folder.rglob("*"):
        if path.suffix in TYPES:
            yield path.relative_to(folder).as_posix(), path
    for path in VENDOR_FOLDER.iterdir():
        if path.stem in vendored:
            yield f"vendor/{path.name}", path


def _asset(name: str, body: bytes, cache_control: str) -> Asset:
    return Asset(
        content_type=TYPES[Path(name).suffix],
        body=body,
        compressed=gzip.compress(body, mtime=0),
        etag=f'"{hashlib.sha256(body).hexdigest()[:32]}"',
        cache_control=cache_control,
    )
