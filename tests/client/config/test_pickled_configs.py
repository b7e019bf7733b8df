"""A Config goes to another process: by spawn and by forkserver, whatever its credentials are."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from pathlib import Path
from typing import Any

import pytest

from kubectl_runtime import Config
from kubectl_runtime.client.config.checks import Impersonation
from tests.client.config.test_credentials import V1, pids, script

pytest.importorskip("cryptography", reason="certificates are made with the package cryptography")
from kubectl_runtime.certificates.authority import Authority

FUTURE = "eyJhbGciOiJub25lIn0.eyJleHAiOjQxMDI0NDQ4MDB9.e30"


def kubeconfig(user: dict[str, Any]) -> dict[str, Any]:
    return {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": user}],
    }


def configs(folder: Path) -> dict[str, tuple[Config, str | None]]:
    """Each with the header that it leads to."""
    own = Authority().client("jane")
    for name, content in (("token", b"t"), ("cert", own.certificate), ("key", own.key)):
        (folder / name).write_bytes(content)
    answer = f'{{"apiVersion": "{V1}", "kind": "ExecCredential", "status": {{"token": "e"}}}}'
    plugin = {"command": script(folder, f"print({answer!r})"), "apiVersion": V1, "interactiveMode": "Never"}
    provider = {"name": "oidc", "config": {"id-token": FUTURE}}
    of = Config.from_kubeconfig
    return {
        "exec": (of(kubeconfig({"exec": plugin})), "Bearer e"),
        "provider": (of(kubeconfig({"auth-provider": provider})), f"Bearer {FUTURE}"),
        "token file": (of(kubeconfig({"tokenFile": str(folder / "token")})), "Bearer t"),
        "certificate files": (of(kubeconfig({
            "client-certificate": str(folder / "cert"), "client-key": str(folder / "key")})), None),
        "token": (Config(cluster_url="https://h", token="t", impersonate=Impersonation("jane", extra={"a": ("b",)}),
                         headers={"Cookie": "a", "X-Other": "b"}, proxy_url="http://u:p@h:1"), "Bearer t"),
    }


def seen(config: Config) -> tuple[Any, ...]:
    credentials = config.credentials()
    assert credentials is not None
    return credentials.header(), credentials.certificate(), config.headers, config.proxy_url, repr(config)


def in_another_process(given: list[Config], results: Any) -> None:
    results.put([seen(config) for config in given])


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_config_works_in_another_process(method: str, tmp_path: Path) -> None:
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"this system has no {method}")
    context = multiprocessing.get_context(method)
    results: Any = context.SimpleQueue()
    made = configs(tmp_path)
    given = [config for config, _ in made.values()]
    process = context.Process(target=in_another_process, args=(given, results))
    process.start()
    process.join(60)
    assert process.exitcode == 0
    found = results.get()
    assert found == [seen(config) for config in given]
    assert [each[0] for each in found] == [header for _, header in made.values()]


def test_credentials_in_use_are_pickled_and_copied_as_well(tmp_path: Path) -> None:
    for name, (config, header) in configs(tmp_path).items():
        credentials = config.credentials()
        assert credentials is not None
        assert credentials.header() == header
        for other in (pickle.loads(pickle.dumps(credentials)), copy.deepcopy(credentials),
                      pickle.loads(pickle.dumps(config)).credentials(), copy.deepcopy(config).credentials()):
            assert other.header() == header, name
            assert other is not credentials
    assert len(pids(tmp_path)) == 5  # each runs the plugin itself


def test_secrets_are_secrets_again(tmp_path: Path) -> None:
    config, _ = configs(tmp_path)["token"]
    again = pickle.loads(pickle.dumps(config))
    assert again == config
    for part in (again.token, again.proxy_url, again.headers["Cookie"]):
        assert repr(part) == "<withheld>"
