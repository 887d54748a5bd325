"""What the suites need besides a broker: certificates made for the occasion, and a redis."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import trustme

from suites.catalogue import ClientCertificates
from workshop import peers, system

START_SECONDS = 20.0


def server_certificates(folder: Path, *, required: bool) -> tuple[trustme.CA, peers.Certificates]:
    """An authority of our own, and what a broker needs to be known by it as localhost.

    `required` is whether the broker refuses TLS clients without a certificate.
    """
    authority = trustme.CA()
    issued = authority.issue_cert("localhost", peers.HOST)
    files = peers.Certificates(
        ca=folder / "ca.pem",
        certificate=folder / "server.pem",
        key=folder / "server_key.pem",
        verify=required,
    )
    authority.cert_pem.write_to_path(str(files.ca))
    issued.private_key_pem.write_to_path(str(files.key))
    issued.cert_chain_pems[0].write_to_path(str(files.certificate))
    return authority, files


def client_certificates(authority: trustme.CA, suite: Path, files: ClientCertificates) -> None:
    """Write the files that a suite expects; py-amqp's broken ones come from another authority."""
    folder = suite / files.folder
    for name in (files.ca, files.certificate, files.key):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
    authority.cert_pem.write_to_path(str(folder / files.ca))
    for issuer, suffix in ((authority, ""), (trustme.CA(), "_broken")):
        issued = issuer.issue_cert("client@example.org")
        for name, pem in (
            (files.key, issued.private_key_pem),
            (files.certificate, issued.cert_chain_pems[0]),
        ):
            file = folder / name
            pem.write_to_path(str(file.with_stem(file.stem + suffix)))


@contextmanager
def redis() -> Iterator[int]:
    """Debian's redis-server on a free port, keeping nothing; its port."""
    (program,) = system.need(system.REDIS)
    (port,) = peers.free_ports(1)
    with ExitStack() as stack:
        folder = stack.enter_context(peers.temporary_folder("redis"))
        options = ["--bind", peers.HOST, "--port", str(port), "--dir", str(folder)]
        options += ["--save", "", "--appendonly", "no"]
        log = folder / "redis.log"
        started = stack.enter_context(peers.process([program, *options], log, os.environ))
        deadline = time.monotonic() + START_SECONDS
        while not answers(port):
            if started.poll() is not None or time.monotonic() > deadline:
                raise peers.PeerStartError(f"redis does not answer:\n{peers.tail(log)}")
            time.sleep(0.01)
        yield port


def answers(port: int) -> bool:
    try:
        with socket.create_connection((peers.HOST, port), timeout=5) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(5) == b"+PONG"
    except OSError:
        return False
