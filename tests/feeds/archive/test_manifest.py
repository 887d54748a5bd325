"""The manifest: read back as it was written, and every damage is named with its place."""

from __future__ import annotations

import json
from zlib import crc32

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recado.feeds.archive import manifest as manifests
from recado.feeds.archive.errors import (
    ArchiveNotFoundError,
    CorruptArchiveError,
    UnsupportedVersionError,
)
from recado.feeds.archive.layout import MANIFEST_FILE
from recado.feeds.archive.manifest import (
    DataFile,
    Manifest,
    RetiredFile,
    Tail,
    ViewsFile,
    decode,
    encode,
)
from recado.journal.disk import MemoryDisk


def data_file(first: int, end: int) -> DataFile:
    return DataFile(
        path=f"data/date=2027-01-15/{first:020d}-1.parquet",
        date="2027-01-15",
        first=first,
        end=end,
        bytes=100,
        crc32="0badcafe",
        footer="0badf00d",
        stored=(1, 2),
        timestamps=(3, 4),
        publishers={"00" * 16: (first + 1, end)},
    )


WHOLE = Manifest(
    feed="quotes",
    archive="one",
    exchange="feed.quotes",
    generation=7,
    written=5,
    first=10,
    tail=Tail(30, 999),
    files=(data_file(10, 20), data_file(20, 30)),
    views=ViewsFile("views/x-7.parquet", 1, 2, "00000000", "11111111"),
    begin={"00" * 16: 10},
    retired=(RetiredFile("data/old.parquet", 77, 5),),
)


def test_it_is_read_back() -> None:
    assert decode(encode(WHOLE), "here") == WHOLE
    assert decode(encode(Manifest("f", "a", "e")), "here") == Manifest("f", "a", "e")


def test_it_is_plain_json() -> None:
    found = json.loads(encode(WHOLE))
    assert (found["format"], found["version"]) == ("recado-archive", 1)
    assert found["tail"] == {"offset": 30, "position": 999}
    assert found["collected"] == [{"path": "data/old.parquet", "until": 77, "bytes": 5}]
    _, _, rest = encode(WHOLE).partition(b"\n")
    assert found["checksum"] == f"{crc32(rest):08x}"


def test_it_takes_the_place_of_the_last_one() -> None:
    disk = MemoryDisk()
    with pytest.raises(ArchiveNotFoundError, match=r"manifest\.json is missing"):
        manifests.read(disk)
    disk.open(MANIFEST_FILE + ".part", create=True).write(0, b"x" * 100_000)  # left by a killed one
    for written in range(2):
        manifests.write(disk, WHOLE.successor(written))
        assert manifests.read(disk).written == written
    assert disk.names() == [MANIFEST_FILE]


@settings(max_examples=200)
@given(st.data())
def test_every_damage_is_found(data: st.DataObject) -> None:
    good = encode(WHOLE)
    bit = data.draw(st.integers(0, 8 * len(good) - 1))
    bad = bytearray(good)
    bad[bit // 8] ^= 1 << bit % 8
    with pytest.raises(
        (CorruptArchiveError, ArchiveNotFoundError, UnsupportedVersionError), match="there/manifest"
    ):
        decode(bytes(bad), "there/manifest")


def test_what_is_cut_short_is_named_with_the_place() -> None:
    good = encode(WHOLE)
    for size in range(len(good)):
        with pytest.raises(CorruptArchiveError, match="manifest is damaged at byte") as caught:
            decode(good[:size], "manifest")
        assert caught.value.file == "manifest"


def signed(**changes: object) -> bytes:
    """A manifest with other fields, and the right checksum."""
    document = json.loads(encode(WHOLE))
    del document["checksum"]
    rest = json.dumps(document | changes).encode()[1:]
    return b'{"checksum":"%08x",\n' % crc32(rest) + rest


def test_a_later_version_is_known_for_what_it_is() -> None:
    with pytest.raises(UnsupportedVersionError, match=r"version 2.*later release"):
        decode(signed(version=2, files="something else"), "manifest")


def test_something_else_is_no_manifest() -> None:
    with pytest.raises(ArchiveNotFoundError, match="format 'x'"):
        decode(signed(format="x"), "manifest")


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"tail": {"offset": "x", "position": 1}}, "tail.offset"),
        ({"files": [{}]}, "files"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_a_wrong_field_is_named(changes: dict[str, object], place: str) -> None:
    with pytest.raises(CorruptArchiveError, match=place):
        decode(signed(**changes), "manifest")


@pytest.mark.parametrize(
    "changes",
    [
        {"files": (data_file(10, 20), data_file(19, 30))},
        {"files": (data_file(10, 10), data_file(10, 30))},
        {"first": 11},
        {"tail": Tail(29, 1)},
    ],
)
def test_files_that_do_not_follow_each_other_are_refused(changes: dict[str, object]) -> None:
    wrong = msgspec.structs.replace(WHOLE, **changes)
    with pytest.raises(CorruptArchiveError, match=r"\(MF[12]\)"):
        decode(encode(wrong), "manifest")
