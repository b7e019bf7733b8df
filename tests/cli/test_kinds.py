"""The definitions that `run --dev` installs."""
from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated

import msgspec
import pytest

from kubectl_runtime import Api, Client, CustomResource, KubeError
from kubectl_runtime.cli.dev_operator import install_kinds, loaded_kinds
from kubectl_runtime.cli.places import CommandError
from kubectl_runtime.core.base.errors import MissingExtra
from kubectl_runtime.crd import Rule
from kubectl_runtime.resources import CustomResourceDefinition
from kubectl_runtime.schema import cel
from kubectl_runtime.testing import ApiServer, eventually


class Spec(msgspec.Struct):
    size: int = 1


class Wide(msgspec.Struct):
    size: int = 1
    colour: str = ""


class Base(CustomResource):
    """Without a kind."""


class Part(Base, group="parts.example.com", version="v1", kind="Part"):
    spec: Spec


class PartWithColour(Base, group="parts.example.com", version="v1", kind="Part"):
    spec: Wide


class OldTool(CustomResource, group="tools.example.com", version="v1beta1", kind="Tool", storage=False):
    spec: Spec


class Tool(CustomResource, group="tools.example.com", version="v1", kind="Tool"):
    spec: Wide


class NewPart(CustomResource, group="parts.example.com", version="v2", kind="Part"):
    spec: Spec


class RivalTool(CustomResource, group="tools.example.com", version="v2", kind="Tool"):
    spec: Wide


class Odd(CustomResource, group="example.com", version="v1", kind="Odd"):
    spec: Later


Later = complex


@pytest.fixture
def client() -> Iterator[Client]:
    with ApiServer() as server, server.client() as client:
        yield client


def test_every_class_with_a_kind_is_found_and_no_base(client: Client) -> None:
    found = loaded_kinds()
    assert {Part, PartWithColour, OldTool, Tool, RivalTool, Odd} <= set(found)
    assert Base not in found
    assert found == sorted(found, key=lambda kind: kind.crd_name())


def test_kinds_can_be_used_when_they_are_installed_and_follow_a_change(client: Client) -> None:
    assert install_kinds(client, [Part, OldTool, Tool]) == ["parts.parts.example.com", "tools.tools.example.com"]
    Api.default_namespaced(client, Part).create(Part(name="a", spec=Spec(2)))
    for kind in (Tool, OldTool):
        assert Api.default_namespaced(client, kind).list().items == []
    tool = Api.all(client, CustomResourceDefinition).get("tools.tools.example.com")
    assert [(version["name"], version["storage"]) for version in tool["spec"]["versions"]] == [
        ("v1", True), ("v1beta1", False)]
    with pytest.raises(CommandError, match=r"v1 was previously a storage version(.|\n)*begin with an empty server"):
        install_kinds(client, [NewPart])
    install_kinds(client, [PartWithColour])
    parts = Api.default_namespaced(client, PartWithColour)
    red = PartWithColour(name="b", spec=Wide(2, "red"))
    # For a moment the old schema is in use, as on a real server.
    written = eventually(lambda: parts.apply(red, field_manager="test"), lambda part: part.spec.colour)
    assert written.spec.colour == "red"
    assert parts.get("a").spec.size == 2


@pytest.mark.parametrize(("kinds", "said"), [
    ([Part, PartWithColour], r":Part, .*:PartWithColour cannot be made: .* two definitions have version v1"),
    ([Tool, RivalTool], r"Tool, RivalTool are versions of tools\.tools\.example\.com: one must be the"),
    ([Odd], r":Odd cannot be made: Odd\.spec: complex"),
])
def test_classes_that_make_no_definition_are_told(client: Client, kinds: list[type[CustomResource]], said: str) -> None:
    with pytest.raises(CommandError, match=said):
        install_kinds(client, kinds)


class Bounded(msgspec.Struct):
    size: Annotated[int, Rule("self < 31337")]


def test_rules_without_the_extra_are_told_in_one_sentence(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    class Bound(CustomResource, group="bounds.example.com", version="v1", kind="Bound"):
        spec: Bounded

    cel.engine.cache_clear()
    cel._runtime.cache_clear()
    monkeypatch.setitem(sys.modules, "cel_expr_python", None)
    try:
        for needs_it in (lambda: install_kinds(client, [Bound]), Bound(name="a", spec=Bounded(1)).violations):
            with pytest.raises(KubeError) as raised:
                needs_it()
            assert str(raised.value) == str(MissingExtra("rules in CEL need", "cel"))
        assert Api.all(client, CustomResourceDefinition).list().items == []
    finally:
        cel.engine.cache_clear()
        cel._runtime.cache_clear()
