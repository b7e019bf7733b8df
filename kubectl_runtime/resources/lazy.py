"""Lazy import of the kinds and parts in this package's modules."""
from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from typing import Any

from kubectl_runtime.core.base.errors import did_you_mean


def kind_of(package: str, name: str, modules: Mapping[str, tuple[str, ...]]) -> Any:
    """Return the kind `name` of the package. `modules` maps each module to its kinds. Raises AttributeError if none has
    the kind."""
    home = next((module for module, names in modules.items() if name in names), None)
    if home is None:
        hint = did_you_mean(name, (known for names in modules.values() for known in names))
        raise AttributeError(f"module {package!r} has no kind {name!r}{hint}; for a kind without a class use an "
                             "ApiResource")
    value = getattr(importlib.import_module(f"{package}.{home}"), name)
    setattr(sys.modules[package], name, value)
    return value


def part_of(module: str, name: str, *parts: str) -> Any:
    """Return the class `name`, a part of the kinds in `module`, from the first module in `parts` that defines it.

    The modules in `parts` are in the same package as `module`. Raises AttributeError if none defines `name`.
    """
    if not name.startswith("__"):
        package = module.rpartition(".")[0]
        for found in (importlib.import_module(f"{package}.{part}") for part in parts):
            if name in vars(found):
                setattr(sys.modules[module], name, vars(found)[name])
                return vars(found)[name]
    raise AttributeError(f"module {module!r} has no {name!r}")


class Parts:
    """Stands for a module of parts in the annotations of kinds; imports it when a part is needed."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(f"{__package__}.{self._module}"), name)
