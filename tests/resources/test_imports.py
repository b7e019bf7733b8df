"""What importing the built-in kinds costs: a kind brings no part with it until one of its parts is needed."""
from __future__ import annotations

import subprocess
import sys


def imported(code: str) -> set[str]:
    """The modules of the package `resources` that a new process has imported after `code`."""
    listing = "import sys; print(*(name for name in sys.modules if name.startswith('kubectl_runtime.resources')))"
    done = subprocess.run([sys.executable, "-c", f"{code}\n{listing}"], capture_output=True, text=True, check=True)
    return {name.removeprefix("kubectl_runtime.resources").lstrip(".") for name in done.stdout.split()}


def test_a_program_without_built_in_kinds_imports_none() -> None:
    assert imported("from kubectl_runtime import Api, Client, Config, Controller, CustomResource") == set()


def test_a_kind_without_parts_imports_none() -> None:
    code = ("from kubectl_runtime.resources import ConfigMap\n"
            "ConfigMap.from_dict({'metadata': {'name': 'a'}, 'data': {'k': 'v'}}).data['k']")
    assert imported(code) == {"", "lazy", "core_v1"}


def test_parts_are_imported_when_one_is_needed() -> None:
    assert imported("from kubectl_runtime.resources import Deployment") == {"", "lazy", "apps_v1"}
    code = "from kubectl_runtime.resources import Deployment\nDeployment.from_dict({'metadata': {'name': 'a'}}).spec"
    assert imported(code) == {"", "lazy", "apps_v1", "apps_v1_parts", "core_v1_parts"}
    assert "core_v1_parts" in imported("from kubectl_runtime.resources.core_v1 import Container")
