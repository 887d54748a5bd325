"""The table of methods, compared with pamqp, which is generated from the specification."""

from typing import get_args

import pytest
from pamqp import base, commands

from recado.amqp import methods
from recado.amqp.methods import (
    METHODS,
    AccessRequest,
    AccessRequestOk,
    BasicAck,
    BasicPublish,
    ConnectionOpen,
    Method,
    QueueDeclare,
)

ALL = list(METHODS.values())
# pamqp leaves out the access class, which the specification retired.
IN_PAMQP = [method for method in ALL if method.class_id != AccessRequest.class_id]

# Where pamqp names a field otherwise. All else must agree, reserved fields aside.
RENAMED = {
    "no_wait": "nowait",
    "type": "exchange_type",
    "failed_class": "class_id",
    "failed_method": "method_id",
}


def by_name(method: type[Method]) -> str:
    return method.name


def pamqp_twin(method: type[Method]) -> type[base.Frame]:
    return commands.INDEX_MAPPING[method.class_id << 16 | method.method_id]


def wire_types(method: type[Method]) -> list[str]:
    kinds = (
        kind if name in method.__struct_fields__ else get_args(kind)[0]
        for name, kind in method.__annotations__.items()
    )
    return [kind.__metadata__[0] for kind in kinds]


def test_nothing_is_missing() -> None:
    ours = {method.class_id << 16 | method.method_id for method in IN_PAMQP}
    assert ours == commands.INDEX_MAPPING.keys()
    assert {AccessRequest, AccessRequestOk} <= set(ALL)
    assert len({method.name for method in ALL}) == len(ALL) == 66


@pytest.mark.parametrize("method", IN_PAMQP, ids=by_name)
def test_fields_and_types_stand_as_in_the_specification(method: type[Method]) -> None:
    twin = pamqp_twin(method)
    fields = twin.attributes()
    assert wire_types(method) == [twin.amqp_type(field) for field in fields]
    for ours, theirs in zip(method.__annotations__, fields, strict=True):
        if ours in method.__struct_fields__:
            assert theirs == RENAMED.get(ours, ours)


@pytest.mark.parametrize("method", IN_PAMQP, ids=by_name)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_defaults_are_those_of_the_specification(method: type[Method]) -> None:
    ours, theirs = method(), pamqp_twin(method)()
    for name in method.__struct_fields__:
        value = getattr(ours, name)
        default = getattr(theirs, RENAMED.get(name, name))
        if default is None:  # the specification has none: ours is the empty value of the type
            assert not value
        else:
            assert (value.decode() if isinstance(value, bytes) else value) == default


@pytest.mark.parametrize("method", ALL, ids=by_name)
def test_a_method_knows_itself(method: type[Method]) -> None:
    assert METHODS[method.class_id, method.method_id] is method
    assert getattr(methods, method.__name__) is method
    assert method.name.replace(".", "-").replace("-", "") == method.__name__.lower()


def test_methods_with_content() -> None:
    assert {method.name for method in ALL if method.has_content} == {
        "basic.publish",
        "basic.return",
        "basic.deliver",
        "basic.get-ok",
    }


def test_methods_are_values() -> None:
    assert BasicAck(1, True) == BasicAck(delivery_tag=1, multiple=True)
    assert len({BasicAck(1), BasicAck(1), BasicAck(2)}) == 2
    with pytest.raises(AttributeError):
        BasicAck(1).delivery_tag = 2  # type: ignore[misc]
    assert QueueDeclare().arguments is not QueueDeclare().arguments


def test_reserved_fields_cannot_be_passed() -> None:
    assert BasicPublish.__struct_fields__ == (
        "exchange",
        "routing_key",
        "mandatory",
        "immediate",
    )
    with pytest.raises(TypeError):
        ConnectionOpen(virtual_host="/", reserved_1="x")  # type: ignore[call-arg]
