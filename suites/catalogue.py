"""The suites we run: whose they are, where they come from, and how each is told its broker.

None of them asks for a broker in the same way, and some have RabbitMQ's ports fixed in their code;
those get a plugin of ours that leads connections to the broker. A suite is never changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from workshop.peers import Server

PLUGINS = Path(__file__).parent / "plugins"


@dataclass(frozen=True)
class Distribution:
    """A source distribution on the package index; its version is the one constraints.txt pins."""

    package: str


@dataclass(frozen=True)
class Repository:
    """A repository at one commit, since its distributions leave the tests out.

    `variable` names the environment variable with a checkout, or any clone, to use instead.
    """

    url: str
    commit: str
    variable: str


@dataclass(frozen=True)
class Pytest:
    """Run by pytest. Each group of `arguments` is a process of its own."""

    arguments: tuple[tuple[str, ...], ...]
    requirements: tuple[str, ...]


@dataclass(frozen=True)
class Node:
    """Run by Node's own test runner, each file of `files` in a process of its own."""

    files: str
    requirements: tuple[str, ...]


@dataclass(frozen=True)
class ClientCertificates:
    """Where a suite looks for the certificates of its TLS clients: files in a folder of the suite.

    `required` is whether its broker is meant to refuse clients without a certificate.
    """

    folder: str
    ca: str = "ca_certificate.pem"
    certificate: str = "client_certificate.pem"
    key: str = "client_key.pem"
    required: bool = True


@dataclass(frozen=True)
class Suite:
    """One client's test suite.

    `tests` is the folder it must contain, `environment` the variables that lead it to a broker
    and, where it has one, to a redis. `left_out` are tests that we do not run, with the reason;
    an entry may be the beginning of several names. `settings` are variables for recado, where a
    suite expects a broker with other settings than the default ones.
    """

    name: str
    title: str
    source: Distribution | Repository
    tests: str
    runner: Pytest | Node
    environment: Callable[[Server, int], Mapping[str, str]]
    certificates: ClientCertificates | None = None
    redis: bool = False
    left_out: Mapping[str, str] | None = None
    settings: Mapping[str, str] | None = None


def py_amqp(server: Server, _redis: int) -> dict[str, str]:
    # By name, since it checks the certificate's name, and 127.0.0.1 is never sent as one.
    return {
        "RABBITMQ_HOST": "localhost",
        "RABBITMQ_5672_TCP": str(server.port),
        "RABBITMQ_5671_TCP": str(server.tls_port),
    }


def kombu(server: Server, _redis: int) -> dict[str, str]:
    return {"RABBITMQ_HOST": server.host, "RABBITMQ_5672_TCP": str(server.port)}


def celery(server: Server, redis: int) -> dict[str, str]:
    return {
        "TEST_BROKER": f"pyamqp://guest:guest@{server.host}:{server.port}//",
        "TEST_BACKEND": f"redis://{server.host}:{redis}/0",
        "REDIS_HOST": server.host,
        "REDIS_PORT": str(redis),
        # As in Celery's own set-up: its tests of log lines need them written.
        "WORKER_LOGLEVEL": "INFO",
    }


def with_plugin(server: Server, _redis: int) -> dict[str, str]:
    """For a plugin of ours, which reads the address of the broker and leads the suite there."""
    return {
        "SUITE_AMQP_HOST": server.host,
        "SUITE_AMQP_PORT": str(server.port),
        "SUITE_AMQPS_PORT": str(server.tls_port),
        "PYTHONPATH": str(PLUGINS),
    }


def amqpstorm(server: Server, redis: int) -> dict[str, str]:
    # By name, since its TLS clients check the name in the certificate.
    login = "guest:guest@localhost"
    return {
        **with_plugin(server, redis),
        "AMQP_HOST": "localhost",
        "AMQP_SSL_HOST": "localhost",
        "AMQP_USERNAME": "guest",
        "AMQP_PASSWORD": "guest",
        "AMQP_URI": f"amqp://{login}:{server.port}/%2F",
        "AMQP_SSL_URI": f"amqps://{login}:{server.tls_port}/%2F",
    }


def amqplib(server: Server, _redis: int) -> dict[str, str]:
    return {
        "URL": f"amqp://{server.host}:{server.port}",
        "SUITE_AMQP_HOST": server.host,
        "SUITE_AMQP_PORT": str(server.port),
    }


BEYOND_LOOPBACK = "connects to badssl.com, a public host; no broker takes part"
NEEDS_HTTP_API = (
    "needs RabbitMQ's HTTP API, which the suites do not start; "
    "`tests/e2e/test_management.py` tests recado's"
)
PIKA = Repository(
    url="https://github.com/pika/pika",
    commit="2126d43a76c14fb8d365d96bd1bdcef13dad75b5",
    variable="PIKA_CHECKOUT",
)
PIKA_REQUIREMENTS = ("pytest", "pytest-timeout", "gevent", "tornado", "twisted")

SUITES = {
    suite.name: suite
    for suite in (
        Suite(
            name="py-amqp",
            title="py-amqp's integration tests",
            source=Distribution("amqp"),
            tests="t/integration",
            runner=Pytest(
                arguments=(("t/integration",),),
                requirements=("amqp", "pytest", "pytest-rerunfailures", "pytest-timeout"),
            ),
            environment=py_amqp,
            certificates=ClientCertificates("t/certs"),
            left_out={
                "t/integration/test_rmq.py::test_tls_default_certs": BEYOND_LOOPBACK,
                "t/integration/test_rmq.py::test_tls_no_default_certs_fails": BEYOND_LOOPBACK,
            },
        ),
        Suite(
            name="kombu",
            title="kombu's py-amqp transport tests",
            source=Distribution("kombu"),
            tests="t/integration",
            runner=Pytest(
                arguments=(("t/integration/test_py_amqp.py",),),
                requirements=("kombu", "pytest", "pytest-rerunfailures", "pytest-timeout"),
            ),
            environment=kombu,
        ),
        Suite(
            name="celery",
            title="Celery's integration tests: tasks, inspect, worker",
            source=Distribution("celery"),
            tests="t/integration",
            runner=Pytest(
                # A process each: the tests of the worker fail in one where tasks ran before.
                # The plugin is Celery's own, which its distribution does not register.
                arguments=(
                    ("-p", "celery.contrib.pytest", "t/integration/test_tasks.py"),
                    ("-p", "celery.contrib.pytest", "t/integration/test_inspect.py"),
                    ("-p", "celery.contrib.pytest", "t/integration/test_worker.py"),
                ),
                requirements=(
                    "celery",
                    "redis",
                    "django",
                    "pydantic",
                    "pytest",
                    "pytest-rerunfailures",
                    "pytest-timeout",
                ),
            ),
            environment=celery,
            redis=True,
        ),
        Suite(
            name="amqpstorm",
            title="amqpstorm's functional tests",
            source=Distribution("amqpstorm"),
            tests="amqpstorm/tests/functional",
            runner=Pytest(
                # It has no settings for pytest; without a file named here, pytest would take ours.
                arguments=(
                    (
                        "-c",
                        "pyproject.toml",
                        "-p",
                        "amqpstorm_broker",
                        "amqpstorm/tests/functional",
                    ),
                ),
                requirements=("amqpstorm", "requests", "pytest", "pytest-timeout"),
            ),
            environment=amqpstorm,
            certificates=ClientCertificates(
                "amqpstorm/tests/resources/ssl",
                certificate="client/client_certificate.pem",
                key="client/private_key.pem",
            ),
            left_out={
                "amqpstorm/tests/functional/management": NEEDS_HTTP_API,
                "amqpstorm/tests/functional/test_web_based.py": NEEDS_HTTP_API,
            },
        ),
        Suite(
            name="aiormq",
            title="aiormq's tests",
            source=Distribution("aiormq"),
            tests="tests",
            runner=Pytest(
                arguments=(("-p", "aiormq_broker", "tests"),),
                requirements=(
                    "aiormq",
                    "aiomisc-pytest",
                    "pytest",
                    "pytest-rerunfailures",
                    "pytest-timeout",
                ),
            ),
            environment=with_plugin,
            certificates=ClientCertificates(
                "tests/certs",
                ca="ca.pem",
                certificate="client.pem",
                key="client.key",
                required=False,
            ),
            # As in aiormq's own set-up, and RabbitMQ 3.10's default: it sends messages of 32 MiB.
            settings={"RECADO_BROKER_MAX_MESSAGE_BYTES": str(128 << 20)},
        ),
        Suite(
            name="pika",
            title="pika's acceptance tests",
            source=PIKA,
            tests="tests/acceptance",
            runner=Pytest(
                arguments=(("-p", "pika_port", "tests/acceptance"),),
                requirements=PIKA_REQUIREMENTS,
            ),
            environment=with_plugin,
        ),
        Suite(
            name="pika-tls",
            title="pika's acceptance tests over TLS",
            source=PIKA,
            tests="tests/acceptance",
            runner=Pytest(
                arguments=(("-p", "pika_port", "--use-tls", "tests/acceptance"),),
                requirements=PIKA_REQUIREMENTS,
            ),
            environment=with_plugin,
            certificates=ClientCertificates("tests/certs"),
        ),
        Suite(
            name="amqplib",
            title="amqplib's tests (npm)",
            source=Repository(
                url="https://github.com/amqp-node/amqplib",
                commit="f7503e571a80dacfc863c2690ab797d31667b868",
                variable="AMQPLIB_CHECKOUT",
            ),
            tests="test",
            runner=Node(files="test/*.test.js", requirements=("claire@0.4.1",)),
            environment=amqplib,
        ),
    )
}
