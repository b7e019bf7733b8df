"""Other projects' custom resources: their samples are read, changed and written back, and nothing is lost.

FOREIGN_KINDS is a folder with a checkout of each project (only YAML files are looked at). For each object whose kind
has a CRD in the same checkout: as a DynamicObject, and typed, by classes that are made from the CRD's schema and
declare about every second of its fields. Without the variable there is nothing to do.
"""
from __future__ import annotations

import copy
import os
import types
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest

from kubectl_runtime.core.base.wire import MapKeys
from kubectl_runtime.core.meta.gvk import ApiResource, Scope
from kubectl_runtime.core.meta.metav1 import Part
from kubectl_runtime.core.objects.partial import dynamic
from kubectl_runtime.core.objects.resource import Resource
from kubectl_runtime.manifests.documents import read_text
from kubectl_runtime.manifests.scalars import ManifestError, YamlError

FOLDER = os.environ.get("FOREIGN_KINDS", "")
PROJECTS = sorted(path for path in Path(FOLDER).iterdir() if path.is_dir()) if FOLDER else []
Key = tuple[str, str, str]
SCALARS = {"string", "integer", "boolean"}


def documents(project: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(project.rglob("*.y*ml")):
        try:
            found = read_text(path.read_bytes(), str(path))
        except (ManifestError, YamlError):
            continue  # templates, which are no YAML yet
        yield from (document.value for document in found if isinstance(document.value, dict))


def kinds_of(content: list[dict[str, Any]]) -> dict[Key, tuple[ApiResource, dict[str, Any]]]:
    found: dict[Key, tuple[ApiResource, dict[str, Any]]] = {}
    for crd in content:
        if crd.get("kind") != "CustomResourceDefinition" or not isinstance(crd.get("spec"), dict):
            continue
        spec = crd["spec"]
        for version in spec.get("versions") or ():
            schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
            resource = ApiResource(spec["group"], version["name"], spec["names"]["kind"], spec["names"]["plural"],
                                   Scope(spec.get("scope", "Namespaced")))
            found[resource.group, resource.version, resource.kind] = resource, schema
    return found


def declared(name: str, schema: dict[str, Any], depth: int = 0) -> Any:
    """A type for a schema, with about every second field of each object; the same at every run."""
    kind = schema.get("type")
    if schema.get("x-kubernetes-int-or-string") or kind not in SCALARS | {"object", "array"}:
        return Any
    if kind == "array":
        item = declared(name, schema.get("items") or {}, depth + 1)
        keys = schema.get("x-kubernetes-list-map-keys") if schema.get("x-kubernetes-list-type") == "map" else None
        return Annotated[list[item], MapKeys(*keys)] if keys else list[item]
    if kind != "object":
        return {"string": str, "integer": int, "boolean": bool}[kind]
    chosen = {key: child for key, child in (schema.get("properties") or {}).items()
              if zlib.crc32(f"{name}{key}".encode()) % 2 and key.isidentifier()}
    if not chosen or depth > 12:
        return dict[str, Any]
    namespace: dict[str, Any] = {"__annotations__": {}}
    for index, (key, child) in enumerate(chosen.items()):
        hint = declared(f"{name}{key}", child, depth + 1)
        namespace["__annotations__"][f"f_{index}"] = hint if hint is Any else hint | None
        namespace[f"f_{index}"] = msgspec.field(name=key, default=None)
    return types.new_class("Made", (Part,), {"kw_only": True}, lambda made: made.update(namespace))


def typed(resource: ApiResource, schema: dict[str, Any]) -> type[Resource]:
    spec = declared(resource.kind, (schema.get("properties") or {}).get("spec") or {})
    namespace = {"__annotations__": {"spec": spec}, "__module__": __name__}
    return type(Resource)(f"T{resource.kind}", (Resource,), namespace).of(resource)  # type: ignore[attr-defined, no-any-return]


def first_text(view: Any) -> tuple[Any, str] | None:
    """A record somewhere below `view` and the name of one of its fields that holds text."""
    if isinstance(view, msgspec.Struct):
        for name in view.__struct_fields__:
            value = getattr(view, name)
            if isinstance(value, str):
                return view, name
            if (found := first_text(value)) is not None:
                return found
    if isinstance(view, list):
        return next((found for item in view if (found := first_text(item)) is not None), None)
    return None


def differences(before: Any, after: Any, path: str = "$") -> list[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        return [line for key in {**before, **after}
                for line in (differences(before[key], after[key], f"{path}.{key}") if key in before and key in after
                             else [f"{path}.{key}"])]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        return [line for index, pair in enumerate(zip(before, after, strict=True))
                for line in differences(*pair, f"{path}[{index}]")]
    return [] if before == after and type(before) is type(after) else [path]


@pytest.mark.parametrize("project", PROJECTS, ids=lambda path: path.name)
def test_samples_are_read_changed_and_written_back_without_loss(project: Path) -> None:
    content = list(documents(project))
    kinds = kinds_of(content)
    classes: dict[Key, type[Resource]] = {}
    seen: dict[Key, list[int]] = {}
    for sample in content:
        api_version, kind = sample.get("apiVersion"), sample.get("kind")
        if not (isinstance(api_version, str) and isinstance(kind, str) and isinstance(sample.get("metadata"), dict)):
            continue
        group, _, version = api_version.rpartition("/")
        key = (group, version, kind)
        if key not in kinds or not isinstance(sample["metadata"].get("name"), str):
            continue
        resource, schema = kinds[key]
        before = copy.deepcopy(sample)
        obj = dynamic(resource).from_dict(sample)
        obj.metadata.labels = {**(obj.metadata.labels or {}), "seen": "yes"}
        assert set(differences(before, obj.to_dict())) <= {"$.metadata.labels.seen", "$.metadata.labels"}
        cls = classes.get(key) or classes.setdefault(key, typed(resource, schema))
        counts = seen.setdefault(key, [0, 0])
        counts[0] += 1
        reader: Any = cls.from_dict(sample)
        try:
            view = reader.spec
        except Exception as error:  # a sample that is meant to be wrong
            print(f"{project.name}: {key} {sample['metadata']['name']}: {error}")
            continue
        assert differences(before, reader.to_dict()) == []
        if (place := first_text(view)) is not None:
            counts[1] += 1
            setattr(*place, "changed")
            assert len(differences(before, reader.to_dict())) == 1
    print(f"{project.name}: {len(seen)} kinds, {sum(count for count, _ in seen.values())} samples, "
          f"{sum(changed for _, changed in seen.values())} changed typed")
    if not seen:
        pytest.skip(f"{project.name} has no object of its own kinds as plain YAML")
