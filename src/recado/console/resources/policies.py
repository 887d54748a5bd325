"""Policies, operator policies, and parameters.

The only component with parameters is `vhost-limits`: all limits of a vhost are its parameter `limits`, and
`/api/vhost-limits` (see `vhosts`) changes one of them. For other components, PUT answers with the error that
RabbitMQ has for a component whose plugin is not enabled.
"""

from __future__ import annotations

from typing import Any

import msgspec

from recado.broker.broker import LIMITS_COMPONENT, LIMITS_PARAMETER
from recado.broker.errors import InvalidPolicyError
from recado.broker.limits import VhostLimits
from recado.broker.policy import ApplyTo, Policy
from recado.broker.queue import Queue
from recado.broker.vhost import Vhost

from ..access import Access, is_administrator, listed_vhosts
from ..body import read_body
from ..query import Listing
from ..request import (
    CREATED,
    NO_CONTENT,
    Answer,
    ApiRequest,
    bad_request,
    not_authorised,
    not_found,
)
from ..routes import API, Content
from .vhosts import set_limits

_PolicyEntry = tuple[str, Policy]


class PolicyBody(msgspec.Struct):
    """A policy: the settings, and the names that they apply to."""

    pattern: str
    definition: dict[str, Any]
    priority: int | float = 0
    apply_to: ApplyTo = msgspec.field(name="apply-to", default="all")


def policy_object(entry: _PolicyEntry) -> dict[str, Any]:
    """Return a policy as RabbitMQ describes it."""
    vhost, policy = entry
    return {
        "vhost": vhost,
        "name": policy.name,
        "pattern": policy.pattern,
        "apply-to": policy.apply_to,
        "definition": policy.definition,
        "priority": policy.priority,
    }


def _entries(vhosts: list[Vhost[Queue]], *, operator: bool) -> Answer:
    entries = [
        (vhost.name, policy)
        for vhost in vhosts
        for policy in vhost.policies.by_name.values()
        if policy.operator is operator
    ]
    return Answer(
        listing=Listing(
            entries,
            policy_object,
            lambda entry: entry[1].name,
            order=lambda entry: (entry[1].priority, entry[0], entry[1].name),
        )
    )


def _listed_vhosts(request: ApiRequest) -> list[Vhost[Queue]]:
    return [request.broker.vhosts[name] for name in listed_vhosts(request.user, request.broker)]


def _find(request: ApiRequest, *, operator: bool) -> _PolicyEntry:
    vhost = request.vhost()
    policy = vhost.policies.by_name.get((operator, request.parameters["name"]))
    if policy is None:
        raise not_found()
    return vhost.name, policy


def _put(request: ApiRequest, *, operator: bool) -> Answer:
    vhost, name = request.vhost(), request.parameters["name"]
    body = read_body(request, PolicyBody)
    try:
        policy = Policy(
            name=name,
            pattern=body.pattern,
            definition=body.definition,
            apply_to=body.apply_to,
            priority=body.priority,
            operator=operator,
        )
    except InvalidPolicyError as error:
        raise bad_request(f"Validation failed\n\n{error}\n") from error
    created = (operator, name) not in vhost.policies.by_name
    request.broker.set_policies(vhost.name, [policy], request.now_ms)
    return CREATED if created else NO_CONTENT


def _delete(request: ApiRequest, *, operator: bool) -> Answer:
    vhost, policy = _find(request, operator=operator)
    request.broker.delete_policy(vhost, policy.name, request.now_ms, operator=operator)
    return NO_CONTENT


def _register(path: str, change: Access, *, operator: bool) -> None:
    """Register the five routes that policies and operator policies have in common."""
    all_of_kind, of_vhost, one = (
        f"/api/{path}",
        f"/api/{path}/{{vhost}}",
        f"/api/{path}/{{vhost}}/{{name}}",
    )

    @API.add("GET", all_of_kind, Access.MANAGEMENT, content=Content.LIST)
    def list_policies(request: ApiRequest) -> Answer:
        """List the policies of all vhosts that the user may use."""
        return _entries(_listed_vhosts(request), operator=operator)

    @API.add("GET", of_vhost, Access.VHOST, content=Content.LIST)
    def list_policies_of_vhost(request: ApiRequest) -> Answer:
        """List the policies of one vhost."""
        return _entries([request.vhost()], operator=operator)

    @API.add("GET", one, change)
    def get_policy(request: ApiRequest) -> Answer:
        """Return one policy."""
        return Answer(body=policy_object(_find(request, operator=operator)))

    @API.add("PUT", one, change, body=PolicyBody)
    def put_policy(request: ApiRequest) -> Answer:
        """Set a policy."""
        return _put(request, operator=operator)

    @API.add("DELETE", one, change)
    def delete_policy(request: ApiRequest) -> Answer:
        """Delete a policy."""
        return _delete(request, operator=operator)


_register("policies", Access.POLICIES, operator=False)
_register("operator-policies", Access.ADMINISTRATOR, operator=True)


# ── parameters ──────────────────────────────────────────────────────────────────────────────────────


def _parameter_object(vhost: Vhost[Queue]) -> dict[str, Any]:
    return {
        "value": msgspec.to_builtins(vhost.settings.limits),
        "vhost": vhost.name,
        "component": LIMITS_COMPONENT,
        "name": LIMITS_PARAMETER,
    }


def _parameters(vhosts: list[Vhost[Queue]]) -> Answer:
    limited = [vhost for vhost in vhosts if msgspec.to_builtins(vhost.settings.limits)]
    return Answer(listing=Listing(limited, _parameter_object, lambda vhost: vhost.name))


class ParameterBody(msgspec.Struct):
    """The value of a parameter."""

    value: dict[str, Any]


class GlobalParameterBody(msgspec.Struct):
    """The value of a global parameter: any JSON."""

    value: Any


@API.add("GET", "/api/parameters", Access.POLICIES, content=Content.LIST)
def list_parameters(request: ApiRequest) -> Answer:
    """List the parameters of all vhosts that the user may use."""
    return _parameters(_listed_vhosts(request))


@API.add("GET", "/api/parameters/{component}", Access.POLICIES, content=Content.LIST)
def list_parameters_of_component(request: ApiRequest) -> Answer:
    """List the parameters of one component."""
    return _parameters(
        _listed_vhosts(request) if request.parameters["component"] == LIMITS_COMPONENT else []
    )


@API.add("GET", "/api/parameters/{component}/{vhost}", Access.POLICIES, content=Content.LIST)
def list_parameters_of_vhost(request: ApiRequest) -> Answer:
    """List the parameters of one component in one vhost."""
    vhost = request.vhost()
    return _parameters([vhost] if request.parameters["component"] == LIMITS_COMPONENT else [])


@API.add("GET", "/api/parameters/{component}/{vhost}/{name}", Access.POLICIES)
def get_parameter(request: ApiRequest) -> Answer:
    """Return one parameter."""
    return Answer(body=_parameter_object(_find_parameter(request)))


def _find_parameter(request: ApiRequest) -> Vhost[Queue]:
    """Return the vhost whose limits the path names. Raises `ApiError` 404 if it has none."""
    vhost = request.vhost()
    key = request.parameters["component"], request.parameters["name"]
    if key != (LIMITS_COMPONENT, LIMITS_PARAMETER) or vhost.settings.limits == VhostLimits():
        raise not_found()
    return vhost


@API.add("PUT", "/api/parameters/{component}/{vhost}/{name}", Access.POLICIES, body=ParameterBody)
def put_parameter(request: ApiRequest) -> Answer:
    """Set all limits of a vhost; no other component has parameters."""
    vhost = request.vhost()
    body = read_body(request, ParameterBody)
    component, name = request.parameters["component"], request.parameters["name"]
    if component != LIMITS_COMPONENT:
        raise bad_request(f"Validation failed\n\ncomponent {component} not found\n")
    if name != LIMITS_PARAMETER:
        raise bad_request(f"name: expected {LIMITS_PARAMETER}, the only parameter of {component}")
    _require_administrator(request)
    created = vhost.settings.limits == VhostLimits()
    set_limits(request, vhost, VhostLimits(), body.value)
    return CREATED if created else NO_CONTENT


@API.add("DELETE", "/api/parameters/{component}/{vhost}/{name}", Access.POLICIES)
def delete_parameter(request: ApiRequest) -> Answer:
    """Remove all limits of a vhost."""
    vhost = _find_parameter(request)
    _require_administrator(request)
    set_limits(request, vhost, VhostLimits(), {})
    return NO_CONTENT


def _require_administrator(request: ApiRequest) -> None:
    """Raise `ApiError` unless the user is an administrator: limits constrain policymakers, who may use the routes."""
    if not is_administrator(request.user):
        raise not_authorised("Not administrator user")


@API.add("GET", "/api/global-parameters", Access.GLOBAL_PARAMETERS, content=Content.LIST)
def list_global_parameters(request: ApiRequest) -> Answer:
    """List the global parameters."""
    entries = list(request.broker.global_parameters.items())
    return Answer(
        listing=Listing(
            entries,
            lambda entry: {"name": entry[0], "value": entry[1]},
            lambda entry: entry[0],
            order=lambda entry: (entry[0],),
        )
    )


@API.add("GET", "/api/global-parameters/{name}", Access.GLOBAL_PARAMETERS)
def get_global_parameter(request: ApiRequest) -> Answer:
    """Return one global parameter."""
    name, known = request.parameters["name"], request.broker.global_parameters
    if name not in known:
        raise not_found()
    return Answer(body={"name": name, "value": known[name]})


@API.add("PUT", "/api/global-parameters/{name}", Access.GLOBAL_PARAMETERS, body=GlobalParameterBody)
def put_global_parameter(request: ApiRequest) -> Answer:
    """Set a global parameter to any JSON value."""
    name, value = request.parameters["name"], read_body(request, GlobalParameterBody).value
    created = name not in request.broker.global_parameters
    request.broker.set_global_parameter(name, value)
    return CREATED if created else NO_CONTENT


@API.add("DELETE", "/api/global-parameters/{name}", Access.GLOBAL_PARAMETERS)
def delete_global_parameter(request: ApiRequest) -> Answer:
    """Delete a global parameter."""
    if request.parameters["name"] not in request.broker.global_parameters:
        raise not_found()
    request.broker.set_global_parameter(request.parameters["name"], msgspec.UNSET)
    return NO_CONTENT
