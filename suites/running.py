"""One run of one suite on one broker: start the broker, lead the suite to it, read what it says.

The broker is fresh for every run, so that no suite finds what another left behind.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path

from suites import environments, sources, surroundings
from suites.catalogue import PLUGINS, Node, Pytest, Suite
from suites.places import DOWNLOADS
from suites.results import Case, Outcome, Summary, merged, read_junit, read_lines, summary
from workshop import peers

Start = Callable[[Suite, peers.Certificates, Path], AbstractContextManager[peers.Server]]
BROKERS: dict[str, Start] = {
    "recado": lambda suite, certificates, data: peers.recado(
        certificates=certificates, data=data, environment=suite.settings
    ),
    "rabbitmq": lambda suite, certificates, data: peers.rabbitmq(
        certificates=certificates, data=data
    ),
}
# A whole process: Celery's longest takes 5 minutes, amqplib's longest file 3 seconds.
PYTEST_SECONDS = 1200.0
NODE_SECONDS = 120.0
TEST_SECONDS = 120


def run(suite: Suite, broker: str, checkout: Path | None = None) -> tuple[Summary, dict[str, Case]]:
    """Run a suite on a new broker. Raises NotAvailableError when the suite cannot be had."""
    folder, version = sources.obtain(suite, checkout)
    with ExitStack() as stack:
        place = stack.enter_context(peers.temporary_folder("suite"))
        match suite.runner:
            case Pytest():
                start = pytest_run(suite, suite.runner, folder, place)
            case Node():
                start = node_run(suite, suite.runner, folder, place)
        clients = suite.certificates
        authority, certificates = surroundings.server_certificates(
            place, required=clients is not None and clients.required
        )
        if clients is not None:
            surroundings.client_certificates(authority, folder, clients)
        redis = stack.enter_context(surroundings.redis()) if suite.redis else 0
        server = stack.enter_context(BROKERS[broker](suite, certificates, place / "data"))
        environment = {**clean_environment(), **suite.environment(server, redis)}
        cases = merged(start(environment, broker))
    return summary(version, cases), cases


Run = Callable[[Mapping[str, str], str], list[Case]]


def pytest_run(suite: Suite, runner: Pytest, folder: Path, place: Path) -> Run:
    python = environments.python(suite.name, runner.requirements)
    options = ["-p", "no:cacheprovider", f"--timeout={TEST_SECONDS}", "-o", "junit_family=xunit1"]
    for test in suite.left_out or ():
        options += ["--deselect", test]

    def start(environment: Mapping[str, str], broker: str) -> list[Case]:
        log = new_log(suite, broker)
        path = f"{python.parent}{os.pathsep}{environment['PATH']}"
        cases = []
        for number, arguments in enumerate(runner.arguments):
            report = place / f"{number}.xml"
            words = [str(python), "-m", "pytest", *options, f"--junitxml={report}", *arguments]
            status = process(words, folder, {**environment, "PATH": path}, log, PYTEST_SECONDS)
            if report.exists():
                cases += read_junit(report.read_text(), suite.tests)
            else:
                cases.append(unfinished(arguments[-1], status, log))
        return cases

    return start


def node_run(suite: Suite, runner: Node, folder: Path, place: Path) -> Run:
    node, modules = environments.node(suite.name, runner.requirements)
    options = ["--require", str(PLUGINS / "amqplib_port.cjs")]
    options += ["--test-reporter", str(PLUGINS / "lines_reporter.cjs")]

    def start(environment: Mapping[str, str], broker: str) -> list[Case]:
        log = new_log(suite, broker)
        cases = []
        for file in sorted(folder.glob(runner.files)):
            report = place / f"{file.stem}.jsonl"
            words = [node, *options, f"--test-reporter-destination={report}", str(file)]
            led = {**environment, "NODE_PATH": str(modules)}
            status = process(words, folder, led, log, NODE_SECONDS)
            # A file that defines no tests for this runner writes no report and ends with 0.
            found = read_lines(report.read_text(), file.name) if report.exists() else []
            if status and not any(case.outcome is Outcome.FAILED for case in found):
                found.append(unfinished(file.name, status, log))
            cases += found
        return cases

    return start


def clean_environment() -> dict[str, str]:
    """The user's environment without what concerns our own Python."""
    ours = ("PYTHON", "VIRTUAL_ENV", "PYTEST", "COV_CORE", "RECADO_")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


def new_log(suite: Suite, broker: str) -> Path:
    folder = DOWNLOADS / "logs"
    folder.mkdir(exist_ok=True)
    log = folder / f"{suite.name}-{broker}.log"
    log.write_bytes(b"")
    return log


def process(
    words: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    log: Path,
    seconds: float,
) -> int:
    """Run a part of a suite to its end, or to ours; its exit status, negative when killed."""
    with log.open("ab") as output:
        started = subprocess.Popen(
            words,
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        return started.wait(seconds)
    except subprocess.TimeoutExpired:
        return -signal.SIGKILL
    finally:
        # The group, since a suite that was interrupted leaves workers of its own behind.
        with suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)
        started.wait()


def unfinished(part: str, status: int, log: Path) -> Case:
    message = f"ended with status {status} before its report was written:\n{peers.tail(log)}"
    return Case(f"{part} (as a whole)", Outcome.FAILED, message)
