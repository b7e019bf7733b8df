"""`kubectl-runtime crd MODULE:CLASS...`: prints CustomResourceDefinitions as YAML for `kubectl apply -f -`.

There is one document per kind, sorted by name; several versions of one kind share a document. The same classes always
produce the same text. If one class fails, nothing is printed, so that no partial set is applied. `--check FILE`
compares the definitions with those in a file and ignores comments and layout. A CEL rule over a list, map or string
without a size limit causes a warning on standard error, since an API server may refuse the rule.
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
from kubectl_runtime.schema.structural import declares_rules
from kubectl_runtime.schema.validation import Cause


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("classes", nargs="+", type=place, metavar="MODULE:CLASS",
                        help="a CustomResource class, such as my_package.kinds:Widget")
    parser.add_argument("--check", type=Path, metavar="FILE", help="print nothing, but fail with the difference if the "
                        "definitions in FILE are not those of the classes")


def run(options: argparse.Namespace) -> int:
    """Print or check the definitions and return the exit status. Raises CommandError."""
    found = definitions(options.classes)
    for warning in _warnings(found):
        print(f"warning: {warning}", file=sys.stderr)
    if options.check is not None:
        return _check(options.check, found, options.classes)
    print_utf8(_text(found))
    return 0


def _warnings(found: list[dict[str, Any]]) -> list[str]:
    """Warnings about CEL rules that an API server refuses for their estimated cost; empty without the extra `cel`."""
    return [f"{crd['metadata']['name']} {version['name']}: {cause.field.lstrip('.') or 'the schema'}: {cause.message}"
            for crd in found for version in crd["spec"]["versions"]
            if declares_rules(version["schema"]["openAPIV3Schema"])
            for cause in _too_costly(version["schema"]["openAPIV3Schema"])]


def _too_costly(schema: dict[str, Any]) -> list[Cause]:
    from kubectl_runtime.schema.rules import Costs, rule_definition_causes

    costs = Costs()
    rule_definition_causes(schema, "", costs)
    return costs.exceeded


def definitions(places: Iterable[Place]) -> list[dict[str, Any]]:
    """Return the CustomResourceDefinitions of these classes, one per kind, sorted by name. Raises CommandError."""
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
