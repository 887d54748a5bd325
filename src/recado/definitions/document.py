"""Reads and checks a definitions document: RabbitMQ's JSON, converted to typed values.

Three kinds of files are supported: exports of RabbitMQ's HTTP API; exports of `rabbitmqctl
export_definitions`, in which some objects are written as lists of pairs; and exports of one vhost, whose
entries do not name the vhost. Errors name the entry: `queues[2] ('orders'): …`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import isfinite
from typing import Any, NamedTuple, TypeVar, get_args

import msgspec
from msgspec.structs import replace

from recado.amqp.values import FieldTable, FieldValue, Int64
from recado.broker.access import Permission, TopicPermission, User
from recado.broker.arguments import QueueSettings, QueueType, parse_queue_arguments
from recado.broker.limits import UserLimits, VhostLimits
from recado.broker.policy import Policy
from recado.broker.vhost import VhostSettings
from recado.server.passwords import hash_password, is_password_hash

L = TypeVar("L", UserLimits, VhostLimits)

LONG_TEXTS = ("pattern", "description")  # not limited to 255 bytes, unlike all other texts
OWN_PARAMETERS = ("internal_cluster_id",)  # identify one cluster, so they are not copied to another
PASSWORD_KEYS = ("password", "password_hash", "recado_password_hash", "hashing_algorithm")
HASHING_ALGORITHMS = ("rabbit_password_hashing_sha256", "rabbit_password_hashing_sha512")
SECTIONS = (
    "users",
    "vhosts",
    "permissions",
    "topic_permissions",
    "parameters",
    "global_parameters",
    "policies",
    "exchanges",
    "queues",
    "bindings",
)
# The settings of the vhost, in the document of one vhost.
VHOST_KEYS = ("description", "tags", "metadata", "default_queue_type", "limits")
DOCUMENT_KEYS = (  # about the document itself, or about its one vhost
    "rabbit_version",
    "rabbitmq_version",
    "rabbitmq_definition_format",
    "product_name",
    "product_version",
    "original_cluster_name",
    "original_vhost_name",
    "explanation",
    *VHOST_KEYS,
)


class DefinitionsError(ValueError):
    """A document cannot be imported; the text says what is wrong, where, and what to do."""


# ── one entry ─────────────────────────────────────────────────────────────────────────────────────────


class DocumentEntry:
    """An object of the document, and its location for error messages."""

    def __init__(self, location: str, fields: object, vhost: str | None) -> None:
        self.location = location
        if not isinstance(fields, Mapping):
            raise self.error("must be an object")
        self._fields = fields
        self._vhost = vhost
        labels = (fields.get(key) for key in ("name", "user", "destination"))
        self.location += next((f" ({label!r})" for label in labels if isinstance(label, str)), "")

    def nested(self, key: str) -> DocumentEntry:
        """Return the object that is a value of this one."""
        return DocumentEntry(self.location, self.pairs(key), self._vhost)

    def error(self, problem: object) -> DefinitionsError:
        return DefinitionsError(f"{self.location}: {problem}")

    @property
    def vhost(self) -> str:
        """The vhost of the entry; that of the caller overrides that of the document, as in RabbitMQ."""
        if self._vhost is not None:
            return self._vhost
        if self._fields.get("vhost") is None:
            raise self.error(
                "has no vhost; to import the definitions of one vhost, name it"
                " (--vhost VHOST, or /api/definitions/VHOST)"
            )
        return self.text("vhost")

    def has(self, key: str) -> bool:
        return self._fields.get(key) is not None

    def value(self, key: str, default: object = None) -> Any:
        found = self._fields.get(key)
        return default if found is None else found

    def json_value(self, key: str) -> Any:
        """Return a copy of any JSON value, null included."""
        if key not in self._fields:
            raise self.error(f"{key!r} is missing")
        try:
            return msgspec.json.decode(msgspec.json.encode(self._fields[key]))
        except (TypeError, ValueError, OverflowError) as error:
            raise self.error(f"{key!r} is not a JSON value: {error}") from None

    def text(self, key: str, default: str | None = None) -> str:
        """Return a string, of at most 255 bytes unless the key is one of `LONG_TEXTS`."""
        found = self.value(key, default)
        if not isinstance(found, str):
            raise self.error(
                f"{key!r} is missing" if found is None else f"{key!r} must be a string"
            )
        if len(found.encode(errors="surrogatepass")) > 255 and key not in LONG_TEXTS:
            raise self.error(f"{key!r} is longer than 255 bytes")
        return found

    def tags(self) -> tuple[str, ...]:
        """Return the tags of a user or a vhost, which may also be written as a string with commas."""
        tags = self.value("tags", [])
        if isinstance(tags, str):
            tags = [tag.strip() for tag in tags.split(",") if tag.strip()]
        if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
            raise self.error("'tags' must be a list of strings, or a string with commas")
        return tuple(tags)

    @property
    def name(self) -> str:
        name = self.text("name")
        if not name:
            raise self.error("'name' is empty")
        return name

    def flag(self, key: str, default: bool | None = None) -> bool:
        found = self.value(key, default)
        if not isinstance(found, bool):
            raise self.error(f"{key!r} must be true or false")
        return found

    def table(self, key: str) -> FieldTable:
        """Return an object as a field table. Integers become 64 bits wide, as in RabbitMQ."""
        return self._to_table(key, self.pairs(key))

    def pairs(self, key: str) -> dict[str, Any]:
        """Return an object, which may also be written as a list of pairs."""
        found = self.value(key, {})
        if isinstance(found, Mapping):
            return dict(found)
        if isinstance(found, list) and all(
            isinstance(one, list) and len(one) == 2 for one in found
        ):
            return {str(name): value for name, value in found}
        raise self.error(f"{key!r} must be an object")

    def _to_table(self, key: str, values: Mapping[Any, object]) -> FieldTable:
        table: FieldTable = {}
        for name, value in values.items():
            if len(str(name).encode(errors="surrogatepass")) > 255:
                raise self.error(f"{key!r} has a name that is longer than 255 bytes")
            table[str(name)] = self._to_value(key, value)
        return table

    def _to_value(self, key: str, value: object) -> FieldValue:
        match value:
            case None | bool() | str():
                return value
            case float():
                if not isfinite(value):
                    raise self.error(f"{key!r} has {value}, which is not a JSON number")
                return value
            case int():
                if not -(2**63) <= value < 2**63:
                    raise self.error(f"{key!r} has {value}, which does not fit into 64 bits")
                return Int64(value)
            case list():
                return [self._to_value(key, element) for element in value]
            case Mapping():
                return self._to_table(key, value)
            case _:
                raise self.error(f"{key!r} has a {type(value).__name__}, which is not a JSON type")


# ── the definitions ───────────────────────────────────────────────────────────────────────────────────


class UserDefinition(NamedTuple):
    """A user. Its permissions are entries of their own."""

    location: str
    user: User
    has_limits: bool
    """Whether the entry has limits; otherwise those of an existing user stay."""

    def apply_to(self, known: User | None) -> User:
        """Return the user after the import. Its permissions stay, and so do other settings of the node."""
        user = self.user
        if known is None:
            return user
        limits = user.limits if self.has_limits else known.limits
        return replace(known, password_hash=user.password_hash, tags=user.tags, limits=limits)


class VhostDefinition(NamedTuple):
    """A vhost, or only settings of one; None leaves a setting as it is."""

    location: str
    vhost: str
    default_queue_type: QueueType | None = None
    limits: VhostLimits | None = None
    description: str | None = None
    tags: tuple[str, ...] | None = None
    creates: bool = False
    """Whether the vhost is created if it does not exist."""

    def apply_to(self, known: VhostSettings) -> VhostSettings:
        """Return the settings after the import; those that the entry does not have stay."""
        wanted = {
            "default_queue_type": self.default_queue_type,
            "limits": self.limits,
            "description": self.description,
            "tags": self.tags,
        }
        changes: Any = {key: value for key, value in wanted.items() if value is not None}
        return replace(known, **changes) if changes else known


class GlobalParameterDefinition(NamedTuple):
    """A value that belongs to the whole broker, such as `cluster_name`."""

    location: str
    name: str
    value: object


class PermissionDefinition(NamedTuple):
    """A permission, or a topic permission for one exchange."""

    location: str
    user: str
    vhost: str
    exchange: str | None
    permission: Permission | TopicPermission

    def apply_to(self, user: User) -> User:
        """Return the user with the permission."""
        if isinstance(self.permission, Permission):
            return replace(user, permissions={**user.permissions, self.vhost: self.permission})
        key = self.vhost, self.exchange or ""
        return replace(user, topic_permissions={**user.topic_permissions, key: self.permission})


class PolicyDefinition(NamedTuple):
    """A policy or an operator policy of a vhost."""

    location: str
    vhost: str
    policy: Policy


class ExchangeDefinition(NamedTuple):
    """A declared exchange."""

    location: str
    vhost: str
    name: str
    kind: str
    durable: bool
    auto_delete: bool
    internal: bool
    arguments: FieldTable


class QueueDefinition(NamedTuple):
    """A declared queue."""

    location: str
    vhost: str
    name: str
    durable: bool
    auto_delete: bool
    arguments: FieldTable
    has_type: bool
    """Whether the entry has a type, so that the default of the vhost does not apply."""

    def parse_settings(self, default_type: QueueType | None) -> QueueSettings:
        """Return the settings, in a vhost with this default. Raises `AmqpError`."""
        return parse_queue_arguments(
            self.name,
            self.vhost,
            durable=self.durable,
            exclusive=False,
            auto_delete=self.auto_delete,
            arguments=self.arguments,
            default_type=None if self.has_type else default_type,
        )


class BindingDefinition(NamedTuple):
    """A binding to a queue or to an exchange."""

    location: str
    vhost: str
    source: str
    destination: str
    to_queue: bool
    routing_key: str
    arguments: FieldTable


def _read_user(entry: DocumentEntry) -> UserDefinition:
    user = User(
        entry.name,
        password_hash=_read_password_hash(entry),
        tags=entry.tags(),
        limits=_read_limits(entry, entry.pairs("limits"), UserLimits),
    )
    return UserDefinition(entry.location, user, entry.has("limits"))


def _read_limits(entry: DocumentEntry, found: Mapping[str, object], kind: type[L]) -> L:
    """Return limits; a negative number means no limit, as in RabbitMQ."""
    names = {field.encode_name: field.name for field in msgspec.structs.fields(kind)}
    limits: dict[str, int | None] = {}
    for key, value in found.items():
        if key not in names:
            raise entry.error(f"the limit {key!r} is not known; known are {', '.join(names)}")
        if not isinstance(value, int) or isinstance(value, bool):
            raise entry.error(f"the limit {key!r} must be an integer")
        if value >= 2**63:
            raise entry.error(f"the limit {key!r} does not fit into 64 bits")
        limits[names[key]] = value if value >= 0 else None
    return kind(**limits)


def _read_vhost(entry: DocumentEntry) -> VhostDefinition:
    """Return a vhost with its settings. RabbitMQ writes most of them twice, and reads them from `metadata`."""
    metadata = entry.nested("metadata")
    found = metadata.value("default_queue_type", entry.value("default_queue_type"))
    queue_type: QueueType | None = None
    if found not in (None, "undefined"):  # RabbitMQ writes "undefined" for none
        if found not in get_args(QueueType):
            raise entry.error(
                f"'default_queue_type' must be one of {', '.join(get_args(QueueType))}"
            )
        queue_type = found
    pairs = entry.pairs("limits")  # empty in exports of RabbitMQ, which has them as parameters
    limits = _read_limits(entry, pairs, VhostLimits) if pairs else None
    described, tagged = (
        next((each for each in (metadata, entry) if each.has(key)), None)
        for key in ("description", "tags")
    )
    return VhostDefinition(
        entry.location,
        entry.name,
        queue_type,
        limits,
        None if described is None else described.text("description"),
        None if tagged is None else tagged.tags(),
        creates=True,
    )


def _read_vhost_settings(entry: DocumentEntry) -> VhostDefinition:
    """Return the settings of the vhost that the document is imported into."""
    return _read_vhost(entry)._replace(creates=False)


def _read_global_parameter(entry: DocumentEntry) -> GlobalParameterDefinition:
    return GlobalParameterDefinition(entry.location, entry.name, entry.json_value("value"))


def _read_password_hash(entry: DocumentEntry) -> str:
    """Return the password hash; an empty one matches no password.

    RabbitMQ does not support argon2, so such hashes have a key of their own.
    """
    if entry.has("password"):
        return hash_password(entry.text("password"))
    own = entry.has("recado_password_hash")
    found = entry.text("recado_password_hash" if own else "password_hash")
    if (
        not own
        and entry.value("hashing_algorithm", HASHING_ALGORITHMS[0]) not in HASHING_ALGORITHMS
    ):
        raise entry.error(
            f"the hashing algorithm {entry.value('hashing_algorithm')} is not supported;"
            " specify a password instead of its hash"
        )
    if found and not is_password_hash(found):
        if own:
            raise entry.error("'recado_password_hash' is not the hash of a password")
        raise entry.error("'password_hash' is not base64 of a salt and SHA-256 or SHA-512")
    return found


def _read_permission(entry: DocumentEntry) -> PermissionDefinition:
    user, vhost = entry.text("user"), entry.vhost
    patterns = [entry.text(key) for key in ("configure", "write", "read")]
    return PermissionDefinition(entry.location, user, vhost, None, Permission(*patterns))


def _read_topic_permission(entry: DocumentEntry) -> PermissionDefinition:
    user, vhost, exchange = entry.text("user"), entry.vhost, entry.text("exchange")
    permission = TopicPermission(entry.text("write"), entry.text("read"))
    return PermissionDefinition(entry.location, user, vhost, exchange, permission)


def _read_policy(entry: DocumentEntry) -> PolicyDefinition:
    return _build_policy(entry, entry.name, entry.vhost, operator=False)


def _read_parameter(entry: DocumentEntry) -> PolicyDefinition | VhostDefinition | str:
    """Return an operator policy, limits of a vhost, or a note that the parameter is skipped."""
    component, name = entry.text("component"), entry.name
    if component == "vhost-limits":
        limits = _read_limits(entry, entry.pairs("value"), VhostLimits)
        return VhostDefinition(entry.location, entry.vhost, limits=limits)
    if component != "operator_policy":
        return f"{entry.location}: skipped, parameters of {component} are not supported"
    return _build_policy(entry.nested("value"), name, entry.vhost, operator=True)


def _build_policy(
    entry: DocumentEntry, name: str, vhost: str, *, operator: bool
) -> PolicyDefinition:
    priority = entry.value("priority", 0)
    if not isinstance(priority, int | float) or isinstance(priority, bool):
        raise entry.error("'priority' must be a number")
    policy = Policy(
        name=name,
        pattern=entry.text("pattern"),
        definition=entry.pairs("definition"),
        apply_to=entry.value("apply-to", "all"),
        priority=priority,
        operator=operator,
    )
    return PolicyDefinition(entry.location, vhost, policy)


def _read_exchange(entry: DocumentEntry) -> ExchangeDefinition:
    return ExchangeDefinition(
        entry.location,
        entry.vhost,
        entry.text("name"),
        entry.text("type"),
        entry.flag("durable"),
        entry.flag("auto_delete"),
        entry.flag("internal", False),
        entry.table("arguments"),
    )


def _read_queue(entry: DocumentEntry) -> QueueDefinition:
    arguments = entry.table("arguments")
    kind = entry.text("type", "classic")
    if kind != "classic":
        arguments.setdefault("x-queue-type", kind)
    flags = entry.flag("durable"), entry.flag("auto_delete")
    has_type = entry.has("type")
    return QueueDefinition(entry.location, entry.vhost, entry.name, *flags, arguments, has_type)


def _read_binding(entry: DocumentEntry) -> BindingDefinition:
    kind = entry.text("destination_type")
    if kind not in ("queue", "exchange"):
        raise entry.error("'destination_type' must be queue or exchange")
    return BindingDefinition(
        entry.location,
        entry.vhost,
        entry.text("source"),
        entry.text("destination"),
        kind == "queue",
        entry.text("routing_key"),
        entry.table("arguments"),
    )


# ── the document ──────────────────────────────────────────────────────────────────────────────────────

Definition = (
    GlobalParameterDefinition
    | UserDefinition
    | VhostDefinition
    | PermissionDefinition
    | PolicyDefinition
    | ExchangeDefinition
    | QueueDefinition
    | BindingDefinition
)

# The document of one vhost has the settings of the vhost at the top level. They are read like an entry of a section,
# which has this name in error messages.
ONE_VHOST = "the document"
READERS: dict[str, Callable[[DocumentEntry], Definition | str]] = {
    "global_parameters": _read_global_parameter,
    "users": _read_user,
    "vhosts": _read_vhost,
    ONE_VHOST: _read_vhost_settings,
    "parameters": _read_parameter,
    "permissions": _read_permission,
    "topic_permissions": _read_topic_permission,
    "policies": _read_policy,
    "exchanges": _read_exchange,
    "queues": _read_queue,
    "bindings": _read_binding,
}
"""By section, in the order of an import: an object is imported after those that it refers to."""


class SourceEntry(NamedTuple):
    """An entry of a document that has not been read yet."""

    section: str
    location: str
    fields: object
    """The entry, perhaps as undecoded JSON (`msgspec.Raw`)."""
    vhost: str | None
    """The vhost that the caller chose to import everything into; None: each entry names its own."""

    def decode(self) -> SourceEntry:
        """Return the entry with decoded fields. Raises `DefinitionsError`."""
        if isinstance(self.fields, msgspec.Raw):
            try:
                return self._replace(fields=msgspec.json.decode(self.fields))
            except (msgspec.DecodeError, RecursionError) as error:
                raise DefinitionsError(f"{self.location}: not valid JSON: {error}") from None
        return self


def parse_json(text: bytes | str) -> object:
    """Parse JSON; `list_entries` and `read_definition` check the content. Raises `DefinitionsError`."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DefinitionsError(f"not valid JSON: {error}") from None


def list_entries(
    document: object, vhost: str | None = None
) -> tuple[Iterator[SourceEntry], list[str]]:
    """Return the entries of a document in the order of an import, and notes on keys that are skipped.

    With `vhost`, all of them are imported into it. Raises `DefinitionsError`.
    """
    if not isinstance(document, Mapping):
        raise DefinitionsError("definitions must be an object with lists such as queues")
    if not any(section in document for section in SECTIONS):
        raise DefinitionsError(
            f"the document has no definitions: it has none of {', '.join(SECTIONS)}"
        )
    for section in SECTIONS:
        if not isinstance(document.get(section, []), list):
            raise DefinitionsError(f"{section} must be a list")
    notes = [
        f"{key}: skipped, this key is not supported"
        for key in document
        if key not in SECTIONS and key not in DOCUMENT_KEYS
    ]
    return _iterate(document, vhost), notes


def _iterate(document: Mapping[str, Any], vhost: str | None) -> Iterator[SourceEntry]:
    for section in READERS:
        if section != ONE_VHOST:
            for number, fields in enumerate(document.get(section, ())):
                yield SourceEntry(section, f"{section}[{number}]", fields, vhost)
        elif vhost is not None and any(key in document for key in VHOST_KEYS):
            settings = {key: document[key] for key in VHOST_KEYS if key in document}
            yield SourceEntry(section, section, {**settings, "name": vhost}, vhost)


def without_password(entry: SourceEntry, wanted: Definition) -> SourceEntry | None:
    """Return the decoded entry of a user with the hash of its password, None if the entry has no password."""
    fields = entry.fields
    if not (isinstance(wanted, UserDefinition) and isinstance(fields, Mapping)):
        return None
    if fields.get("password") is None:
        return None
    left = {key: value for key, value in fields.items() if key not in PASSWORD_KEYS}
    return entry._replace(fields={**left, "password_hash": wanted.user.password_hash})


def read_definition(entry: SourceEntry) -> Definition | str:
    """Return the definition in a decoded entry, or a note that it is skipped. Raises `DefinitionsError`."""
    described = DocumentEntry(entry.location, entry.fields, entry.vhost)
    try:
        return READERS[entry.section](described)
    except DefinitionsError:
        raise
    except ValueError as error:  # an invalid pattern or policy
        raise described.error(error) from None
