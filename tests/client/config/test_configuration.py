"""Config: kubeconfig files, the Pod's service account, and what is said when neither is there."""

from __future__ import annotations

import base64
import logging
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubectl_runtime import Config, ConfigError
from kubectl_runtime.client.config.auth import FixedCredentials, TokenFile
from kubectl_runtime.errors import NotConfiguredError

PEM = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
EXEC = {"command": "x", "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never"}
KEY = b"-----BEGIN PRIVATE KEY-----\nGEHEIM\n-----END PRIVATE KEY-----\n"


def document(
    name: str = "c",
    *,
    server: str = "https://h:6443",
    user: dict[str, Any] | None = None,
    cluster: dict[str, Any] | None = None,
    context: dict[str, Any] | None = None,
    **more: Any,
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": {"server": server, **(cluster or {})}}],
        "users": [{"name": name, "user": user or {}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, **(context or {})}}],
        **more,
    }


def write(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


def load(tmp_path: Path, content: Any, context: str | None = None) -> Config:
    return Config.from_kubeconfig(write(tmp_path / "config", content), context)


class TestContent:
    @pytest.mark.parametrize(
        ("server", "url"),
        [
            ("https://h:6443/", "https://h:6443"),
            ("https://h/k8s/clusters/c-1/", "https://h/k8s/clusters/c-1"),
            ("https://[fd00::1]:443", "https://[fd00::1]:443"),
        ],
    )
    def test_the_servers_url_loses_its_last_slash_only(self, tmp_path: Path, server: str, url: str) -> None:
        assert load(tmp_path, document(server=server)).cluster_url == url

    def test_a_url_without_scheme_is_https_with_tls_data_and_an_error_without(self, tmp_path: Path) -> None:
        data = {"certificate-authority-data": base64.b64encode(PEM).decode()}
        assert load(tmp_path, document(server="h:6443", cluster=data)).cluster_url == "https://h:6443"
        with pytest.raises(ConfigError, match="no scheme"):
            load(tmp_path, document(server="h:6443"))

    def test_proxy_server_name_and_insecure_are_taken_over(self, tmp_path: Path) -> None:
        config = load(
            tmp_path,
            document(
                cluster={
                    "proxy-url": "http://p:1",
                    "tls-server-name": "api.internal",
                    "insecure-skip-tls-verify": True,
                    "disable-compression": True,
                }
            ),
        )
        assert (config.proxy_url, config.tls_server_name, config.insecure_skip_tls_verify, config.compression) == (
            "http://p:1",
            "api.internal",
            True,
            False,
        )

    def test_impersonation_is_taken_over(self, tmp_path: Path) -> None:
        who = load(
            tmp_path,
            document(user={"as": "jane", "as-groups": ["a", "b"], "as-uid": "1", "as-user-extra": {"scopes": ["x"]}}),
        ).impersonate
        assert who is not None
        assert (who.user, who.groups, who.uid, dict(who.extra)) == ("jane", ("a", "b"), "1", {"scopes": ("x",)})

    def test_keys_are_kept_in_memory_only(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        temporary = tmp_path / "tmp"
        temporary.mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(temporary))
        config = load(
            tmp_path,
            document(
                user={
                    "client-certificate-data": base64.b64encode(PEM).decode(),
                    "client-key-data": base64.b64encode(KEY).decode(),
                }
            ),
        )
        certificate = config.certificate()
        assert certificate is not None
        assert (certificate.certificate, certificate.key) == (PEM, KEY)
        assert list(temporary.iterdir()) == []

    def test_half_an_identity_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="both the certificate and its key"):
            load(tmp_path, document(user={"client-certificate-data": base64.b64encode(PEM).decode()}))

    def test_bad_base64_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="certificate-authority-data is not base64"):
            load(tmp_path, document(cluster={"certificate-authority-data": "!!"}))

    @pytest.mark.parametrize(
        ("user", "header"),
        [
            ({"token": "t", "exec": EXEC}, "Bearer t"),
            ({"username": "u", "password": "p", "exec": EXEC}, "Basic dTpw"),
            ({"password": "p"}, "Basic OnA="),
            ({"token": "t", "auth-provider": {"name": "oidc"}}, "Bearer t"),
        ],
    )
    def test_one_credential_is_used_the_one_of_highest_rank(
        self, tmp_path: Path, user: dict[str, Any], header: str
    ) -> None:
        credentials = load(tmp_path, document(user=user)).credentials()
        assert credentials is not None
        assert credentials.header() == header

    def test_a_token_file_outranks_the_token_beside_it(self, tmp_path: Path) -> None:
        write(tmp_path / "t", "fresh\n")
        credentials = load(tmp_path, document(user={"token": "old", "tokenFile": "t"})).credentials()
        assert isinstance(credentials, TokenFile)
        assert credentials.header() == "Bearer fresh"

    def test_no_repr_shows_a_secret(self, tmp_path: Path) -> None:
        config = load(
            tmp_path,
            document(
                user={
                    "token": "geheim-token",
                    "client-certificate-data": base64.b64encode(PEM).decode(),
                    "client-key-data": base64.b64encode(KEY).decode(),
                }
            ),
        )
        for shown in (repr(config), repr(config.certificate()), repr(config.credentials()), str(config)):
            assert "geheim" not in shown.lower()


class TestServiceAccount:
    def pod(self, tmp_path: Path, namespace: str | None = "team-a\n") -> Path:
        (tmp_path / "token").write_text("t\n")
        (tmp_path / "ca.crt").write_bytes(PEM)
        if namespace is not None:
            (tmp_path / "namespace").write_text(namespace)
        return tmp_path

    @pytest.mark.parametrize(
        ("host", "url"),
        [
            ("10.0.0.1", "https://10.0.0.1:443"),
            ("fd00::1", "https://[fd00::1]:443"),
            ("[fd00::1]", "https://[fd00::1]:443"),
            ("kubernetes.default.svc", "https://kubernetes.default.svc:443"),
        ],
    )
    def test_the_url_comes_from_the_environment(self, tmp_path: Path, host: str, url: str) -> None:
        environ = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": "443"}
        config = Config.incluster(environ=environ, folder=self.pod(tmp_path))
        assert config.cluster_url == url
        assert not config.trust_env

    @pytest.mark.parametrize(("namespace", "expected"), [("team-a\n", "team-a"), (None, "default"), ("", "default")])
    def test_the_namespace_comes_from_its_file(self, tmp_path: Path, namespace: str | None, expected: str) -> None:
        environ = {"KUBERNETES_SERVICE_HOST": "h", "KUBERNETES_SERVICE_PORT": "443"}
        assert Config.incluster(environ=environ, folder=self.pod(tmp_path, namespace)).default_namespace == expected

    def test_a_pod_without_mounted_token_is_an_error_that_says_so(self, tmp_path: Path) -> None:
        environ = {"KUBERNETES_SERVICE_HOST": "h", "KUBERNETES_SERVICE_PORT": "443"}
        with pytest.raises(ConfigError, match="not mounted") as error:
            Config.incluster(environ=environ, folder=tmp_path)
        assert not isinstance(error.value, NotConfiguredError)


class TestNothing:
    def test_everything_that_was_tried_is_named_with_the_remedy(self, tmp_path: Path) -> None:
        environ = {"KUBECONFIG": os.pathsep.join([str(tmp_path / "a"), str(tmp_path / "b")])}
        with pytest.raises(NotConfiguredError) as error:
            Config.infer(environ=environ)
        for part in ("$KUBECONFIG", str(tmp_path / "a"), str(tmp_path / "b"), "KUBERNETES_SERVICE_HOST", "cluster_url"):
            assert part in str(error.value)

    def test_the_default_file_is_tried_without_kubeconfig(self, tmp_path: Path) -> None:
        with pytest.raises(NotConfiguredError, match="does not exist"):
            Config.infer(environ={"HOME": str(tmp_path)})
        write(tmp_path / ".kube" / "config", document(server="https://home"))
        assert Config.infer(environ={"HOME": str(tmp_path)}).cluster_url == "https://home"

    def test_an_empty_file_counts_as_none(self, tmp_path: Path) -> None:
        write(tmp_path / ".kube" / "config", "# nothing here\n")
        with pytest.raises(NotConfiguredError, match="is empty"):
            Config.infer(environ={"HOME": str(tmp_path)})

    def test_a_broken_file_is_not_passed_over(self, tmp_path: Path) -> None:
        write(tmp_path / ".kube" / "config", "{")
        with pytest.raises(ConfigError, match="not valid YAML") as error:
            Config.infer(environ={"HOME": str(tmp_path)})
        assert not isinstance(error.value, NotConfiguredError)

    def test_a_named_file_that_is_missing_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(NotConfiguredError, match="missing"):
            Config.from_kubeconfig(tmp_path / "missing")


@pytest.mark.parametrize(
    "url", ["", "ftp://h", "https://", "https://u:p@h", "https://h?x=1", "https://h:port", "h:6443"]
)
def test_impossible_urls_are_refused(url: str) -> None:
    with pytest.raises(ConfigError) as error:
        Config(cluster_url=url)
    assert "u:p" not in str(error.value)


def test_loading_logs_no_secret(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    load(tmp_path, document(user={"token": "geheim"}))
    assert "geheim" not in caplog.text


def test_the_explicit_token_outranks_everything_of_the_file() -> None:
    credentials = Config(cluster_url="https://h", token="t", username="u", password="p").credentials()
    assert isinstance(credentials, FixedCredentials)
    assert credentials.header() == "Bearer t"
