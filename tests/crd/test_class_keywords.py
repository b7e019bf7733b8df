"""The class keywords as type checkers see them are those that there are."""
from __future__ import annotations

import ast
import inspect

from kubectl_runtime.core.objects.resource import KEYWORDS
from kubectl_runtime.crd import customresource
from kubectl_runtime.crd.marks import OPTIONS


def signatures() -> list[ast.FunctionDef]:
    tree = ast.parse(inspect.getsource(customresource))
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "__init_subclass__"]


def test_type_checkers_see_every_keyword_and_no_other() -> None:
    typed = next(node for node in signatures() if node.args.kwonlyargs)
    kind = set(KEYWORDS) - {"subresources"}  # those of a custom resource follow from its fields and options
    assert {argument.arg for argument in typed.args.kwonlyargs} == {*OPTIONS, *kind}
