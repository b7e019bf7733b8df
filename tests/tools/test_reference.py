"""The reference's page of tables holds each of them, and every module that the pages are made of can be imported."""
from __future__ import annotations

import ast
import importlib

import pytest

from tests.tools.reference import MACHINES, PACKAGE, PAGES, TABLES, tables


def test_the_page_of_tables_has_the_docstring_of_each_machine_whole() -> None:
    text = ast.literal_eval(tables())
    for heading, path in MACHINES.items():
        module = importlib.import_module(f"kubectl_runtime.{path.removesuffix('.py').replace('/', '.')}")
        told = ast.get_docstring(ast.parse((PACKAGE / path).read_text()))
        assert module.__doc__
        assert told is not None
        assert f"# {heading}\n\n`kubectl_runtime/{path}`\n\n{told}" in text


@pytest.mark.parametrize("page", PAGES)
def test_each_page_is_of_a_module_whose_names_are_there(page: str) -> None:
    module = importlib.import_module(page)
    assert module.__doc__
    for name in getattr(module, "__all__", ()):
        assert getattr(module, name) is not None


def test_pdoc_writes_it_without_a_warning(tmp_path, monkeypatch, capsys) -> None:  # type: ignore[no-untyped-def]
    pytest.importorskip("pdoc", reason="pdoc is in tox's environment `reference`")
    from tests.tools import reference

    monkeypatch.setattr("sys.argv", ["reference", str(tmp_path)])
    monkeypatch.setattr(reference, "PAGES", ("kubectl_runtime.runtime.logs",))
    assert reference.main() == 0
    assert "Watching(the object" in (tmp_path / f"{TABLES}.html").read_text()
