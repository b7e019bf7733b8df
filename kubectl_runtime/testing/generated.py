"""`objects_of(Kind)`: a hypothesis strategy for valid objects of a custom kind.

    @given(objects_of(Oven))
    def test_no_conversion_loses_anything(oven):
        conversion.check([oven])

Values follow the schema: types, limits, enums, patterns, required fields. Objects that a CEL rule refuses are left out.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from kubectl_runtime.crd.customresource import CustomResource
from kubectl_runtime.schema.validation import schema_causes

K = TypeVar("K", bound=CustomResource)
_FORMATS = {"date-time": "2024-01-31T12:00:00Z", "date": "2024-01-31", "byte": "eHg=", "duration": "1h",
            "uuid": "12345678-1234-4234-8234-123456789abc", "ipv4": "10.0.0.1", "ipv6": "::1", "uri": "https://a.example",
            "email": "a@example.com", "hostname": "a.example"}
_LONG = 8
"""The maximum length of a generated string, unless its minLength is larger."""


def objects_of(kind: type[K]) -> Any:
    """Return a SearchStrategy of objects of this kind. The objects are called `generated` and decoded like a server's
    response. Needs hypothesis."""
    from hypothesis import strategies as st

    [version] = kind.crd()["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    resource = kind.api_resource
    head = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": "generated"}}
    parts = _values({**schema, "required": schema.get("required", ())}, st)
    return parts.map(lambda content: kind.from_dict({**content, **head})).filter(lambda obj: not obj.violations())


def _values(node: Mapping[str, Any], st: Any) -> Any:
    if "enum" in node:
        return st.sampled_from(node["enum"])
    if node.get("x-kubernetes-int-or-string"):
        return st.integers(0, 1000) | st.integers(0, 1000).map(str)
    found = _BY_TYPE.get(node.get("type") or "", _any)(node, st)
    if any(key in node for key in ("anyOf", "allOf", "oneOf", "not")):
        whole = {"type": "object", "properties": {"it": node}}
        return found.filter(lambda value: not schema_causes({"it": value}, whole))
    return found


def _object(node: Mapping[str, Any], st: Any) -> Any:
    if isinstance(extra := node.get("additionalProperties"), Mapping):
        return st.dictionaries(st.text("abc", min_size=1, max_size=3), _values(extra, st),
                               min_size=node.get("minProperties", 0), max_size=node.get("maxProperties", 3))
    properties = {key: _values(child, st) for key, child in (node.get("properties") or {}).items()
                  if key not in ("apiVersion", "kind", "metadata")}
    required = [key for key in node.get("required", ()) if key in properties]
    return st.fixed_dictionaries({key: properties[key] for key in required}, optional={
        key: value for key, value in properties.items() if key not in required})


def _array(node: Mapping[str, Any], st: Any) -> Any:
    keys = node.get("x-kubernetes-list-map-keys")
    unique = {"unique_by": lambda item: tuple(str(item.get(key)) for key in keys)} if keys else {
        "unique_by": str} if node.get("x-kubernetes-list-type") == "set" else {}
    least = node.get("minItems", 0)
    return st.lists(_values(node.get("items") or {}, st), min_size=least,
                    max_size=min(node.get("maxItems", least + 3), least + 3), **unique)


def _string(node: Mapping[str, Any], st: Any) -> Any:
    if (form := node.get("format")) in _FORMATS:
        return st.just(_FORMATS[form])
    least, most = node.get("minLength", 0), node.get("maxLength")
    if pattern := node.get("pattern"):
        return st.from_regex(pattern).filter(
            lambda text: "\n" not in text and least <= len(text) <= (len(text) if most is None else most))
    return st.text("abcxyz01 -", min_size=least, max_size=max(least, min(_LONG, _LONG if most is None else most)))


def _number(node: Mapping[str, Any], st: Any) -> Any:
    step = node.get("multipleOf") or 1
    low, high = node.get("minimum", -1000), node.get("maximum", max(node.get("minimum", 0), 0) + 1000)
    found = st.integers(-(-low // step), high // step).map(lambda number: number * step)
    return found.filter(lambda number: not (number == low and node.get("exclusiveMinimum"))
                        and not (number == high and node.get("exclusiveMaximum")))


def _any(_: Mapping[str, Any], st: Any) -> Any:
    return st.dictionaries(st.text("abc", min_size=1, max_size=3), st.integers(0, 9) | st.text("abc", max_size=3),
                           max_size=2)


_BY_TYPE: dict[str, Any] = {"object": _object, "array": _array, "string": _string, "integer": _number,
                            "number": _number, "boolean": lambda _, st: st.booleans()}
