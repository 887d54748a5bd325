"""A location with a scheme never becomes a local folder, and a relative path is resolved once."""

from __future__ import annotations

from pathlib import Path

import pytest

from recado.pipeline.definition import Pipeline, load
from recado.pipeline.location import is_object_store, parse_scheme, resolve, to_local_path
from recado.pipeline.options import OptionError


def test_schemes() -> None:
    names = ("a/b", "/a", "./s3:/b", "file:/a", "S3://b/x", "s3a://b", "hdfs:/x", "my-fs+1:x")
    assert [parse_scheme(each) for each in names] == [
        "", "", "", "file", "s3", "s3a", "hdfs", "my-fs+1",
    ]  # fmt: skip
    assert [is_object_store(each) for each in ("s3://b", "S3A://b", "hdfs:/x", "b")] == [
        True, True, False, False,
    ]  # fmt: skip


def test_local_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert to_local_path("a b") == tmp_path / "a b"
    assert to_local_path("./odd:name") == tmp_path / "odd:name"
    for absolute in ("/a%20b", "file:/a%20b", "file:///a%20b", "FILE:///a%20b"):
        assert to_local_path(absolute) == Path("/a%20b")


@pytest.mark.parametrize("location", ["s3://b/x", "S3://b/x", "hdfs:/x", "odd:name"])
def test_other_locations_are_no_folders(location: str) -> None:
    with pytest.raises(OptionError, match="is not a local folder"):
        to_local_path(location)


def test_an_empty_path_is_not_the_working_directory() -> None:
    with pytest.raises(OptionError, match="a path is empty"):
        to_local_path("")


def test_a_relative_path_may_have_the_scheme_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for location in ("file:a b", "FILE:a b"):
        assert resolve(location) == f"file://{tmp_path}/a b"
        assert resolve(location, Path("/c")) == "file:///c/a b"


def test_the_default_configuration_is_that_of_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    default = {"feed": "f", "config": f"{tmp_path}/recado.toml"}
    assert Pipeline("x").read("in", "recado", feed="f").sources["in"].options == default
    for given in ({"Path": "/a"}, {"Config": "/c.toml"}):
        assert Pipeline("x").read("in", "recado", **given).sources["in"].options == given


def test_a_host_is_no_folder() -> None:
    with pytest.raises(OptionError, match="names a host"):
        to_local_path("file://host/x")


def test_paths_are_resolved_when_a_pipeline_is_defined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
    (first / "x.toml").write_text(
        'name = "x"\ncheckpoint = "state"\n[sinks.out]\nformat = "parquet"\npath = "out"\n'
    )
    monkeypatch.chdir(first)
    catalogue = {"table": "a.b", "warehouse": "s3://b/w", "catalogue": "sqlite:///c.db"}
    defined = (
        Pipeline("x", checkpoint="state")
        .read("in", "json", Path="in")
        .write("out", "iceberg", **catalogue)
    )
    loaded = load("x.toml")
    monkeypatch.chdir(second)
    defined = defined.filter("n > 0").write("late", "parquet", path="late")
    assert defined.checkpoint == loaded.checkpoint == str(first / "state")
    assert defined.sources["in"].options == {"Path": str(first / "in")}
    assert defined.sinks["out"].options == catalogue | {"catalogue": f"sqlite:///{first}/c.db"}
    assert loaded.sinks["out"].options == {"path": str(first / "out")}
    assert defined.sinks["late"].options == {"path": str(second / "late")}


def test_other_locations_stay_as_they_are() -> None:
    for location in ("", "/a", "file:/a", "file:///a", "file://host/a", "hdfs://n/a"):
        assert resolve(location) == location
    for uri in ("sqlite:////a/c.db", "sqlite://", "sqlite:///:memory:", "postgresql://h/c"):
        sink = Pipeline("x").write("out", "iceberg", catalogue=uri).sinks["out"]
        assert sink.options["catalogue"] == uri
