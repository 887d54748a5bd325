"""The status of a run without Spark: records of reports, and their publication to a node."""

from __future__ import annotations

import asyncio

import pytest

import recado
from recado.pipeline.definition import InvalidPipelineError, Pipeline
from recado.pipeline.definition.checker import examine
from recado.pipeline.report import PipelineReport, SourceReport
from recado.pipeline.status import RunStatus, publish_run
from recado.status.record import (
    ERROR_MAX_COUNT,
    PARTS_MAX_COUNT,
    PipelineStatus,
    decode_record,
    encode_record,
    routing_key,
)
from tests.console.http import Api
from workshop.time_limit import scale


def full_report() -> PipelineReport:
    return PipelineReport(
        "bars",
        batch=2,
        batches=3,
        batch_seconds=0.5,
        sources={"quotes": SourceReport(10, 4.0, 7), "files": SourceReport(5, 1.0, None)},
        sinks={"out": 12},
        dead={"step 1 (filter)": 3},
        late=1,
        duplicates=2,
    )


def test_a_record_has_the_figures_of_the_report() -> None:
    changes: list[PipelineStatus] = []
    status = RunStatus("bars", 1_000, changes.append)
    assert (status.record.state, status.record.batch) == ("starting", -1)
    status.update(full_report(), 2_000)
    status.finish(3_000, was_stopped=False)
    running, finished = changes
    assert (running.state, running.at, running.started_at) == ("running", 2_000, 1_000)
    assert (running.rows, running.rows_per_second, running.lag) == (15, 5.0, 7)
    assert (running.dead_letters, running.late, running.duplicates) == (3, 1, 2)
    assert running.sources["files"].lag is None
    assert (finished.state, finished.rows, finished.run) == ("finished", 15, running.run)
    status.finish(4_000, was_stopped=True)
    assert changes[-1].state == "stopped"


def test_figures_and_texts_of_any_kind_are_published() -> None:
    """Whatever a report has, its record is accepted."""
    report = full_report()
    report.sources = {
        f"{number} " + "x" * 300: SourceReport(-1, float("inf"), -5)
        for number in range(PARTS_MAX_COUNT + 5)
    }
    report.batch_seconds = float("nan")
    status = RunStatus("bars", 1_000)
    status.update(report, 2_000)
    status.fail(ValueError("x" * 5_000 + "\ud800"), 3_000)
    record = decode_record(routing_key(status.record), encode_record(status.record))
    assert isinstance(record, PipelineStatus)
    assert len(record.sources) == PARTS_MAX_COUNT
    assert record.error is not None
    assert len(record.error) == ERROR_MAX_COUNT


def test_credentials_in_an_error_are_hidden() -> None:
    status = RunStatus("bars", 1_000)
    status.fail(OSError("no amqp://ana:secret@host/x or http://b:p@ss@c"), 2_000)
    assert status.record.error == "no amqp://(hidden)@host/x or http://(hidden)@c"


def collect(broker: recado.Broker) -> None:
    running = broker._running
    assert running is not None
    assert running.management is not None
    collector = running.management.console.collector
    assert collector is not None
    done = asyncio.run_coroutine_threadsafe(collector.collect(), running.server.loop)
    done.result(scale(30.0))


def test_a_run_is_seen_on_a_node() -> None:
    with recado.Broker(config={"management": {"port": 0, "status": True}}) as broker:
        assert broker.management_port is not None
        api = Api(broker.management_port)
        with publish_run("bars", broker.url) as status:
            status.update(full_report(), 2_000)
            status.finish(3_000, was_stopped=False)
        collect(broker)
        found = api.get("/api/pipelines/bars")
        assert (found["state"], found["rows"], found["stale"]) == ("finished", 15, False)
        with pytest.raises(OSError, match="away"), publish_run("bars", broker.url) as status:
            raise OSError("the disk is away")
        collect(broker)
        found = api.get("/api/pipelines/bars")
        assert (found["state"], found["error"]) == ("failed", "the disk is away")
        assert found["run"] == status.record.run


def test_without_a_broker_a_run_goes_on() -> None:
    with recado.Broker() as broker:
        url = broker.url
    with publish_run("bars", url) as status:
        status.update(full_report(), 2_000)


def test_a_wrong_url_is_a_problem_of_the_definition() -> None:
    pipeline = Pipeline("bars", status="http://localhost")
    _, problems = examine(pipeline, batch=True)
    assert [str(each) for each in problems if each.location == "status"]
    with pytest.raises(InvalidPipelineError, match="status"), publish_run("bars", pipeline.status):
        pass
