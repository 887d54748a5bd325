"""The options of `format("recado")`."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from recado.pipeline.feed.options import (
    parse_position,
    parse_read_options,
    parse_timestamp,
    parse_write_options,
    staging_folder,
    to_micros,
)
from recado.pipeline.options import OptionError

CONFIG = """
[node]
data = "data"
[feeds.archives.first]
feed = "quotes"
[feeds.archives.second]
feed = "orders"
folder = "elsewhere"
"""


class TestPlaces:
    @pytest.mark.parametrize(
        ("text", "place"),
        [
            ("earliest", "earliest"),
            (" Latest ", "latest"),
            ("17", 17),
            ('{"quotes": 17}', 17),
            ('{"quotes": -2}', "earliest"),
            ('{"quotes": -1}', "latest"),
            (None, None),
        ],
    )
    def test_what_they_mean(self, text: str | None, place: object) -> None:
        assert parse_position(text, "startingOffsets", "quotes") == (place, "quotes")

    @pytest.mark.parametrize("text", ["", "first", "-3", "1.5", "true", '{"a": 1, "b": 2}', "[1]"])
    def test_what_they_cannot_mean(self, text: str) -> None:
        with pytest.raises(OptionError, match="expected earliest, latest, an offset"):
            parse_position(text, "startingOffsets", None)

    def test_of_another_feed(self) -> None:
        with pytest.raises(OptionError, match="for the feed 'orders', but 'quotes' is read"):
            parse_position('{"orders": 1}', "startingOffsets", "quotes")
        with pytest.raises(OptionError, match="for the feed 'quotes', but 'orders' is read"):
            parse_read_options(
                {"path": "/x", "startingOffsets": '{"orders": 1}', "endingOffsets": '{"quotes": 2}'}
            )

    def test_they_say_which_feed_it_must_be(self) -> None:
        assert (
            parse_read_options({"path": "/x", "startingOffsets": '{"orders": 1}'}).feed == "orders"
        )


class TestTimes:
    @pytest.mark.parametrize(
        "text", ["1799971200000", "2027-01-15T00:00:00Z", "2027-01-15", "2027-01-14T21:00:00-03:00"]
    )
    def test_what_they_mean(self, text: str) -> None:
        assert parse_timestamp(text, "x") == to_micros(datetime(2027, 1, 15, tzinfo=UTC))

    @pytest.mark.parametrize("text", ["yesterday", "9" * 17, "9" * 5_000], ids=len)
    def test_what_they_cannot_mean(self, text: str) -> None:
        with pytest.raises(OptionError, match="expected milliseconds since 1970"):
            parse_timestamp(text, "startingTimestamp")


class TestReading:
    @pytest.mark.parametrize(
        ("given", "told"),
        [
            ({}, "needs the option path or feed"),
            ({"startingOffsets": "1", "startingTimestamp": "1"}, "exclude each other"),
            ({"endingOffsets": "1", "endingTimestamp": "1"}, "exclude each other"),
            ({"endingOffsets": "earliest"}, "cannot be earliest"),
            ({"selector": "price >"}, r"selector is invalid: line 1, column 1"),
            ({"minPartition": "3"}, "did you mean minPartitions"),
        ],
    )
    def test_what_is_wrong(self, given: dict[str, str], told: str) -> None:
        with pytest.raises(OptionError, match=told):
            parse_read_options(given if not given else {"path": "/x", **given})

    def test_the_folder_is_the_nodes(self, tmp_path: Path) -> None:
        file = tmp_path / "recado.toml"
        file.write_text(CONFIG)
        first = parse_read_options({"feed": "quotes", "config": str(file)})
        assert Path(first.path) == tmp_path / "data" / "feeds" / "first"
        second = parse_read_options({"feed": "orders", "config": str(file)})
        assert Path(second.path) == tmp_path / "elsewhere"
        with pytest.raises(
            OptionError, match="has no archive of the feed news: set the option path"
        ):
            parse_read_options({"feed": "news", "config": str(file)})
        with pytest.raises(
            OptionError, match=r"missing.toml does not exist; set the option path or config"
        ):
            parse_read_options({"feed": "news", "config": str(tmp_path / "missing.toml")})
        file.write_text("[node]\ndato = 1")
        with pytest.raises(OptionError, match=r"did you mean node\.data"):
            parse_read_options({"feed": "quotes", "config": str(file)})


class TestWriting:
    def test_a_checkpoint_is_a_place_for_rows(self) -> None:
        given = {"url": "amqp://localhost", "feed": "out"}
        asked = given | {"checkpointLocation": "file:/c"}
        assert staging_folder(parse_write_options(asked), asked) == Path("/c/recado")
        asked = given | {"checkpointLocation": "hdfs://host/c"}
        with pytest.raises(
            OptionError, match=r"hdfs://host/c is on a file .* set the option staging"
        ):
            staging_folder(parse_write_options(asked), asked)

    def test_queries_that_are_told_the_same_place_have_folders_of_their_own(
        self, tmp_path: Path
    ) -> None:
        """Also one whose checkpoint was deleted: batch 0 of it is not that of the one before."""
        found = set()
        for query in ("first", "first", "second", "again"):
            checkpoint = tmp_path / ("second" if query == "second" else "first")
            checkpoint.mkdir(exist_ok=True)
            (checkpoint / "metadata").write_text(f'{{"id":"{query}"}}')
            asked = {"url": "amqp:", "feed": "out", "staging": "/s"}
            asked["checkpointLocation"] = f"file://{checkpoint}"
            found.add(staging_folder(parse_write_options(asked), asked))
        assert found == {Path("/s/first"), Path("/s/second"), Path("/s/again")}
        # What cannot be read from here has a name, too.
        asked["checkpointLocation"] = "hdfs://host/c"
        (one,) = {staging_folder(parse_write_options(asked), asked) for _ in range(2)}
        assert one is not None
        assert one.parent == Path("/s")
        del asked["checkpointLocation"]
        assert staging_folder(parse_write_options(asked), asked) == Path("/s")

    def test_a_batch_needs_one(self) -> None:
        with pytest.raises(OptionError, match="option batch needs the option staging"):
            parse_write_options({"url": "amqp://localhost", "feed": "out", "batch": "1"})
