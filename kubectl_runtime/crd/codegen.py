"""Writes a typed Python module for third-party CustomResourceDefinitions: `kubectl-runtime codegen`.

    a definition                      class Certificate(Resource, group=…, version=…, kind=…)
    an object with properties         class CertificateSpecIssuerRef(msgspec.Struct), named after its place
    a list of type map                Annotated[list[…], MapKeys("name")]
    an enum of texts                  str, with the values in its docstring, because newer definitions may add values
    a required field with a default   a field that may be omitted
    a Quantity, LabelSelector, Condition, PodTemplateSpec, ...     the library's own class
    a value without a schema          Any, dict[str, Any]

A definition is untrusted input, so none of its text becomes code: `_literal` writes every value, `_Names` and
`_attribute` make every name, `_comment` and `_docstring` write comments and docstrings. A group, version, kind or
plural that the API server would refuse is refused, and so is a schema of the wrong shape; the error names the place.

The classes decode and encode objects but do not validate them: the server checks limits, patterns, rules and one-of. An
absent optional field is None. Unknown fields are preserved and written back unchanged.

datamodel-code-generator 0.89 was tried first, on schemas like those of cert-manager, Gateway API and Istio. It turns
`oneOf` with `required` into unions that msgspec cannot decode, `format: duration` into ISO 8601 timedeltas, and
int-or-string without an `anyOf` into Any. Its enums have defaults that mypy --strict refuses. Its classes
check limits when they decode, so that objects stored before a limit was added become unreadable. It numbers the classes
(Spec1, Spec2), drops list map keys and the kind, and has fourteen dependencies.
"""
from __future__ import annotations

import ast
import builtins
import inspect
import keyword
import math
import re
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

from kubectl_runtime.core.base.wire import camel
from kubectl_runtime.core.objects.resource import Resource
from kubectl_runtime.crd.models import plain
from kubectl_runtime.crd.parts import QUANTITY_START

Node = Mapping[str, Any]

WIDTH = 120
LONGEST = 84
"""The maximum length of a class name, except for names that cannot be shortened."""
DEEPEST = 64
"""The maximum number of levels in a schema, because Python's parser accepts at most 200 nested brackets."""
LARGEST = 200_000
"""The maximum number of nodes in a schema. A node that YAML aliases repeat counts each time."""

_SCALARS = {"string": "str", "integer": "int", "number": "float", "boolean": "bool"}
_FORMATS = {"date-time": "datetime", "byte": "bytes"}
_SHADOWING = frozenset({"str", "int", "float", "bool", "bytes", "dict", "list", "datetime", "msgspec"})
_IMPORTED = frozenset({"Annotated", "Any", "Literal", "MapKeys", "Resource", "Scope", "annotations", "LabelSelector",
                       "Condition", "ObjectReference", "ResourceRequirements", "Affinity", "Toleration",
                       "PodTemplateSpec", "Quantity"})
_TAKEN = _SHADOWING | _IMPORTED | frozenset(keyword.kwlist) | frozenset(dir(builtins))
"""Names that no class of a generated module may have."""
_RESOURCE_FIELDS = ("apiVersion", "kind", "metadata")
_NO_FIELD = re.compile("[\"\\\\\x00-\x1f\ud800-\udfff]")
"""Characters that msgspec refuses in a field's name."""

_LABEL = "[a-z]([-a-z0-9]{0,61}[a-z0-9])?"
_NAMES = {  # the patterns that the API server requires
    "spec.group": re.compile(r"(?=.{1,253}\Z)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"),
    "spec.versions[].name": re.compile(_LABEL), "spec.names.plural": re.compile(_LABEL),
    "spec.names.kind": re.compile(_LABEL, re.IGNORECASE | re.ASCII), "spec.scope": re.compile("Cluster|Namespaced")}


class CodegenError(Exception):
    """No module can be generated. The text says why."""


def module_of(crds: Iterable[Node], version: str | None = None, *, strict_enums: bool = False) -> str:
    """Return the text of a module with a class for each definition, in `version` or by default in its stored version.

    With `strict_enums`, enums of strings become Literals instead of str. The same definitions always give the same
    text. Importing the module only defines classes, whatever the definitions contain. Raises CodegenError when a
    definition lacks that version or a schema, when one of its names or its schema is malformed, or when there are no
    definitions.
    """
    module = _Module(strict_enums=strict_enums)
    for crd in crds:
        module.add(crd, version)
    return module.text()


class _Module:
    def __init__(self, *, strict_enums: bool) -> None:
        self._strict_enums = strict_enums
        self._parts: dict[str, str] = {}
        """The library's own classes that the generated module imports: class name -> module."""
        self._classes: list[str] = []
        self._names = _Names(_TAKEN)
        self._kinds: list[str] = []

    def add(self, crd: Node, wanted: str | None) -> None:
        metadata = crd.get("metadata")
        name = metadata.get("name") if isinstance(metadata, Mapping) else None
        who = _shown(name)
        no_definition = f"{_shown(crd.get('kind'))} {who} is not a CustomResourceDefinition"
        if name is None:
            raise CodegenError(f"{no_definition}: metadata.name is missing")
        try:
            spec = crd["spec"]
            versions = {version["name"]: version for version in spec["versions"]}
            stored = next(key for key, version in versions.items() if version["storage"])
            found = versions.get(wanted or stored)
            identity = (spec["group"], spec["names"]["kind"], spec["names"]["plural"], spec["scope"])
        except (LookupError, TypeError, AttributeError, StopIteration) as error:
            raise CodegenError(f"{no_definition}: {error!r}") from None
        if found is None:
            raise CodegenError(f"{who} has no version {wanted}; its versions: {', '.join(map(_shown, versions))}")
        group, kind, plural, scope = identity
        for place, text in zip(_NAMES, (group, found["name"], plural, kind, scope), strict=True):
            if not isinstance(text, str) or not _NAMES[place].fullmatch(text):
                raise CodegenError(f"{who}: {place} is {_shown(text)}, which no API server accepts")
        schema = found.get("schema")
        schema = schema.get("openAPIV3Schema") if isinstance(schema, Mapping) else None
        if not schema:
            raise CodegenError(f"{who} has no schema for {found['name']}, so its fields are unknown")
        try:
            _Check().node(schema, "schema", 0)
        except CodegenError as error:
            raise CodegenError(f"{who}: {error}") from None
        self._resource(schema, found["name"], *identity)

    def _resource(self, schema: Node, version: str, group: str, kind: str, plural: str, scope: str) -> None:
        cls = self._names.new(kind.replace("-", ""))
        identity = {"group": group, "version": version, "kind": kind, "plural": plural}
        arguments = [f"{name}={_literal(value)}" for name, value in identity.items()]
        arguments += ["scope=Scope.CLUSTER"] if scope == "Cluster" else []
        head = _wrapped(f"class {cls}(Resource, ", arguments, "):")
        lines, required = [], schema.get("required") or ()
        for key, node in (schema.get("properties") or {}).items():
            if key in _RESOURCE_FIELDS:
                continue
            attribute = _attribute(key)
            if camel(attribute) != key or hasattr(Resource, attribute):
                lines.append(_comment(key, f"obj[{_literal(key)}]"))
                continue
            hint = self._hint(node, cls + _pascal(key))
            must = key in required or key == "spec"  # few definitions require the spec, but every object has one
            lines.append(_field(attribute, attribute, hint if must else _optional(hint), must=must))
        self._kinds.append(f"{kind} of {group}/{version}")
        documented = _docstring(schema)
        fields = any(not line.lstrip().startswith("#") for line in lines)
        self._classes.append("\n".join([head, *documented, *lines, *([] if documented or fields else ["    pass"])]))

    def _hint(self, node: Node, name: str) -> str:
        """Return the type hint of a value with this schema, and add the classes that the hint needs. Each class is
        named after `name` and its place in the schema."""
        hint = self._bare_hint(node, name)
        return _optional(hint) if node.get("nullable") else hint

    def _bare_hint(self, node: Node, name: str) -> str:
        node = plain(node)
        if node.get("x-kubernetes-int-or-string"):
            if not str(node.get("pattern")).startswith(QUANTITY_START):
                return "int | str"
            self._parts["Quantity"] = _OBJECTS
            return "Quantity"
        if node.get("x-kubernetes-embedded-resource"):
            return "dict[str, Any]"
        kind = node.get("type")
        values = [value for value in node.get("enum") or () if value is not None]
        if values and not self._strict_enums and kind in (None, "string") and all(
                isinstance(value, str) for value in values):
            return "str"  # a newer CRD may have more values, and one value must not make the object unreadable
        if values and kind in (None, "string", "integer") and all(map(_may_be_literal, values)):
            return f"Literal[{_BREAK.join(map(_literal, values))}]"
        if values and not kind:
            return "Any"
        if kind == "array":
            items = self._hint(node.get("items") or {}, name)
            keys = node.get("x-kubernetes-list-map-keys")
            named = f"MapKeys({', '.join(map(_literal, keys or ()))})"
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
        if (part := _known_part(node)) is not None:
            self._parts[part[1]] = part[0]
            return part[1]
        name, required = self._names.new(_shortened(wanted)), node.get("required") or ()
        attributes = _Names(frozenset(), "_")
        lines, described = [], _docstring(node)
        for key, child in node["properties"].items():
            if _NO_FIELD.search(key):
                lines.append(_comment(key, "no attribute can stand for it; it is written back as it came"))
                continue
            attribute = attributes.new(_attribute(key))
            hint, must = self._hint(child, name + _pascal(key)), key in required
            default = _default(child["default"], hint) if must and "default" in child else None
            must = must and "default" not in child  # the server fills in the default, so manifests often omit the field
            lines.append(_field(attribute, key, hint if must or default else _optional(hint), must=must, struct=True,
                                default=default))
            lines += _docstring(_with_values(child) if hint == "str" else child)
        empty = [] if described or any(not line.lstrip().startswith("#") for line in lines) else ["    pass"]
        head = f"class {name}(msgspec.Struct, kw_only=True):"
        head = head if len(head) <= WIDTH else head.replace("(", "(\n        ")
        self._classes.append("\n".join([head, *described, *([""] if described else []), *lines, *empty]))
        return name

    def text(self) -> str:
        """Return the module's text. Raises CodegenError if it has no classes."""
        if not self._classes:
            raise CodegenError("there is no CustomResourceDefinition")
        body = "\n\n\n".join(self._classes)
        named = {node.id for node in ast.walk(ast.parse(body)) if isinstance(node, ast.Name)}
        typing = [name for name in ("Annotated", "Any", "Literal") if name in named]
        standard = ["from datetime import datetime"] if "datetime" in named else []
        standard += [f"from typing import {', '.join(typing)}"] if typing else []
        top = "MapKeys, Resource" if "MapKeys" in named else "Resource"
        ours = [f"from kubectl_runtime import {top}"]
        ours += ["from kubectl_runtime.kinds import Scope"] if "Scope" in named else []
        for module in sorted(set(self._parts.values())):
            used = sorted(name for name, home in self._parts.items() if home == module)
            ours.append(f"from {module} import {', '.join(used)}")
        installed = [*(["import msgspec"] if "msgspec" in named else []), *ours]
        imports = ["\n".join(standard), "\n".join(installed)]
        head = ['"""Generated by `kubectl-runtime codegen`:\n', *(f"    {kind}" for kind in self._kinds), '"""',
                "from __future__ import annotations\n"]
        return "\n".join([*head, *(f"{block}\n" for block in imports if block), f"\n{body}\n"])


class _Names:
    """Makes names unique: the first use of a name stays unchanged, and each further use gets a number."""

    def __init__(self, taken: frozenset[str], second: str = "2") -> None:
        self._taken = set(taken)
        self._second = second
        self._next: dict[str, int] = {}

    def new(self, wanted: str) -> str:
        """Return `wanted`, with a number if it is taken. Raises CodegenError if the name is no identifier."""
        name = wanted
        while name in self._taken:
            number = self._next[wanted] = self._next.get(wanted, 1) + 1
            name = f"{wanted}{self._second if number == 2 else number}"
        if not (name.isascii() and name.isidentifier()) or keyword.iskeyword(name):
            raise CodegenError(f"{_shown(wanted)} cannot be a name in Python")
        self._taken.add(name)
        return name


class _Check:
    """Checks that a schema has the shape that `_Module` relies on."""

    def __init__(self) -> None:
        self._count = 0

    def node(self, node: Any, place: str, depth: int) -> None:
        """Check a node. Raises CodegenError, which names the place."""
        self._count += 1
        if self._count > LARGEST or depth > DEEPEST:
            raise CodegenError(f"{place}: the schema has more than {LARGEST} nodes or {DEEPEST} levels")
        _expect(node, Mapping, place, "an object")
        node = plain(node)
        for key in ("type", "format", "description"):
            _expect(node.get(key) or "", str, f"{place}.{key}", "a text")
        for key in ("required", "x-kubernetes-list-map-keys", "enum"):
            values = node.get(key) or []
            _expect(values, list | tuple, f"{place}.{key}", "a list")
            for number, value in enumerate(values if key != "enum" else ()):
                _expect(value, str, f"{place}.{key}[{number}]", "a text")
        properties = node.get("properties") or {}
        _expect(properties, Mapping, f"{place}.properties", "an object")
        for key, child in properties.items():
            _expect(key, str, f"{place}.properties", "an object whose keys are texts")
            inner = f"{place}.{key if key.isidentifier() else _shown(key)}"
            self.node(child, inner, depth + 1)
        if node.get("items"):
            self.node(node["items"], f"{place}[]", depth + 1)
        extra = node.get("additionalProperties")
        if extra and extra is not True:
            self.node(extra, f"{place}.additionalProperties", depth + 1)


def _expect(value: Any, kind: Any, place: str, expected: str) -> None:
    if not isinstance(value, kind):
        raise CodegenError(f"{place} is {_shown(value)}, where {expected} is expected")


def _shown(value: Any) -> str:
    """The value as shown in an error: one short, printable line."""
    if isinstance(value, str) and value.isprintable() and 0 < len(value) <= 80:
        return value
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


_BREAK = ",\n"
"""The separator of a Literal's values, at which `_field` may break the line. No literal holds a line break itself."""


def _literal(value: str | float) -> str:
    """Python's text for a value: printable, on one line, and always a number or a string."""
    text = repr(value)
    if text.startswith("'") and '"' not in text:  # double quotes, like the rest of the module
        return f'"{text[1:-1]}"'
    return text


def _may_be_literal(value: Any) -> bool:
    if isinstance(value, str):
        return not re.search("[\ud800-\udfff]", value)
    return isinstance(value, int) and not isinstance(value, bool) and -2**63 <= value < 2**63


_DEFAULTS: dict[str, tuple[type, ...]] = {"str": (str,), "int": (int,), "bool": (bool,), "float": (int, float)}
"""The type hints for which a default is written into the class, each with the allowed types of the default."""


def _default(value: Any, hint: str) -> str | None:
    """Python's text for the default of a field with this hint; None if the server must fill it in."""
    if type(value) not in _DEFAULTS.get(hint, ()):
        return None
    plain = isinstance(value, bool) or (isinstance(value, float) and math.isfinite(value)) or _may_be_literal(value)
    return _literal(value) if plain else None


_OBJECTS, _CORE = "kubectl_runtime.objects", "kubectl_runtime.resources.core_v1"
_PARTS: dict[tuple[str, str], tuple[dict[str, str], dict[str, str]]] = {
    (_OBJECTS, "LabelSelector"): ({"matchLabels": "object", "matchExpressions": "array"}, {}),
    (_OBJECTS, "Condition"): (dict.fromkeys(("type", "status", "lastTransitionTime"), "string"),
                              {"reason": "string", "message": "string", "observedGeneration": "integer"}),
    (_CORE, "ObjectReference"): (dict.fromkeys(("apiVersion", "fieldPath", "kind", "name", "namespace",
                                                "resourceVersion", "uid"), "string"), {}),
    (_CORE, "ResourceRequirements"): ({"limits": "object", "requests": "object"}, {"claims": "array"}),
    (_CORE, "Affinity"): (dict.fromkeys(("nodeAffinity", "podAffinity", "podAntiAffinity"), "object"), {}),
    (_CORE, "Toleration"): ({**dict.fromkeys(("effect", "key", "operator", "value"), "string"),
                             "tolerationSeconds": "integer"}, {}),
    (_CORE, "PodTemplateSpec"): ({"metadata": "object", "spec": "object"}, {}),
}
"""The API's classes that are recognized by their keys and types: class -> (required keys, optional keys)."""


def _known_part(node: Node) -> tuple[str, str] | None:
    """The module and name of the library's own class for an object with these keys; None for any other object."""
    types = {key: child.get("type") for key, child in (node.get("properties") or {}).items()}
    for part, (needed, more) in _PARTS.items():
        if needed.items() <= types.items() <= {**needed, **more}.items():
            spec = (node["properties"].get("spec") or {}).get("properties") or {}
            return None if part[1] == "PodTemplateSpec" and not {"containers", "volumes"} <= spec.keys() else part
    return None


def _with_values(node: Node) -> Node:
    """The node, with the values of its enum added to its description."""
    values = [value for value in plain(node).get("enum") or () if isinstance(value, str)]
    if not values:
        return node
    text = (node.get("description") or "").partition("\n\n")[0].strip()
    return {**node, "description": f"{text}{' ' if text else ''}One of: {', '.join(values)}."}


def _optional(hint: str) -> str:
    return hint if hint == "Any" or hint.endswith("| None") else f"{hint} | None"


def _words(key: str) -> list[str]:
    """`clusterIPs` -> cluster, ips; `HTTPRoute` -> http, route; `x-y.z` -> x, y, z."""
    plain = re.sub(r"[^A-Za-z0-9]+", "_", key)
    parted = re.sub(r"(?<![A-Z])([A-Z]+s)(?=[A-Z]|_|$)", lambda found: f"_{found[1].capitalize()}_", plain)
    parted = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", parted)
    parted = re.sub(r"(?<=[A-Z])(?=[A-Z][a-z])", "_", parted)
    return [word.lower() for word in parted.split("_") if word]


def _attribute(key: str) -> str:
    """The attribute name for a key, with an underscore at its end if it would shadow another name.

    The attribute of a key with underscores also gets an underscore at its end. An attribute ``a_b`` would be written as
    the key ``aB``; an attribute ``a_b_`` declares its key ``a_b`` explicitly (`_field`).
    """
    name = "_".join(_words(key)) or "field"
    if name[0].isdigit():
        name = f"field_{name}"
    reserved = keyword.iskeyword(name) or name in _SHADOWING or (name == key and "_" in key)
    return f"{name}_" if reserved else name


def _pascal(key: str) -> str:
    return "".join(word.capitalize() for word in _words(key)) or "Field"


def _shortened(name: str) -> str:
    """The class name, without some of its middle words if it is longer than `LONGEST`."""
    words = re.findall("[A-Z][^A-Z]*|[^A-Z]+", name)
    while len("".join(words)) > LONGEST and len(words) > 2:
        del words[len(words) // 2]
    return "".join(words)


def _field(attribute: str, key: str, hint: str, *, must: bool, struct: bool = False, default: str | None = None) -> str:
    options = [] if must else [f"default={default}"]
    named = struct and attribute != key
    if named:
        options.append(f"name={_literal(key)}")
    value = f" = msgspec.field({', '.join(options)})" if named else "" if must else f" = {default}"
    first, *others = f"{attribute}: {hint}".split("\n")
    if len(line := "    " + " ".join([first, *others]) + value) <= WIDTH:
        return line
    if others:
        return _wrapped("    ", [first, *others], value, separator=" ")
    lines = f"    {attribute}: {hint} = msgspec.field(\n        {', '.join(options)})" if named else line
    if len(lines.partition("\n")[0]) > WIDTH and not re.search(r"['\\]", hint) and not any(
            " " in text for text in hint.split('"')[1::2]):
        tail = f") = msgspec.field(\n        {', '.join(options)})" if named else f"){value}"
        return _wrapped(f"    {attribute}: (", hint.split(" "), tail, separator=" ")
    return lines


def _wrapped(head: str, parts: list[str], tail: str, separator: str = ", ") -> str:
    lines, inner = [head], " " * 8
    for number, part in enumerate(parts):
        text = part + (tail if number == len(parts) - 1 else separator)
        if len(lines[-1]) + len(text.partition("\n")[0].rstrip()) > WIDTH and lines[-1].strip():
            lines[-1] = lines[-1].rstrip()
            lines.append(inner)
        lines[-1] += text
    return "\n".join(lines)


def _comment(key: str, text: str) -> str:
    return f"    # {key if key.isprintable() else _literal(key)}: {text}"


def _docstring(node: Node) -> list[str]:
    """The first paragraph of the description, as the lines of a docstring."""
    text = inspect.cleandoc(node.get("description") or "").partition("\n\n")[0].strip()
    if not text:
        return []
    plain = " ".join("".join(character if character.isprintable() else " " for character in text).split())
    safe = plain.replace("\\", "\\\\").replace('"""', "\'\'\'")
    if safe.endswith('"'):
        safe += " "
    return textwrap.wrap(f'"""{safe}"""', WIDTH, initial_indent="    ", subsequent_indent="    ",
                         break_long_words=False, break_on_hyphens=False)
