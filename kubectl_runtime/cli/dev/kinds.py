"""The custom resources that a program has loaded, and their definitions, for a server that is the program's own."""
from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from kubectl_runtime.cli.places import CommandError
from kubectl_runtime.client.api.client import Client
from kubectl_runtime.core.base.errors import ApiError
from kubectl_runtime.crd.customresource import CustomResource
from kubectl_runtime.crd.merge import merge_crds
from kubectl_runtime.runtime.apply_crd import apply_crd
from kubectl_runtime.runtime.manifests.manifest_report import ManifestsFailed

MANAGER = "kubectl-runtime"
"""Whose fields those of the definitions are."""


def loaded_kinds() -> list[type[CustomResource]]:
    """Every class of a kind that has been imported so far, by name of the definition, then as they were made."""
    return sorted(_below(CustomResource), key=lambda kind: kind.crd_name())


def install_kinds(client: Client, kinds: list[type[CustomResource]]) -> list[str]:
    """Make the server know these kinds; the names of their definitions. Blocks until they are served.

    Classes of one kind and several versions make one definition; the version that is stored is the one whose class says
    `storage`, if only one does. Raises CommandError for classes that make none, and for a change that the server
    refuses, of a version in which objects may be stored, say; KubeError as `apply_crd`.
    """
    installed = []
    for name, group in groupby(kinds, key=lambda kind: kind.crd_name()):
        versions = list(group)
        _check(name, versions)
        try:
            if len(versions) == 1:
                apply_crd(client, versions[0], field_manager=MANAGER, force=True)
            else:
                from kubectl_runtime.runtime.manifests.apply_manifests import apply_manifests  # few need it

                apply_manifests(client, [_merged(name, versions)], field_manager=MANAGER, force=True, progress=False)
        except TypeError as error:
            raise CommandError(f"{_place(versions[0])} has no definition: {error}") from None
        except (ApiError, ManifestsFailed) as error:
            raise CommandError(f"the server's {name} cannot become what the program says now: {error}\n"
                               "Ctrl-C, and a new start, begin with a server that is empty") from None
        installed.append(name)
    return installed


def _below(base: type[CustomResource]) -> Iterator[type[CustomResource]]:
    for kind in base.__subclasses__():
        if "api_resource" in vars(kind):
            yield kind
        yield from _below(kind)


def _check(name: str, versions: list[type[CustomResource]]) -> None:
    seen: dict[str, type[CustomResource]] = {}
    for kind in versions:
        other = seen.setdefault(kind.api_resource.version, kind)
        if other is not kind:
            raise CommandError(f"{_place(other)} and {_place(kind)} both define version {kind.api_resource.version} of "
                               f"{name}: let one of them be a Resource, which is a view and no definition")


def _merged(name: str, versions: list[type[CustomResource]]) -> dict[str, Any]:
    stored = [kind.api_resource.version for kind in versions if kind.crd_options.storage]
    if len(stored) != 1:
        raise CommandError(f"{', '.join(map(_place, versions))} are versions of {name}: storage=True has to be said of "
                           f"one of them, and storage=False of the others")
    return merge_crds([kind.crd() for kind in versions], stored[0])


def _place(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"
