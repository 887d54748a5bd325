"""Debian's PostgreSQL, with an empty cluster in a temporary folder.

It refuses to run as root, so root starts it as the user that Debian's package has created.
"""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from . import system
from .peers import HOST, free_ports, process, temporary_folder, until_ready

USER = "postgres"
# Nothing here survives the power of the machine anyway. Clients are killed, not the server.
SETTINGS = {"fsync": "off", "shared_buffers": "16MB", "autovacuum_naptime": "5s"}


@contextmanager
def postgres() -> Iterator[str]:
    """Start a server on a free port; yields the URL of its database `postgres`."""
    server, initdb = system.need(system.POSTGRES, system.INITDB)
    (port,) = free_ports(1)
    with temporary_folder("postgres") as folder:
        as_user = switch_user(folder)
        data = folder / "data"
        create = [initdb, "--pgdata", str(data), "--username", USER, "--auth=trust", "--no-sync"]
        subprocess.run(
            [*as_user, *create, "--encoding=UTF8", "--locale=C.UTF-8"],
            check=True,
            cwd=folder,
            stdout=subprocess.DEVNULL,
        )
        command = [server, "-D", str(data), "-h", HOST, "-p", str(port), "-k", str(folder)]
        command += [word for key, value in SETTINGS.items() for word in ("-c", f"{key}={value}")]
        url = f"postgresql://{USER}@{HOST}:{port}/postgres"
        log = folder / "postgres.log"
        # SIGQUIT stops it at once, without a checkpoint.
        with process([*as_user, *command], log, os.environ, signal.SIGQUIT) as started:
            until_ready("PostgreSQL", started, log, lambda: port, lambda _: accepts(url))
            yield url


def switch_user(folder: Path) -> list[str]:
    """Return the command that runs another one as a user that may own a cluster, and give the folder to that user."""
    if os.geteuid() != 0:
        return []
    user = pwd.getpwnam(USER)
    os.chown(folder, user.pw_uid, user.pw_gid)
    return ["setpriv", f"--reuid={USER}", f"--regid={user.pw_gid}", "--clear-groups", "--"]


def accepts(url: str) -> bool:
    """Whether the server accepts connections; it refuses them while it starts."""
    try:
        psycopg.connect(url, connect_timeout=5).close()
    except psycopg.OperationalError:
        return False
    return True
