"""The certificates of the TLS listeners, loaded again when their files change.

Every `CHECK_INTERVAL_S`, or at once if it is requested (SIGHUP), a thread compares inode, size and modification
time of the files with those of the last attempt. If one has changed, all files are checked and loaded into new
TLS contexts, which then replace the current ones together: a certificate is never used with the key of
another. New connections use the new contexts; open connections keep theirs. Files that cannot be used are
logged once, and the current contexts stay.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from recado.node.config import ConfigError
from recado.node.settings import ServerSettings
from recado.node.tls import check_tls_files, server_context
from recado.node.x509 import read_expiry_dates

log = logging.getLogger("recado.node")

CHECK_INTERVAL_S: Final = 10.0

FileVersion = tuple[int, int, int] | None
"""Inode, size and modification time; None if the file cannot be found."""


class ReloadableContext(ssl.SSLContext):
    """The TLS context of a listener: each new connection uses the context that was loaded last.

    For asyncio, which calls `wrap_bio`. It has no certificate of its own.
    """

    def __new__(cls, loaded: ssl.SSLContext) -> ReloadableContext:
        return super().__new__(cls, ssl.PROTOCOL_TLS_SERVER)

    def __init__(self, loaded: ssl.SSLContext) -> None:
        self.loaded = loaded

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        return self.loaded.wrap_bio(incoming, outgoing, server_side, server_hostname, session)


class LoadedFiles(NamedTuple):
    """What was read from the files at one time."""

    amqps: ssl.SSLContext
    https: ssl.SSLContext
    certificate_expiry: list[datetime]
    ca_expiry: list[datetime]


class Certificates:
    """The TLS contexts of the listeners, and the task that keeps them up to date.

    `amqps` asks clients for certificates if `server.ca` is set; `https` does not, because its clients log in
    with passwords or tokens. Raises `ConfigError` if a file cannot be used.
    """

    def __init__(self, settings: ServerSettings) -> None:
        assert settings.certificate is not None
        assert settings.key is not None
        self.certificate_file = settings.certificate
        self.ca_file = settings.ca
        self._key_file = settings.key
        self._verify = settings.verify
        self._versions = self._read_versions()
        self._files = self._load()
        self.amqps = ReloadableContext(self._files.amqps)
        self.https = ReloadableContext(self._files.https)
        self._requested = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._log_expired()

    @property
    def certificate_expiry(self) -> Sequence[datetime]:
        """Until when the certificates of `server.certificate` are valid."""
        return self._files.certificate_expiry

    @property
    def ca_expiry(self) -> Sequence[datetime]:
        """Until when the authorities of `server.ca` are valid."""
        return self._files.ca_expiry

    def start(self, interval_s: float = CHECK_INTERVAL_S) -> None:
        """Check the files from now on, in the running loop."""
        self._task = asyncio.get_running_loop().create_task(self._watch(interval_s))

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def request_reload(self) -> None:
        """Load the files soon, also if they look unchanged."""
        self._requested.set()

    async def _watch(self, interval_s: float) -> None:
        loop = asyncio.get_running_loop()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(interval_s):
                    await self._requested.wait()
            is_forced = self._requested.is_set()
            self._requested.clear()
            await loop.run_in_executor(None, partial(self.reload, is_forced=is_forced))

    def reload(self, *, is_forced: bool = False) -> None:
        """Load the files if one has changed, or in any case if `is_forced`. The result is logged."""
        # Before loading: a change while they are loaded is seen next time.
        versions = self._read_versions()
        if versions == self._versions and not is_forced:
            return
        self._versions = versions
        try:
            files = self._load()
        except (ConfigError, OSError) as error:  # OSError: a file changed after its check
            log.error("TLS certificate not reloaded, the current one stays in use: %s", error)
            return
        self._files = files
        self.amqps.loaded, self.https.loaded = files.amqps, files.https
        log.info(
            "TLS certificate reloaded (file=%s expires=%s)",
            self.certificate_file,
            min(files.certificate_expiry).isoformat(),
        )
        self._log_expired()

    def _load(self) -> LoadedFiles:
        certificate, key, ca = self.certificate_file, self._key_file, self.ca_file
        check_tls_files(certificate, key, ca)
        return LoadedFiles(
            amqps=server_context(certificate, key, ca, verify=self._verify),
            https=server_context(certificate, key, None, verify=False),
            certificate_expiry=_read_expiry_dates("server.certificate", certificate),
            ca_expiry=[] if ca is None else _read_expiry_dates("server.ca", ca),
        )

    def _read_versions(self) -> list[FileVersion]:
        files = (self.certificate_file, self._key_file, self.ca_file)
        return [_read_version(file) for file in files if file is not None]

    def _log_expired(self) -> None:
        expires = self._files.certificate_expiry[0]
        if expires < datetime.now(UTC):
            log.warning(
                "TLS certificate has expired (file=%s expired=%s setting=server.certificate)",
                self.certificate_file,
                expires.isoformat(),
            )


def _read_version(file: str) -> FileVersion:
    try:
        found = Path(file).stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _read_expiry_dates(setting: str, file: str) -> list[datetime]:
    """Return until when the certificates of a file are valid: at least one. Raises `ConfigError`."""
    try:
        if dates := read_expiry_dates(Path(file).read_bytes()):
            return dates
    except ValueError as error:
        raise ConfigError(f"{setting} {file!r}: {error}") from error
    raise ConfigError(f"{setting} {file!r} has no certificate in PEM format")
