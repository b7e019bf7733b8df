"""Every field of a kubeconfig with values of every type, and whole ones with something missing: what kubectl makes of
them, and that this library refuses the same.

`kubectl_answers.json` holds what kubectl 1.32 said, so that the comparison also runs where there is none; where there
is one, a test asks it again. To record anew: `python tests/client/config/test_kubectl_table.py`.
"""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kubectl_runtime import Client, Config, ConfigError

ANSWERS = Path(__file__).with_name("kubectl_answers.json")
EXEC = {
    "command": "/bin/true",
    "args": ["a"],
    "env": [{"name": "N", "value": "v"}],
    "apiVersion": "client.authentication.k8s.io/v1",
    "installHint": "hint",
    "provideClusterInfo": True,
    "interactiveMode": "Never",
}
EXTENSIONS = [{"name": "e", "extension": {"a": 1}}]
DATA = "QQ=="
# Nothing listens there, so kubectl ends with "connection refused" when it has nothing to say against the file.
SERVER = "http://127.0.0.1:1"

# The first entry of each section is used; the second, with every field, is not, so that only its types matter.
WHOLE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "c",
    "preferences": {"colors": True, "extensions": EXTENSIONS},
    "extensions": EXTENSIONS,
    "clusters": [
        {"name": "k", "cluster": {"server": SERVER}},
        {
            "name": "other",
            "cluster": {
                "server": SERVER,
                "tls-server-name": "n",
                "insecure-skip-tls-verify": False,
                "certificate-authority": "ca.pem",
                "certificate-authority-data": DATA,
                "proxy-url": "http://p:1",
                "disable-compression": False,
                "extensions": EXTENSIONS,
            },
        },
    ],
    "users": [
        {"name": "u", "user": {}},
        {
            "name": "other",
            "user": {
                "client-certificate": "c.pem",
                "client-certificate-data": DATA,
                "client-key": "k.pem",
                "client-key-data": DATA,
                "token": "t",
                "tokenFile": "t",
                "as": "jane",
                "as-uid": "1",
                "as-groups": ["g"],
                "as-user-extra": {"k": ["v"]},
                "username": "n",
                "password": "p",
                "auth-provider": {"name": "oidc", "config": {"k": "v"}},
                "exec": EXEC,
                "extensions": EXTENSIONS,
            },
        },
    ],
    "contexts": [
        {"name": "c", "context": {"cluster": "k", "user": "u"}},
        {"name": "other", "context": {"cluster": "k", "user": "u", "namespace": "n", "extensions": EXTENSIONS}},
    ],
}
VALUES = {"text": "text", "number": 12, "boolean": True, "list": ["text"], "mapping": {"text": "text"}, "null": None}

STRICTER = {
    "current-context: null": "kubectl goes to localhost:8080",
    "clusters: null": "kubectl goes to localhost:8080",
    "users: null": "kubectl goes on as nobody",
    "cluster: insecure beside a CA": "the CA would be left unused; kubectl refuses it over https only",
    "cluster: server missing": "kubectl goes to localhost:8080",
    "cluster: server null": "kubectl goes to localhost:8080",
    "cluster: server of another scheme": "kubectl fails at the first request",
    "cluster: server without scheme": "kubectl takes http; without TLS data nobody knows",
    "cluster: server with a query": "kubectl drops it",
    "cluster: server with a user": "kubectl drops it",
    "cluster: CA is a folder": "kubectl fails at the first request over https",
    "cluster: CA data as numbers": "a list of bytes, which Go's decoder takes and nobody writes",
    "cluster: proxy without host": "kubectl fails at the first request",
    "context: unknown user": "kubectl goes on as nobody",
    "context: unknown cluster": "kubectl goes to localhost:8080",
    "context: no cluster": "kubectl goes to localhost:8080",
    "context: none is current": "kubectl goes to localhost:8080",
    "empty text": "kubectl goes to localhost:8080",
    "user: exec with a terminal": "a library has none to offer",
    "user: exec of a version unknown": "kubectl fails at the first request",
    "user: exec of v1alpha1": "kubectl fails at the first request",
    "user: provider gcp unknown": "kubectl fails at the first request",
    "user: provider without a name": "kubectl fails at the first request",
    "user: a token with a line break": "no header can carry it; kubectl fails at the first request",
    "user: env name with =": "no environment can hold it",
    "two documents, the second is wrong": "all documents of a file are read, as by kube-rs",
}
"""What kubectl takes and this library refuses, with the reason."""


def places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    if path:
        yield path
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in pairs:
        yield from places(child, (*path, key))


def with_value(path: tuple[str | int, ...], value: Any) -> dict[str, Any]:
    made = copy.deepcopy(WHOLE)
    at: Any = made
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return made


def types() -> Iterator[tuple[str, str]]:
    for path in places(WHOLE):
        if path[1:2] == (0,) and len(path) > 1 and path[0] in ("clusters", "users", "contexts"):
            continue  # the used entries are the matter of `wholes`
        for name, value in VALUES.items():
            yield f"{'.'.join(map(str, path))}: {name}", json.dumps(with_value(path, value))


def small(**changes: Any) -> dict[str, Any]:
    return {
        "current-context": "c",
        "clusters": [{"name": "k", "cluster": {"server": SERVER}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        **changes,
    }


def wholes() -> Iterator[tuple[str, str]]:
    def user(name: str, /, **fields: Any) -> tuple[str, str]:
        return f"user: {name}", json.dumps(small(users=[{"name": "u", "user": fields}]))

    def plugin(name: str, /, **fields: Any) -> tuple[str, str]:
        # With a token, or kubectl would run the plugin.
        return user(f"exec {name}", token="t", exec={**EXEC, **fields})

    def cluster(name: str, /, **fields: Any) -> tuple[str, str]:
        content = {"server": SERVER, **{key.replace("_", "-"): value for key, value in fields.items()}}
        return f"cluster: {name}", json.dumps(small(clusters=[{"name": "k", "cluster": content}]))

    def context(name: str, **fields: Any) -> tuple[str, str]:
        return f"context: {name}", json.dumps(small(contexts=[{"name": "c", "context": fields}]))

    def provider(name: str, value: Any) -> tuple[str, str]:
        return user(f"provider {name}", **{"auth-provider": value})

    def scalar(field: str, text: str) -> tuple[str, str]:
        base = small(clusters=[{"name": "k", "cluster": {"server": SERVER}}, {"name": "x", "cluster": {field: "@"}}])
        return f"cluster: {field} is {text}", json.dumps(base).replace('"@"', text)

    for text in ('"false"', '"no"', '"0"', "0", "no", "off", "n", "False", "~", "!!str no", "[]"):
        yield scalar("insecure-skip-tls-verify", text)
        yield scalar("disable-compression", text)
    for text in ("2001-02-03", "0x10", "1e3", "1_000", "yes", "~", "=", "'12'", "!!str 12", ".inf", "1:30"):
        yield scalar("tls-server-name", text)
    yield user("none")
    yield user("token and basic", token="t", username="n", password="p")
    yield user("only a password", password="p")
    yield user("a token with a line break", token="a\nb")
    yield user("a token file that is missing", tokenFile="/nowhere/token")
    yield user("groups without as", **{"as-groups": ["g"]})
    yield user("uid without as", **{"as-uid": "1"})
    yield user("extra without as", **{"as-user-extra": {"k": ["v"]}})
    yield user("no groups without as", **{"as-groups": [], "as-user-extra": {}, "as-uid": ""})
    yield user("groups as a text", **{"as": "jane", "as-groups": "admins"})
    yield user("a certificate without key", **{"client-certificate-data": DATA})
    yield user("a key without certificate", **{"client-key-data": DATA})
    yield user("certificate file and data", **{
        "client-certificate": "/dev/null", "client-certificate-data": DATA, "client-key-data": DATA})
    yield user("key file and data", **{
        "client-certificate-data": DATA, "client-key": "/dev/null", "client-key-data": DATA})
    yield user("files that are missing", **{"client-certificate": "/nowhere/c", "client-key": "/nowhere/k"})
    yield user("exec null", exec=None)
    yield user("exec empty", token="t", exec={})
    yield plugin("whole")
    yield plugin("of v1 without a mode", interactiveMode=None)
    yield plugin("of v1beta1 without a mode", apiVersion="client.authentication.k8s.io/v1beta1", interactiveMode=None)
    yield plugin("of v1alpha1", apiVersion="client.authentication.k8s.io/v1alpha1")
    yield plugin("of a version unknown", apiVersion="v9")
    yield plugin("of no version", apiVersion="")
    yield plugin("with an unknown mode", interactiveMode="Sometimes")
    yield plugin("with a terminal", interactiveMode="Always")
    yield plugin("without command", command="")
    yield plugin("env without a name", env=[{}])
    yield plugin("env null", env=None, args=None)
    yield plugin("arguments as a text", args="a b")
    yield "user: env name with =", plugin("", env=[{"name": "A=B", "value": "c"}])[1]
    yield user("exec and provider", exec=EXEC, **{"auth-provider": {"name": "oidc"}})
    yield provider("oidc", {"name": "oidc", "config": {}})
    yield provider("gcp unknown", {"name": "azure"})
    yield provider("without a name", {})
    yield cluster("server missing", server="")
    yield cluster("server null", server=None)
    yield cluster("server without scheme", server="127.0.0.1:1")
    yield cluster("server of another scheme", server="ftp://127.0.0.1:1")
    yield cluster("server with a query", server=f"{SERVER}?a=b")
    yield cluster("server with a user", server="http://u:p@127.0.0.1:1")
    yield cluster("server with a blank", server=f"{SERVER} ")
    yield cluster("server cut short", server="https://[x")
    yield cluster("CA file and data", certificate_authority="/dev/null", certificate_authority_data=DATA)
    yield cluster("CA file missing", certificate_authority="/nowhere/ca")
    yield cluster("CA is a folder", certificate_authority="/tmp")
    yield cluster("CA data empty", certificate_authority_data="")
    yield cluster("CA data with a blank", certificate_authority_data="Q Q==")
    yield cluster("CA data with a line break", certificate_authority_data="Q\nQ==")
    yield cluster("CA data without padding", certificate_authority_data="QQ")
    yield cluster("CA data as PEM", certificate_authority_data="-----BEGIN CERTIFICATE-----")
    yield cluster("CA data as numbers", certificate_authority_data=[1, 2])
    yield cluster("CA data rubbish over https", server="https://127.0.0.1:1", certificate_authority_data=DATA)
    yield cluster("insecure beside a CA", certificate_authority_data=DATA, insecure_skip_tls_verify=True)
    yield cluster("insecure beside a CA over https", server="https://127.0.0.1:1", certificate_authority_data=DATA,
                  insecure_skip_tls_verify=True)
    yield cluster("proxy without scheme", proxy_url="p:1")
    yield cluster("proxy that is a number", proxy_url="12")
    yield cluster("proxy of another scheme", proxy_url="ftp://p")
    yield cluster("proxy socks5h", proxy_url="socks5h://127.0.0.1:1")
    yield cluster("proxy without host", proxy_url="http://")
    yield cluster("proxy with a blank", proxy_url="http://a b")
    yield cluster("an extension twice", extensions=EXTENSIONS * 2)
    yield context("empty user", cluster="k", user="")
    yield context("unknown user", cluster="k", user="nobody")
    yield context("unknown cluster", cluster="nowhere", user="u")
    yield context("no cluster", user="u")
    yield "context: none is current", json.dumps(small(**{"current-context": ""}))
    yield "context: the current one is missing", json.dumps(small(**{"current-context": "nope"}))
    base = small()
    yield "a name twice", json.dumps(small(clusters=base["clusters"] * 2))
    yield "no names beside", json.dumps(small(
        clusters=[*base["clusters"], {"cluster": {}}], users=[*base["users"], None], contexts=[*base["contexts"], {}]))
    yield "two entries without names", json.dumps(small(users=[*base["users"], {}, None]))
    yield "an unused user with half a plugin", json.dumps(
        small(users=[*base["users"], {"name": "x", "user": {"exec": {}}}]))
    yield "another kind", json.dumps(small(kind="Pod"))
    yield "another version", json.dumps(small(apiVersion="v2"))
    yield "empty kind and version", json.dumps(small(kind="", apiVersion=""))
    yield "other case of a field", json.dumps(small(Users=5))
    yield "unknown fields", json.dumps(small(colour="blue"))
    yield "a key twice", json.dumps(small())[:-1] + ', "current-context": "c"}'
    yield "two documents", json.dumps(small()) + "\n---\nkind: Config\n"
    yield "two documents, the second is wrong", json.dumps(small()) + "\n---\nkind: Pod\n"
    yield "a list", "[1]"
    yield "a text", "hello"
    yield "broken YAML", "{"
    yield "empty text", ""


CASES = dict([*types(), *wholes()])


def kubectl_accepts(text: str) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "config")
        path.write_text(text)
        done = subprocess.run(
            ["kubectl", "--kubeconfig", str(path), "get", "--raw", "/version", "--request-timeout=5s"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode, "something answers there"
    return not done.stderr.lower().startswith(("error:", "error in configuration"))


def we_accept(path: Path) -> bool:
    try:
        Client(Config.from_kubeconfig(path)).close()
    except ConfigError as error:
        if str(path) not in str(error):
            pytest.fail(f"an error that does not name the file: {error}")
        return False
    return True


def recorded() -> dict[str, bool]:
    answers: dict[str, bool] = json.loads(ANSWERS.read_text())
    return answers


def test_every_case_has_an_answer_and_every_exception_a_case() -> None:
    assert set(recorded()) == set(CASES)
    assert set(STRICTER) <= set(CASES)


def test_what_kubectl_refuses_is_refused_and_what_it_accepts_accepted(tmp_path: Path) -> None:
    answers, path, wrong = recorded(), tmp_path / "config", []
    for name, text in CASES.items():
        path.write_text(text)
        expected = answers[name] and name not in STRICTER
        assert answers[name] or name not in STRICTER, f"{name} is no exception: kubectl refuses it too"
        if we_accept(path) != expected:
            wrong.append(f"{name}: {'accepted' if not expected else 'refused'}")
    assert wrong == []


def test_a_wrong_type_is_an_error_that_names_file_and_field_and_never_the_value(tmp_path: Path) -> None:
    path = tmp_path / "config"
    for place in places(WHOLE):
        for value in ({"geheim": {"geheim": []}}, [["geheim"]], 4711):
            path.write_text(json.dumps(with_value(place, value)))
            try:
                Config.from_kubeconfig(path)
            except ConfigError as error:
                said = str(error)
                assert str(path) in said
                assert "geheim" not in said
                assert "4711" not in said


@pytest.mark.kubectl
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("every", [49, pytest.param(7, marks=pytest.mark.long)])
def test_kubectl_still_says_what_was_recorded(every: int) -> None:
    version = subprocess.run(["kubectl", "version", "--client"], capture_output=True, text=True, check=True).stdout
    if "v1.32." not in version:
        pytest.skip("another version than the one that was recorded")
    names = list(CASES)[::every]  # each costs a tenth of a second; recording asks for all
    with ThreadPoolExecutor(2) as pool:
        said = dict(zip(names, pool.map(lambda name: kubectl_accepts(CASES[name]), names), strict=True))
    answers = recorded()
    assert said == {name: answers[name] for name in names}


if __name__ == "__main__":
    with ThreadPoolExecutor(2) as asking:
        results = dict(zip(CASES, asking.map(kubectl_accepts, CASES.values()), strict=True))
    ANSWERS.write_text(json.dumps(results, indent=0) + "\n")
    sys.exit(f"{len(results)} answers, {sum(results.values())} accepted")
