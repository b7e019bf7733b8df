"""A typed Python module for somebody else's CustomResourceDefinitions: what `kubectl-runtime codegen` writes.

    a definition                      class Certificate(Resource, group=…, version=…, kind=…)
    an object with properties         class CertificateSpecIssuerRef(msgspec.Struct), named by its place
    a list of type map                Annotated[list[…], MapKeys("name")]
    what is not described             Any, dict[str, Any]

The classes are for reading and writing, not for judging: limits, patterns, rules and one-of are left to the server,
and what is not required is None when it is absent. A view that does not know a field loses it nowhere: it is written
back as it came.

Why this is written here. datamodel-code-generator 0.89 (the best kept one that emits msgspec Structs) was tried first,
on schemas in the manner of cert-manager, Gateway API and Istio. `oneOf` with `required` becomes a union of untagged
Structs, for which msgspec refuses to decode the whole object; `format: duration` becomes a timedelta, which reads ISO
8601 and not Go's `5m`; int-or-string without an `anyOf` becomes Any; enums get defaults of type str, which mypy
--strict refuses; limits are checked when reading, so that one object stored before a limit came breaks; classes are
called Spec1, Spec2, and one more field renames the others; map keys and the kind are lost; it brings fourteen packages.
With junctors, formats, enums, limits, defaults and metadata taken out of the schema before it and the names put right
after it, nothing is left of it but the walk over the properties.
"""
from __future__ import annotations

import inspect
import json
import keyword
import re
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

from kubectl_runtime.core.base.wire import camel
from kubectl_runtime.core.objects.resource import Resource
from kubectl_runtime.crd.spellings import plain

Node = Mapping[str, Any]

WIDTH = 120
_SCALARS = {"string": "str", "integer": "int", "number": "float", "boolean": "bool"}
_FORMATS = {"date-time": "datetime", "byte": "bytes"}
_SHADOWING = frozenset({"str", "int", "float", "bool", "bytes", "dict", "list", "datetime", "msgspec"})
_IMPORTED = frozenset({"Annotated", "Any", "Literal", "MapKeys", "Resource", "Scope"})
_RESOURCE_FIELDS = ("apiVersion", "kind", "metadata")
_PRESERVE = "x-kubernetes-preserve-unknown-fields"


class CodegenError(Exception):
    """There is nothing that a module could be made of; the text says why."""


def module_of(crds: Iterable[Node], version: str | None = None) -> str:
    """The text of a module with a class for each of the definitions, in this version or else the stored one.

    The same definitions always give the same text. Raises CodegenError when a definition lacks that version or a
    schema, or when there are none.
    """
    module = _Module()
    for crd in crds:
        module.add(crd, version)
    return module.text()


class _Module:
    def __init__(self) -> None:
        self._classes: list[str] = []
        self._names: set[str] = set(_IMPORTED)
        self._kinds: list[str] = []

    def add(self, crd: Node, wanted: str | None) -> None:
        try:
            spec, name = crd["spec"], crd["metadata"]["name"]
            versions = {version["name"]: version for version in spec["versions"]}
            stored = next(key for key, version in versions.items() if version["storage"])
            found = versions.get(wanted or stored)
            identity = (spec["group"], spec["names"]["kind"], spec["names"]["plural"], spec["scope"])
        except (KeyError, TypeError, StopIteration) as error:
            raise CodegenError(f"{crd.get('kind')} {(crd.get('metadata') or {}).get('name')} is not a "
                               f"CustomResourceDefinition: {error!r}") from None
        if found is None:
            raise CodegenError(f"{name} has no version {wanted}; its versions: {', '.join(versions)}")
        schema = (found.get("schema") or {}).get("openAPIV3Schema")
        if not schema:
            raise CodegenError(f"{name} has no schema for {found['name']}, so nothing is known of its fields")
        self._resource(schema, found["name"], *identity)

    def _resource(self, schema: Node, version: str, group: str, kind: str, plural: str, scope: str) -> None:
        cls = self._named(kind)
        arguments = [f'group="{group}"', f'version="{version}"', f'kind="{kind}"', f'plural="{plural}"']
        arguments += ["scope=Scope.CLUSTER"] if scope == "Cluster" else []
        head = _wrapped(f"class {cls}(Resource, ", [*arguments], "):")
        lines, required = [], schema.get("required") or ()
        for key, node in (schema.get("properties") or {}).items():
            if key in _RESOURCE_FIELDS:
                continue
            attribute = _attribute(key)
            if camel(attribute) != key or hasattr(Resource, attribute):
                lines.append(f'    # {key}: obj["{key}"]')
                continue
            hint = self._hint(node, cls + _pascal(key))
            must = key in required or key == "spec"  # few definitions say so, and no object is without one
            lines.append(_field(attribute, attribute, hint if must else _optional(hint), must=must))
        self._kinds.append(f"{kind} of {group}/{version}")
        self._classes.append("\n".join([head, *_docstring(schema), *lines] if lines or schema.get("description") else
                                       [head, "    pass"]))

    def _named(self, wanted: str) -> str:
        name, number = wanted, 2
        while name in self._names:
            name, number = f"{wanted}{number}", number + 1
        self._names.add(name)
        return name

    def _hint(self, node: Node, name: str) -> str:
        """The type of a value under a schema; classes that it needs are added, named by `name` and their place."""
        hint = self._bare_hint(node, name)
        return _optional(hint) if node.get("nullable") else hint

    def _bare_hint(self, node: Node, name: str) -> str:
        node = plain(node)
        if node.get("x-kubernetes-int-or-string"):
            return "int | str"
        if node.get("x-kubernetes-embedded-resource"):
            return "dict[str, Any]"
        if values := [value for value in node.get("enum") or () if value is not None]:
            return f"Literal[{', '.join(_literal(value) for value in values)}]" if all(
                isinstance(value, str | int) for value in values) else "Any"
        kind = node.get("type")
        if kind == "array":
            items = self._hint(node.get("items") or {}, name)
            keys = node.get("x-kubernetes-list-map-keys")
            named = f"MapKeys({', '.join(map(json.dumps, keys or ()))})"
            return f"Annotated[list[{items}], {named}]" if keys else f"list[{items}]"
        if kind == "object":
            if node.get("properties"):
                return self._struct(node, name)
            extra = node.get("additionalProperties")
            return f"dict[str, {self._hint(extra, name) if isinstance(extra, Mapping) else 'Any'}]"
        if kind == "string":
            return _FORMATS.get(node.get("format") or "", "str")
        return _SCALARS.get(kind or "", "Any")

    def _struct(self, node: Node, wanted: str) -> str:
        name, required, taken = self._named(wanted), node.get("required") or (), set[str]()
        lines = []
        for key, child in node["properties"].items():
            attribute = _attribute(key)
            while attribute in taken:
                attribute += "_"
            taken.add(attribute)
            hint, must = self._hint(child, name + _pascal(key)), key in required
            lines.append(_field(attribute, key, hint if must else _optional(hint), must=must, struct=True))
            lines += _docstring(child)
        self._classes.append("\n".join([f"class {name}(msgspec.Struct, kw_only=True):", *_docstring(node),
                                        *([""] if _docstring(node) else []), *lines]))
        return name

    def text(self) -> str:
        """The module. Raises CodegenError."""
        if not self._classes:
            raise CodegenError("there is no CustomResourceDefinition")
        body = "\n\n\n".join(self._classes)
        typing = [name for name in ("Annotated", "Any", "Literal") if re.search(rf"\b{name}\b", body)]
        standard = ["from datetime import datetime"] if re.search(r"\bdatetime\b", body) else []
        standard += [f"from typing import {', '.join(typing)}"] if typing else []
        ours = [name for name in ("MapKeys", "Resource", "Scope") if re.search(rf"\b{name}\b", body)]
        imports = ["\n".join(standard), "import msgspec" if "msgspec." in body else "",
                   f"from kubectl_runtime import {', '.join(ours)}"]
        head = ['"""Generated by `kubectl-runtime codegen`:\n', *(f"    {kind}" for kind in self._kinds), '"""',
                "from __future__ import annotations\n"]
        return "\n".join([*head, *(f"{block}\n" for block in imports if block), f"\n{body}\n"])


def _optional(hint: str) -> str:
    return hint if hint == "Any" or hint.endswith("| None") else f"{hint} | None"


def _literal(value: Any) -> str:
    return str(value) if isinstance(value, bool) else json.dumps(value, ensure_ascii=False)


def _words(key: str) -> list[str]:
    """`clusterIPs` -> cluster, ips; `HTTPRoute` -> http, route; `x-y.z` -> x, y, z."""
    plain = re.sub(r"[^A-Za-z0-9]+", "_", key)
    parted = re.sub(r"([A-Z]+s)(?=[A-Z]|_|$)", lambda found: f"_{found[1].capitalize()}_", plain)
    parted = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", parted)
    parted = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", parted)
    return [word.lower() for word in parted.split("_") if word]


def _attribute(key: str) -> str:
    """A name for an attribute that shadows nothing. The wire's key is said beside it wherever they differ; one with
    underscores must differ, since attributes stand for keys in camelCase."""
    name = "_".join(_words(key)) or "field"
    if name[0].isdigit():
        name = f"field_{name}"
    reserved = keyword.iskeyword(name) or name in _SHADOWING or (name == key and "_" in key)
    return f"{name}_" if reserved else name


def _pascal(key: str) -> str:
    return "".join(word.capitalize() for word in _words(key)) or "Field"


def _field(attribute: str, key: str, hint: str, *, must: bool, struct: bool = False) -> str:
    options = [] if must else ["default=None"]
    if struct and attribute != key:
        value = f" = msgspec.field({', '.join([*options, f'name={json.dumps(key)}'])})"
    else:
        value = "" if must else " = None"
    line = f"    {attribute}: {hint}{value}"
    if len(line) <= WIDTH:
        return line
    if "Literal[" not in hint:
        return line.replace(" = msgspec.field(", " = msgspec.field(\n        ")
    before, _, rest = hint.partition("Literal[")
    values, _, after = rest.rpartition("]")
    return _wrapped(f"    {attribute}: {before}Literal[", values.split(", "), f"]{after}{value}")


def _wrapped(head: str, parts: list[str], tail: str) -> str:
    lines, inner = [head], " " * 8
    for number, part in enumerate(parts):
        text = part + (tail if number == len(parts) - 1 else ", ")
        if len(lines[-1]) + len(text.rstrip()) > WIDTH:
            lines[-1] = lines[-1].rstrip()
            lines.append(inner)
        lines[-1] += text
    return "\n".join(lines)


def _docstring(node: Node) -> list[str]:
    """The first paragraph of the description, as lines."""
    text = inspect.cleandoc(node.get("description") or "").partition("\n\n")[0].strip()
    if not text:
        return []
    plain = " ".join("".join(character if character.isprintable() else " " for character in text).split())
    safe = plain.replace("\\", "\\\\").replace('"""', "'''")
    if safe.endswith('"'):
        safe += " "
    return textwrap.wrap(f'"""{safe}"""', WIDTH, initial_indent="    ", subsequent_indent="    ",
                         break_long_words=False, break_on_hyphens=False)
