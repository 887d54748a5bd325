"""The stream id and the status in a checkpoint."""

from __future__ import annotations

import os
from pathlib import Path

from recado.pipeline import stream_state
from recado.pipeline.report import PipelineReport


def test_an_identity_lasts_as_long_as_the_stream_does(tmp_path: Path) -> None:
    """Batches of a stream that begins anew have the numbers of the old ones, and are others."""
    checkpoint = str(tmp_path / "state")
    first = stream_state.load_stream_id(checkpoint)
    again = stream_state.load_stream_id(checkpoint)
    assert first != again  # no batch was begun: nobody knows it yet
    (tmp_path / "state" / "offsets").mkdir()
    (tmp_path / "state" / "offsets" / "0").write_text("v1\n{}\n{}")
    assert stream_state.load_stream_id(checkpoint) == again
    assert stream_state.load_stream_id(f"file://{checkpoint}") == again


def test_status(tmp_path: Path) -> None:
    assert stream_state.read_status(str(tmp_path / "none")) is None
    for folder, numbers in (("offsets", (0, 1, 2)), ("commits", (0, 1))):
        (tmp_path / folder).mkdir()
        for number in numbers:
            text = f'v1\n{{}}\n{{"next": {number}}}\n-'
            (tmp_path / folder / str(number)).write_text(text)
        (tmp_path / folder / ".0.crc").write_text("")
    seen = stream_state.read_status(str(tmp_path))
    assert seen is not None
    assert (seen.begun, seen.done, seen.offsets, seen.is_alive) == (2, 1, [{"next": 2}, "-"], False)
    stream_state.write_status(str(tmp_path), PipelineReport("quotes", batch=2))
    seen = stream_state.read_status(str(tmp_path))
    assert seen is not None
    assert seen.is_alive
    assert seen.status
    assert (seen.status.process, seen.status.report.batch) == (os.getpid(), 2)
    stream_state.write_status(str(tmp_path), PipelineReport("quotes", batch=2), "ended")
    seen = stream_state.read_status(str(tmp_path))
    assert seen is not None
    assert not seen.is_alive
