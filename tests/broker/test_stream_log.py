"""The log of a stream in memory."""

import pytest
from hypothesis import settings

from recado.broker.stream_log import MemoryStreamLog, StreamLog, clamp_segment_bytes

from .stream_log_cases import NewLog, StreamLogCases, StreamLogMachine


class TestMemoryLog(StreamLogCases):
    @pytest.fixture
    def new_log(self) -> NewLog:
        return MemoryStreamLog


class MemoryLogMachine(StreamLogMachine):
    def new_log(self) -> StreamLog:
        return MemoryStreamLog(4096)


TestMemoryLogInAnyOrder = MemoryLogMachine.TestCase
TestMemoryLogInAnyOrder.settings = settings(max_examples=100, stateful_step_count=40)


@pytest.mark.parametrize(
    ("asked", "given"),
    [(None, 32 << 20), (0, 4096), (5000, 5000), (64 << 20, 64 << 20), (3_000_000_000, 128 << 20)],
)
def test_the_size_of_a_segment(asked: int | None, given: int) -> None:
    assert clamp_segment_bytes(asked) == given
