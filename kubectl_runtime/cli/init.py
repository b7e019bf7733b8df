"""`kubectl-runtime init NAME`: writes a new project with a working operator into the folder NAME.

    NAME/PACKAGE/operator.py      a kind, its reconciler, and the function that `kubectl-runtime run` calls
    NAME/tests/, conftest.py      a test on an embedded API server
    NAME/example.yaml             an object of the kind
    NAME/pyproject.toml           the package; pytest, mypy and ruff
    NAME/Dockerfile               the operator's image
    NAME/.github/workflows/       CI: tests, types, style, image, and a check that deploy.yaml is up to date

The kind is NAME without `-operator` or `-controller`, unless `--kind` names another. Nothing is overwritten.
"""
from __future__ import annotations

import argparse
import keyword
import re
import string
import sys
from pathlib import Path

from kubectl_runtime.cli.places import CommandError, UsageError, checked_namespace
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.version import VERSION
from kubectl_runtime.core.meta.gvk import plural_of
from kubectl_runtime.core.requests.request import checked_subdomain

_TAKEN = frozenset(("Action", "Api", "ApiServer", "BoundController", "Client", "ConfigMap", "Context", "Controller",
                    "CustomResource", "None", "Reconcile", "Reconciler", "True", "False"))
"""Names that the generated operator or its test already use."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("name", type=checked_namespace, metavar="NAME", help="the project, such as shop-operator: a "
                        "new folder of that name, below the current one")
    parser.add_argument("--kind", type=_kind, metavar="KIND", help="the kind of its objects, such as Shop (default: "
                        "derived from the name)")
    parser.add_argument("--group", type=_group, default="example.com", metavar="GROUP",
                        help="the API group of the kind: a domain that you own (default: example.com)")


def run(options: argparse.Namespace) -> int:
    """Write the project and print the next steps; return the exit status. Raises CommandError."""
    package = options.name.replace("-", "_")
    if not package.isidentifier() or keyword.iskeyword(package) or package in ("tests", "conftest", "kubectl_runtime") \
            or package in sys.stdlib_module_names:
        raise UsageError(f"a project cannot be called {options.name}: its package would have the name {package}, which "
                         "is not a valid Python name, or is the name of another module")
    stem = re.sub("-(operator|controller)$", "", options.name)
    kind = options.kind or "".join(word.capitalize() for word in stem.split("-"))
    if kind in _TAKEN:
        raise UsageError(f"the program uses the name {kind} for something else: choose another with --kind")
    values = {"name": options.name, "package": package, "kind": kind, "group": options.group,
              "kinds": plural_of(kind), "version": VERSION}
    folder = Path(options.name)
    if folder.is_symlink() or (folder.exists() and not (folder.is_dir() and not any(folder.iterdir()))):
        raise CommandError(f"{folder} exists already and would be overwritten: choose another name, or move it")
    try:
        for path, text in _FILES.items():
            file = folder / string.Template(path).substitute(values)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(_Template(text).substitute(values), encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{folder} cannot be written: {error}") from None
    print(_Template(_NEXT).substitute(values), end="")
    return 0


def _kind(text: str) -> str:
    if not re.fullmatch("[A-Z][A-Za-z0-9]{0,62}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a kind: it must be a capital letter, then letters or digits")
    return text


def _group(text: str) -> str:
    try:
        if "." not in checked_subdomain(text, "the group"):
            raise RequestError("it must be a domain with a dot")
    except RequestError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not an API group: {error}") from None
    return text


class _Template(string.Template):
    """A template whose placeholders are `@name`, since shells and workflows use `$`."""

    delimiter = "@"
    flags = re.ASCII


_NEXT = """\
@name is written. Next steps:

    cd @name
    python3 -m venv .venv && . .venv/bin/activate
    pip install -e '.[test]'                               before: pip install the clone of kubectl_runtime
    kubectl-runtime run @package.operator:main --dev       on an API server of its own, until Ctrl-C; in another shell:
        export KUBECONFIG=$PWD/.kubectl-runtime/kubeconfig && kubectl apply -f example.yaml && kubectl get configmaps
    pytest --kube-record-rights rights.json                records the RBAC rules that the operator needs
    kubectl-runtime manifests @package.operator:main --recorded rights.json --image @name:0.1.0 > deploy.yaml
    docker build -t @name:0.1.0 .                          then push it to a registry that your cluster can reach
    kubectl apply --server-side -f deploy.yaml
"""

_FILES = {
    "pyproject.toml": """\
[build-system]
requires = ["setuptools>=69"]
build-backend = "setuptools.build_meta"

[project]
name = "@name"
version = "0.1.0"
requires-python = ">=3.11"
dependencies = ["kubectl_runtime>=@version"]

[project.optional-dependencies]
test = ["mypy>=1.11", "pytest>=8", "ruff>=0.6"]

[tool.setuptools]
packages = ["@package"]

[tool.pytest.ini_options]
testpaths = ["tests"]

[tool.mypy]
strict = true
files = ["@package", "tests"]

[tool.ruff]
line-length = 120
""",
    ".gitignore": """\
__pycache__/
*.egg-info/
.venv/
/rights.json
""",
    "Dockerfile": """\
FROM python:3.12-slim

WORKDIR /app
COPY pyproject.toml ./
COPY @package ./@package
RUN pip install --no-cache-dir .

# No privileges in the container, and log lines that appear when they are written.
USER 65532:65532
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
ENTRYPOINT ["kubectl-runtime", "run", "@package.operator:main"]
""",
    ".github/workflows/test.yaml": """\
name: test
on: [push, pull_request]
permissions:
  contents: read
jobs:
  test:
    runs-on: ubuntu-latest
    timeout-minutes: 10
    steps:
    - uses: actions/checkout@v4
    - uses: actions/setup-python@v5
      with:
        python-version: '3.12'
    - run: pip install -e '.[test]'
    - run: ruff check
    - run: mypy
    - run: pytest --kube-record-rights rights.json
    - name: deploy.yaml is what the program needs
      run: >-
        kubectl-runtime manifests @package.operator:main --recorded rights.json --image @name:0.1.0
        --check deploy.yaml
    - run: docker build -t @name:0.1.0 .
""".replace("actions/checkout@", "actions/checkout@@").replace("setup-python@", "setup-python@@"),
    "conftest.py": """\
pytest_plugins = "kubectl_runtime.testing.pytest_plugin"  # the fixtures kube_apiserver, kube_client and others
""",
    "example.yaml": """\
apiVersion: @group/v1
kind: @kind
metadata:
  name: first
spec:
  message: hello
""",
    "$package/__init__.py": "",
    "$package/operator.py": '''\
"""Each @kind becomes a ConfigMap of its name, which holds its message."""
from __future__ import annotations

import msgspec
from kubectl_runtime import Action, Api, BoundController, Client, Context, Controller, CustomResource, Reconciler
from kubectl_runtime.resources import ConfigMap


class @{kind}Spec(msgspec.Struct):
    message: str


class @{kind}Status(msgspec.Struct):
    message: str | None = None


class @kind(CustomResource, group="@group", version="v1", kind="@kind"):
    spec: @{kind}Spec
    status: @{kind}Status | None = None


class Reconcile(Reconciler[@kind]):
    def reconcile(self, obj: @kind, ctx: Context[None]) -> Action:
        ctx.ensure(obj, ConfigMap(name=obj.name, data={"message": obj.spec.message}))
        ctx.report(obj, message=obj.spec.message)
        return Action.await_change()


def main(client: Client) -> BoundController[@kind]:
    """What `kubectl-runtime run @package.operator:main` runs."""
    return Controller(Api.all(client, @kind), name="@name").owns(Api.all(client, ConfigMap)).bind(Reconcile())
''',
    "tests/test_operator.py": '''\
from kubectl_runtime import Api, Client, await_condition
from kubectl_runtime.resources import ConfigMap
from kubectl_runtime.testing import ApiServer

from @package.operator import @kind, @{kind}Spec, main


def shows(obj: @kind | None, message: str) -> bool:
    return obj is not None and obj.status is not None and obj.status.message == message


def test_its_message_becomes_a_config_map(kube_apiserver: ApiServer, kube_client: Client) -> None:
    kube_apiserver.load([@kind.crd()])
    objects, maps = Api.namespaced(kube_client, @kind, "default"), Api.namespaced(kube_client, ConfigMap, "default")
    with main(kube_client).start():
        objects.create(@kind(name="first", spec=@{kind}Spec(message="hello")))
        await_condition(objects, "first", lambda obj: shows(obj, "hello"), timeout=30)
        assert maps.get("first").data == {"message": "hello"}

        objects.apply({"metadata": {"name": "first"}, "spec": {"message": "goodbye"}}, field_manager="test", force=True)
        await_condition(objects, "first", lambda obj: shows(obj, "goodbye"), timeout=30)
        assert maps.get("first").data == {"message": "goodbye"}
''',
}
