"""`kubectl-runtime crd MODULE:CLASS...`: what `CustomResource.crd()` gives, as YAML for `kubectl apply -f -`.

Modules are found as `python -m` finds them: in the current folder, then on Python's path. Either every class is
printed or none, so that nobody applies half of what was asked for.
"""
from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Iterable
from types import ModuleType
from typing import Any

import msgspec

from kubectl_runtime.crd.customresource import CustomResource


class CommandError(Exception):
    """It cannot be done; the text says why, to the person at the terminal."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.add_argument("classes", nargs="+", type=_place, metavar="MODULE:CLASS",
                        help="a CustomResource class, such as my_package.kinds:Widget")


def run(options: argparse.Namespace) -> int:
    """Print the definitions; returns the exit status."""
    try:
        text = definitions(options.classes)
    except CommandError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(text, end="")
    return 0


def definitions(places: Iterable[tuple[str, str]]) -> str:
    """The CustomResourceDefinitions of these (module, class) pairs, as YAML documents. Raises CommandError."""
    from kubectl_runtime.manifests.writer import documents_to_yaml

    found = [_definition(module, name) for module, name in places]
    return documents_to_yaml(found, sort_keys=False, width=120)


def _place(text: str) -> tuple[str, str]:
    module, _, name = text.partition(":")
    if not all(part.isidentifier() for part in module.split(".")) or not name.isidentifier():
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form MODULE:CLASS, such as my_package.kinds:Widget")
    return module, name


def _definition(module: str, name: str) -> Any:
    kind = _kind(_imported(module), name)
    try:
        return msgspec.to_builtins(kind.crd())
    except TypeError as error:
        raise CommandError(f"{module}:{name} has no definition: {error}") from None


def _imported(name: str) -> ModuleType:
    if os.getcwd() not in sys.path:  # of the console script only; `python -m` has put it there
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise CommandError(f"there is no module {error.name!r} in {os.getcwd()} or on Python's path") from None
        raise CommandError(f"{name} cannot be imported: {error}") from error
    except (Exception, SystemExit) as error:  # whatever the module does when it is imported
        raise CommandError(f"{name} cannot be imported: {type(error).__name__}: {error}") from error


def _kind(module: ModuleType, name: str) -> type[CustomResource]:
    kind = getattr(module, name, None)
    if isinstance(kind, type) and issubclass(kind, CustomResource) and hasattr(kind, "api_resource"):
        return kind
    known = ", ".join(sorted(key for key, value in vars(module).items() if isinstance(value, type)
                             and issubclass(value, CustomResource) and hasattr(value, "api_resource"))) or "none"
    problem = f"{module.__name__} has no {name}" if kind is None else (
        f"{module.__name__}:{name} is no custom resource, which is a class made with "
        "class Name(CustomResource, group=..., version=..., kind=...)")
    raise CommandError(f"{problem}; its custom resources: {known}")
