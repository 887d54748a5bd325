"""The limit of open files: how it is raised, and how many connections it allows."""

import resource

import pytest

from recado.server import open_files
from recado.server.open_files import MACOS_FILES_MAX, FileBudget

from .harness import Guest, in_the_loop, new_server

UNLIMITED = resource.RLIM_INFINITY


class Limits:
    """A system with limits of open files of its own."""

    def __init__(self, soft: int, hard: int, accepted_max: int = 1 << 40) -> None:
        self.now = (soft, hard)
        self._accepted_max = accepted_max

    def get(self, which: int) -> tuple[int, int]:
        assert which == resource.RLIMIT_NOFILE
        return self.now

    def set(self, which: int, limits: tuple[int, int]) -> None:
        assert which == resource.RLIMIT_NOFILE
        if limits[0] > self._accepted_max or limits[0] == UNLIMITED:
            raise ValueError("current limit exceeds maximum limit")
        self.now = limits


def installed(monkeypatch: pytest.MonkeyPatch, limits: Limits) -> Limits:
    monkeypatch.setattr(resource, "getrlimit", limits.get)
    monkeypatch.setattr(resource, "setrlimit", limits.set)
    return limits


@pytest.mark.parametrize(
    ("soft", "hard", "accepted_max", "raised"),
    [
        (256, 4096, 4096, 4096),
        (4096, 4096, 4096, 4096),
        (256, UNLIMITED, MACOS_FILES_MAX, MACOS_FILES_MAX),  # as macOS has it
        (20_000, UNLIMITED, 20_000, 20_000),
        (256, UNLIMITED, 256, 256),
        (UNLIMITED, UNLIMITED, 0, UNLIMITED),
    ],
)
def test_the_soft_limit_is_raised_as_far_as_the_system_allows(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, accepted_max: int, raised: int
) -> None:
    limits = installed(monkeypatch, Limits(soft, hard, accepted_max))
    open_files.raise_file_limit()
    assert limits.now == (raised, hard)


@pytest.mark.parametrize(
    ("limit", "connections"), [(64, 44), (256, 176), (1024, 704), (1 << 20, (1 << 20) - 320)]
)
def test_the_reserve_scales_with_the_limit(
    monkeypatch: pytest.MonkeyPatch, limit: int, connections: int
) -> None:
    installed(monkeypatch, Limits(limit, limit))
    assert open_files.current_budget().connections == connections


def test_without_a_limit_any_number_of_connections_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, Limits(UNLIMITED, UNLIMITED))
    files = open_files.current_budget()
    assert (files.connections, files.backlog) == (None, 128)


@in_the_loop
async def test_a_server_without_files_for_more_connections_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    installed(monkeypatch, Limits(32, 32))
    server, files = new_server(), FileBudget(32)
    assert files.connections is not None
    guests = [Guest(server) for _ in range(files.connections)]
    assert await guests[-1].greet() is None
    refused = [Guest(server) for _ in range(files.refusals)]
    close = await refused[0].greet()
    assert close is not None
    assert close.reply_code == 530
    assert "open file limit of 32 allows 22 connections; raise it" in close.reply_text
    assert (
        "connection refused: open file limit reached (connections=22 open_files=32" in caplog.text
    )
    assert Guest(server).wire.aborted, "not even a refusal can be spent on more"
