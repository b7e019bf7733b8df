"""`merge_crds`: several classes of one kind, one for each version, as one CustomResourceDefinition.

`definitions_of` does so for whatever classes there are: one definition for each kind.
"""
from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any

from kubectl_runtime.crd.customresource import CustomResource


def merge_crds(crds: Iterable[dict[str, Any]], stored: str) -> dict[str, Any]:
    """One definition with the versions of all; `stored` names the version that is stored, which comes first.

    The definitions, of `CustomResource.crd()` say, are of one version each; name, group, scope and names have to be the
    same. Metadata is that of the stored one. The inputs are not changed. ValueError says what does not fit.

    >>> class Size(Struct):
    ...     size: int
    >>> class WidgetV1(CustomResource, group="example.com", version="v1", kind="Widget", storage=False):
    ...     spec: Size
    >>> class Widget(CustomResource, group="example.com", version="v2", kind="Widget"):
    ...     spec: Size
    >>> merged = merge_crds([WidgetV1.crd(), Widget.crd()], stored="v2")
    >>> [version["name"] for version in merged["spec"]["versions"]]
    ['v2', 'v1']
    """
    found = list(crds)
    if not found:
        raise ValueError("merge_crds: no definitions were given")
    versions = {}
    for crd in found:
        [*own] = crd["spec"]["versions"]
        if len(own) != 1:
            raise ValueError(f"merge_crds: {crd['metadata']['name']} has {len(own)} versions; give definitions of one "
                             "version each")
        if own[0]["name"] in versions:
            raise ValueError(f"merge_crds: two definitions are of version {own[0]['name']}")
        versions[own[0]["name"]] = crd
    if stored not in versions:
        raise ValueError(f"merge_crds: no definition is of the stored version {stored}; there are "
                         f"{', '.join(versions)}")
    root = versions[stored]
    for version, crd in versions.items():
        for part in ("group", "scope", "names"):
            if crd["spec"][part] != root["spec"][part]:
                raise ValueError(f"merge_crds: spec.{part} of {version} is {crd['spec'][part]!r}, of {stored} "
                                 f"{root['spec'][part]!r}; versions of one kind must agree")
    ordered = [stored, *(version for version in versions if version != stored)]
    merged = [{**versions[version]["spec"]["versions"][0], "storage": version == stored} for version in ordered]
    return {**root, "spec": {**root["spec"], "versions": merged}}


def definitions_of(kinds: Iterable[type[CustomResource]]) -> list[dict[str, Any]]:
    """The definitions of classes, sorted by name: one for each kind, with the versions of all its classes. The version
    that is stored is the one whose class says `storage`.

    Raises ValueError where not exactly one class of a kind says so, and as `merge_crds`; TypeError as
    `CustomResource.crd`.
    """
    found = []
    for name, group in groupby(sorted(kinds, key=lambda kind: kind.crd_name()), key=lambda kind: kind.crd_name()):
        versions = list(group)
        if len(versions) == 1:
            found.append(versions[0].crd())
            continue
        stored = [kind.api_resource.version for kind in versions if kind.crd_options.storage]
        if len(set(stored)) != 1:
            raise ValueError(f"{', '.join(kind.__name__ for kind in versions)} are versions of {name}: one of them has "
                             "to be the stored one, the others say storage=False")
        found.append(merge_crds([kind.crd() for kind in versions], stored[0]))
    return found
