"""The pytest plugin as a project that installs it sees it."""

from __future__ import annotations

import configparser
import subprocess
import sys
from pathlib import Path

import pytest

import kubectl_runtime
from kubectl_runtime import Api
from kubectl_runtime.resources import Namespace
from kubectl_runtime.testing import ApiServer, eventually
from tests.examples.programs import PLUGIN

pytest_plugins = ("pytester",)

_LOAD = PLUGIN


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project of its own; its pytest is a process of its own, as modules cannot all be imported twice into one."""
    monkeypatch.setenv("PYTHONPATH", str(Path(kubectl_runtime.__path__[0]).parent))
    return pytester


def passes(project: pytest.Pytester, *args: str, **outcomes: int) -> pytest.RunResult:
    result = project.runpytest_subprocess(*_LOAD, *args)
    result.assert_outcomes(**outcomes)
    return result


def test_the_fixtures_serve_each_test_its_own_server(project) -> None:
    project.makepyfile("""
        import json, urllib.request
        from kubectl_runtime import Api
        from kubectl_runtime.resources import ConfigMap

        def test_server(kube_apiserver):
            kube_apiserver.load({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})
            with urllib.request.urlopen(kube_apiserver.url + "/api/v1/configmaps") as answer:
                assert len(json.load(answer)["items"]) == 1

        def test_client(kube_client):
            assert Api.all(kube_client, ConfigMap).list().items == []

        def test_kubeconfig(kubeconfig, kube_apiserver):
            assert json.loads(kubeconfig.read_text())["clusters"][0]["cluster"]["server"] == kube_apiserver.url
    """)
    passes(project, passed=3)


@pytest.mark.long
def test_the_session_server_is_one_for_all(project) -> None:
    project.makepyfile("""
        seen = []

        def test_one(kube_apiserver_session):
            seen.append(kube_apiserver_session)

        def test_two(kube_apiserver_session, kube_apiserver):
            assert seen == [kube_apiserver_session]
            assert kube_apiserver.url != kube_apiserver_session.url
    """)
    passes(project, passed=2)


@pytest.mark.long
def test_a_marker_passes_arguments(project) -> None:
    project.makepyfile("""
        import pytest

        @pytest.mark.kube_apiserver(authorization_mode="RBAC", tls=True)
        def test_rbac(kube_apiserver, kube_client):
            assert kube_apiserver.url.startswith("https://")
            assert kube_apiserver.access.mode == "RBAC"
            assert kube_client.server_version()
    """)
    passes(project, "--strict-markers", passed=1)


@pytest.mark.long
def test_a_marker_takes_arguments_by_name_only_and_no_fault_script(project) -> None:
    project.makepyfile("""
        import pytest
        from kubectl_runtime.testing import Faults

        @pytest.mark.kube_apiserver("RBAC")
        def test_mode(kube_apiserver):
            pass

        @pytest.mark.kube_apiserver(faults=Faults(seed=7))
        def test_faults(kube_apiserver):
            pass
    """)
    result = project.runpytest_subprocess(*_LOAD)
    result.assert_outcomes(errors=2)
    result.stdout.fnmatch_lines(["*takes arguments by name, not 'RBAC'*", "*would be shared by all its tests*"])


@pytest.mark.long
def test_options_come_from_the_ini_file_and_the_command_line_wins(project) -> None:
    (project.path / "manifests").mkdir()
    (project.path / "manifests" / "a.yaml").write_text(
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: default}}")
    project.makeini("""
        [pytest]
        kube_authorization_mode = RBAC
        kube_controllers = none
        kube_manifests = manifests
    """)
    project.makepyfile("""
        from kubectl_runtime import Api
        from kubectl_runtime.resources import ConfigMap

        def test_options(kube_client, kube_apiserver, pytestconfig):
            assert [item.name for item in Api.all(kube_client, ConfigMap).list()] == ["a"]
            assert kube_apiserver.access.mode == (pytestconfig.getoption("kube_authorization_mode") or "RBAC")
    """)
    passes(project, passed=1)
    passes(project, "--kube-authorization-mode=AlwaysAllow", passed=1)


@pytest.mark.parametrize(("option", "text"), [
    ("--kube-authorization-mode=ABAC", "*ABAC*"),
    pytest.param("--kube-controllers=gardener", "*gardener*", marks=pytest.mark.long),
    pytest.param("--kube-tls=perhaps", "*kube_tls must be true or false*", marks=pytest.mark.long)])
def test_a_wrong_option_is_an_error_that_names_it(project, option, text) -> None:
    project.makepyfile("def test_it(kube_apiserver): pass")
    passes(project, option, errors=1).stdout.fnmatch_lines([text])


@pytest.mark.long
def test_the_fixtures_and_options_are_documented(project) -> None:
    project.makepyfile("def test_it(): pass")
    shown = project.runpytest_subprocess(*_LOAD, "--fixtures", "-q")
    shown.stdout.fnmatch_lines(["kube_apiserver*", "kube_apiserver_session*", "kube_client*", "kubeconfig*"])
    project.runpytest_subprocess(*_LOAD, "--help").stdout.fnmatch_lines(["*--kube-controllers*", "*kube_manifests*"])
    project.runpytest_subprocess(*_LOAD, "--markers").stdout.fnmatch_lines(["@pytest.mark.kube_apiserver*"])


@pytest.mark.parametrize("before", ["", "import sys; sys.modules['pytest'] = None; "])
def test_importing_it_is_light_and_needs_no_pytest(before) -> None:
    code = (f"{before}import sys, kubectl_runtime.testing.pytest_plugin; "
            "heavy = ('kubectl_runtime.testing.', 'requests', 'kubernetes'); "
            "print([name for name in sys.modules if name.startswith(heavy)])")
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True).stdout
    assert shown.strip() == "['kubectl_runtime.testing.pytest_plugin']"


_SAME_TEST = """
    import pytest
    from kubectl_runtime import Api
    from kubectl_runtime.resources import Namespace, Pod
    from kubectl_runtime.testing import eventually

    def test_a_pod_runs(cluster):
        pods = cluster.api(Pod)
        pods.create({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "a", "image": "a"}]}})
        eventually(lambda: pods.get("a"), lambda pod: pod["status"]["phase"] == "Running")
        assert cluster.kubeconfig.exists()
        assert cluster.unique("x") != "x"
        print("real" if cluster.is_real else "embedded", cluster.namespace)

    def test_with_faults(cluster):
        assert cluster.server.faults is not None
"""


@pytest.mark.long
def test_the_cluster_is_embedded_and_runs_pods(project) -> None:
    project.makepyfile(_SAME_TEST)
    result = passes(project, "-s", passed=2)
    result.stdout.fnmatch_lines(["*embedded test-*"])


@pytest.mark.long
def test_the_same_tests_run_in_a_real_cluster(project) -> None:
    project.makepyfile(_SAME_TEST)
    with ApiServer(controllers=["*"]) as server, server.client() as client:
        server.write_kubeconfig(project.path / "config")
        result = passes(project, "-s", "--cluster", "config", passed=1, skipped=1)
        result.stdout.fnmatch_lines(["cluster: config", "*real test-*"])
        namespaces = Api.all(client, Namespace)
        eventually(lambda: not [each.name for each in namespaces.list() if each.name.startswith("test-")], timeout=60)
        assert len(server.requests.select("create", resource="namespaces")) == 2


@pytest.mark.long
def test_a_cluster_that_is_none_is_an_error_with_its_path(project) -> None:
    project.makepyfile("def test_it(cluster): pass")
    result = project.runpytest_subprocess(*_LOAD, "--cluster", "nowhere")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*nowhere*"])


@pytest.mark.long
def test_a_simulation_has_the_seed_that_is_asked_for(project) -> None:
    project.makepyfile("""
        import pytest
        from kubectl_runtime import Api
        from kubectl_runtime.resources import Pod

        def test_pods_run_without_threads(simulation):
            pods = Api.namespaced(simulation.client(simulation.serve(controllers=["*"])), Pod, "default")
            pods.create({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "a", "image": "a"}]}})
            simulation.eventually(lambda: pods.get("a"), lambda pod: pod["status"]["phase"] == "Running")
            print("seed", simulation.seed)

        @pytest.mark.simulation(seed=7)
        def test_marked(simulation):
            print("marked", simulation.seed)
    """)
    result = passes(project, "-s", "--strict-markers", passed=2)
    result.stdout.fnmatch_lines(["*seed 0", "*marked 7"])
    result = passes(project, "-s", "--simulation-seed", "9", passed=2)
    result.stdout.fnmatch_lines(["*seed 9", "*marked 9"])


def test_a_simulation_takes_nothing_but_a_seed(project) -> None:
    project.makepyfile("""
        import pytest

        @pytest.mark.simulation(7)
        def test_it(simulation):
            pass
    """)
    result = project.runpytest_subprocess(*_LOAD)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*takes one argument, seed=*"])


def test_a_line_in_the_conftest_loads_it_and_rewrites_no_other_module(project, monkeypatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # no entry point of whatever else is installed here
    project.makeconftest('pytest_plugins = "kubectl_runtime.testing.pytest_plugin"')
    project.makepyfile("""
        import importlib.util
        from _pytest.assertion.rewrite import AssertionRewritingHook

        def test_it(kube_client, request):
            assert kube_client.server_version().minor
            for name in ("kubectl_runtime.apiserver.server", "kubectl_runtime.client.api.api"):
                assert not isinstance(importlib.util.find_spec(name).loader, AssertionRewritingHook)
            found = importlib.util.find_spec("kubectl_runtime.testing.pytest_plugin")
            assert isinstance(found.loader, AssertionRewritingHook)
    """)
    project.runpytest_subprocess().assert_outcomes(passed=1)


def test_no_entry_point_makes_pytest_load_it() -> None:
    """A plugin of an entry point is loaded by each pytest of the environment, which rewrites the whole distribution."""
    settings = configparser.ConfigParser(interpolation=None)
    settings.read(Path(__file__).parents[3] / "setup.cfg", encoding="utf-8")
    assert set(settings["options.entry_points"]) == {"console_scripts"}
