"""Fetch the JavaScript of other projects for web pages, and a schema, from the npm registry.

    python -m workshop.vendor

The files are committed, so neither an installation nor a browser ever contacts another host. This module is run
only to change a version. It writes the files, their licences and a manifest with their hashes, which a test
compares with the files.

Two changes are made to what the packages contain. Hooks import `preact`, a name that a browser cannot resolve
without an import map, so the name becomes the file next to it. Comments with the address of a source map are removed.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
PAGES: Final = ROOT / "src/recado/web/vendor"
TESTS: Final = ROOT / "tests/console/web/vendor"
SCHEMAS: Final = ROOT / "tests/patterns/vendor"


class Package(NamedTuple):
    """A package of npm, the files taken from it, and their names here."""

    name: str
    version: str
    licence: str
    files: dict[str, str]
    folder: Path


PACKAGES: Final = (
    Package(
        "preact",
        "11.2.0",
        "MIT",
        {
            "dist/preact.mjs": "preact.js",
            "hooks/dist/hooks.mjs": "hooks.js",
            "LICENSE": "preact.LICENSE",
        },
        PAGES,
    ),
    Package(
        "htm",
        "3.1.1",
        "Apache-2.0",
        {"dist/htm.module.js": "htm.js", "LICENSE": "htm.LICENSE"},
        PAGES,
    ),
    Package(
        "uplot",
        "1.6.32",
        "MIT",
        {
            "dist/uPlot.esm.js": "uplot.js",
            "dist/uPlot.min.css": "uplot.css",
            "LICENSE": "uplot.LICENSE",
        },
        PAGES,
    ),
    Package(
        "axe-core",
        "4.14.0",
        "MPL-2.0",
        {"axe.min.js": "axe.min.js", "LICENSE": "axe-core.LICENSE"},
        TESTS,
    ),
    Package(
        "@asyncapi/specs",
        "6.11.1",
        "Apache-2.0",
        {"schemas/3.0.0-without-$id.json": "asyncapi-3.0.0.json", "LICENSE": "asyncapi.LICENSE"},
        SCHEMAS,
    ),
)


def main() -> None:
    for folder in (PAGES, TESTS, SCHEMAS):
        folder.mkdir(parents=True, exist_ok=True)
        packages = [package for package in PACKAGES if package.folder == folder]
        manifest = [_bring(package) for package in packages]
        (folder / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")


def _bring(package: Package) -> dict[str, Any]:
    """Write the files of a package, and return its entry in the manifest."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["npm", "pack", "--json", f"{package.name}@{package.version}"]
        done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
        packed = json.loads(done.stdout)
        entry = packed[0] if isinstance(packed, list) else next(iter(packed.values()))
        hashes = {}
        with tarfile.open(Path(folder) / entry["filename"]) as archive:
            for source, name in package.files.items():
                member = archive.extractfile(f"package/{source}")
                assert member is not None
                data = _adapt(member.read())
                (package.folder / name).write_bytes(data)
                hashes[name] = hashlib.sha256(data).hexdigest()
    return {
        "package": package.name,
        "version": package.version,
        "licence": package.licence,
        "integrity": entry["integrity"],
        "sha256": hashes,
    }


def _adapt(data: bytes) -> bytes:
    data = data.replace(b'from"preact"', b'from"./preact.js"')
    start = data.rfind(b"//# sourceMappingURL=")
    return data if start < 0 else data[:start].rstrip() + b"\n"


if __name__ == "__main__":
    main()
