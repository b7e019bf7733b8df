"""The project's tests on a real server; here another embedded one, with TLS and tokens, stands for it."""
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kubectl_runtime import Api, Client
from kubectl_runtime.apiserver.server import ApiServer
from kubectl_runtime.resources import Namespace, Pod
from tests.tools.real_server import empty

pytest.importorskip("cryptography", reason="a server with TLS makes certificates with the package cryptography")
pytest_plugins = ("pytester",)

ROOT = Path(__file__).parents[2]
TESTS = """
    import pytest
    from kubectl_runtime import Api, Client, Patch
    from kubectl_runtime.apiserver.server import ApiServer
    from kubectl_runtime.resources import ConfigMap, Pod

    @pytest.fixture
    def server():
        with ApiServer() as running:
            yield running

    @pytest.mark.parametrize("time", [1, 2])
    def test_each_finds_it_empty(server, time):
        with server.client() as client:
            maps = Api.namespaced(client, ConfigMap, "default")
            assert maps.list().items == []
            maps.create(ConfigMap(name="a", finalizers=["example.com/held"]))

    def test_manifests_are_loaded(server):
        spec = {"containers": [{"name": "c", "image": "i"}]}
        status = {"phase": "Failed"}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec, "status": status}
        assert server.load([pod]) == 1
        with server.client() as client:
            assert Api.namespaced(client, Pod, "default").get("p").status.phase == "Failed"

    def test_a_kubeconfig(server, tmp_path):
        from kubectl_runtime import Config
        config = Config.from_kubeconfig(server.write_kubeconfig(tmp_path / "k"), "embedded")
        assert config.cluster_url == server.url

    def test_with_faults(server):
        server.faults.on("list").status(500)

    def test_with_arguments():
        ApiServer(controllers=["*"])

    def test_with_layers_of_its_own(server):
        seen = []
        layer = lambda send: lambda call: (seen.append(call.request.verb), send(call))[1]
        with Client(server.config(timeout=9), layers=[layer]) as client:
            assert Api.namespaced(client, ConfigMap, "default").get_opt("a") is None
        assert seen == ["get"]

    @pytest.fixture
    def api_server():
        with ApiServer() as running:
            yield running

    def test_that_stops_it(api_server):
        api_server.stop()

    def test_by_another_name(server):
        one = server
        one.snapshot()
"""


@pytest.fixture(scope="module")
def real() -> Iterator[ApiServer]:
    with ApiServer(tls=True, tokens={"secret": "admin"}) as running:
        yield running


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makepyfile(TESTS)
    return pytester


def test_each_test_finds_the_server_of_the_kubeconfig_empty(real: ApiServer, project: pytest.Pytester) -> None:
    file = real.write_kubeconfig(project.path / "config")
    with real.client() as client:
        Api.all(client, Namespace).create(Namespace(name="left-over"))
        result = project.runpytest_subprocess("-p", "tests.tools.real_server", "--real-server", str(file), "-rs")
        result.assert_outcomes(passed=5, skipped=4)
        result.stdout.fnmatch_lines_random(["*needs the embedded server: server.faults*", "*needs*: ApiServer(*",
                                            "*has no ApiServer.snapshot*",
                                            "*needs the embedded server: api_server.stop*"])
        assert Api.all(client, Namespace).get_opt("left-over") is None


def test_without_the_option_they_run_on_embedded_ones(project: pytest.Pytester) -> None:
    project.runpytest_subprocess("-p", "tests.tools.real_server").assert_outcomes(passed=9)


def test_a_server_elsewhere_is_not_emptied(project: pytest.Pytester) -> None:
    file = project.path / "config"
    file.write_text("""
        {"apiVersion": "v1", "kind": "Config", "current-context": "c", "users": [{"name": "u", "user": {}}],
         "clusters": [{"name": "c", "cluster": {"server": "https://prod.example.com"}}],
         "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]}""")
    result = project.runpytest_subprocess("-p", "tests.tools.real_server", "--real-server", str(file))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*everything in the server is deleted, and prod.example.com is not this machine*"])


def test_what_a_fresh_server_has_stays(real: ApiServer) -> None:
    with real.client() as client:
        before = _names(client)
        for namespace in ("default", "kube-system"):
            Api.namespaced(client, Pod, namespace).create(
                {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
        empty(client)
        assert _names(client) == before


def _names(client: Client) -> list[str]:
    return sorted(f"{obj.namespace}/{obj.name}" for kind in client.discovery.kinds() if kind.supports("list")
                  for obj in Api.all(client, kind.resource).list() if kind.resource.plural != "events")
