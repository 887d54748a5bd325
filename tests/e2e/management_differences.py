"""How the answers of recado's management API differ from RabbitMQ's, and which values cannot be equal.

docs/compatibility.md has the table of `DIFFERENCES`; `python -m tests.e2e.management_differences` writes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).parents[2] / "docs" / "compatibility.md"
HEADING = "### Management API"
MISSING = "missing"


class Divergence(NamedTuple):
    """A field that is not equal: its path, such as `/api/queues/shop [work].type`, and both values as JSON."""

    path: str
    rabbitmq: str
    recado: str


class Difference(NamedTuple):
    """A row of the table, and the fields that show it: patterns of the path and of both values."""

    what: str
    rabbitmq: str
    recado: str
    why: str
    fields: str
    from_rabbitmq: str = ".*"
    from_recado: str = ".*"

    @property
    def row(self) -> tuple[str, str, str, str]:
        return self.what, self.rabbitmq, self.recado, self.why

    def covers(self, divergence: Divergence) -> bool:
        return all(
            re.fullmatch(pattern, text, re.DOTALL) is not None
            for pattern, text in (
                (self.fields, divergence.path),
                (self.from_rabbitmq, divergence.rabbitmq),
                (self.from_recado, divergence.recado),
            )
        )


def _absent(what: str, why: str, *fields: str, under: str = ".*") -> Difference:
    """Return a row for fields that only RabbitMQ has; `under` is a pattern of what they belong to."""
    names = ", ".join(f"`{field}`".replace(r"\w*", "…") for field in fields)
    patterns = "|".join(fields)
    return Difference(
        f"{what}: {names}",
        "present",
        "absent",
        why,
        rf"{under}\.({patterns})(_details)?",
        from_recado=MISSING,
    )


# Only the types of these values are compared, with the reason. The patterns are searched in the paths of fields.
VARIABLE = {
    r"\.((peer_)?port|ports|os_pid)$": "chosen by the system",
    r"\.(connected_at|idle_since|uptime|timestamp)$": "times",
    r"_details(\.|$)": "rates and samples depend on when the counters are read",
    r"\.((mem|fd|sockets|proc|disk)_\w+|run_queue)$": "usage of resources",
    r"\.(db_dir|log_files|config_files|erlang\w*|\w+_version)(\[\])?$": "the installation",
    r"\.password_hash$": "salted",
    r"\.(recv_cnt|send_cnt)$": "TCP splits and joins segments",
    r"\.send_oct$": "connection.start has the properties of the server",
    r"\.(ip|ip_address|cowboy_opts)$": "of the HTTP server",
    r"\.reason$": "each project has its own texts",
}

DIFFERENCES: tuple[Difference, ...] = (
    _absent(
        "Erlang",
        "Python has no counterparts",
        "garbage_collection",
        "reductions",
        "context_switches",
        r"gc_\w*",
        r"metrics_gc_\w*",
    ),
    _absent(
        "RabbitMQ's storage",
        "recado stores otherwise",
        "backing_queue_status",
        r"mnesia_\w*",
        r"msg_store_\w*",
        r"queue_index_\w*",
        r"io_\w*",
        r"disk_\w*",
        "open_files",
        "ra_open_file_metrics",
        "recoverable_slaves",
        "readers",
    ),
    _absent(
        "queues",
        "not measured: where a message is held, and its bytes",
        r"message_bytes\w*",
        "memory",
        "messages_ram",
        "messages_ready_ram",
        "messages_unacknowledged_ram",
        "messages_paged_out",
        "messages_persistent",
        "messages_dlx",
        "head_message_timestamp",
        "consumer_capacity",
        "consumer_utilisation",
    ),
    _absent("channels, queues with consumers", "not measured", "idle_since"),
    _absent(
        "the node: rates of gauges",
        "the overview has those of connections, channels and queues",
        r"channel_\w*_details",
        r"connection_\w*_details",
        r"queue_\w*_details",
        r"fd_\w*_details",
        r"mem_\w*_details",
        r"sockets_\w*_details",
        r"proc_\w*_details",
        under=r"/api/nodes .*",
    ),
    _absent(
        "exchanges",
        "not stored; the audit log has it",
        "user_who_performed_action",
        under=r"/api/exchanges.*",
    ),
    _absent(
        "overview, channels",
        "counted for the node only, in the metrics",
        "return_unroutable",
        "drop_unroutable",
    ),
    _absent(
        "vhosts",
        "not counted per vhost",
        "confirm",
        "return_unroutable",
        "drop_unroutable",
        "recv_oct",
        "send_oct",
        under=r"/api/vhosts.*",
    ),
    _absent("listeners", "options of Erlang's sockets", r"socket_opts\.\w*"),
    Difference(
        "`listeners`",
        "also `clustering`",
        "without it",
        "there is one node",
        r"/api/overview \.listeners\[clustering\]|/api/health/checks/protocol-listener/none \.protocols",
    ),
    Difference(
        "the context of the port for Prometheus",
        "with `protocol`, without `ip`",
        "without `protocol`, with `ip`",
        "all contexts have the same keys",
        r"/api/(overview|nodes) .*\.contexts\[RabbitMQ Prometheus\]\.(ip|protocol)",
    ),
    Difference(
        "`contexts` of a node",
        "without `node` and `ssl_opts`, in another order",
        "the same as in the overview",
        "one description of a listener",
        r"/api/nodes .*\.contexts\[.*\](\.(node|ssl_opts)| order)",
    ),
    Difference(
        "`applications` of a node",
        "Erlang applications",
        "recado",
        "the applications of the node",
        r"/api/nodes .*\.applications\[\w+\]",
    ),
    Difference(
        "`auth_mechanisms` of a node",
        "with `RABBIT-CR-DEMO`, a demo",
        "without it, and its own descriptions",
        "its own mechanisms",
        r"/api/nodes .*\.auth_mechanisms\[[\w-]+\](\.description)?",
    ),
    Difference(
        "a node: `being_drained`",
        "absent; from 3.13 on present",
        "`false`",
        "`rabbitmqadmin` 2 needs it (`ClusterNode` of its library `rabbitmq_http_client`)",
        r"/api/nodes .*\.being_drained",
        from_rabbitmq=MISSING,
        from_recado="false",
    ),
    Difference(
        "overview: `is_op_policy_updating_enabled`",
        "absent; in 3.13 present",
        "`true`",
        "as 3.13: administrators can change operator policies",
        r"/api/overview.*\.is_op_policy_updating_enabled",
        from_rabbitmq=MISSING,
        from_recado="true",
    ),
    Difference(
        "`exchange_types`",
        "without `regex` and `x-delayed-message`",
        "with them",
        "additions",
        r"/api/(overview|nodes) .*\.exchange_types\[(regex|x-delayed-message)\]",
        from_rabbitmq=MISSING,
    ),
    Difference(
        "`sample_retention_policies`",
        "up to a day",
        "ten minutes",
        "Prometheus is for longer times",
        r"/api/overview \.sample_retention_policies\.\w+",
    ),
    Difference(
        "connections, channels and confirms of the node",
        "include those that the HTTP API opens in order to publish and get",
        "clients' only",
        "HTTP requests open none",
        r"/api/(overview|nodes) .*\.(channel|connection)_(created|closed)"
        r"|/api/overview \.message_stats\.confirm",
    ),
    Difference(
        "a vhost without queues, a user without vhosts: `messages…`",
        "absent",
        "0",
        "clients read them",
        r"/api/(vhosts|overview \.queue_totals).*\.messages\w*",
        from_rabbitmq=MISSING,
    ),
    Difference(
        "the vhost `/`: `description`",
        "`Default virtual host`",
        "empty, unless set",
        "the name says it",
        r"/api/vhosts.*\.description",
        from_recado='""',
    ),
    Difference(
        "`publish` of a queue",
        "published by clients",
        "also dead letters",
        "all that entered the queue",
        r"/api/queues.*\.message_stats(\.publish(_details)?)?",
        from_recado=r'3|\{"publish": 3\}|\{"rate": .*\}',
    ),
    Difference(
        "`columns` with a dot, of `arguments` and `client_properties`",
        "all of the object",
        "the named entry",
        "as of other objects",
        r".*columns=.* \[.*\]\.(arguments|client_properties)\..*",
        from_recado=MISSING,
    ),
    Difference(
        "`columns` with a dot, of an object that is absent",
        "an empty list",
        "an empty object, or absent",
        "one type",
        r".*columns=.*\.message_stats",
        r"\[\]",
    ),
    Difference(
        "quorum queues and streams: keys of queues",
        "`single_active_consumer_ctag` of quorum queues, not `…_tag`; no `exclusive_consumer_tag`;"
        " no `leader` of streams",
        "the same as of classic queues; `leader` of both",
        "one set of keys, as in RabbitMQ 3.13",
        r"/api/queues.*\.(single_active_consumer_c?tag|exclusive_consumer_tag|leader)",
        "missing|null",
        'missing|null|"{node}"',
    ),
    Difference(
        "streams: `idle_since`",
        "absent",
        "as of other queues",
        "Flower reads it",
        r"/api/queues.*\.idle_since",
        from_rabbitmq=MISSING,
    ),
    Difference(
        "consumers of a stream: `active`",
        "`false`",
        "`true`",
        "they get messages",
        r".*\[reader\]\.active",
        "false",
        "true",
    ),
    Difference(
        "order of consumers, connections and channels",
        "consumers: undefined",
        "consumers by queue; others by vhost and name",
        "names of connections contain ports",
        r"(/api/(consumers|connections|channels|vhosts/shop/(connections|channels)).*"
        r"|.*consumer_details)\[\] order",
    ),
    Difference(
        "a single connection without TLS: `ssl_…`, `peer_cert_…`",
        "empty strings; `null` in lists",
        "`null`",
        "one type",
        r"/api/connections/.*\.(ssl_\w+|peer_cert_\w+)",
        '""',
        "null",
    ),
    Difference(
        "`/api/connections/username/…`",
        "name, node, user and vhost",
        "all fields of connections",
        "one description of a connection",
        r"/api/connections/username/eva .*",
        from_rabbitmq=MISSING,
    ),
    Difference(
        "`properties_key` of a binding with arguments",
        "ends in a hash by Erlang",
        "ends in another hash",
        "clients take it from the list",
        r".*\.properties_key",
        r'".*~.*"',
        r'".*~.*"',
    ),
    Difference(
        "order of definitions",
        "undefined",
        "of creation",
        "an import does not depend on it",
        r"/api/definitions.* order",
    ),
    Difference(
        "`product_name` of definitions",
        "`RabbitMQ`",
        "`recado`",
        "where they come from",
        r"/api/definitions.*\.product_name",
    ),
    Difference(
        "definitions of vhosts: `description`, `tags`, `metadata`",
        "absent; from 3.11 on present",
        "present",
        "an import restores them",
        r"/api/definitions.*\.(description|tags|metadata)",
        from_rabbitmq=MISSING,
    ),
    Difference(
        "definitions of one vhost: policies and parameters",
        "with `vhost`",
        "without `vhost`, as queues",
        "any vhost can import them",
        r"/api/definitions/shop .*(policies|parameters)\[.*",
    ),
    Difference(
        "`/api/user-limits` for users who are no administrators",
        "limits of all users",
        "the user's own",
        "names of users are not disclosed",
        r"/api/user-limits.* \[\w+\]",
        from_recado=MISSING,
    ),
    Difference(
        "`confirm_details` in the overview of users who are no monitors",
        "present, without `confirm`",
        "absent",
        "both or none",
        r"/api/overview \.message_stats\.confirm_details",
        from_recado=MISSING,
    ),
    Difference(
        "an invalid regular expression as `name`, if the list is empty",
        "200",
        "400",
        "it is invalid",
        r"/api/queues\?page=1&name=%5B&use_regex=true",
        "200",
        "400",
    ),
    Difference(
        "`/api/parameters`",
        "also operator policies",
        "without them",
        "`/api/operator-policies` has them",
        r"/api/parameters \[.* operator_policy\]",
        from_recado=MISSING,
    ),
    Difference(
        "global parameter `internal_cluster_id`",
        "present",
        "absent",
        "there is one node",
        r"/api/(global-parameters |definitions .global_parameters)\[internal_cluster_id\]",
        from_recado=MISSING,
    ),
)


def rows_of_page() -> Iterator[tuple[str, ...]]:
    """Return the rows of the table in the documentation."""
    for row in _lines_of_page():
        yield tuple(cell.strip() for cell in row.strip("|").split("|"))


def _lines_of_page() -> list[str]:
    section = PAGE.read_text().split(f"{HEADING}\n")[1].split("\n#")[0].split("<!--")[0]
    return [line for line in section.splitlines() if line.startswith("|")][2:]


def main() -> None:
    """Write the rows into the documentation."""
    text, old = PAGE.read_text(), "\n".join(_lines_of_page())
    new = "\n".join(f"| {' | '.join(each.row)} |" for each in DIFFERENCES)
    PAGE.write_text(text.replace(old, new))


if __name__ == "__main__":
    main()
