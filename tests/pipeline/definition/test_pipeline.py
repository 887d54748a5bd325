"""The representation of a pipeline in a notebook and in a log."""

from __future__ import annotations

from recado.pipeline.definition import Pipeline


def test_no_secret_is_shown() -> None:
    pipeline = (
        Pipeline("x")
        .read("queue", "amqp", url="amqp://ana:secret@host", queue="q")
        .read("table", "jdbc", url="jdbc:x", Password="secret")
        .write("out", "delta", path="s3://b/x", storage={"AWS_SECRET_ACCESS_KEY": "secret"})
    )
    shown = repr(pipeline)
    assert "secret" not in shown
    assert "Sink(format='delta', options={'path': 's3://b/x', 'storage': '…'})" in shown
    ends = (*pipeline.sources.values(), *pipeline.sinks.values())
    assert not any("secret" in str(each.__rich_repr__()) for each in ends)
