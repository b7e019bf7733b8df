"""The custom resources that a program has loaded, and their definitions, for a server that is the program's own."""
from __future__ import annotations

from collections.abc import Iterator

from kubectl_runtime.cli.places import CommandError
from kubectl_runtime.client.api.client import Client
from kubectl_runtime.core.base.errors import ApiError
from kubectl_runtime.crd.customresource import CustomResource
from kubectl_runtime.crd.merge import definitions_of
from kubectl_runtime.runtime.apply_crd import apply_crd
from kubectl_runtime.schema.structural import declares_rules

MANAGER = "kubectl-runtime"
"""Whose fields those of the definitions are."""


def loaded_kinds() -> list[type[CustomResource]]:
    """Every class of a kind that has been imported so far, by name of the definition, then as they were made."""
    return sorted(_below(CustomResource), key=lambda kind: kind.crd_name())


def install_kinds(client: Client, kinds: list[type[CustomResource]]) -> list[str]:
    """Make the server know these kinds; the names of their definitions. Blocks until they are served.

    Classes of one kind and several versions make one definition (`definitions_of`). One that is there is replaced, also
    by an older one: it is the program's own. Raises CommandError for classes that make none, and for a change that the
    server refuses, of a version in which objects may be stored, say; MissingExtra for rules in CEL without the extra
    `cel`, which the server could not evaluate either; KubeError as `apply_crd`.
    """
    try:
        definitions = definitions_of(kinds)
    except (TypeError, ValueError) as error:
        places = ", ".join(f"{kind.__module__}:{kind.__qualname__}" for kind in kinds)
        raise CommandError(f"the definitions of {places} cannot be made: {error}") from None
    if any(declares_rules(version["schema"]["openAPIV3Schema"]) for definition in definitions
           for version in definition["spec"]["versions"]):
        from kubectl_runtime.schema.cel import engine

        engine()
    names = [definition["metadata"]["name"] for definition in definitions]
    for name, definition in zip(names, definitions, strict=True):
        try:
            apply_crd(client, definition, field_manager=MANAGER, force=True, allow_downgrade=True)
        except ApiError as error:
            raise CommandError(f"the server's {name} cannot be changed to what the program says now: {error}\n"
                               "Stop with Ctrl-C and start again to begin with an empty server") from None
    return names


def _below(base: type[CustomResource]) -> Iterator[type[CustomResource]]:
    for kind in base.__subclasses__():
        if "api_resource" in vars(kind):
            yield kind
        yield from _below(kind)
