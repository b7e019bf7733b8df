"""The pytest plugin: fixtures for an embedded API server, its client and its kubeconfig, and for simulations.

    # conftest.py at the top of a project
    pytest_plugins = "kubectl_runtime.testing.pytest_plugin"

Without this line pytest does not know the fixtures, and nothing of this package is imported. The fixtures:

- ``kube_apiserver``: a running `ApiServer` for one test, which starts empty, or with the objects of ``kube_manifests``
- ``kube_client``: a client of this library for ``kube_apiserver``, closed after the test
- ``kubeconfig``: the path of a kubeconfig for ``kube_apiserver``, for kubectl and clients in any language
- ``kube_apiserver_session``: one `ApiServer` for the whole session; a test that changes objects must clean up, for
  example with ``snapshot()`` and ``restore()``
- ``kube_perturb``: `perturb`; the test fails if a disturbed run ends differently from the undisturbed run. Without
  ``--perturb`` only the undisturbed story runs
- ``cluster``: a `Cluster` with a namespace for this test: an embedded server with all controllers and running Pods, or
  with ``--cluster KUBECONFIG`` a real cluster, for the same tests
- ``kube_snapshot``: a function that loads a saved `Snapshot`; the path is relative to the folder of the test's file
- ``simulation``: a `Simulation`, which runs controllers and servers in one thread and on simulated time

A marker passes arguments to the server of one test: ``@pytest.mark.kube_apiserver(authorization_mode="RBAC",
tls=True)``. A fault script is not allowed as an argument, since all tests with the marker would share the script; use
``kube_apiserver.faults``, whose random choices follow the server's seed. The seed of a simulation is 0 by default;
``@pytest.mark.simulation(seed=7)`` sets it for one test, and ``--simulation-seed`` for all tests.

These ini options apply to all servers. Each is also a command-line option, with dashes in place of underscores:

- ``kube_controllers``: controllers to run, separated by spaces or commas, or ``none`` (default: the server's)
- ``kube_authorization_mode``: ``AlwaysAllow`` (default) or ``RBAC``
- ``kube_tls``: whether to serve HTTPS: ``true`` or ``false`` (default)
- ``kube_manifests``: files and folders to load into each server, relative to the root directory, separated by spaces

``--kube-record-rights FILE`` writes the permissions that the reconcilers used, for ``kubectl-runtime rbac --recorded
FILE``. ``--perturb`` also plays the disturbed runs of ``kube_perturb`` and shows their progress. ``--perturb-only POINT
--perturb-seed SEED`` repeat only the disturbed run that a report names, also if a test calls `perturb` itself.

The module imports the server only when a fixture is used.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

try:
    import pytest
except ImportError:  # documentation tools import this module without pytest
    pytest = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from kubectl_runtime.apiserver.server import ApiServer
    from kubectl_runtime.client.api.client import Client
    from kubectl_runtime.testing.cluster import Cluster
    from kubectl_runtime.testing.lab.perturb import Report
    from kubectl_runtime.testing.simulation import Simulation

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = {
    "kube_controllers": "controllers of the embedded API server, separated by spaces or commas, or none",
    "kube_authorization_mode": "AlwaysAllow or RBAC",
    "kube_manifests": "files and folders to load into each embedded API server, separated by spaces",
    "kube_tls": "whether the embedded API server serves HTTPS: true or false",
}


def _fixture(scope: Any = "function") -> Callable[[F], F]:
    """`pytest.fixture`, or a no-op without pytest."""
    def same(function: F) -> F:
        return function
    return same if pytest is None else pytest.fixture(scope=scope)  # type: ignore[return-value]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register the options."""
    group = parser.getgroup("kubectl_runtime", "embedded Kubernetes API server")
    for name, text in _OPTIONS.items():
        group.addoption("--" + name.replace("_", "-"), dest=name, default=None, help=text)
        parser.addini(name, text)
    group.addoption("--kube-record-rights", dest="kube_record_rights", default=None, metavar="FILE",
                    help="write the permissions that the reconcilers used, for kubectl-runtime rbac --recorded")
    group.addoption("--perturb", action="store_true", default=False,
                    help="also play the stories of kube_perturb with crashes, stale reads and missed changes")
    group.addoption("--perturb-only", dest="perturb_only", default=None, metavar="POINT",
                    help="repeat only this disturbed run, such as crash-after-3")
    group.addoption("--perturb-seed", dest="perturb_seed", type=int, default=None, metavar="SEED",
                    help="the seed of the run to repeat")
    group.addoption("--cluster", dest="kube_cluster", default=None, metavar="KUBECONFIG",
                    help="run tests that use the fixture cluster on the cluster of this kubeconfig's current context")
    group.addoption("--simulation-seed", dest="simulation_seed", default=None, type=int, metavar="NUMBER",
                    help="seed of the fixture simulation, in place of the tests' own")


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Report the real cluster that tests run in, if any."""
    return [f"cluster: {config.getoption('kube_cluster')}"] if config.getoption("kube_cluster", None) else []


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers, and begin to record permissions if ``--kube-record-rights`` is given."""
    config.addinivalue_line("markers", "kube_apiserver(**arguments): arguments of ApiServer for kube_apiserver, and "
                                       "for cluster where it is embedded")
    config.addinivalue_line("markers", "simulation(seed): the seed of the fixture simulation")
    if (file := config.getoption("kube_record_rights", None)) is not None:
        from kubectl_runtime.testing.rights_recorder import RightsRecorder

        recording = ExitStack()
        recorder = recording.enter_context(RightsRecorder())
        recording.callback(recorder.write, Path(config.invocation_params.dir, file))
        config.add_cleanup(recording.close)
    _configure_perturbation(config)


def _configure_perturbation(config: pytest.Config) -> None:
    from kubectl_runtime.testing.lab.perturb import OPTIONS, Options
    from kubectl_runtime.testing.lab.world import Point

    text = config.getoption("perturb_only", None)
    try:
        only = None if text is None else Point.parse(text)
    except ValueError as error:
        raise pytest.UsageError(f"--perturb-only: {error}") from None
    tell = _terminal_of(config) if config.getoption("perturb", False) else None
    token = OPTIONS.set(Options(only, config.getoption("perturb_seed", None), config.rootpath, tell))
    config.add_cleanup(lambda: OPTIONS.reset(token))


def _terminal_of(config: pytest.Config) -> Callable[[str], object]:
    """Return a function that writes to the terminal past pytest's capture, on the line of the test."""
    def tell(text: str) -> None:
        reporter, capture = (config.pluginmanager.get_plugin(name) for name in ("terminalreporter", "capturemanager"))
        if reporter is not None and capture is not None and reporter.isatty:
            with capture.global_and_fixture_disabled():
                reporter.write(text, flush=True)

    return tell


def _option(config: pytest.Config, name: str) -> str:
    given = config.getoption(name, None)
    return str(given if given is not None else config.getini(name) or "").strip()


def _arguments(config: pytest.Config) -> dict[str, Any]:
    """The arguments for `ApiServer` that the options set."""
    arguments: dict[str, Any] = {}
    if controllers := _option(config, "kube_controllers"):
        arguments["controllers"] = [name for name in re.split(r"[\s,]+", controllers) if name]
    if mode := _option(config, "kube_authorization_mode"):
        arguments["authorization_mode"] = mode
    if tls := _option(config, "kube_tls"):
        if tls.lower() not in ("true", "false"):
            raise pytest.UsageError(f"kube_tls must be true or false, not {tls!r}")
        arguments["tls"] = tls.lower() == "true"
    return arguments


def _serve(config: pytest.Config, arguments: dict[str, Any]) -> Iterator[ApiServer]:
    """Run a server until the generator ends, with the manifests and arguments that the options set, and with
    `arguments`."""
    from kubectl_runtime.apiserver.server import ApiServer

    with ApiServer(**{**_arguments(config), **arguments}) as server:
        for manifest in _option(config, "kube_manifests").split():
            server.load(Path(config.rootpath, manifest))
        yield server


def _marked(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The arguments of ``pytest.mark.kube_apiserver``."""
    marker = request.node.get_closest_marker("kube_apiserver")
    if marker and marker.args:
        raise pytest.UsageError(f"pytest.mark.kube_apiserver takes arguments by name, not {marker.args[0]!r}")
    if marker and "faults" in marker.kwargs:
        raise pytest.UsageError("a fault script in pytest.mark.kube_apiserver would be shared by all its tests: use "
                                "kube_apiserver.faults, and seed=… in the mark for its random choices")
    return dict(marker.kwargs) if marker else {}


@_fixture()
def kube_apiserver(request: pytest.FixtureRequest) -> Iterator[ApiServer]:
    """A running embedded API server for this test alone; see ``pytest.mark.kube_apiserver`` for its arguments."""
    yield from _serve(request.config, _marked(request))


@_fixture(scope="session")
def kube_apiserver_session(request: pytest.FixtureRequest) -> Iterator[ApiServer]:
    """An embedded API server that runs for the whole session."""
    yield from _serve(request.config, {})


@_fixture()
def kube_client(kube_apiserver: ApiServer) -> Iterator[Client]:
    """An administrator's client of ``kube_apiserver``."""
    with kube_apiserver.client() as client:
        yield client


@_fixture()
def kubeconfig(kube_apiserver: ApiServer, tmp_path: Path) -> Path:
    """The path of an administrator's kubeconfig for ``kube_apiserver``."""
    return kube_apiserver.write_kubeconfig(tmp_path / "kubeconfig")


@_fixture()
def kube_perturb(request: pytest.FixtureRequest) -> Callable[..., Report]:
    """`perturb`; if a run ends differently from the undisturbed run, the test fails with the report."""
    from kubectl_runtime.testing.lab.perturb import perturb

    config = request.config
    every = config.getoption("perturb", False) or config.getoption("perturb_only", None) is not None

    def check(build: Any, story: Any, **options: Any) -> Report:
        if not every:
            options["faults"] = ()
        report = perturb(build, story, **options)
        if not report.ok:
            pytest.fail(str(report), pytrace=False)
        return report

    return check


@_fixture()
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    """A `Cluster` with a namespace for this test: the embedded server, or the real cluster of ``--cluster``."""
    from kubectl_runtime.testing.cluster import embedded_cluster, real_cluster

    if (given := request.config.getoption("kube_cluster")) is not None:
        with real_cluster(Path(request.config.invocation_params.dir, given).expanduser()) as real:
            yield real
        return
    for server in _serve(request.config, {"controllers": ["*"], **_arguments(request.config), **_marked(request)}):
        with embedded_cluster(server, tmp_path / "kubeconfig") as embedded:
            yield embedded


@_fixture()
def kube_snapshot(request: pytest.FixtureRequest) -> Callable[[str | Path], Any]:
    """A function that loads a saved `Snapshot`; a relative path begins at the folder of the test's file."""
    def load(file: str | Path) -> Any:
        # This package must not import `plan`, so `plan` is looked up when a test uses the fixture.
        return importlib.import_module("kubectl_runtime.plan").Snapshot.load(request.path.parent / file)
    return load


@_fixture()
def simulation(request: pytest.FixtureRequest) -> Iterator[Simulation]:
    """A `Simulation`. Make its servers with ``simulation.serve()`` and its clients with
    ``simulation.client(server)``."""
    from kubectl_runtime.testing.simulation import Simulation

    marker = request.node.get_closest_marker("simulation")
    if marker and (marker.args or set(marker.kwargs) - {"seed"}):
        raise pytest.UsageError("pytest.mark.simulation takes one argument, seed=…")
    seed = request.config.getoption("simulation_seed")
    with Simulation(seed if seed is not None else marker.kwargs.get("seed", 0) if marker else 0) as made:
        yield made
