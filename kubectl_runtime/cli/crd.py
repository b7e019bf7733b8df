"""`kubectl-runtime crd MODULE:CLASS...`: the CustomResourceDefinitions of classes, as YAML for `kubectl apply -f -`.

One document for each kind, sorted by name; classes of one kind and several versions make one. The same classes always
give the same text. Either every class is printed or none, so that nobody applies half of what was asked for. `--check`
compares with a file instead, as YAML: comments and layout are the file's own. Rules over lists, maps and texts without
a limit are named on the error output, since a cluster may refuse them.
"""
from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from kubectl_runtime.cli.places import (
    CommandError,
    Place,
    UsageError,
    check_written,
    imported,
    objects_in,
    place,
    print_utf8,
)
from kubectl_runtime.crd.customresource import CustomResource, definitions_of


def add_options(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.add_argument("classes", nargs="+", type=place, metavar="MODULE:CLASS",
                        help="a CustomResource class, such as my_package.kinds:Widget")
    parser.add_argument("--check", type=Path, metavar="FILE", help="print nothing, but fail with the difference if the "
                        "definitions in FILE are not those of the classes")


def run(options: argparse.Namespace) -> int:
    """Print or check the definitions; the exit status. Raises CommandError."""
    found = definitions(options.classes)
    for warning in _warnings(found):
        print(f"warning: {warning}", file=sys.stderr)
    if options.check is not None:
        return _check(options.check, found, options.classes)
    print_utf8(_text(found))
    return 0


def _warnings(found: list[dict[str, Any]]) -> list[str]:
    """Of rules that a cluster may find too dear, which is not estimated here."""
    from kubectl_runtime.schema.rules import unbounded_rules

    return [f"{crd['metadata']['name']} {version['name']}: {warning}; give it maxItems, maxProperties or maxLength, or "
            "a cluster may refuse the definition for what the rule could cost"
            for crd in found for version in crd["spec"]["versions"]
            for warning in unbounded_rules(version["schema"]["openAPIV3Schema"])]


def definitions(places: Iterable[Place]) -> list[dict[str, Any]]:
    """The definitions of these classes, one for each kind, sorted by name. Raises CommandError."""
    kinds = []
    for where in places:
        kind = _kind(imported(where.module), where.name)
        try:
            kind.crd()
        except TypeError as error:
            raise CommandError(f"{where} has no definition: {error}") from None
        kinds.append(kind)
    try:
        return [msgspec.to_builtins(found) for found in definitions_of(dict.fromkeys(kinds))]
    except ValueError as error:
        raise CommandError(str(error)) from None


def _text(found: list[dict[str, Any]]) -> str:
    from kubectl_runtime.manifests.yaml_text import documents_to_yaml

    return documents_to_yaml(found, sort_keys=False, width=120)


def _check(file: Path, found: list[dict[str, Any]], classes: list[Place]) -> int:
    written = [crd for crd in objects_in(file) if crd.get("kind") == "CustomResourceDefinition"]
    written.sort(key=lambda crd: str((crd.get("metadata") or {}).get("name")))
    command = " ".join(("kubectl-runtime crd", *map(str, classes)))
    check_written(file, written, found, "the classes", command)
    return 0


def _kind(module: ModuleType, name: str) -> type[CustomResource]:
    kind = getattr(module, name, None)
    if isinstance(kind, type) and issubclass(kind, CustomResource) and hasattr(kind, "api_resource"):
        return kind
    known = ", ".join(sorted(key for key, value in vars(module).items() if isinstance(value, type)
                             and issubclass(value, CustomResource) and hasattr(value, "api_resource"))) or "none"
    problem = f"{module.__name__} has no {name}" if kind is None else (
        f"{module.__name__}:{name} is not a custom resource, which is a class made with "
        "class Name(CustomResource, group=..., version=..., kind=...)")
    raise UsageError(f"{problem}; its custom resources: {known}")
