"""What Go's JSON and protobuf encodings make of each field of the built-in kinds, read from their Go declarations.

OpenAPI definitions do not tell pointers from values, nor which fields are written although empty, nor the numbers of
fields. `declarations` reads checkouts of kubernetes/api, apimachinery, apiextensions-apiserver and kube-aggregator
that lie in one folder under these names; its result is the content of types.json.gz.

It maps each type, named as in OpenAPI without its common prefix (``core.v1.Pod``), to its fields in Go's order;
a field is ``name -> flags type @ number``:

=============  =======================================================================================================
flags          ``*`` a pointer: zero values stay, only null goes; ``!`` written even when empty
type           string, bool, int32, int64, float64, bytes, Time, MicroTime, Duration, Quantity, IntOrString, any;
               ``[]T`` a list; ``{K}T`` a map; ``.core.v1.Pod`` a struct; ``string:v1.PodPhase`` a named scalar;
               ``#[]T`` a list that is a message of its own in protobuf
number         the field's number in protobuf; ``2.5`` is number 5 of a struct that only JSON flattens; "" without one
=============  =======================================================================================================
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SOURCES = {
    "api": "io.k8s.api",
    "apimachinery/pkg": "io.k8s.apimachinery.pkg",
    "apiextensions-apiserver/pkg": "io.k8s.apiextensions-apiserver.pkg",
    "kube-aggregator/pkg": "io.k8s.kube-aggregator.pkg",
}
IMPORTS = {
    "k8s.io/api/": "io.k8s.api.",
    "k8s.io/apimachinery/pkg/": "io.k8s.apimachinery.pkg.",
    "k8s.io/apiextensions-apiserver/pkg/": "io.k8s.apiextensions-apiserver.pkg.",
    "k8s.io/kube-aggregator/pkg/": "io.k8s.kube-aggregator.pkg.",
}
SHORTENED = ("io.k8s.api.", "io.k8s.apimachinery.pkg.apis.", "io.k8s.apiextensions-apiserver.pkg.apis.",
             "io.k8s.kube-aggregator.pkg.apis.")
SERVED = (*SHORTENED[:1], *SHORTENED[2:], "io.k8s.apimachinery.pkg.apis.meta.")
# Types with a JSON form of their own.
SPECIAL = {
    "io.k8s.apimachinery.pkg.apis.meta.v1.Time": "Time",
    "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime": "MicroTime",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Duration": "Duration",
    "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1": "any",
    "io.k8s.apimachinery.pkg.api.resource.Quantity": "Quantity",
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": "IntOrString",
    "io.k8s.apimachinery.pkg.runtime.RawExtension": "any",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON": "any",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray": "SchemaOrList",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool": "SchemaOrBool",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray": "SchemaOrStrings",
}
SCALARS = {"string", "bool", "int32", "int64", "float64"}
FIELD = re.compile(r'^\s*(?:\w+\s+)?([\w.*\[\]{}]+)\s+`[^`]*json:"([^"]*)"[^`]*`')
NUMBER = re.compile(r'protobuf:"\w+,(\d+)')
STRUCT = re.compile(r"^type (\w+) struct\s*\{$")
EMPTY = re.compile(r"^type (\w+) struct\s*\{\s*\}$")
NAMED = re.compile(r"^(?:type )?\s*(\w+) =?\s*([\w.*\[\]]+)$")
DEFAULT, ATOMIC = re.compile(r"^\s*// \+default=(.*?)\s*$"), re.compile(r"^// \+structType=atomic\s*$")
IMPORT = re.compile(r'^\s*(?:import )?(?:(\w+) )?"([^"]+)"$')


class Package:
    """The declarations of one Go package."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.structs: dict[str, list[tuple[str, str, str, dict[str, str]]]] = {}
        self.named: dict[str, tuple[str, dict[str, str]]] = {}
        self.defaults: dict[str, dict[str, Any]] = {}
        self.atomic: set[str] = set()

    def read(self, source: str) -> None:
        """Collect the struct and named types of one file."""
        lines = iter(re.sub(r"/\*.*?\*/", "", source, flags=re.DOTALL).split("\n"))
        imports: dict[str, str] = {}
        atomic = False
        for text in lines:
            atomic = ATOMIC.match(text) is not None or (atomic and not text.startswith("}"))
            line = text.split("//")[0].rstrip() if "`" not in text and '"' not in text else text
            if (match := IMPORT.match(line)) and "/" in match[2]:
                imports[match[1] or match[2].rsplit("/", 1)[1]] = match[2]
            elif match := STRUCT.match(line):
                self.structs[match[1]], self.defaults[match[1]] = self._fields(lines, imports)
                self.atomic.update([match[1]] if atomic else ())
                atomic = False
            elif match := EMPTY.match(line):
                self.structs[match[1]] = []
            elif line.startswith("type ") and (match := NAMED.match(line)):
                self.named[match[1]] = (match[2], imports)

    @staticmethod
    def _fields(lines: Iterator[str],
                imports: dict[str, str]) -> tuple[list[tuple[str, str, str, dict[str, str]]], dict[str, Any]]:
        """The fields, and the values of their ``+default`` markers."""
        fields, defaults, marked = [], dict[str, Any](), None
        for line in lines:
            if line.startswith("}"):
                break
            marked = DEFAULT.match(line) or marked
            if not line.lstrip().startswith("//") and (match := FIELD.match(line)):
                number = NUMBER.search(match[0])
                fields.append((match[1], match[2], number[1] if number else "", imports))
                if marked and not marked[1].startswith("ref("):  # controller-gen does not follow references
                    defaults[match[2].partition(",")[0]] = json.loads(marked[1])
                marked = None
        return fields, defaults


class Generator:
    """Resolves the types of all packages."""

    def __init__(self, root: Path) -> None:
        self.packages: dict[str, Package] = {}
        for folder, prefix in SOURCES.items():
            for path in sorted((root / folder).rglob("*.go")):
                if path.name.endswith(("_test.go", ".pb.go")) or path.name.startswith("zz_"):
                    continue
                name = ".".join([prefix, *path.parent.relative_to(root / folder).parts])
                self.packages.setdefault(name, Package(name)).read(path.read_text())
        self.types: dict[str, dict[str, str]] = {}

    def add(self, full_name: str) -> None:
        """Add a struct and all that it refers to."""
        if (short := shorten(full_name)) not in self.types:
            self.types[short] = {}
            self.types[short] = self._fields_of(full_name)

    def _fields_of(self, full_name: str) -> dict[str, str]:
        package, _, name = full_name.rpartition(".")
        if name in self.packages[package].named:  # an alias of another version's type
            underlying, their_imports = self.packages[package].named[name]
            return self._fields_of(self._qualify(underlying, package, their_imports))
        fields: dict[str, str] = {}
        for go_type, tag, number, imports in self.packages[package].structs[name]:
            json_name, *options = tag.split(",")
            if json_name == "-":
                continue
            if "inline" in options or not json_name:
                inner = self._fields_of(self._qualify(go_type.lstrip("*"), package, imports))
                fields.update(_nested(inner, number) if number else inner)
                continue
            spec = self._spec(go_type.lstrip("*"), package, imports)
            pointer = go_type.startswith("*")
            struct_like = spec.startswith(".") or spec in ("Time", "MicroTime", "Quantity", "IntOrString", "Duration")
            always = "omitzero" not in options and (
                "omitempty" not in options or (struct_like and not pointer))
            fields[json_name] = f"{'*' if pointer else ''}{'!' if always else ''}{spec}@{number}"
        return fields

    def markers_of(self, full_name: str) -> tuple[dict[str, Any], bool]:
        """The defaults of a struct's fields and whether it is atomic, by its markers and those of what it inlines."""
        home, _, name = full_name.rpartition(".")
        package = self.packages[home]
        defaults, atomic = dict(package.defaults.get(name, {})), name in package.atomic
        for go_type, tag, _, imports in package.structs.get(name, ()):
            if "inline" in tag.split(",")[1:]:
                inner, inner_is_atomic = self.markers_of(self._qualify(go_type.lstrip("*"), home, imports))
                defaults, atomic = {**inner, **defaults}, atomic or inner_is_atomic
        return defaults, atomic

    def _qualify(self, go_type: str, package: str, imports: dict[str, str]) -> str:
        if "." not in go_type:
            return f"{package}.{go_type}"
        alias, _, name = go_type.partition(".")
        path = imports[alias]
        for prefix, replacement in IMPORTS.items():
            if path.startswith(prefix):
                return replacement + path.removeprefix(prefix).replace("/", ".") + "." + name
        raise ValueError(f"{go_type} of {path}")

    def _spec(self, go_type: str, package: str, imports: dict[str, str]) -> str:
        if go_type == "[]byte":
            return "bytes"
        if go_type.startswith("[]"):
            return "[]" + self._spec(go_type[2:].lstrip("*"), package, imports)
        if go_type.startswith("map["):
            key, _, element = go_type[4:].partition("]")
            key_spec = self._spec(key, package, imports)
            return "{" + (key_spec.partition(":")[2] or key_spec) + "}" + self._spec(element, package, imports)
        if go_type in SCALARS:
            return go_type
        if go_type in ("interface{}", "any"):
            return "any"
        full_name = self._qualify(go_type, package, imports)
        if full_name in SPECIAL:
            if SPECIAL[full_name].startswith("Schema"):
                self.add(full_name.rpartition(".")[0] + ".JSONSchemaProps")
            return SPECIAL[full_name]
        home, _, name = full_name.rpartition(".")
        if name in self.packages[home].named:
            underlying, their_imports = self.packages[home].named[name]
            spec = self._spec(underlying, home, their_imports)
            base = spec.partition(":")[0]
            if base in SCALARS:
                return f"{base}:{home.rsplit('.', 1)[1]}.{name}"
            return f"#{spec}" if spec.startswith("[]") else spec
        self.add(full_name)
        return "." + shorten(full_name)


def _nested(fields: dict[str, str], number: str) -> dict[str, str]:
    """The fields of a struct that JSON flattens and protobuf does not."""
    return {name: f"{spec.rpartition('@')[0]}@{number}.{spec.rpartition('@')[2]}" for name, spec in fields.items()}


def shorten(full_name: str) -> str:
    """``core.v1.Pod`` for ``io.k8s.api.core.v1.Pod``."""
    for prefix in SHORTENED:
        if full_name.startswith(prefix):
            return full_name.removeprefix(prefix)
    raise ValueError(full_name)


def declarations(checkouts: Path) -> dict[str, dict[str, str]]:
    """The types of every kind that has TypeMeta and ObjectMeta, of the reviews and of the option types."""
    generator = Generator(checkouts)
    for package in list(generator.packages.values()):
        if not re.search(r"\.v\d+$", package.name) or not package.name.startswith(SERVED):
            continue
        for name, fields in package.structs.items():
            if any(go_type.endswith("TypeMeta") for go_type, _, _, _ in fields) and not name.endswith("List"):
                generator.add(f"{package.name}.{name}")
    return dict(sorted(generator.types.items()))


def markers(checkouts: Path) -> tuple[dict[str, dict[str, Any]], set[str]]:
    """Defaults by struct and field, and the structs that are atomic, both by OpenAPI's names, as the markers of the
    stable versions have them."""
    generator = Generator(checkouts)
    defaults, atomic = {}, set()
    for package in list(generator.packages.values()):
        if not re.search(r"\.v\d+$", package.name) or not package.name.startswith(SERVED):
            continue
        for name in package.structs:
            found, is_atomic = generator.markers_of(full_name := f"{package.name}.{name}")
            defaults.update({full_name: found} if found else {})
            atomic.update([full_name] if is_atomic else ())
    return defaults, atomic
