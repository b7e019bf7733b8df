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

from kubectl_runtime import Config, ConfigError, NotConfiguredError
from kubectl_runtime.client.auth import FixedCredentials, TokenFile
from kubectl_runtime.client.exec_plugin import ExecCredentials

PEM = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
KEY = b"-----BEGIN PRIVATE KEY-----\nGEHEIM\n-----END PRIVATE KEY-----\n"


def document(name: str = "c", *, server: str = "https://h:6443", user: dict[str, Any] | None = None,
             cluster: dict[str, Any] | None = None, context: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Config", "current-context": name,
            "clusters": [{"name": name, "cluster": {"server": server, **(cluster or {})}}],
            "users": [{"name": name, "user": user or {}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name, **(context or {})}}], **more}


def write(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


def load(tmp_path: Path, content: Any, context: str | None = None) -> Config:
    return Config.from_kubeconfig(write(tmp_path / "config", content), context)


class TestFiles:
    def test_several_files_are_merged_and_missing_ones_skipped(self, tmp_path: Path) -> None:
        a, b = write(tmp_path / "a", document("a", server="https://a")), write(tmp_path / "b", document("b", server="https://b"))
        environ = {"KUBECONFIG": os.pathsep.join([str(a), "", str(tmp_path / "missing"), str(b)])}
        assert Config.infer(environ=environ).cluster_url == "https://a"
        assert Config.infer(environ=environ, context="b").cluster_url == "https://b"

    def test_the_first_definition_of_a_name_wins(self, tmp_path: Path) -> None:
        a, b = write(tmp_path / "a", document(server="https://a")), write(tmp_path / "b", document(server="https://b"))
        assert Config.infer(environ={"KUBECONFIG": f"{a}{os.pathsep}{b}"}).cluster_url == "https://a"

    def test_a_file_of_nulls_is_empty(self, tmp_path: Path) -> None:
        nulls = write(tmp_path / "nulls", {"apiVersion": "v1", "kind": "Config", "clusters": None, "users": None,
                                           "contexts": None, "current-context": None})
        real = write(tmp_path / "real", document())
        assert Config.infer(environ={"KUBECONFIG": f"{nulls}{os.pathsep}{real}"}).cluster_url == "https://h:6443"
        with pytest.raises(ConfigError, match="no current-context"):
            Config.from_kubeconfig(nulls)

    def test_relative_paths_count_from_their_own_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "ca.pem").write_bytes(PEM)
        write(tmp_path / "a" / "config", document("a", cluster={"certificate-authority": "ca.pem"}, user={"tokenFile": "./t"}))
        write(tmp_path / "b" / "config", document("b", cluster={"certificate-authority": "ca.pem"}))
        monkeypatch.chdir(tmp_path)
        environ = {"KUBECONFIG": os.pathsep.join(["a/config", "b/config"])}
        a, b = Config.infer(environ=environ, context="a"), Config.infer(environ=environ, context="b")
        monkeypatch.chdir("/")
        assert (a.ca_file, a.token_file) == (str(tmp_path / "a" / "ca.pem"), str(tmp_path / "a" / "t"))
        assert b.ca_file == str(tmp_path / "b" / "ca.pem")
        assert a.ca()[0] == PEM

    def test_an_exec_command_is_resolved_only_when_it_is_a_path(self, tmp_path: Path) -> None:
        def command(text: str) -> str:
            plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": text, "args": None, "env": None}
            auth = load(tmp_path, document(user={"exec": plugin})).auth
            assert isinstance(auth, ExecCredentials)
            return repr(auth)

        assert command("./bin/plugin") == f"<exec plugin {tmp_path}/bin/plugin>"
        assert command("plugin") == "<exec plugin plugin>"

    @pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
    def test_byte_order_marks_are_understood(self, tmp_path: Path, encoding: str) -> None:
        path = tmp_path / "config"
        path.write_bytes(yaml.safe_dump(document()).encode(encoding))
        assert Config.from_kubeconfig(path).cluster_url == "https://h:6443"

    def test_several_documents_of_a_file_are_merged(self, tmp_path: Path) -> None:
        text = yaml.safe_dump(document("a")) + "---\n" + yaml.safe_dump(document("b", server="https://b"))
        assert load(tmp_path, text, "b").cluster_url == "https://b"

    @pytest.mark.parametrize(("content", "says"), [
        ("{", "not valid YAML"), ("a: [geheim\nb: }", "not valid YAML"), ("[1]", "not a mapping"),
        ({"kind": "Pod", "apiVersion": "v1"}, "not a kubeconfig"), (document(clusters={}), None),
        (document(clusters={"a": 1}), "clusters is not a list"), (document(contexts=[{"context": {}}]), r"contexts\[0\]"),
        (document(clusters=["x"]), r"clusters\[0\]"), (b"\xff\xfe\xff", None)])
    def test_a_broken_file_is_named_with_its_problem(self, tmp_path: Path, content: Any, says: str | None) -> None:
        path = tmp_path / "config"
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            write(path, content)
        with pytest.raises(ConfigError, match=says or "config") as error:
            Config.from_kubeconfig(path)
        assert str(path) in str(error.value)
        assert "geheim" not in str(error.value)


class TestContexts:
    def test_a_named_context_needs_no_current_one(self, tmp_path: Path) -> None:
        assert load(tmp_path, document("x", **{"current-context": ""}), "x").cluster_url == "https://h:6443"

    @pytest.mark.parametrize("content", [document("x", **{"current-context": ""}), {
        key: value for key, value in document("x").items() if key != "current-context"}])
    def test_without_any_the_known_ones_are_listed(self, tmp_path: Path, content: dict[str, Any]) -> None:
        with pytest.raises(ConfigError, match=r"no current-context.*\(x\)"):
            load(tmp_path, content)

    def test_an_unknown_context_is_an_error_with_the_known_ones(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="no context 'y'; known contexts: x"):
            load(tmp_path, document("x"), "y")

    def test_a_context_without_user_is_anonymous(self, tmp_path: Path) -> None:
        config = load(tmp_path, document(user={"token": "t"}, context={"user": ""}))
        assert config.credentials() is None

    @pytest.mark.parametrize("what", ["user", "cluster"])
    def test_a_missing_user_or_cluster_is_named(self, tmp_path: Path, what: str) -> None:
        with pytest.raises(ConfigError, match=f"context 'c' refers to {what} 'nobody'"):
            load(tmp_path, document(context={what: "nobody"}))

    @pytest.mark.parametrize(("context", "expected"), [({}, "default"), ({"namespace": "team-a"}, "team-a")])
    def test_the_namespace_is_the_contexts_or_default(self, tmp_path: Path, context: dict[str, str], expected: str) -> None:
        assert load(tmp_path, document(context=context)).default_namespace == expected


class TestContent:
    @pytest.mark.parametrize(("server", "url"), [
        ("https://h:6443/", "https://h:6443"), ("https://h/k8s/clusters/c-1/", "https://h/k8s/clusters/c-1"),
        ("https://[fd00::1]:443", "https://[fd00::1]:443")])
    def test_the_servers_url_loses_its_last_slash_only(self, tmp_path: Path, server: str, url: str) -> None:
        assert load(tmp_path, document(server=server)).cluster_url == url

    def test_a_url_without_scheme_is_https_with_tls_data_and_an_error_without(self, tmp_path: Path) -> None:
        data = {"certificate-authority-data": base64.b64encode(PEM).decode()}
        assert load(tmp_path, document(server="h:6443", cluster=data)).cluster_url == "https://h:6443"
        with pytest.raises(ConfigError, match="no scheme"):
            load(tmp_path, document(server="h:6443"))

    def test_proxy_server_name_and_insecure_are_taken_over(self, tmp_path: Path) -> None:
        config = load(tmp_path, document(cluster={
            "proxy-url": "http://p:1", "tls-server-name": "api.internal", "insecure-skip-tls-verify": True,
            "disable-compression": True}))
        assert (config.proxy_url, config.tls_server_name, config.insecure_skip_tls_verify, config.compression) == (
            "http://p:1", "api.internal", True, False)

    def test_impersonation_is_taken_over(self, tmp_path: Path) -> None:
        who = load(tmp_path, document(user={"as": "jane", "as-groups": ["a", "b"], "as-uid": "1",
                                            "as-user-extra": {"scopes": ["x"]}})).impersonate
        assert who is not None
        assert (who.user, who.groups, who.uid, dict(who.extra)) == ("jane", ("a", "b"), "1", {"scopes": ("x",)})

    def test_keys_are_kept_in_memory_only(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        temporary = tmp_path / "tmp"
        temporary.mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(temporary))
        config = load(tmp_path, document(user={"client-certificate-data": base64.b64encode(PEM).decode(),
                                               "client-key-data": base64.b64encode(KEY).decode()}))
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

    @pytest.mark.parametrize(("user", "header"), [
        ({"token": "t", "username": "u", "password": "p"}, "Bearer t"), ({"username": "u", "password": "p"}, "Basic dTpw"),
        ({"token": "t", "exec": {"command": "x", "apiVersion": "client.authentication.k8s.io/v1"}}, "Bearer t")])
    def test_one_credential_is_used_the_one_of_highest_rank(self, tmp_path: Path, user: dict[str, Any], header: str) -> None:
        credentials = load(tmp_path, document(user=user)).credentials()
        assert credentials is not None
        assert credentials.header() == header

    def test_a_token_file_outranks_the_token_beside_it(self, tmp_path: Path) -> None:
        write(tmp_path / "t", "fresh\n")
        credentials = load(tmp_path, document(user={"token": "old", "tokenFile": "t"})).credentials()
        assert isinstance(credentials, TokenFile)
        assert credentials.header() == "Bearer fresh"

    def test_an_auth_provider_goes_through_the_official_client(self, tmp_path: Path) -> None:
        # A token that is no JWT: the official client does not use it, and says nothing.
        with pytest.raises(ConfigError, match="auth provider 'oidc'"):
            load(tmp_path, document(user={"auth-provider": {"name": "oidc", "config": {"id-token": "x"}}}))
        body = base64.urlsafe_b64encode(b'{"sub": "a"}').decode().rstrip("=")
        config = load(tmp_path, document(user={"auth-provider": {"name": "oidc", "config": {"id-token": f"h.{body}.s"}}}))
        assert config.auth is not None
        assert config.auth.header() == f"Bearer h.{body}.s"

    def test_no_repr_shows_a_secret(self, tmp_path: Path) -> None:
        config = load(tmp_path, document(user={
            "token": "geheim-token", "password": "geheim-word", "username": "u",
            "client-certificate-data": base64.b64encode(PEM).decode(),
            "client-key-data": base64.b64encode(KEY).decode()}))
        for shown in (repr(config), repr(config.certificate()), repr(config.credentials()), str(config)):
            assert "geheim" not in shown.lower()


class TestServiceAccount:
    def pod(self, tmp_path: Path, namespace: str | None = "team-a\n") -> Path:
        (tmp_path / "token").write_text("t\n")
        (tmp_path / "ca.crt").write_bytes(PEM)
        if namespace is not None:
            (tmp_path / "namespace").write_text(namespace)
        return tmp_path

    @pytest.mark.parametrize(("host", "url"), [
        ("10.0.0.1", "https://10.0.0.1:443"), ("fd00::1", "https://[fd00::1]:443"), ("[fd00::1]", "https://[fd00::1]:443"),
        ("kubernetes.default.svc", "https://kubernetes.default.svc:443")])
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


@pytest.mark.parametrize("url", ["", "ftp://h", "https://", "https://u:p@h", "https://h?x=1", "https://h:port", "h:6443"])
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
