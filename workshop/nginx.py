"""Debian's nginx as a reverse proxy in front of one node."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from . import system
from .peers import HOST, free_ports, process, temporary_folder, until_ready

CONFIGURATION = """\
daemon off;
master_process off;
error_log stderr warn;
pid {folder}/nginx.pid;
events {{ worker_connections 64; }}
http {{
    access_log off;
    client_body_temp_path {folder};
    proxy_temp_path {folder};
    fastcgi_temp_path {folder};
    uwsgi_temp_path {folder};
    scgi_temp_path {folder};
    server {{
        listen {host}:{port};
        location {path}/ {{
            proxy_pass http://{host}:{target};
            proxy_set_header Host $http_host;
            proxy_set_header X-Forwarded-Proto $scheme;
        }}
    }}
}}
"""


@contextmanager
def proxy(target: int, path: str) -> Iterator[int]:
    """Serve a port of this machine below a path, which stays part of the requests; return the port of nginx."""
    (program,) = system.need(system.NGINX)
    (port,) = free_ports(1)
    with temporary_folder("nginx") as folder:
        text = CONFIGURATION.format(folder=folder, host=HOST, port=port, target=target, path=path)
        (folder / "nginx.conf").write_text(text)
        command = [program, "-e", "stderr", "-p", str(folder), "-c", str(folder / "nginx.conf")]
        log = folder / "nginx.log"
        with process(command, log, os.environ, signal.SIGTERM) as started:
            until_ready("nginx", started, log, lambda: port, is_listening)
            yield port


def is_listening(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), timeout=5).close()
    except OSError:
        return False
    return True
