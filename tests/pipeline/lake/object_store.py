"""Moto's S3 in a process of its own, because deltalake holds Python's GIL while it waits for a response."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple
from urllib.request import Request, urlopen

BUCKET: Final = "lake"
_KEY, _SECRET = "a-key", "a secret"
_SERVER: Final = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(*server.get_host_and_port(), flush=True)
sys.stdin.read()
"""


class ObjectStore(NamedTuple):
    url: str

    @property
    def delta(self) -> dict[str, str | bool]:
        """Options by the names of deltalake."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": _KEY,
            "AWS_SECRET_ACCESS_KEY": _SECRET,
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": True,
        }

    @property
    def iceberg(self) -> dict[str, str]:
        """Options by the names of pyiceberg."""
        return {
            "s3.endpoint": self.url,
            "s3.access-key-id": _KEY,
            "s3.secret-access-key": _SECRET,
            "s3.region": "us-east-1",
        }


@contextmanager
def object_store() -> Iterator[ObjectStore]:
    """With one bucket. It ends with its standard input, so also when this process is killed."""
    with subprocess.Popen(
        [sys.executable, "-c", _SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as server:
        assert server.stdout is not None
        assert server.stdin is not None
        host, port = server.stdout.readline().split()
        store = ObjectStore(f"http://{host}:{port}")
        with urlopen(Request(f"{store.url}/{BUCKET}", method="PUT")):
            yield store
        server.stdin.close()
        server.wait()
