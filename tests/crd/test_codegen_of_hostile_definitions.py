"""No text of a definition becomes code: its module compiles, only defines classes, and reads its objects."""
from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubectl_runtime.cli.main import main
from kubectl_runtime.crd.codegen import CodegenError, module_of
from kubectl_runtime.manifests.yaml_text import to_yaml
from tests.thoroughness import examples

RUN = "raise SystemExit('it ran')"
HOSTILE = [
    f"a\n{RUN}", f"a\r{RUN}", f"a\u2028{RUN}", f"a\x85{RUN}", f"a\x0c{RUN}", f'"""\n{RUN}\n"""', f"'''\n{RUN}", '"',
    "'", "\\", 'a\\"', "\\\\\n", '""""', '"\'', f'")\n{RUN}\n#', f'"]\n    {RUN}', "\0", "\x1b[2J", "\x7f",
    "\u202e", "\ud800",
    "__class__", "__init__", "__struct_fields__", "None", "True", "class", "lambda", "str", "list", "dict", "Optional",
    "msgspec", "Struct", "Literal", "Any", "annotations", "datetime", "print", "self", "a, b", ", ", "= msgspec.field(",
    " = msgspec.field(x", "Literal[", "]", "{x}", "%s", "# -*- coding: utf-7 -*-", "", " ", "\n", "é",
    "\u017f", "名", "1", "-", "x-y", "x_y", "xY", "XY", "x.y", "type: ignore", "noqa",
    *(f"value {n}, with a comma and some more text" for n in range(8))]
TEXTS = st.sampled_from(HOSTILE) | st.text(st.characters(), max_size=8)
SCALARS = [{"type": "string"}, {"type": "integer"}, {"type": "boolean"}, {"type": "string", "format": "byte"},
           {"type": "string", "format": "date-time"}, {"x-kubernetes-int-or-string": True}, {},
           {"type": "object", "x-kubernetes-preserve-unknown-fields": True}]
ENUMS = st.lists(TEXTS | st.integers(-2**70, 2**70) | st.booleans() | st.none() | st.floats()
                 | st.lists(TEXTS, max_size=1), min_size=1, max_size=12)


DEFAULTS = (TEXTS | st.integers(-2**70, 2**70) | st.booleans() | st.floats()
            | st.lists(TEXTS, max_size=1))


def described(schema: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    more = st.fixed_dictionaries({}, optional={"description": TEXTS, "nullable": st.booleans(), "pattern": TEXTS,
                                               "default": DEFAULTS, "title": TEXTS, "format": TEXTS})
    return st.tuples(more, schema).map(lambda both: both[0] | both[1])


def objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.tuples(st.dictionaries(TEXTS, inner, max_size=6), st.lists(TEXTS, max_size=3)).map(
        lambda both: {"type": "object", "properties": both[0], "required": both[1]})


SCHEMAS = st.recursive(
    described(st.sampled_from(SCALARS) | ENUMS.map(lambda values: {"enum": values})
              | ENUMS.map(lambda values: {"type": "string", "enum": values})),
    lambda inner: described(
        objects(inner) | st.tuples(inner, st.lists(TEXTS, max_size=3)).map(
            lambda both: {"type": "array", "items": both[0], "x-kubernetes-list-map-keys": both[1]})
        | inner.map(lambda values: {"type": "object", "additionalProperties": values})), max_leaves=12)
ROOTS = st.dictionaries(TEXTS | st.just("spec"), SCHEMAS, min_size=1, max_size=5)


def definition(schema: Any, **identity: Any) -> dict[str, Any]:
    told = {"group": "example.com", "version": "v1", "kind": "Thing", "plural": "things", "scope": "Namespaced",
            **identity}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "things.example.com"}, "spec": {
                "group": told["group"], "scope": told["scope"],
                "names": {"kind": told["kind"], "plural": told["plural"]},
                "versions": [{"name": told["version"], "storage": True, "served": True,
                              "schema": {"openAPIV3Schema": schema}}]}}


def spec_of(properties: Any, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"spec": {"type": "object", "properties": properties, **more}}}


ALLOWED = {"Annotated": "typing", "Any": "typing", "Literal": "typing", "annotations": "__future__",
           "datetime": "datetime", **dict.fromkeys(("MapKeys", "Resource", "Scope"), "kubectl_runtime"),
           "LabelSelector": "kubectl_runtime.objects", "Condition": "kubectl_runtime.objects",
           "Toleration": "kubectl_runtime.resources.core_v1"}
CALLS = {"MapKeys", "msgspec.field"}
PARTS = (ast.Module, ast.Expr, ast.Constant, ast.ImportFrom, ast.Import, ast.alias, ast.ClassDef, ast.keyword, ast.Name,
         ast.Attribute, ast.AnnAssign, ast.Subscript, ast.Tuple, ast.BinOp, ast.BitOr, ast.Call, ast.Load, ast.Store,
         ast.Pass, ast.UnaryOp, ast.USub)


def assert_only_defines(text: str) -> None:
    """The module's text holds classes with annotated fields, docstrings and literals, and nothing that runs."""
    tree = ast.parse(text)
    for node in tree.body:
        assert isinstance(node, ast.Expr | ast.Import | ast.ImportFrom | ast.ClassDef)
    for node in ast.walk(tree):
        assert isinstance(node, PARTS), ast.dump(node)
        match node:
            case ast.Import():
                assert [name.name for name in node.names] == ["msgspec"]
            case ast.ImportFrom():
                assert all(ALLOWED[name.name] == node.module and name.asname is None for name in node.names)
            case ast.Expr():
                assert isinstance(node.value, ast.Constant)
            case ast.Call():
                assert ast.unparse(node.func) in CALLS
                assert all(isinstance(argument, ast.Constant) for argument in node.args)
            case ast.ClassDef():
                assert [ast.unparse(base) for base in node.bases] in (["Resource"], ["msgspec.Struct"])
                assert not node.decorator_list


def loaded(text: str) -> ModuleType:
    name = "hostile_kinds"
    module = ModuleType(name)
    sys.modules[name] = module
    exec(compile(text, f"{name}.py", "exec"), vars(module))
    return module


def is_whole(text: str) -> bool:
    """Whether JSON can carry it: it has no half of a surrogate pair."""
    return text.encode(errors="replace").decode() == text


def value_for(draw: Any, schema: Any) -> Any:
    """A value that the schema describes, of which every declared part is there."""
    if schema.get("nullable") and draw(st.booleans()):
        return None
    if values := [value for value in schema.get("enum", ()) if value is not None]:
        known = all(is_whole(value) if isinstance(value, str) else type(value) is int and -2**63 <= value < 2**63
                    for value in values)
        return draw(st.sampled_from(values)) if known else "x"
    match schema:
        case {"x-kubernetes-int-or-string": True}:
            return draw(st.sampled_from([1, "1"]))
        case {"type": "object", "properties": properties} if properties:
            return {key: value_for(draw, child) for key, child in properties.items()
                    if is_whole(key)}
        case {"type": "object", "additionalProperties": inner}:
            return {"any key": value_for(draw, inner)}
        case {"type": "object"}:
            return {"a": 1}
        case {"type": "array", "items": items}:
            return [value_for(draw, items)]
        case {"type": "string", "format": "byte"}:
            return "YQ=="
        case {"type": "string", "format": "date-time"}:
            return "2026-01-02T03:04:05Z"
        case {"type": kind}:
            return {"string": "text", "integer": 3, "boolean": True}[kind]
    return [1, "any"]


@settings(max_examples=examples(400), deadline=None)
@given(st.data(), ROOTS, TEXTS, st.booleans())
def test_a_module_compiles_runs_nothing_and_reads_its_objects(data: Any, roots: dict[str, Any], text: str,
                                                              strict: bool) -> None:
    crd = definition({"type": "object", "properties": roots, "description": text})
    made = module_of([crd], strict_enums=strict)
    made.encode()
    assert made == module_of([crd], strict_enums=strict)
    assert_only_defines(made)
    module = loaded(made)
    content = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a"},
               **{key: value_for(data.draw, schema) for key, schema in roots.items()
                  if key not in ("apiVersion", "kind", "metadata") and is_whole(key)}}
    obj = module.Thing.from_dict(content)
    for name, found in vars(module.Thing).items():
        if type(found).__name__ == "Attribute":
            getattr(obj, name)
    assert obj.to_dict() == content


@settings(max_examples=examples(300), deadline=None)
@given(st.sampled_from(["group", "version", "kind", "plural", "scope"]),
       TEXTS | st.integers() | st.none() | st.lists(st.text(), max_size=1))
def test_a_name_that_no_server_takes_is_refused_with_its_place(name: str, value: Any) -> None:
    crd = definition(spec_of({"a": {"type": "string"}}), **{name: value})
    try:
        made = module_of([crd])
    except CodegenError as error:
        told = str(error)
        assert told.isprintable()
        assert {"version": "spec.versions[].name", "group": "spec.group", "scope": "spec.scope"}.get(
            name, f"spec.names.{name}") in told or "is not a CustomResourceDefinition" in told
    else:
        assert_only_defines(made)
        [kind] = [found for found in vars(loaded(made)).values() if isinstance(found, type)
                  and getattr(found, "__module__", "") == "hostile_kinds" and hasattr(found, "api_resource")]
        assert kind.api_resource.full_name.isascii()


@pytest.mark.parametrize("kind", ["str", "list", "None", "Class", "class", "Optional", "Struct", "msgspec", "datetime",
                                  "print", "Foo-Bar", "annotations", "Exception", "RuntimeError"])
def test_a_kind_with_a_name_of_python_gets_a_class_beside_it(kind: str) -> None:
    made = module_of([definition(spec_of({"a": {"type": "string"}, "when": {"type": "string", "format": "date-time"},
                                          "more": {"type": "array", "items": {"type": "string"}}}), kind=kind)])
    assert_only_defines(made)
    module = loaded(made)
    [found] = [value for value in vars(module).values() if isinstance(value, type)
               and getattr(value, "api_resource", None) is not None]
    assert found.api_resource.kind == kind
    obj = found.from_dict({"metadata": {"name": "a"}, "spec": {
        "a": "b", "more": ["c"], "when": "2026-01-02T03:04:05Z"}})
    assert (obj.spec.a, obj.spec.more, obj.spec.when.year) == ("b", ["c"], 2026)


def test_long_enums_are_wrapped_between_their_values() -> None:
    values = [f"value {number}, with a comma and some more text" for number in range(8)]
    made = module_of([definition(spec_of({"choice": {"type": "string", "enum": values}}))])
    assert max(map(len, made.splitlines())) <= 120
    module = loaded(made)
    for value in values:
        assert module.Thing.from_dict({"metadata": {"name": "a"}, "spec": {"choice": value}}).spec.choice == value


@pytest.mark.parametrize(("schema", "value"), [
    ({"type": "boolean", "enum": [True]}, True), ({"type": "number", "enum": [1, 1.5]}, 1.5),
    ({"type": "integer", "enum": [2**64]}, 7), ({"enum": [["a"], {"b": 1}]}, {"b": 1}),
    ({"type": "string", "enum": ["", None, "x"], "nullable": True}, None)])
def test_enums_of_every_type_are_read(schema: Any, value: Any) -> None:
    module = loaded(module_of([definition(spec_of({"choice": schema}))]))
    assert module.Thing.from_dict({"metadata": {"name": "a"}, "spec": {"choice": value}}).spec.choice == value


def test_a_key_that_no_field_can_have_is_written_back_as_it_came() -> None:
    keys = ['a"b', "a\\b", "a\nb", "a\x00b"]
    made = module_of([definition(spec_of({key: {"type": "string"} for key in keys}, required=keys))])
    assert_only_defines(made)
    content = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a"},
               "spec": dict.fromkeys(keys, "x")}
    obj = loaded(made).Thing.from_dict(content)
    assert obj.spec is not None
    assert obj.to_dict() == content


def deep(levels: int) -> Any:
    node: Any = {"type": "string"}
    for _ in range(levels):
        node = {"type": "array", "items": node}
    return node


def shared(levels: int) -> Any:
    """What aliases of YAML make: a small text, and a schema of ever so many nodes."""
    node: Any = {"type": "string"}
    for _ in range(levels):
        node = {"type": "object", "properties": {"a": node, "b": node}}
    return node


@pytest.mark.parametrize(("node", "place"), [
    ({"type": ["string"]}, "spec.a.type"), ("text", "spec.a is text"), ({"type": "object", "properties": []}, None),
    ({"type": "object", "properties": ["x"]}, "spec.a.properties"), ({"enum": "xyz"}, "spec.a.enum"),
    ({"type": "object", "properties": {"b": 3}}, "spec.a.b"), ({"type": "array", "items": [{}]}, "spec.a[]"),
    ({"type": "object", "properties": {1: {}}}, "spec.a.properties"), ({"required": "x"}, "spec.a.required"),
    ({"description": {"x": 1}}, "spec.a.description"), ({"x-kubernetes-list-map-keys": [1]}, "list-map-keys[0]"),
    ({"additionalProperties": "x"}, "spec.a.additionalProperties"), (deep(50), None), (deep(2000), "64 levels"),
    (shared(30), "200000 nodes")])
def test_a_schema_of_another_shape_is_refused_with_its_place(node: Any, place: str | None) -> None:
    crd = definition(spec_of({"a": node}))
    if place is None:
        assert loaded(module_of([crd])).Thing
        return
    with pytest.raises(CodegenError) as refused:
        module_of([crd])
    assert place in str(refused.value)


@pytest.mark.parametrize("metadata", [None, "text", [], {"name": None}, {"name": ["x"]}, {"name": "a\nb\x1b"}])
def test_malformed_definitions_are_errors_in_one_printable_line(metadata: Any) -> None:
    with pytest.raises(CodegenError) as refused:
        module_of([definition(None) | {"metadata": metadata, "kind": "x\ny"}])
    assert str(refused.value).isprintable()


def test_the_command_runs_nothing_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "evil.yaml"
    file.write_text(to_yaml(definition({"type": "object", "properties": {
        f"x\n    {RUN}": {"type": "string"}, "spec": {"type": "object", "properties": {
            f'"\n{RUN}': {"type": "string", "description": f'"""\n{RUN}'}}}}})))
    assert main(["codegen", str(file)]) == 0
    (tmp_path / "module_of_evil.py").write_text(text := capsys.readouterr().out)
    assert_only_defines(text)
    found = importlib.util.spec_from_file_location("module_of_evil", tmp_path / "module_of_evil.py")
    assert found is not None
    assert found.loader is not None
    found.loader.exec_module(importlib.util.module_from_spec(found))
    for name, value in [("group", f'x"\n{RUN}'), ("kind", f"A:\n    {RUN}\nclass B"), ("plural", '"'),
                        ("version", "v\n1")]:
        file.write_text(to_yaml(definition(spec_of({}), **{name: value})))
        assert main(["codegen", str(file)]) == 1
        shown = capsys.readouterr()
        assert shown.out == ""
        assert shown.err.count("\n") == 1


@pytest.mark.parametrize(("kind", "default", "held"), [
    ("string", f"'\"\n{RUN}\n", True), ("string", "\u2028\x1b[2J\\", True), ("string", "\ud800", False),
    ("string", 1, False), ("number", float("inf"), False), ("number", float("nan"), False), ("number", -1.5, True),
    ("number", 2**64, False), ("integer", -2**63, True), ("integer", True, False), ("integer", [RUN], False),
    ("boolean", False, True), ("boolean", 0, False)], ids=str)
def test_a_default_is_a_value_and_no_code(kind: str, default: Any, held: bool) -> None:
    text = module_of([definition(spec_of({"x-y": {"type": kind, "default": default}}, required=["x-y"]))])
    assert_only_defines(text)
    module = loaded(text)
    assert module.ThingSpec().x_y == (default if held else None)
    assert type(module.ThingSpec().x_y) is type(default if held else None)
    assert module.Thing.from_dict({"metadata": {"name": "a"}, "spec": {}}).to_dict()["spec"] == {}


TOLERATION = {"effect": {"type": "string"}, "key": {"type": "string"}, "operator": {"type": "string"},
              "value": {"type": "string"}, "tolerationSeconds": {"type": "integer"}}


@pytest.mark.parametrize(("part", "known"), [
    (TOLERATION, "Toleration"), ({**TOLERATION, "value": {"type": "integer"}}, None),
    ({**TOLERATION, RUN: {"type": "string"}}, None),
    ({"matchLabels": {"type": "object"}, "matchExpressions": {"type": "array"}}, "LabelSelector"),
    ({"matchLabels": {"type": "array"}, "matchExpressions": {}}, None),
    ({key: {"type": "string", "description": RUN} for key in ("type", "status", "lastTransitionTime")}, "Condition"),
    ({"type": {"type": "string"}, "status": {"type": "boolean"}, "lastTransitionTime": {"type": "string"}}, None),
], ids=range(7))
def test_a_part_of_the_api_is_known_by_its_keys_and_their_types(part: Any, known: str | None) -> None:
    text = module_of([definition(spec_of({"part": {"type": "object", "properties": part}}))])
    assert_only_defines(text)
    loaded(text)
    assert f"part: {known or 'ThingSpecPart'} | None" in text
