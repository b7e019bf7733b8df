"""Tokens, token files and exec plugins: one header, kept fresh, obtained once for all threads."""

from __future__ import annotations

import json
import os
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from kubectl_runtime import ConfigError
from kubectl_runtime.client.config import exec_plugin
from kubectl_runtime.client.config.auth import FixedCredentials, TokenFile
from kubectl_runtime.client.config.exec_plugin import ExecCredentials, ExecSpec
from kubectl_runtime.client.config.kubeconfig import Exec
from kubectl_runtime.errors import AuthError
from kubectl_runtime.testing.clock import SimClock

pytest.importorskip("cryptography", reason="certificates are made with the package cryptography")
from kubectl_runtime.certificates.authority import Authority

V1 = "client.authentication.k8s.io/v1"


class TestTokens:
    def test_white_space_around_a_token_is_not_sent(self) -> None:
        assert FixedCredentials.token(" abc\n").header() == "Bearer abc"

    @pytest.mark.parametrize("token", ["a\nb", "a\r\nX-Evil: 1", "gehe\x00im", "gehéim"])
    def test_a_token_that_no_header_can_carry_is_an_error_without_the_token(self, token: str) -> None:
        with pytest.raises(AuthError) as error:
            FixedCredentials.token(token)
        assert token not in str(error.value)
        assert "Evil" not in str(error.value)


    @pytest.mark.parametrize("token", ["", " ", "\n"])
    def test_an_empty_token_is_an_error(self, token: str) -> None:
        with pytest.raises(AuthError, match="empty"):
            FixedCredentials.token(token)

    @pytest.mark.parametrize(("user", "password"), [
        ("ja:ne", "geheim"), ("jane", "geheim\ud800"), ("\ud800", "geheim")])
    def test_a_user_name_or_password_that_cannot_be_sent_is_an_error_without_either(
            self, user: str, password: str) -> None:
        with pytest.raises(AuthError) as error:
            FixedCredentials.basic(user, password)
        assert "geheim" not in str(error.value)


class TestTokenFile:
    def test_it_is_read_again_after_sixty_seconds_and_not_before(self, tmp_path: Path) -> None:
        clock, path = SimClock(), tmp_path / "token"
        path.write_text("one\n")
        credentials = TokenFile(path, clock=clock)
        assert credentials.header() == "Bearer one"
        path.write_text("two\n")
        clock.advance(59)
        assert credentials.header() == "Bearer one"
        clock.advance(1)
        assert credentials.header() == "Bearer two"

    def test_a_symlink_swap_is_seen(self, tmp_path: Path) -> None:
        clock, link = SimClock(), tmp_path / "token"
        for name in ("one", "two"):
            (tmp_path / name).write_text(name)
        link.symlink_to(tmp_path / "one")
        credentials = TokenFile(link, clock=clock)
        assert credentials.header() == "Bearer one"
        (tmp_path / "new").symlink_to(tmp_path / "two")
        (tmp_path / "new").rename(link)
        clock.advance(90)
        assert credentials.header() == "Bearer two"

    @pytest.mark.parametrize("content", [None, b"", b"\n", b"a\nb", b"\xff\xfe"])
    def test_while_it_is_unreadable_the_last_token_stays_and_one_warning_is_logged(
        self, tmp_path: Path, content: bytes | None, caplog: pytest.LogCaptureFixture
    ) -> None:
        clock, path = SimClock(), tmp_path / "token"
        path.write_text("one")
        credentials = TokenFile(path, clock=clock)
        credentials.header()
        path.unlink()
        if content is not None:
            path.write_bytes(content)
        for _ in range(3):
            clock.advance(60)
            assert credentials.header() == "Bearer one"
        assert len([record for record in caplog.records if str(path) in record.getMessage()]) == 1

    def test_a_file_that_was_never_readable_is_an_error_or_falls_back(self, tmp_path: Path) -> None:
        with pytest.raises(AuthError, match="token"):
            TokenFile(tmp_path / "missing").header()
        assert TokenFile(tmp_path / "missing", fallback="old").header() == "Bearer old"

    def test_a_401_reads_it_at_once(self, tmp_path: Path) -> None:
        path = tmp_path / "token"
        path.write_text("one")
        credentials = TokenFile(path, clock=SimClock())
        assert credentials.header() == "Bearer one"
        assert not credentials.refresh("Bearer one")
        path.write_text("two")
        assert credentials.refresh("Bearer one")
        assert credentials.header() == "Bearer two"


def spec(cluster: dict[str, Any] | None = None, ca_file: str | None = None, **fields: Any) -> ExecSpec:
    config = msgspec.convert({"apiVersion": V1, "interactiveMode": "Never", **fields}, Exec)
    return ExecSpec.of(config, "users[0].user.exec", folder=Path("/"), cluster=cluster or {}, ca_file=ca_file)


class Plugin:
    """An exec plugin: a script that notes each run and prints what `answer` says."""

    def __init__(self, folder: Path, clock: SimClock) -> None:
        self.folder, self.clock = folder, clock
        self.command = folder / "plugin"
        self.command.write_text(
            f"#!{sys.executable}\nimport os, sys, pathlib\nfolder = pathlib.Path({str(folder)!r})\n"
            "with open(folder / 'runs', 'a') as file: file.write(os.environ.get('KUBERNETES_EXEC_INFO', '') + '\\n')\n"
            "(folder / 'env').write_text(os.environ.get('EXTRA', ''))\n"
            "import time\n"
            "(folder / 'running').write_text('')\n"
            "while (folder / 'hold').exists(): time.sleep(0.01)\n"
            "sys.stderr.write((folder / 'stderr').read_text() if (folder / 'stderr').exists() else '')\n"
            "sys.stdout.write((folder / 'stdout').read_text())\n"
            "sys.exit(int((folder / 'code').read_text()) if (folder / 'code').exists() else 0)\n"
        )
        self.command.chmod(self.command.stat().st_mode | stat.S_IXUSR)

    def prints(self, token: str | None = "t", *, lives: float | None = None, **more: Any) -> None:
        status = {"token": token, **more}
        if lives is not None:
            status["expirationTimestamp"] = (self.clock.now() + timedelta(seconds=lives)).strftime("%Y-%m-%dT%H:%M:%SZ")
        (self.folder / "stdout").write_text(json.dumps({"apiVersion": V1, "kind": "ExecCredential", "status": status}))

    def fails(self, code: int, stderr: str = "") -> None:
        (self.folder / "code").write_text(str(code))
        (self.folder / "stderr").write_text(stderr)

    def holds(self) -> None:
        """From now on it waits before it prints, until `goes_on`."""
        (self.folder / "running").unlink(missing_ok=True)
        (self.folder / "hold").touch()

    def wait_until_it_runs(self) -> None:
        give_up = time.monotonic() + 20
        while not (self.folder / "running").exists():
            assert time.monotonic() < give_up
            time.sleep(0.01)

    def goes_on(self) -> None:
        (self.folder / "hold").unlink()

    @property
    def runs(self) -> list[dict[str, Any]]:
        path = self.folder / "runs"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def credentials(self, cluster: dict[str, Any] | None = None, **more: Any) -> ExecCredentials:
        return ExecCredentials(spec(cluster, command=str(self.command), **more), clock=self.clock)


def script(folder: Path, code: str) -> str:
    """A plugin that notes its process and does this."""
    path = folder / "plugin"
    path.write_text(f"""#!{sys.executable}
import os, sys, time
def note():
    with open({str(folder / 'pids')!r}, "a") as file: file.write(f"{{os.getpid()}}\\n")
note()
{code}
""")
    path.chmod(0o755)
    return str(path)


def pids(folder: Path) -> list[int]:
    path = folder / "pids"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def is_there(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def wait_until_gone(folder: Path) -> None:
    give_up = time.monotonic() + 20
    while any(map(is_there, pids(folder))):
        assert time.monotonic() < give_up
        time.sleep(0.01)


@pytest.fixture
def plugin(tmp_path: Path) -> Plugin:
    made = Plugin(tmp_path, SimClock())
    made.prints()
    return made


class TestExecPlugin:
    def test_it_runs_once_until_shortly_before_the_expiry(self, plugin: Plugin) -> None:
        plugin.prints("one", lives=60)
        credentials = plugin.credentials()
        for _ in range(100):
            assert credentials.header() == "Bearer one"
        plugin.clock.advance(47)
        credentials.header()
        assert len(plugin.runs) == 1
        plugin.prints("two", lives=60)
        plugin.clock.advance(2)
        assert credentials.header() == "Bearer two"
        assert len(plugin.runs) == 2

    def test_without_expiry_it_is_kept_until_a_401(self, plugin: Plugin) -> None:
        credentials = plugin.credentials()
        credentials.header()
        plugin.clock.advance(1_000_000)
        credentials.header()
        assert len(plugin.runs) == 1
        plugin.prints("two")
        assert credentials.refresh("Bearer t")
        assert credentials.header() == "Bearer two"
        assert len(plugin.runs) == 2

    def test_credentials_that_are_rejected_again_do_not_make_it_run_for_each_call(self, plugin: Plugin) -> None:
        credentials = plugin.credentials()
        credentials.header()
        for _ in range(10):
            credentials.refresh("Bearer t")
        assert len(plugin.runs) == 2
        plugin.clock.advance(10)
        credentials.refresh("Bearer t")
        assert len(plugin.runs) == 3

    def test_one_run_serves_all_threads(self, plugin: Plugin) -> None:
        credentials = plugin.credentials()
        barrier = threading.Barrier(8)
        seen = []

        def use() -> None:
            barrier.wait()
            seen.append(credentials.header())

        threads = [threading.Thread(target=use) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert seen == ["Bearer t"] * 8
        assert len(plugin.runs) == 1

    def test_a_refresh_that_another_thread_made_is_used(self, plugin: Plugin) -> None:
        credentials = plugin.credentials()
        credentials.header()
        plugin.prints("two")
        assert credentials.refresh("Bearer t")
        assert credentials.refresh("Bearer t")
        assert len(plugin.runs) == 2

    def test_its_environment_has_ours_the_files_and_what_the_protocol_says(self, plugin: Plugin) -> None:
        cluster = {"server": "https://h"}
        plugin.credentials(cluster, env=[{"name": "EXTRA", "value": "x"}], provideClusterInfo=True).header()
        plugin.credentials(cluster, env=None, args=None).header()
        assert plugin.runs[0] == {
            "apiVersion": V1,
            "kind": "ExecCredential",
            "spec": {"interactive": False, "cluster": cluster},
        }
        assert plugin.runs[1]["spec"] == {"interactive": False}

    def test_its_env_entries_reach_it(self, plugin: Plugin) -> None:
        plugin.credentials(env=[{"name": "EXTRA", "value": "x"}]).header()
        assert (plugin.folder / "env").read_text() == "x"

    def test_noise_on_stderr_is_ignored_when_it_succeeds(self, plugin: Plugin) -> None:
        plugin.fails(0, "warning: old version\n")
        assert plugin.credentials().header() == "Bearer t"

    def test_a_failure_names_command_code_and_the_end_of_stderr_but_no_token(self, plugin: Plugin) -> None:
        plugin.fails(
            3,
            "x" * 5000
            + " token=geheim1 Bearer geheim2 "
            + "a" * 20
            + "."
            + "b" * 20
            + "."
            + "c" * 20
            + " not logged in",
        )
        with pytest.raises(AuthError) as error:
            plugin.credentials().header()
        text = str(error.value)
        assert str(plugin.command) in text
        assert "exit code 3" in text
        assert "not logged in" in text
        assert "geheim" not in text
        assert "bbbb" not in text
        assert len(text) < 1000

    @pytest.mark.parametrize("said", [
        "token=" + "geheim" * 150 + " has expired", "." * 20_000 + "password: geheim/geheim@geheim",
        f"{'geheim' * 40}.{'geheim' * 40}.{'geheim' * 40} is no JWT", "GET https://jane:geheim@idp.example.com/ failed",
        "HTTP proxy //p, then socks5://geheim@p: refused", "sent Authorization: Basic Z2VoZWltOmdlaGVpbQ==, got 401",
        "a" * 20_000, "://" * 6_000, "token" * 4_000,
    ], ids=str.__len__)
    def test_what_a_failing_plugin_says_is_searched_before_it_is_cut(self, plugin: Plugin, said: str) -> None:
        plugin.fails(1, said)
        begun = time.process_time()
        with pytest.raises(AuthError, match="exit code 1") as error:
            plugin.credentials().header()
        assert time.process_time() - begun < 1
        assert "geheim" not in str(error.value)
        assert "Z2VoZWlt" not in str(error.value)

    def test_a_failing_plugin_is_left_alone_for_a_while(self, plugin: Plugin) -> None:
        plugin.fails(1)
        credentials = plugin.credentials()
        for _ in range(5):
            with pytest.raises(AuthError):
                credentials.header()
        assert len(plugin.runs) == 1
        (plugin.folder / "code").unlink()
        plugin.clock.advance(10)
        assert credentials.header() == "Bearer t"

    def test_credentials_that_are_still_valid_outlive_a_failing_renewal(self, plugin: Plugin) -> None:
        plugin.prints("one", lives=100)
        credentials = plugin.credentials()
        credentials.header()
        plugin.fails(1)
        plugin.clock.advance(90)
        assert credentials.header() == "Bearer one"
        plugin.clock.advance(11)
        with pytest.raises(AuthError):
            credentials.header()

    @pytest.mark.parametrize(
        "output",
        [
            "",
            "{}",
            '{"status": {}}',
            "geheim",
            '{"status": {"clientCertificateData": "geheim"}}',
            '{"status": {"token": "gehe\\nim"}}',
        ],
    )
    def test_output_that_is_no_credential_is_an_error_without_the_output(self, plugin: Plugin, output: str) -> None:
        (plugin.folder / "stdout").write_text(output)
        with pytest.raises(AuthError) as error:
            plugin.credentials().header()
        assert "gehe" not in str(error.value)

    @pytest.mark.parametrize(
        "answer",
        [
            {"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1beta1"},
            {"kind": "ExecCredential"},
            {"apiVersion": V1},
            {"kind": "Pod", "apiVersion": V1},
            {"kind": "ExecCredential", "apiVersion": "v1"},
        ],
    )
    def test_an_answer_of_another_kind_or_version_than_asked_for_is_refused(
        self, plugin: Plugin, answer: dict[str, str]
    ) -> None:
        (plugin.folder / "stdout").write_text(json.dumps({**answer, "status": {"token": "geheim"}}))
        with pytest.raises(AuthError, match=f"{plugin.command} printed something other.*{V1}") as error:
            plugin.credentials().header()
        assert "geheim" not in str(error.value)

    def test_a_certificate_that_is_rubbish_is_an_error_that_names_the_plugin(self, plugin: Plugin) -> None:
        plugin.prints(None, clientCertificateData="CERT", clientKeyData="geheim")
        with pytest.raises(AuthError, match=f"{plugin.command}.*certificate") as error:
            plugin.credentials().header()
        assert "geheim" not in str(error.value)

    def test_a_ca_that_is_a_file_and_the_clusters_extension_reach_it(self, plugin: Plugin, tmp_path: Path) -> None:
        (tmp_path / "ca.pem").write_text("PEM")
        cluster = {"server": "https://h", "config": {"audience": "x"}}
        one = spec(cluster, str(tmp_path / "ca.pem"), command=str(plugin.command), provideClusterInfo=True)
        ExecCredentials(one, clock=plugin.clock).header()
        assert plugin.runs[0]["spec"]["cluster"] == {**cluster, "certificate-authority-data": "UEVN"}

    def test_while_one_caller_renews_the_others_use_what_is_still_valid(self, plugin: Plugin) -> None:
        plugin.prints("one", lives=100)
        credentials = plugin.credentials()
        credentials.header()
        plugin.holds()
        plugin.clock.advance(85)
        renewing: list[str | None] = []
        thread = threading.Thread(target=lambda: renewing.append(credentials.header()))
        thread.start()
        plugin.wait_until_it_runs()
        assert [credentials.header() for _ in range(3)] == ["Bearer one"] * 3
        plugin.prints("two", lives=100)
        plugin.goes_on()
        thread.join(20)
        assert renewing == ["Bearer two"]
        assert credentials.header() == "Bearer two"
        assert len(plugin.runs) == 2

    def test_a_caller_waits_for_it_until_its_deadline_and_the_credentials_serve_the_next(self, plugin: Plugin) -> None:
        plugin.holds()
        credentials = plugin.credentials()
        with pytest.raises(AuthError, match=f"{plugin.command} gave no credentials within the call's deadline"):
            credentials.header(plugin.clock.monotonic() + 0.05)
        plugin.goes_on()
        assert credentials.header() == "Bearer t"
        assert len(plugin.runs) == 1

    def test_output_may_be_yaml(self, plugin: Plugin) -> None:
        (plugin.folder / "stdout").write_text(f"apiVersion: {V1}\nkind: ExecCredential\nstatus:\n  token: abc\n")
        assert plugin.credentials().header() == "Bearer abc"
        with (plugin.folder / "stdout").open("a") as more:
            more.write("  expirationTimestamp: 2999-01-01T00:00:00Z\n")
        assert plugin.credentials().header() == "Bearer abc"

    @pytest.mark.parametrize("moment", ["2999-01-01T00:00:00", "2999-01-01", "soon", 5, 1.5, True, "", [], {"a": "b"}])
    @pytest.mark.parametrize("form", [json.dumps, yaml.safe_dump])
    def test_an_expiry_that_is_no_moment_is_no_credential(
        self, plugin: Plugin, moment: Any, form: Callable[[Any], str]
    ) -> None:
        content = {"apiVersion": V1, "kind": "ExecCredential", "status": {"token": "t", "expirationTimestamp": moment}}
        (plugin.folder / "stdout").write_text(form(content))
        with pytest.raises(AuthError, match=r"is not an ExecCredential: status\.expirationTimestamp is .*a time with a "
                                            r"zone, such as"):
            plugin.credentials().header()

    @pytest.mark.parametrize(("output", "field"), [
        ({"status": {"token": 5}}, "status.token is a number, expected a text"),
        ({"status": {"token": ["geheim"]}}, "status.token is a list, expected a text"),
        ({"status": "geheim"}, "status is a text, expected a mapping"),
        ({"status": {"clientKeyData": {"geheim": "geheim"}}}, "status.clientKeyData is a mapping, expected a text"),
        ({"apiVersion": 1}, "apiVersion is a number, expected a text"),
        (["geheim"], "it is a list, expected a mapping"),
    ])
    def test_a_field_of_a_wrong_type_is_named(self, plugin: Plugin, output: Any, field: str) -> None:
        (plugin.folder / "stdout").write_text(json.dumps(output))
        with pytest.raises(AuthError) as error:
            plugin.credentials().header()
        assert field in str(error.value)
        assert "geheim" not in str(error.value)

    @pytest.mark.parametrize("moment", ["0001-01-01T00:00:00Z", "0001-01-01T00:00:00.000Z", "0001-01-01T00:00:00+00:00",
                                        None])
    def test_the_zero_time_is_no_expiry(self, plugin: Plugin, moment: str | None) -> None:
        plugin.prints("t", expirationTimestamp=moment)
        credentials = plugin.credentials()
        for _ in range(3):
            assert credentials.header() == "Bearer t"
            plugin.clock.advance(1_000_000)
        assert len(plugin.runs) == 1

    @pytest.mark.parametrize(("prints", "where"), [
        ("while True: os.write(1, b'x' * 65536)", "standard output"),
        ("while True: os.write(2, b'x' * 65536)", "standard error"),
        ("os.write(1, b'x' * (1 << 20)); os.write(1, b'x')", "standard output"),
        # a child that goes on when the plugin has ended
        ("if os.fork(): os._exit(0)\nwhile True: os.write(1, b'x' * 65536)", "standard output"),
    ])
    def test_one_that_prints_for_ever_is_killed_and_named(self, tmp_path: Path, prints: str, where: str) -> None:
        command = script(tmp_path, prints)
        with pytest.raises(AuthError, match=f"{command} was killed: it printed more than 1 MiB on its {where}"):
            ExecCredentials(spec(command=command)).header()
        wait_until_gone(tmp_path)

    def test_a_mebibyte_is_not_too_much(self, tmp_path: Path) -> None:
        text = json.dumps({"apiVersion": V1, "kind": "ExecCredential", "status": {"token": "t"}})
        command = script(tmp_path, f"sys.stdout.write({text!r}.ljust(1 << 20)); sys.stderr.write('x' * (1 << 20))")
        assert ExecCredentials(spec(command=command)).header() == "Bearer t"

    def test_a_process_that_it_leaves_behind_with_its_output_holds_nobody(self, tmp_path: Path) -> None:
        text = json.dumps({"apiVersion": V1, "kind": "ExecCredential", "status": {"token": "t"}})
        leaves = "if not os.fork():\n    os.setsid()\n    time.sleep(30)"
        command = script(tmp_path, f"print({text!r}, flush=True)\n{leaves}")
        begun = time.monotonic()
        assert ExecCredentials(spec(command=command)).header() == "Bearer t"
        assert time.monotonic() - begun < 25
        for pid in pids(tmp_path):
            with suppress(OSError):
                os.killpg(pid, signal.SIGKILL)

    def test_one_that_takes_too_long_is_killed_with_its_children(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(exec_plugin, "RUN_TIMEOUT", 1.5)
        command = script(tmp_path, "os.fork()\nnote()\ntime.sleep(60)")
        with pytest.raises(AuthError, match=f"{command} did not end within 1.5 s and was killed"):
            ExecCredentials(spec(command=command)).header()
        wait_until_gone(tmp_path)

    def test_a_certificate_comes_instead_of_a_token(self, plugin: Plugin) -> None:
        own = Authority().client("jane")
        plugin.prints(None, clientCertificateData=own.certificate.decode(), clientKeyData=own.key.decode())
        credentials = plugin.credentials()
        assert credentials.header() is None
        certificate = credentials.certificate()
        assert certificate is not None
        assert (certificate.certificate, certificate.key) == (own.certificate, own.key)
        assert "PRIVATE KEY" not in repr(certificate)

    def test_a_missing_command_is_named_with_its_install_hint(self, tmp_path: Path) -> None:
        missing = spec(command=str(tmp_path / "none"), installHint="get it there")
        with pytest.raises(AuthError, match=r"none.*get it there"):
            ExecCredentials(missing).header()

    @pytest.mark.parametrize(
        "config",
        [
            {},
            {"command": "x", "apiVersion": None},
            {"command": "x", "interactiveMode": None},
            {"command": "x", "interactiveMode": "Sometimes"},
            {"command": "x", "env": [{}]},
            {"command": "x", "env": [{"name": "A=B"}]},
            {"command": "x", "apiVersion": "v9"},
            {"command": "x", "apiVersion": V1, "interactiveMode": "Always"},
        ],
    )
    def test_what_cannot_work_is_refused_at_loading(self, config: dict[str, str]) -> None:
        with pytest.raises(ConfigError):
            spec(**config)
