"""Credentials from an exec plugin (`users[].user.exec` of a kubeconfig): a program that prints an ExecCredential.

`Renewal` runs the plugin when there are no credentials yet, when they are about to expire (a fifth of their lifetime
before the expiry, at most 60 s), and once after a 401. Credentials without an expiry are used until a 401. The plugin
is killed, with the processes that it started, when it exceeds `RUN_TIMEOUT` or `MOST_OUTPUT`, and when no caller waits
for it any more. The plugin's output is checked as in kubectl 1.32: kind and apiVersion must be the requested ones, and
a certificate must fit its key.

The plugin never gets a terminal. A plugin with `interactiveMode: Always` is refused.
"""
from __future__ import annotations

import base64
import json
import os
import re
import selectors
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec

from kubectl_runtime.client.config.auth import ClientCertificate, Renewal, bearer, checked_header
from kubectl_runtime.client.config.checks import check_identity
from kubectl_runtime.client.config.kubeconfig import Exec, explained
from kubectl_runtime.client.config.secrets import Secret, reading_problem, secret_file
from kubectl_runtime.core.base.errors import AuthError, ConfigError
from kubectl_runtime.core.base.threads import SYSTEM_CLOCK, Clock
from kubectl_runtime.core.base.wire import converted, decoded
from kubectl_runtime.core.meta.problems import DECODE_FAILURES
from kubectl_runtime.core.scope import StopToken
from kubectl_runtime.manifests.documents import read_text

RUN_TIMEOUT = 60.0
"""Seconds that a plugin may run."""
MOST_OUTPUT = 1 << 20
"""The maximum number of bytes that a plugin may print on standard output, and on standard error."""
_PIECE = 1 << 16
_LOOK = 0.1
"""Seconds between two checks whether the plugin has ended. The end of its output does not show this, because a process
that it left running may keep the output open."""
_V1 = "client.authentication.k8s.io/v1"
_API_VERSIONS = (_V1, "client.authentication.k8s.io/v1beta1")
_MODES = ("Never", "IfAvailable", "Always")
_STDERR_TAIL = 500
_STDERR_LOOKED_AT = 1 << 14
"""How many characters at the end of the error output are searched for credentials. A credential that begins earlier is
not recognized."""
_SECRET = re.compile(
    r"(?i)(bearer\s+|basic\s+(?=\S*[\d=])|(?:token|password|secret|key)[\"']?\s*[=:]\s*[\"']?)\S+"
    r"|(?<=://)[^\s/@]+(?=@)|(?<![\w-])[\w-]{16,}\.[\w-]{16,}\.[\w-]{16,}")


@dataclass(frozen=True)
class ExecSpec:
    """How to run the plugin. `env` is added to this process's environment. `cluster` (with the CA from `ca_file`) is
    passed to the plugin if the kubeconfig requests it.
    """

    command: str
    args: tuple[str, ...] = field(default=(), repr=False)
    env: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    api_version: str = _V1
    cluster: dict[str, Any] | None = field(default=None, repr=False, compare=False)
    ca_file: str | None = None
    install_hint: str = ""

    @classmethod
    def of(cls, config: Exec, place: str, *, folder: Path, cluster: dict[str, Any], ca_file: str | None = None
           ) -> ExecSpec:
        """An ExecSpec from the `exec` section at `place` in a kubeconfig. A command that is a path is relative to
        `folder`. Raises ConfigError.
        """
        command, version = config.command or "", config.api_version or ""
        if not command:
            raise ConfigError(f"{place}.command: the exec plugin names no command")
        if version not in _API_VERSIONS:
            raise ConfigError(f"{place}.apiVersion: the exec plugin {command} speaks {version!r}: "
                              f"expected one of {', '.join(_API_VERSIONS)}")
        mode = config.interactive_mode or ("" if version == _V1 else "IfAvailable")
        if mode not in _MODES:
            raise ConfigError(f"{place}.interactiveMode: the exec plugin {command} needs one of {', '.join(_MODES)}"
                              + (f", not {mode!r}" if mode else ""))
        if mode == "Always":
            raise ConfigError(f"{place}.interactiveMode: the exec plugin {command} needs a terminal (Always): "
                              "use credentials that need none, e.g. a service account's token")
        env = tuple(((entry.name or "", entry.value or "") if entry else ("", "")) for entry in config.env or ())
        for index, (name, value) in enumerate(env):
            if not name or "=" in name or "\0" in name + value:
                raise ConfigError(f"{place}.env[{index}]: a variable of the exec plugin {command} needs a name without "
                                  "=, and must not contain zero bytes")
        if "/" in command.replace(os.sep, "/"):
            command = os.path.normpath(folder / command)
        asked = bool(config.provide_cluster_info)
        return cls(command, tuple(argument or "" for argument in config.args or ()), env, version,
                   cluster if asked else None, ca_file if asked else None, config.install_hint or "")

    def information(self) -> str:
        """The plugin's input (KUBERNETES_EXEC_INFO) as JSON. Raises AuthError for a CA file that cannot be read."""
        spec: dict[str, Any] = {"interactive": False}
        if self.cluster is not None:
            spec["cluster"] = dict(self.cluster)
            if self.ca_file is not None:
                spec["cluster"]["certificate-authority-data"] = self._ca()
        return json.dumps({"apiVersion": self.api_version, "kind": "ExecCredential", "spec": spec})

    def _ca(self) -> str:
        assert self.ca_file is not None
        try:
            return base64.b64encode(secret_file(self.ca_file)).decode()
        except (OSError, ValueError) as error:
            raise AuthError(f"the exec plugin {self.command} cannot get the CA of the cluster: cannot read "
                            f"{self.ca_file}: {reading_problem(error)}") from None


@dataclass(frozen=True)
class _Snapshot:
    header: Secret | None = field(repr=False)
    certificate: ClientCertificate | None
    renew_at: datetime | None
    expires_at: datetime | None


_NEVER = datetime.min.replace(tzinfo=UTC)
"""Go's zero time, which plugins without an expiry print."""


class _Status(msgspec.Struct, rename="camel"):
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: Annotated[datetime, msgspec.Meta(tz=True)] | None = None


class _ExecCredential(msgspec.Struct, rename="camel"):
    api_version: str | None = None
    kind: str | None = None
    status: _Status | None = None


class ExecCredentials:
    """Credentials that a plugin provides. Safe to use from any thread; may block until the plugin ends."""

    def __init__(self, spec: ExecSpec, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._spec = spec
        self._clock = clock
        self._renewal = Renewal(f"the exec plugin {spec.command}", self._run, clock=clock,
                                is_due=lambda snapshot: self._is_past(snapshot.renew_at),
                                is_valid=lambda snapshot: not self._is_past(snapshot.expires_at))

    def header(self, deadline: float | None = None) -> str | None:
        """`Bearer` and the plugin's token; None if it provides only a certificate. Runs the plugin when its credentials
        have expired; blocks until `deadline` at most, and raises AuthError."""
        return self._renewal.current(deadline).header

    def refresh(self, rejected: str | None, deadline: float | None = None) -> bool:
        """Run the plugin again; returns whether its credentials differ from the `rejected` ones. Blocks and raises like
        `header`."""
        return self._renewal.replaced(lambda snapshot: snapshot.header == rejected, deadline)

    def certificate(self) -> ClientCertificate | None:
        """The plugin's last certificate; None if it provided only a token."""
        snapshot = self._renewal.value
        return snapshot.certificate if snapshot is not None else None

    def _is_past(self, moment: datetime | None) -> bool:
        return moment is not None and self._clock.now() >= moment

    def _run(self, stop: StopToken) -> _Snapshot:
        return self._parse(self._output(stop))

    def _output(self, stop: StopToken) -> bytes:
        spec = self._spec
        environment = {**os.environ, **dict(spec.env), "KUBERNETES_EXEC_INFO": spec.information()}
        try:
            process = subprocess.Popen([spec.command, *spec.args], env=environment, stdin=subprocess.DEVNULL,
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
        except (OSError, ValueError) as error:  # ValueError: a zero byte in the command or an argument
            hint = f": {spec.install_hint}" if spec.install_hint else ""
            reason = error.strerror if isinstance(error, OSError) else "a zero byte in its command or arguments"
            raise AuthError(f"the exec plugin {spec.command} cannot be run ({reason}){hint}") from None
        with process:
            forget, problem = stop.on_set(partial(_kill, process)), "was killed"
            try:
                problem, output, errors = _read(process, stop)
            finally:
                forget()
                if problem:  # needed even if the plugin has ended: its child processes may still run
                    _kill(process)
        if problem:
            raise AuthError(f"the exec plugin {spec.command} {problem}")
        if process.returncode != 0:
            said = _tail(errors)
            raise AuthError(f"the exec plugin {spec.command} failed with exit code {process.returncode}"
                            + (f": {said}" if said else " and no message"))
        return output

    def _parse(self, output: bytes) -> _Snapshot:
        plugin, spec = f"the exec plugin {self._spec.command}", self._spec
        try:
            answer = _decode(output)
        except msgspec.ValidationError as error:
            raise AuthError(f"{plugin} printed something that is not an ExecCredential: {explained(error)}") from None
        except (ValueError, *DECODE_FAILURES):
            raise AuthError(f"{plugin} printed something that is not an ExecCredential: neither JSON nor "
                            "YAML") from None
        if answer.kind != "ExecCredential" or answer.api_version != spec.api_version:
            raise AuthError(f"{plugin} printed something other than the ExecCredential of {spec.api_version} that the "
                            "kubeconfig asks for")
        status = answer.status
        if status is None:
            raise AuthError(f"{plugin} printed an ExecCredential without a status")
        if bool(status.client_certificate_data) != bool(status.client_key_data):
            raise AuthError(f"{plugin} printed only one of client certificate and key")
        certificate = None
        if status.client_certificate_data and status.client_key_data:
            certificate = ClientCertificate(status.client_certificate_data.encode(), status.client_key_data.encode())
            try:
                check_identity(certificate)
            except ConfigError as error:
                raise AuthError(f"{plugin}: {error}") from None
        if not status.token and certificate is None:
            raise AuthError(f"{plugin} gave neither a token nor a client certificate")
        header = None
        if status.token:
            header = checked_header(bearer(status.token), f"the token of {plugin}")
        expires = None if status.expiration_timestamp == _NEVER else status.expiration_timestamp
        return _Snapshot(header, certificate, None if expires is None else expires - self._margin(expires), expires)

    def _margin(self, expires: datetime) -> timedelta:
        life = expires - self._clock.now()
        return min(timedelta(seconds=60), max(timedelta(), life / 5))

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickle has only the arguments, without the plugin's credentials."""
        return partial(type(self), self._spec, clock=self._clock), ()

    def __repr__(self) -> str:
        return f"<exec plugin {self._spec.command}>"


def _read(process: subprocess.Popen[bytes], stop: StopToken) -> tuple[str, bytes, bytes]:
    """The problem of the run, in words that follow the plugin's name in a message, and the two outputs. Blocks until
    the plugin ends, has printed too much or takes too long, or `stop` is set."""
    deadline = time.monotonic() + RUN_TIMEOUT
    outputs = {"standard output": (process.stdout, bytearray()), "standard error": (process.stderr, bytearray())}
    with selectors.DefaultSelector() as selector:
        for name, (pipe, _) in outputs.items():
            assert pipe is not None
            selector.register(pipe, selectors.EVENT_READ, name)
        while selector.get_map() or process.poll() is None:
            ended = process.poll() is not None
            ready = selector.select(_LOOK) if selector.get_map() else []
            for key, _ in ready:
                piece = os.read(key.fd, _PIECE)
                collected = outputs[key.data][1]
                collected += piece
                if not piece:
                    selector.unregister(key.fileobj)
                elif len(collected) > MOST_OUTPUT:
                    return f"was killed: it printed more than {MOST_OUTPUT >> 20} MiB on its {key.data}", b"", b""
            if stop.is_set():
                return f"was killed: {stop.reason}", b"", b""
            if time.monotonic() >= deadline:
                return f"did not end within {RUN_TIMEOUT:g} s and was killed", b"", b""
            if ended and not ready:  # a child process that the plugin left running keeps the output open
                break
            if not selector.get_map():
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_LOOK)
    return "", bytes(outputs["standard output"][1]), bytes(outputs["standard error"][1])


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and all processes of its group. Children that have left the group continue."""
    with suppress(OSError):  # the process has ended already
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()


def _decode(output: bytes) -> _ExecCredential:
    try:
        return decoded(output, _ExecCredential)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        documents = read_text(output)  # plugins may print YAML, but few do
        return converted(documents[0].value if documents else None, _ExecCredential)


def _tail(stderr: bytes) -> str:
    """The end of the plugin's error output, with everything that looks like a credential removed."""
    text = stderr.decode("utf-8", "replace").strip()[-_STDERR_LOOKED_AT:]
    return _SECRET.sub(lambda match: (match.group(1) or "") + "[withheld]", text)[-_STDERR_TAIL:]
