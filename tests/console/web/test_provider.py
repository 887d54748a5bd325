"""Signing in at an OpenID provider, in Chromium under the content security policy."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

import recado
from workshop import vendor

from ..openid_provider import OpenIdProvider
from ..test_provider_sign_in import running
from .conftest import OpenPage, sign_in


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> OpenIdProvider:
    monkeypatch.setenv("no_proxy", "*")
    return OpenIdProvider()


@pytest.fixture
def broker(provider: OpenIdProvider) -> Iterator[recado.Broker]:
    with running(provider) as broker:
        yield broker


def test_signing_in_returns_to_the_view(
    open_page: OpenPage, broker: recado.Broker, provider: OpenIdProvider
) -> None:
    page = open_page(broker.management_port, "#/exchanges?filter=amq", expected=provider.url)
    page.get_by_role("link", name=f"Sign in with {provider.url.removeprefix('http://')}").click()
    page.get_by_role("button", name="Approve").click()
    page.get_by_role("heading", name="Exchanges").wait_for()
    assert page.url.endswith(f":{broker.management_port}/#/exchanges?filter=amq")
    page.get_by_role("link", name="amq.topic").wait_for()
    page.get_by_role("navigation", name="Main").get_by_role("link", name="Users").wait_for()
    stored = page.evaluate("JSON.stringify([{ ...localStorage }, { ...sessionStorage }])")
    cookies = page.context.cookies()
    assert {each["httpOnly"] for each in cookies} == {True}
    assert sorted(each["sameSite"] for each in cookies) == ["Lax", "Strict"]
    assert "eyJ" not in stored + str(cookies), "no token is in the browser"
    assert page.evaluate("document.cookie") == ""
    page.get_by_role("button", name="Sign out").click()
    page.get_by_role("link", name=re.compile("Sign in with")).wait_for()
    assert provider.problems == []


def test_problems_are_explained(
    open_page: OpenPage, broker: recado.Broker, provider: OpenIdProvider
) -> None:
    page = open_page(broker.management_port, expected=provider.url)
    link = page.get_by_role("link", name=re.compile("Sign in with"))
    link.click()
    page.get_by_role("button", name="Deny").click()
    page.get_by_text("The identity provider has refused to sign you in.").wait_for()
    provider.scopes = ("read:*/*",)
    link.click()
    page.get_by_role("button", name="Approve").click()
    page.get_by_text("Your token has no tag for the console").wait_for()
    sign_in(page)  # the password is still possible
    page.get_by_role("heading", name="Overview").wait_for()
    assert page.url.endswith("/#/")


def test_the_page_with_a_provider_is_accessible(
    open_page: OpenPage, broker: recado.Broker, provider: OpenIdProvider
) -> None:
    path = "#/sign-in?problem=expired"
    for scheme in ("light", "dark"):
        page = open_page(broker.management_port, path, bypass_csp=True, color_scheme=scheme)
        page.get_by_text("Signing in has taken too long").wait_for()
        page.evaluate((vendor.TESTS / "axe.min.js").read_text())
        found = page.evaluate("axe.run({ resultTypes: ['violations'] })")
        assert found["violations"] == []


def test_without_a_provider_there_is_no_button(open_page: OpenPage, scene: recado.Broker) -> None:
    for path in ("", "#/sign-in?problem=%3Cimg%3E"):
        page = open_page(scene.management_port, path)
        page.get_by_role("button", name="Sign in").wait_for()
        assert page.get_by_role("link").count() == 0
        assert page.get_by_role("alert").count() == 0
