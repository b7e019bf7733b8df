"""The maps in the packages' docstrings name every room."""
from __future__ import annotations

import pkgutil
import re

import pytest

from kubectl_runtime import apiserver
from kubectl_runtime.apiserver import kinds


@pytest.mark.parametrize("package", [apiserver, kinds])
def test_a_map_names_every_module(package):
    named = set(re.findall(r"``(\w+)``", package.__doc__))
    assert {module.name for module in pkgutil.iter_modules(package.__path__)} - named == set()


def test_the_map_of_the_core_names_nothing_that_is_not_there():
    column = re.findall(r"^- (``.*?):", apiserver.__doc__, re.MULTILINE)
    modules = {module.name for module in pkgutil.iter_modules(apiserver.__path__)}
    assert {*re.findall(r"``(\w+)``", " ".join(column)), "core"} == modules
