"""Making a client checks all that can be checked and imports nothing that only calls need; its first call does that,
once, from whichever threads and processes."""
from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from urllib3.exceptions import LocationParseError
from urllib3.util import parse_url

from kubectl_runtime import Config, ConfigError
from tests.client.wire_server import WireServer, answering, config_map, says

ROOT = Path(__file__).parents[2]
GOOD = answering(says(200, config_map()))

PRELUDE = """
    import os, sys, threading, time
    HEAVY = ("requests", "urllib3", "http.client", "kubernetes", "websocket", "yaml", "cachetools")

    def heavy():
        return sorted(name for name in HEAVY if name in sys.modules)
"""


def python(code: str, *arguments: str, **environ: str) -> str:
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(PRELUDE) + textwrap.dedent(code), *arguments],
                          capture_output=True, text=True, timeout=60, check=False, cwd=ROOT,
                          env={**os.environ, **environ})
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def kubeconfig(url: str) -> dict[str, object]:
    return {"current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": {"server": url}}], "users": [{"name": "u", "user": {"token": "t"}}]}


@pytest.mark.parametrize(("text", "more"), [("json", []), ("yaml", ["yaml"])])
def test_a_client_that_has_called_nobody_has_not_imported_what_calls_need(
        text: str, more: list[str], tmp_path: Path) -> None:
    with WireServer(GOOD) as server:
        content = {key: json.dumps(value) for key, value in kubeconfig(server.url).items()}
        (tmp_path / "config").write_text(
            json.dumps(kubeconfig(server.url)) if text == "json" else
            "".join(f"{key}: {value}\n" for key, value in content.items()))
        said = python("""
            from kubectl_runtime import Api, Client
            client = Client.try_default()
            made = heavy()
            from kubectl_runtime import Controller, Manager, watcher
            from kubectl_runtime.resources import ConfigMap
            api = Api.namespaced(client, ConfigMap, "default")
            Controller(api)
            client.grow(50)
            print(made, {"requests", "urllib3"} & set(sys.modules), api.get("a").name, "requests" in sys.modules)
        """, KUBECONFIG=str(tmp_path / "config"))
        assert server.requests[0].header("Authorization") == "Bearer t"
    assert said == f"{more} set() a True"


def test_a_pods_client_needs_no_yaml_either(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t")
    with WireServer(GOOD) as server:
        said = python("""
            from kubectl_runtime import Api, Client, Config
            from kubectl_runtime.resources import ConfigMap
            with Client(Config(cluster_url=sys.argv[1], token_file=sys.argv[2])) as client:
                made = heavy()
                print(made, Api.namespaced(client, ConfigMap, "default").get("a").name, "yaml" in sys.modules)
        """, server.url, str(tmp_path / "token"))
    assert said == "[] a False"


def test_what_cannot_work_is_refused_as_the_client_is_made(tmp_path: Path) -> None:
    ca = tmp_path / "ca.crt"
    ca.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    wrong = [{"cluster_url": "https://[fe80::zz]:1"}, {"cluster_url": "https://a..b"}, {"ca_data": b"rubbish"},
             {"ca_file": "/missing"}, {"ca_file": str(ca)}, {"client_certificate_data": b"x", "client_key_data": b"y"},
             {"client_certificate_file": "/missing", "client_key_file": "/missing"}, {"proxy_url": "ftp://a"},
             {"tls_server_name": "a b"}, {"timeout": 0}]
    said = python(f"""
        sys.modules["socks"] = None
        from kubectl_runtime import Client, Config, ConfigError
        for fields in {wrong!r}:
            try:
                Client(Config(**{{"cluster_url": "https://127.0.0.1:1", **fields}}))
            except ConfigError as error:
                print(type(error).__name__, heavy())
            else:
                print("taken:", fields)
    """)
    assert said.splitlines() == ["ConfigError []"] * len(wrong)


def test_a_socks_proxy_without_pysocks_names_the_extra_as_the_client_is_made() -> None:
    said = python("""
        sys.modules["socks"] = None
        from kubectl_runtime import Client, Config
        from kubectl_runtime.core.base.errors import MissingExtra
        for scheme in ("socks5", "socks5h", "SOCKS4"):
            for config in ({"proxy_url": f"{scheme}://a:1"}, {}):
                os.environ["ALL_PROXY"] = f"{scheme}://a:1"
                try:
                    Client(Config(cluster_url="https://kubernetes.example.com", **config))
                except MissingExtra as error:
                    print(error.extra, "the extra 'socks': pip install" in str(error), heavy(), end="; ")
    """)
    assert said == " ".join(["socks True [];"] * 6)


def test_a_client_that_is_closed_unused_has_imported_nothing_and_calls_no_more() -> None:
    said = python("""
        from kubectl_runtime import Client, Config, TransportError
        with Client(Config(cluster_url="http://127.0.0.1:1")) as client:
            pass
        try:
            client.server_version()
        except TransportError as error:
            print("closed" in str(error), heavy())
    """)
    assert said == "True []"


def test_with_a_session_the_wire_is_made_at_once() -> None:
    said = python("""
        import requests
        from kubectl_runtime import Client, Config, ConfigError
        session = requests.Session()
        session.mount("https://", requests.adapters.HTTPAdapter(max_retries=3))
        try:
            Client(Config(cluster_url="https://a", client_certificate_data=b"x", client_key_data=b"y"), session=session)
        except ConfigError as error:
            print("mounted on the session" in str(error))
    """)
    assert said == "True"


def test_first_calls_from_many_threads_at_once_share_one_wire() -> None:
    with WireServer(GOOD) as server:
        said = python("""
            import gc
            from kubectl_runtime import Api, Client, Config
            from kubectl_runtime.resources import ConfigMap
            api = Api.namespaced(Client(Config(cluster_url=sys.argv[1])), ConfigMap, "default")
            assert "requests" not in sys.modules
            begin, names = threading.Barrier(16), []

            def call():
                begin.wait()
                names.append(api.get("a").name)

            threads = [threading.Thread(target=call) for _ in range(16)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            wires = [found for found in gc.get_objects() if type(found).__name__ == "RequestsCarrier"]
            print(len(names), len(wires))
        """, server.url)
        assert len({request.connection for request in server.requests}) <= 16
    assert said == "16 1"


def test_a_client_that_is_closed_amid_its_first_call_opens_no_connection_any_more() -> None:
    with WireServer(GOOD) as server:
        said = python("""
            import importlib.abc
            from kubectl_runtime import Api, Client, Config, TransportError
            from kubectl_runtime.resources import ConfigMap
            client = Client(Config(cluster_url=sys.argv[1]))
            amid, closed, errors = threading.Event(), threading.Event(), []

            class Slow(importlib.abc.MetaPathFinder):
                def find_spec(self, name, path, target=None):
                    if name == "urllib3":
                        amid.set()
                        closed.wait(10)

            def call():
                try:
                    Api.namespaced(client, ConfigMap, "default").create(ConfigMap(name="a"))
                except TransportError as error:
                    errors.append(str(error))

            sys.meta_path.insert(0, Slow())
            thread = threading.Thread(target=call)
            thread.start()
            assert amid.wait(10)
            client.close()
            closed.set()
            thread.join()
            print("the client was closed" in errors[0])
        """, server.url)
        assert server.requests == []
    assert said == "True"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("called", [False, True], ids=["unused", "used"])
def test_a_child_of_a_fork_makes_a_first_call_of_its_own(called: bool) -> None:
    with WireServer(GOOD) as server:
        said = python("""
            from kubectl_runtime import Api, Client, Config
            from kubectl_runtime.resources import ConfigMap
            api = Api.namespaced(Client(Config(cluster_url=sys.argv[1])), ConfigMap, "default")
            if sys.argv[2] == "True":
                api.get("parent")
            process = os.fork()
            if process == 0:
                assert ("requests" in sys.modules) is (sys.argv[2] == "True")
                os._exit(api.get("child").name != "a")
            print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), api.get("parent").name)
        """, server.url, str(called))
    assert said == "0 a"


AMID = {
    "urllib3": "api.get('a')",
    "kubectl_runtime.client.api.discovery": "client.discovery",
    "websocket": "client.connect(Request('GET', '/x', 'connect', None, 'connect'))",
    "kubernetes": 'AuthProviderCredentials("gcp", {}).header(time.monotonic() + 15)',
}
"""What is imported by a call -> the call."""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("module", AMID)
def test_a_fork_amid_what_a_call_of_another_thread_imports_leaves_no_child_hanging(module: str) -> None:
    """The child would find the import lock of a half imported module held by a thread that it has not."""
    with WireServer(GOOD) as server:
        said = python(f"""
            import importlib.abc
            from kubectl_runtime import Api, Client, Config, KubeError
            from kubectl_runtime.client.config.auth_provider import AuthProviderCredentials
            from kubectl_runtime.core.requests.request import Request
            from kubectl_runtime.resources import ConfigMap
            client = Client(Config(cluster_url=sys.argv[1]))
            api = Api.namespaced(client, ConfigMap, "default")
            amid, began = threading.Event(), time.monotonic()

            class Slow(importlib.abc.MetaPathFinder):
                def find_spec(self, name, path, target=None):
                    if name == sys.argv[2] and not amid.is_set():
                        amid.set()
                        time.sleep(0.3)  # the time in which the other thread forks

            def call():
                try:
                    {AMID[module]}
                except KubeError as error:
                    assert "deadline" not in str(error), error

            sys.meta_path.insert(0, Slow())
            thread = threading.Thread(target=call)
            thread.start()
            assert amid.wait(10)
            process = os.fork()
            if process == 0:
                call()
                os._exit(0)
            give_up = time.monotonic() + 20
            while (ended := os.waitpid(process, os.WNOHANG)) == (0, 0) and time.monotonic() < give_up:
                time.sleep(0.01)
            if ended == (0, 0):
                os.kill(process, 9)
            thread.join()
            print(ended != (0, 0) and os.waitstatus_to_exitcode(ended[1]))
        """, server.url, module)
    assert said == "0"


HOSTS = ["a", "A.b.", "a-b_c", "10.0.0.1", "1.2.3", "0x7f.1", "[::1]", "[::ffff:1.2.3.4]", "[1.2.3.4]", "[v1.x]", "[]",
         "[fe80::1%25eth0]", "[fe80::1%eth0]", "[::zz]", "a%41", "a%zz", "a%", "a%00", "ä.example", "☃", "xn--4ca",
         "a,b", "a;b", "a!b", "a~b", "a*b", "a|b", "a\\b", "a..b", "..", "-a", "a" * 64, "a[b", "a]b", "a@b", "$"]


def is_host_of_urllib3(host: str) -> bool:
    try:
        return parse_url(f"https://{host}:6443").host is not None
    except LocationParseError:
        return False


def accepted(host: str) -> bool:
    try:
        return bool(Config(cluster_url=f"https://{host}:6443").cluster_url)
    except ConfigError:
        return False


@pytest.mark.parametrize("host", HOSTS)
def test_a_host_that_urllib3_refuses_is_refused_by_the_configuration(host: str) -> None:
    assert not accepted(host) or is_host_of_urllib3(host)


@given(st.text("abvAZ09.-_~%[]:!,;=\\ä", min_size=1, max_size=8))
def test_so_is_any_other(host: str) -> None:
    assert not accepted(host) or is_host_of_urllib3(host)


@pytest.mark.parametrize("host", ["a.b.", "A-b_c", "10.0.0.1", "[::1]", "[fd00::1]", "[fe80::1%25eth0]", "ä.example"])
def test_usual_hosts_are_taken(host: str) -> None:
    assert accepted(host)
    assert is_host_of_urllib3(host)
