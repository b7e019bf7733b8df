"""Macros of two variables and named formats in rules: evaluated as a server does, and refused where it refuses them."""
from __future__ import annotations

import time
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubectl_runtime.client.api.api import Api
from kubectl_runtime.core.base.errors import ApiError
from kubectl_runtime.crd.customresource import CustomResource
from kubectl_runtime.crd.marks import Rule
from kubectl_runtime.runtime.apply_crd import apply_crd
from kubectl_runtime.schema import cel
from kubectl_runtime.schema.celmacros import expanded
from kubectl_runtime.testing import ApiServer

pytest.importorskip("cel_expr_python", reason="the extra 'cel' is not installed")

NODE: dict[str, Any] = {"type": "object", "properties": {
    "items": {"type": "array", "items": {"type": "object", "properties": {
        "name": {"type": "string"}, "n": {"type": "integer"}}}},
    "labels": {"type": "object", "additionalProperties": {"type": "string"}}, "name": {"type": "string"}}}
VALUE = {"items": [{"name": "a", "n": 0}, {"name": "b", "n": 1}], "labels": {"x": "1", "y": "2"}, "name": "Web"}
SCOPE = cel.Scope(NODE)


def result(expression: str) -> Any:
    assert SCOPE.most_cost(expression, "bool") is not None, "no bool"
    return cel.program(expression).run(cel.Values(VALUE))


@pytest.mark.parametrize(("expression", "wanted"), [
    ("self.items.all(i, v, v.n == i)", True), ("self.items.all(i, v, v.n > i)", False),
    ("self.labels.all(k, v, k != v)", True), ('self.labels.exists(k, v, k == "x" && v == "1")', True),
    ("self.items.exists(i, v, v.n > 5)", False), ('self.items.existsOne(i, v, v.name == "b")', True),
    ("self.items.exists_one(i, v, i >= 0)", False), ('self.items.transformList(i, v, v.name) == ["a", "b"]', True),
    ('self.items.transformList(i, v, i > 0, v.name) == ["b"]', True),
    ('self.labels.transformMap(k, v, v + "!")["x"] == "1!"', True),
    ('self.labels.transformMap(k, v, k == "y", v).size() == 1', True),
    ("[1, 2].transformMap(i, v, v * 2)[1] == 4", True),
    ('self.labels.transformMapEntry(k, v, {v: k})["2"] == "y"', True),
    ("{}.all(k, v, false) && [].all(i, v, false)", True),
    # where such calls stand
    ("self.items.all(i, v, self.items.all(j, w, i == j || v.name != w.name))", True),
    ('self.items.all(i, v, {"z": v.n}.all(k, w, w == i && k == "z"))', True),
    ("self.items.map(x, x.n).all(i, n, n == i) // the order", True),
    ("self.items.all(i, v, v.n == i // the order\n && i < 9)", True),
    ("(self.items.size() > 0 ? self.items : self.items).all(i, v, v.n == i)", True),
    ("!self.items.exists(i, v, v.n > 5) && self.labels.all(k,v,true)", True),
    ("self.items.filter(v, v.n > 0).transformList(i, v, v.n)[0] == 1 && 1 in [1].transformList(i, v, v)", True),
    ('"x" in self.labels && [["a"], ["b"]][1].all(i, v, v == "b")', True),
    # what only looks like one
    ('self.name == "[1].all(i, v, x)" || self.items.all(v, v.n >= 0)', True),
    ("self.items.exists_one(v, v.n == 1)", True),
    (r'self.name != r"\d" && self.name != "\").all(i, v, \"" || [1].all(i, v, v == 1)', True),
    # formats
    ("format.dns1123Label().validate(self.name).hasValue()", True),
    ('!format.dns1123Label().validate("web").hasValue()', True),
    ('format.dns1123Label().validate(self.name).value()[0].startsWith("a lowercase RFC 1123 label")', True),
    ('format.named("uuid").value().validate("x").value() == ["does not match the UUID format"]', True),
    ('!format.named("none").hasValue() && format.named("date").hasValue()', True),
    ('self.items.all(i, v, !format.labelValue().validate(v.name).hasValue())', True),
    ('format.dns1035LabelPrefix().validate("web-").orValue([]) == []', True),
    ('format.qualifiedName().validate("a/b/c").value().size() == 1', True),
    ('["uri", "byte", "datetime", "dns1123Subdomain", "dns1123SubdomainPrefix", "dns1123LabelPrefix", "dns1035Label"]'
     '.all(name, format.named(name).value().validate("_?").hasValue())', True)])
def test_what_an_expression_gives(expression: str, wanted: bool) -> None:
    assert result(expression) is wanted


@pytest.mark.parametrize(("expression", "why"), [
    ("self.items.all(i, v, v.nope == 1)", "undefined field 'nope'"),
    ('self.items.all(i, v, i == "a")', "no matching overload for '_==_'"),
    ("self.labels.all(k, v, v > 1)", "no matching overload"), ("self.name.all(i, v, true)", "no matching overload"),
    ("self.items.all(i, i, true)", "undeclared reference"), ("self.items.all(i, v.n, true)", "undeclared reference"),
    ("self.items.all(i, v, true", "Syntax error"), ("format.dns1123().validate(self.name).hasValue()", "undeclared"),
    ("format.uuid().validate(1).hasValue()", "no matching overload"),
    ("self.name.validate(self.name) == []", "no matching overload"),
    ("self.items.transformList(i, v, v.n)", "no bool"),
    ("cel.bind(a, 1, a == 1)", "undeclared reference to 'cel'"),
    ("kubernetes__keys(self.items) == [0]", "undeclared reference to 'kubernetes__keys'")])
def test_what_does_not_compile(expression: str, why: str) -> None:
    with pytest.raises((cel.CelError, AssertionError), match=why):
        result(expression)


def test_conditions_of_webhooks_have_them_too() -> None:
    shown = {"metadata": {"labels": {"a": "b"}}}
    assert cel.condition("object.metadata.labels.all(k, v, k != v)").holds(shown, None, {})
    assert not cel.condition("object.metadata.labels.exists(k, v, k == v)").holds(shown, None, {})
    assert cel.condition("!format.labelValue().validate(object.metadata.labels.a).hasValue()").holds(shown, None, {})
    with pytest.raises(cel.CelError, match="undeclared reference to 'cel'"):
        cel.condition("cel.bind(a, 1, a == 1)")


def test_keys_that_meet_are_an_error_of_the_rule() -> None:
    with pytest.raises(cel.CelError, match="key '1' already exists"):
        result('{"a": 1, "b": 1}.transformMapEntry(k, v, {string(v): k}).size() == 1')


class Named(CustomResource, group="rules.example.com", version="v1", kind="Named",
            rules=[Rule("self.spec.all(k, v, !format.dns1123Label().validate(v).hasValue() && k != v)",
                        message_expression="format.dns1123Label().validate(self.spec['a']).orValue(['?'])[0]")]):
    spec: Annotated[dict[str, Annotated[str, msgspec.Meta(max_length=63)]], msgspec.Meta(max_length=20)]


def test_a_server_obeys_them_and_so_does_the_class() -> None:
    with ApiServer() as server, server.client() as client:
        apply_crd(client, Named)
        api = Api.namespaced(client, Named, "default")
        assert api.create(Named(name="good", spec={"a": "web", "b": "db"})).spec["a"] == "web"
        with pytest.raises(ApiError, match="a lowercase RFC 1123 label must consist of"):
            api.create(Named(name="bad", spec={"a": "Web"}))
    [cause] = Named.from_dict({"metadata": {"name": "a"}, "spec": {"a": "a"}}).violations()
    assert "?" in cause.text()


PIECES = [*"()[]{},.?:'\"\\ \n", ".all(", ".validate(", "i", "v", "//", "r'", '"""', "in", "0"]


@given(st.lists(st.sampled_from(PIECES)).map("".join))
def test_any_text_is_expanded_or_left(text: str) -> None:
    once = expanded(text)
    assert once == text or "kubernetes__" in once or ".all(" in text or ".validate(" in text


@pytest.mark.parametrize("text", [
    "x" * 50_000 + ".all(", "[1].all(i, v, " * 20_000, "a.all(i,v," + "(" * 50_000, "a.all(i, v, " + '"' * 50_001,
    "//" * 50_000 + ".all(", "a.b" * 20_000 + ".all(i, v, x)", "a.all(i, v, " + "x, " * 20_000 + ")",
    "a" + ".b(x)" * 20_000 + ".all(i, v, x)", "f" + ".validate(x)" * 20_000])
def test_long_texts_take_linear_time(text: str) -> None:
    begin = time.process_time()
    expanded(text)
    assert time.process_time() - begin < 2
