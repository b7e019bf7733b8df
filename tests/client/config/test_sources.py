"""Where a Config comes from: files, a mapping, a text, the Pod; what is laid over it; and the types of its fields."""

from __future__ import annotations

import base64
import dataclasses
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kubectl_runtime import Client, Config, ConfigError, RequestError
from kubectl_runtime.client.config import kubeconfig
from kubectl_runtime.client.config.auth import TokenFile
from kubectl_runtime.client.config.checks import Impersonation
from kubectl_runtime.client.config.config import UNLIMITED
from kubectl_runtime.errors import AuthError, NotConfiguredError

ROOT = Path(__file__).parents[3]


def document(name: str = "c", server: str = "https://h:6443", **user: Any) -> dict[str, Any]:
    return {
        "current-context": name,
        "clusters": [{"name": name, "cluster": {"server": server}}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
    }


def write(path: Path, content: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    return path


class TestKubeconfigs:
    def test_a_mapping_and_a_text_are_as_good_as_a_file(self) -> None:
        assert Config.from_kubeconfig(document(token="t")).token == "t"
        assert Config.from_kubeconfig(text=json.dumps(document(token="t"))).token == "t"
        assert Config.from_kubeconfig(text=json.dumps(document()).encode("utf-16")).cluster_url == "https://h:6443"

    def test_errors_in_a_mapping_and_a_text_name_it_and_the_field(self) -> None:
        wrong = document(token=12345)
        said = r"users\[0\].user.token is a number, expected a text"
        with pytest.raises(ConfigError, match=f"kubeconfig mapping: {said}"):
            Config.from_kubeconfig(wrong)
        with pytest.raises(ConfigError, match=f"kubeconfig text: {said}"):
            Config.from_kubeconfig(text=json.dumps(wrong))

    def test_several_files_are_merged_the_first_definition_wins_whole(self, tmp_path: Path) -> None:
        a = write(tmp_path / "a", document(server="https://a", token="t"))
        b = write(tmp_path / "b", document(server="https://b", **{"as": "jane"}))
        config = Config.from_kubeconfig([a, tmp_path / "missing", b])
        assert (config.cluster_url, config.token, config.impersonate) == ("https://a", "t", None)

    def test_an_error_names_the_file_of_several_that_it_is_in(self, tmp_path: Path) -> None:
        a, b = write(tmp_path / "a", document("a")), write(tmp_path / "b", document("b", **{"as-groups": ["g"]}))
        assert Config.from_kubeconfig([a, b]).cluster_url == "https://h:6443"
        with pytest.raises(ConfigError, match=f"{b}: users\\[0\\].user.as-groups needs a user to act as"):
            Config.from_kubeconfig([a, b], "b")

    def test_a_token_that_the_caller_gives_outranks_the_kubeconfigs_user_and_password(self) -> None:
        config = replace(Config.from_kubeconfig(document(username="u", password="p")), token="t")
        credentials = config.credentials()
        assert credentials is not None
        assert credentials.header() == "Bearer t"

    def test_a_text_beside_a_source_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="not both"):
            Config.from_kubeconfig(tmp_path / "a", text="")

    def test_its_repr_shows_no_secret(self) -> None:
        made = kubeconfig.Kubeconfig.from_dict(document(token="geheim", password="geheim"))
        assert "geheim" not in repr(made)
        assert "geheim" not in repr(made.users)

    @pytest.mark.parametrize(("cluster", "user", "said"), [
        ({"server": "ftp://h"}, {}, r"clusters\[0\].cluster.server: the server URL"),
        ({"server": "h:6443"}, {}, r"clusters\[0\].cluster.server: the server URL 'h:6443' has no scheme"),
        ({"server": "https://geheim@h"}, {}, r"clusters\[0\].cluster.server: the server URL must not contain a user"),
        ({"server": "https://h?a=geheim"}, {}, r"clusters\[0\].cluster.server: "),
        ({"server": "https://h\n"}, {}, r"clusters\[0\].cluster.server: "),
        ({"server": f"https://{'a' * 70}.example"}, {}, r"clusters\[0\].cluster.server: the server URL"),
        ({"tls-server-name": "a b"}, {}, r"clusters\[0\].cluster: tls-server-name must be a host name, not 'a b'"),
        ({"proxy-url": "http://u:geheim@[p"}, {}, r"clusters\[0\].cluster.proxy-url is not a proxy URL"),
        ({"proxy-url": "ftp://p"}, {}, r"clusters\[0\].cluster.proxy-url must begin with"),
        ({}, {"username": "a:b", "password": "geheim"}, r"users\[0\].user.username and password cannot be used"),
        ({}, {"token": "geheim\nx"}, r"users\[0\].user.token cannot be used"),
        ({}, {"as": "jane\r\nX-Evil: geheim"}, r"users\[0\].user.as cannot be sent in a header"),
        ({}, {"as": " jane"}, r"users\[0\].user.as begins or ends with a blank"),
        ({}, {"as": "jane", "as-groups": ["a", ""]}, r"users\[0\].user.as-groups\[1\] is empty"),
        ({}, {"as": "jane", "as-groups": [None]}, r"users\[0\].user.as-groups\[0\] is empty"),
        ({}, {"as": "jane", "as-groups": ["g\t"]}, r"users\[0\].user.as-groups\[0\] begins or ends"),
        ({}, {"as": "jane", "as-uid": "1\n"}, r"users\[0\].user.as-uid cannot be sent in a header"),
        ({}, {"as": "jane", "as-user-extra": {"": ["v"]}}, r"users\[0\].user.as-user-extra has the key ''"),
        ({}, {"as": "jane", "as-user-extra": {"k": ["v", "\0"]}}, r"as-user-extra\['k'\]\[1\] cannot be sent"),
    ], ids=str)
    def test_what_cannot_work_is_an_error_that_names_file_and_field_and_no_secret(
            self, tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any], said: str) -> None:
        content = document(**user)
        content["clusters"][0]["cluster"].update(cluster)
        path = write(tmp_path / "config", content)
        with pytest.raises(ConfigError, match=f"{path}: {said}" if "as-user-extra\\[" not in said else said) as error:
            Config.from_kubeconfig(path)
        assert str(path) in str(error.value)
        assert "geheim" not in str(error.value)

    @pytest.mark.parametrize("depth", [200, 100_000])
    def test_a_text_that_is_nested_deeply_is_an_error(self, depth: int) -> None:
        with pytest.raises(ConfigError):
            Config.from_kubeconfig(text="[" * depth)


POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


class TestHome:
    @pytest.fixture
    def account(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("token", "ca.crt"):
            (tmp_path / name).write_text("x")
        made = Config.incluster.__func__  # type: ignore[attr-defined]
        monkeypatch.setattr(
            Config, "incluster", classmethod(lambda cls, *, environ: made(cls, environ=environ, folder=tmp_path)))

    @pytest.fixture
    def forbidden(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(path: Path, *arguments: Any) -> Any:
            if path.parts[:2] == ("/", "root"):
                raise PermissionError(13, "Permission denied", str(path))
            return opened(path, *arguments)

        opened = Path.open
        monkeypatch.setattr(Path, "open", refuse)

    @pytest.mark.usefixtures("account", "forbidden")
    def test_in_a_pod_a_home_that_may_not_be_entered_is_a_warning_and_the_account_is_used(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        config = Config.infer(environ={"HOME": "/root", **POD})
        assert config.cluster_url == "https://10.0.0.1:443"
        assert "/root/.kube/config: Permission denied" in caplog.text

    @pytest.mark.usefixtures("account", "forbidden")
    @pytest.mark.parametrize("environ", [{"HOME": "/root"}, {"KUBECONFIG": "/root/x", **POD}])
    def test_elsewhere_and_for_a_file_that_was_named_it_is_an_error(self, environ: dict[str, str]) -> None:
        with pytest.raises(ConfigError, match="cannot read the kubeconfig /root"):
            Config.infer(environ=environ)

    @pytest.mark.usefixtures("account")
    def test_without_any_home_the_account_is_used_or_the_error_says_so(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os.path, "expanduser", lambda path: path)
        assert Config.infer(environ=POD).cluster_url == "https://10.0.0.1:443"
        with pytest.raises(NotConfiguredError, match="no home folder is known"):
            Config.infer(environ={})

    def test_a_home_that_nobody_knows_in_a_path_is_an_error(self) -> None:
        with pytest.raises(ConfigError, match=r"~nobody-of-this-name/x.*no home folder is known"):
            Config.infer(environ={"KUBECONFIG": "~nobody-of-this-name/x"})

    def test_the_pods_namespace_is_utf8_in_every_locale(self, tmp_path: Path) -> None:
        for name in ("token", "ca.crt"):
            (tmp_path / name).write_text("x")
        (tmp_path / "namespace").write_bytes("jänner\n".encode())
        code = (
            "import sys; from pathlib import Path; from kubectl_runtime import Config\n"
            "config = Config.incluster(environ={'KUBERNETES_SERVICE_HOST': 'h', 'KUBERNETES_SERVICE_PORT': '1'},\n"
            "                          folder=Path(sys.argv[1]))\n"
            "assert config.default_namespace == 'j\\u00e4nner', ascii(config.default_namespace)\n"
        )
        environ = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
        done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, env=environ, text=True,
                              capture_output=True, check=False)
        assert done.returncode == 0, done.stderr

    def test_a_pods_namespace_that_cannot_be_read_is_an_error_that_names_the_file(self, tmp_path: Path) -> None:
        for name in ("token", "ca.crt"):
            (tmp_path / name).write_text("x")
        (tmp_path / "namespace").write_bytes(b"\xff\xfe")
        with pytest.raises(ConfigError, match=f"{tmp_path}/namespace: it is not UTF-8"):
            Config.incluster(environ=POD, folder=tmp_path)


class TestOverrides:
    def infer(self, tmp_path: Path, **environ: str) -> Config:
        path = write(tmp_path / "config", document())
        return Config.infer(environ={
            "KUBECONFIG": str(path), **{f"KUBECTL_RUNTIME_DEBUG_{name}": value for name, value in environ.items()}})

    def test_the_url_and_whom_to_act_as_are_laid_over_what_was_found_and_logged(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        config = self.infer(tmp_path, OVERRIDE_URL="https://other", IMPERSONATE_USER="jane", IMPERSONATE_GROUP="a,b")
        assert config.cluster_url == "https://other"
        assert config.impersonate == Impersonation("jane", ("a", "b"))
        assert [record.levelno for record in caplog.records] == [logging.WARNING]

    def test_another_url_does_not_get_what_must_not_leave_in_clear(self, tmp_path: Path) -> None:
        assert self.infer(tmp_path, OVERRIDE_URL="http://other").withholds_credentials

    @pytest.mark.parametrize(("name", "value"), [
        ("OVERRIDE_URL", "other:6443"), ("OVERRIDE_URL", "ftp://other"), ("IMPERSONATE_USER", "jane\n"),
        ("IMPERSONATE_USER", "jane ")])
    def test_what_cannot_work_is_an_error_that_names_the_variable(self, tmp_path: Path, name: str, value: str) -> None:
        with pytest.raises(ConfigError, match=f"KUBECTL_RUNTIME_DEBUG_{name}"):
            self.infer(tmp_path, **{name: value})

    def test_a_group_without_a_user_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="IMPERSONATE_GROUP is set without"):
            self.infer(tmp_path, IMPERSONATE_GROUP="a")


class TestLargeFiles:
    @pytest.fixture(params=["sparse", "endless"])
    def large(self, request: pytest.FixtureRequest, tmp_path: Path) -> Path:
        path = tmp_path / "large"
        if request.param == "endless":
            if not os.path.exists("/dev/zero"):
                pytest.skip("this system has no file without an end")
            path.symlink_to("/dev/zero")
        else:
            with path.open("wb") as file:
                file.truncate(1 << 40)
        return path

    def test_no_file_of_a_configuration_is_read_beyond_the_limit(self, large: Path) -> None:
        uses: list[Callable[[], object]] = [
            lambda: Config.from_kubeconfig(large), lambda: Config.infer(environ={"KUBECONFIG": str(large)}),
            lambda: Client(Config(cluster_url="https://h", ca_file=str(large))),
            lambda: Client(Config(cluster_url="https://h", client_certificate_file=str(large), client_key_data=b"x")),
            lambda: Client(Config(cluster_url="https://h", client_certificate_data=b"x", client_key_file=str(large)))]
        for use in uses:
            with pytest.raises(ConfigError, match=r"large'?: it has more than 16 MiB"):
                use()
        with pytest.raises(AuthError, match=r"cannot read the token file .*large: it has more than 16 MiB"):
            TokenFile(large).header()


class TestFields:
    @pytest.mark.parametrize(
        "wrong",
        [
            {"insecure_skip_tls_verify": "false"},
            {"insecure_skip_tls_verify": 0},
            {"allow_plain_http_credentials": "no"},
            {"compression": "false"},
            {"trust_env": None},
            {"token": 12345},
            {"token": b"t"},
            {"ca_data": "PEM"},
            {"ca_file": 5},
            {"proxy_url": 12},
            {"tls_server_name": ["x"]},
            {"headers": "a"},
            {"timeout": "60"},
            {"timeout": True},
            {"timeout": None},
            {"timeout": 0},
            {"connect_timeout": float("nan")},
            {"default_namespace": None},
        ],
    )
    def test_a_wrong_type_is_an_error_that_names_the_field(self, wrong: dict[str, Any]) -> None:
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            Config(cluster_url="https://h", **wrong)

    @pytest.mark.parametrize("url", [None, 5, "https://[x", "https://h:70000", "https://h ", "ftp://h", "https://h\n"])
    def test_a_url_that_is_none_is_an_error(self, url: Any) -> None:
        with pytest.raises(ConfigError):
            Config(cluster_url=url)

    @pytest.mark.parametrize("host", [
        "127.0.0.1%00.example.com", "a%01b", "a%2eb", "a%b",  # percent-encodings
        "a\x00b", "a\tb", "a\rb", "a\x7fb", "a b", "a\u00a0b", "a\u200bb", "a\u00adb",  # not to be seen
        "a\\b", "a\\@b", "@b", "u@b", "u:p@b", "[::1]@b",
        "[fe80::1%]", "[fe80::1%00]", "[fe80::1%0a]", "[::1%00.example.com]", "[fe80::1%eth0%eth1]", "[::1%25]",
        "[::1]b", "b[::1]", "[::1", "::1", "[1.2.3.4]", "[b]", "[v1.a]", "[]",
        "\uff41.example.com", "a\u3002b", "stra\u00dfe.example.com", "\u2603",  # which connecting takes for other names
        "\u212aubernetes.io", "\u212bland.example.com", "\u2126.example.com",  # the same, and lower() hides it
        "a..b", ".", "x" * 64, "a." * 130, "a*b", "a'b", "a<b", "a,b", "a{b}", "",
    ])
    def test_a_host_that_is_none_is_an_error(self, host: str) -> None:
        with pytest.raises(ConfigError, match="server URL"):
            Config(cluster_url=f"https://{host}")
        with pytest.raises(ConfigError, match="server URL"):
            Config(cluster_url=f"https://{host}:6443/path")
        with pytest.raises(ConfigError, match=r"clusters\[0\].cluster.server"):
            Config.from_kubeconfig(document(server=f"https://{host}/"))
        if "@" not in host.replace("\\@", ""):  # a proxy may have a user
            with pytest.raises(ConfigError, match="proxy"):
                Config(cluster_url="https://h", proxy_url=f"http://{host}:3128")

    @pytest.mark.parametrize("host", ["h", "h.", "a_b.example.com", "1.2.3.4", "[::1]", "[::ffff:1.2.3.4]",
                                      "[fe80::1%25eth0]", "[fe80::1%eth0]", "[fe80::1%251]", "xn--4ca.example.com",
                                      "\u00e4.example.com", "\u00c4.example.com", "0x7f000001", "x" * 63])
    def test_a_host_that_is_one_is_taken(self, host: str) -> None:
        assert Config(cluster_url=f"https://{host}:6443/p").cluster_url == f"https://{host}:6443/p"
        assert Config(cluster_url="https://h", proxy_url=f"http://u:p@{host}:1").proxy_url == f"http://u:p@{host}:1"

    @pytest.mark.parametrize("ca", [{"ca_data": b"PEM"}, {"ca_file": "/ca.crt"}, {"ca_file": Path("/ca.crt")}])
    def test_a_ca_that_nothing_would_verify_with_is_an_error(self, ca: dict[str, Any]) -> None:
        with pytest.raises(ConfigError, match="insecure_skip_tls_verify=True would leave the given CA unused"):
            Config(cluster_url="https://h", insecure_skip_tls_verify=True, **ca)
        with pytest.raises(ConfigError, match="insecure_skip_tls_verify"):
            dataclasses.replace(Config(cluster_url="https://h", **ca), insecure_skip_tls_verify=True)
        content = document(server="https://h")
        content["clusters"][0]["cluster"] |= {"insecure-skip-tls-verify": True,
                                              "certificate-authority-data": base64.b64encode(b"PEM").decode()}
        with pytest.raises(ConfigError, match="insecure-skip-tls-verify is true beside a certificate authority"):
            Config.from_kubeconfig(content)

    def test_the_scheme_counts_without_its_case(self) -> None:
        assert Config(cluster_url="HTTPS://H:1/Path").cluster_url == "https://H:1/Path"

    @pytest.mark.parametrize("name", ["", " ", ".", "a..b", "a b", "a\nb", "a\0b", "x" * 70, "a%00b", "a\\b",
                                      "u@h", "h:1", "[::1]"])
    def test_a_server_name_that_is_none_is_an_error(self, name: str) -> None:
        with pytest.raises(ConfigError, match="tls-server-name"):
            Config(cluster_url="https://h", tls_server_name=name)

    @pytest.mark.parametrize("name", ["h", "api.example.com", "127.0.0.1", "jänner.example.com", "_a.b", "::1"])
    def test_a_server_name_may_be_any_that_a_certificate_can_have(self, name: str) -> None:
        assert Config(cluster_url="https://h", tls_server_name=name).tls_server_name == name

    @pytest.mark.parametrize(("field", "value"), [
        ("impersonate", "jane"), ("impersonate", {"user": "jane"}), ("auth", "geheim"), ("auth", 5)])
    def test_what_is_no_identity_is_an_error_that_names_the_field_and_shows_nothing(
            self, field: str, value: Any) -> None:
        with pytest.raises(ConfigError, match=field) as error:
            Config(cluster_url="https://h", **{field: value})
        assert "geheim" not in str(error.value)

    def test_a_path_may_be_a_path(self, tmp_path: Path) -> None:
        assert Config(cluster_url="https://h", ca_file=tmp_path / "ca").ca_file == str(tmp_path / "ca")  # type: ignore[arg-type]

    def test_no_time_limit_is_one_that_sockets_can_take(self) -> None:
        config = Config(cluster_url="https://h", timeout=float("inf"), connect_timeout=float("inf"))
        assert (config.timeout, config.connect_timeout) == (UNLIMITED, UNLIMITED)

    @pytest.mark.parametrize("who", [
        ("", ("g",)), ("jane", "admins"), ("jane", (), "", {"scopes": "view"}), ("jane", 5), ("jane", {"g": 1}),
        ("jane", b"g"), ("jane", None), ("jane", (), "", ["scopes"]), ("jane", (), "", None),
        ("jane", (), "", {"scopes": 5}), (5,), ("jane ",), ("\tjane",), ("jane", (" g",)), ("jane", (5,)),
        ("jane", (), 5), ("jane", (), "", {"": ("v",)}), ("jane", (), "", {"k\n": ("v",)})])
    def test_acting_as_nobody_or_as_somebody_else_than_is_said_is_an_error(self, who: tuple[Any, ...]) -> None:
        with pytest.raises(RequestError, match=r"Impersonation: (user|groups|uid|extra)"):
            Impersonation(*who)

    @pytest.mark.parametrize("given", [{"username": "a:b"}, {"token": "a\nb"}, {"token": " "}])
    def test_a_credential_that_cannot_be_sent_says_where_it_comes_from(self, given: dict[str, str]) -> None:
        with pytest.raises(AuthError, match="my settings: "):
            Config(cluster_url="https://h", origin="my settings", **given).credentials()  # type: ignore[arg-type]


@pytest.mark.parametrize("source", [5, True, b"/etc/config", 5.0, [5], [None], {"a"}, ["a", {}]], ids=repr)
def test_a_source_of_another_type_is_told_in_words(source: Any) -> None:
    with pytest.raises(ConfigError, match="a path, a list of paths or a mapping"):
        Config.from_kubeconfig(source)


@pytest.mark.parametrize("context", [5, ["c"], b"c", {}], ids=repr)
def test_a_context_is_chosen_by_its_name(tmp_path: Path, context: Any) -> None:
    path = tmp_path / "config"
    path.write_text(json.dumps(document()))
    with pytest.raises(ConfigError, match="must be the name of a context, a str"):
        Config.from_kubeconfig(path, context)
    with pytest.raises(ConfigError, match="must be the name of a context, a str"):
        Config.infer(context=context, environ={"KUBECONFIG": str(path)})
