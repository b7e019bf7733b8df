"""The facade: every name exists, costs nothing to import, and means the same to type checkers."""
from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import kubectl_runtime


def test_every_public_name_can_be_imported() -> None:
    for name in kubectl_runtime.__all__:
        assert getattr(kubectl_runtime, name) is not None


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse(Path(kubectl_runtime.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    declared = {alias.asname for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert declared == set(kubectl_runtime.__all__)
    assert kubectl_runtime.__all__ == sorted(kubectl_runtime._HOME)


def test_help_begins_with_a_table_of_contents() -> None:
    """Each name stands in one group, and nothing else does."""
    table = [line[36:] for line in (kubectl_runtime.__doc__ or "").splitlines() if line.startswith("    ")]
    assert sorted(" ".join(table).replace(",", "").split()) == kubectl_runtime.__all__


def test_an_image_may_leave_the_embedded_server_out() -> None:
    """As the guide To a cluster says: the facade and `kubectl-runtime run` do without it and the test kit."""
    code = ("import sys; sys.modules.update({'kubectl_runtime.apiserver': None, 'kubectl_runtime.testing': None}); "
            "import kubectl_runtime as facade; [getattr(facade, name) for name in facade.__all__]; "
            "from kubectl_runtime.cli.main import main; main(['run', 'absent_module:main'])")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "absent_module" in done.stderr
    assert "Traceback" not in done.stderr


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = "import sys, kubectl_runtime; print(*(m for m in ('msgspec', 'requests', 'kubernetes') if m in sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not out.stdout.strip()


def test_resource_classes_import_no_http_and_no_official_client() -> None:
    code = ("import sys; from kubectl_runtime.resources import Pod; from kubectl_runtime import CustomResource; "
            "print(*(m for m in ('requests', 'kubernetes', 'urllib3') if m in sys.modules))")
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not out.stdout.strip()
