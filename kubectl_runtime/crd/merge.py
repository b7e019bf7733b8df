"""`merge_crds`: several classes of one kind, one for each version, as one CustomResourceDefinition."""
from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def merge_crds(crds: Iterable[dict[str, Any]], stored: str) -> dict[str, Any]:
    """One definition with the versions of all; `stored` names the version that is stored, which comes first.

    The definitions, of `CustomResource.crd()` say, are of one version each; name, group, scope and names have to be the
    same. Metadata is that of the stored one. The inputs are not changed. ValueError says what does not fit.
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
