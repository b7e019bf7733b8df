"""Kubeconfig files: found, merged, checked, and one context selected."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubectl_runtime import Config, ConfigError
from kubectl_runtime.client.config.checks import FollowedFile
from kubectl_runtime.client.config.exec_plugin import ExecCredentials

PEM = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
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


class TestFiles:
    def test_several_files_are_merged_and_missing_ones_skipped(self, tmp_path: Path) -> None:
        a, b = (
            write(tmp_path / "a", document("a", server="https://a")),
            write(tmp_path / "b", document("b", server="https://b")),
        )
        environ = {"KUBECONFIG": os.pathsep.join([str(a), "", str(tmp_path / "missing"), str(b)])}
        assert Config.infer(environ=environ).cluster_url == "https://a"
        assert Config.infer(environ=environ, context="b").cluster_url == "https://b"

    def test_the_first_definition_of_a_name_wins(self, tmp_path: Path) -> None:
        a, b = write(tmp_path / "a", document(server="https://a")), write(tmp_path / "b", document(server="https://b"))
        assert Config.infer(environ={"KUBECONFIG": f"{a}{os.pathsep}{b}"}).cluster_url == "https://a"

    def test_a_file_of_nulls_is_empty(self, tmp_path: Path) -> None:
        nulls = write(
            tmp_path / "nulls",
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": None,
                "users": None,
                "contexts": None,
                "current-context": None,
            },
        )
        real = write(tmp_path / "real", document())
        assert Config.infer(environ={"KUBECONFIG": f"{nulls}{os.pathsep}{real}"}).cluster_url == "https://h:6443"
        with pytest.raises(ConfigError, match="no current-context"):
            Config.from_kubeconfig(nulls)

    def test_relative_paths_count_from_their_own_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "ca.pem").write_bytes(PEM)
        write(
            tmp_path / "a" / "config",
            document("a", cluster={"certificate-authority": "ca.pem"}, user={"tokenFile": "./t"}),
        )
        write(tmp_path / "b" / "config", document("b", cluster={"certificate-authority": "ca.pem"}))
        monkeypatch.chdir(tmp_path)
        environ = {"KUBECONFIG": os.pathsep.join(["a/config", "b/config"])}
        a, b = Config.infer(environ=environ, context="a"), Config.infer(environ=environ, context="b")
        monkeypatch.chdir("/")
        assert (a.ca_file, a.token_file) == (str(tmp_path / "a" / "ca.pem"), str(tmp_path / "a" / "t"))
        assert b.ca_file == str(tmp_path / "b" / "ca.pem")
        source = a.ca()
        assert isinstance(source, FollowedFile)
        assert source.read() == PEM

    def test_an_exec_command_is_resolved_only_when_it_is_a_path(self, tmp_path: Path) -> None:
        def command(text: str) -> str:
            plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": text, "args": None, "env": None}
            plugin["interactiveMode"] = "Never"
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

    @pytest.mark.parametrize(
        ("content", "says"),
        [
            ("{", "not valid YAML"),
            ("a: [geheim\nb: }", "not valid YAML"),
            ("[1]", "not a mapping"),
            ({"kind": "Pod", "apiVersion": "v1"}, "not a kubeconfig"),
            (document(clusters={}), None),
            (document(clusters={"a": 1}), "clusters is a mapping, expected a list"),
            (document(contexts=[{"context": {}}]), "no context 'c'"),
            (document(clusters=["x"]), r"clusters\[0\] is a text, expected a mapping"),
            (b"\xff\xfe\xff", None),
        ],
    )
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

    @pytest.mark.parametrize(
        "content",
        [
            document("x", **{"current-context": ""}),
            {key: value for key, value in document("x").items() if key != "current-context"},
        ],
    )
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
    def test_the_namespace_is_the_contexts_or_default(
        self, tmp_path: Path, context: dict[str, str], expected: str
    ) -> None:
        assert load(tmp_path, document(context=context)).default_namespace == expected
