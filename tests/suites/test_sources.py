"""Getting a suite: pinned versions, clones, and clear words when it cannot be had."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from suites import places, sources
from suites.catalogue import SUITES, Repository
from suites.places import NotAvailableError


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setattr(places, "DOWNLOADS", folder)
    return folder


@pytest.fixture
def clone(tmp_path: Path) -> tuple[Path, str]:
    """A repository with one commit that holds a test."""
    folder = tmp_path / "elsewhere"
    (folder / "tests" / "acceptance").mkdir(parents=True)
    (folder / "tests" / "acceptance" / "some_test.py").write_text("")
    who = ["-c", "user.name=somebody", "-c", "user.email=somebody@example.org"]
    for words in (["init", "--quiet"], ["add", "."], [*who, "commit", "--quiet", "-m", "one"]):
        subprocess.run(["git", "-C", str(folder), *words], check=True)
    asked = ["git", "-C", str(folder), "rev-parse", "HEAD"]
    return folder, subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()


def pika_at(commit: str) -> Repository:
    source = SUITES["pika"].source
    assert isinstance(source, Repository)
    return replace(source, commit=commit, url="file:///nowhere")


def test_versions_are_those_of_the_constraints() -> None:
    assert sources.pinned("kombu")
    with pytest.raises(NotAvailableError, match="does not pin nothing-of-ours"):
        sources.pinned("nothing-of-ours")


def test_a_checkout_is_cloned_once_and_ignored_by_git(clone: tuple[Path, str], cache: Path) -> None:
    origin, commit = clone
    suite = replace(SUITES["pika"], source=pika_at(commit))
    folder, version = sources.obtain(suite, origin)
    assert (folder / "tests" / "acceptance" / "some_test.py").exists()
    assert version == commit[:10]
    assert (cache / ".gitignore").read_text() == "*\n"
    assert sources.obtain(suite) == (folder, version)


def test_the_variable_names_a_checkout_too(
    clone: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    origin, commit = clone
    monkeypatch.setenv("PIKA_CHECKOUT", str(origin))
    assert sources.obtain(replace(SUITES["pika"], source=pika_at(commit)))[1] == commit[:10]


def test_a_repository_out_of_reach_says_how_to_get_it(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PIKA_CHECKOUT", raising=False)
    with pytest.raises(NotAvailableError, match="--checkout DIR` or PIKA_CHECKOUT=DIR"):
        sources.obtain(replace(SUITES["pika"], source=pika_at("0" * 40)))
    assert not list(cache.glob("pika*"))


def test_a_suite_without_its_tests_is_refused(clone: tuple[Path, str]) -> None:
    origin, commit = clone
    suite = replace(SUITES["pika"], source=pika_at(commit), tests="tests/gone")
    with pytest.raises(NotAvailableError, match="no folder tests/gone"):
        sources.obtain(suite, origin)
