"""Credentials from an exec plugin (`users[].user.exec` of a kubeconfig): a program that prints an ExecCredential.

The plugin runs when there are no credentials yet, when they are about to expire (a fifth of their life before, at most
60 s), and once after a 401. Credentials without an expiry stay until a 401. One thread runs it, the others wait for the
same result; a plugin that failed, or whose fresh credentials were rejected, is left alone for `QUIET_PERIOD`.

It never gets a terminal: a library has none to offer. A plugin with `interactiveMode: Always` is refused.
"""
from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import threading
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import msgspec

from kubectl_runtime.client.config.auth import ClientCertificate, checked_header
from kubectl_runtime.core.base.clock import SYSTEM_CLOCK, Clock
from kubectl_runtime.core.base.errors import AuthError, ConfigError
from kubectl_runtime.manifests.documents import read_text

log = logging.getLogger(__name__)

QUIET_PERIOD = 10.0
"""Seconds between two runs of a plugin that did not help."""
RUN_TIMEOUT = 60.0
"""Seconds that a plugin may take."""
_API_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_STDERR_TAIL = 500
_SECRET = re.compile(r"(?i)(bearer\s+|(?:token|password|secret|key)[\"']?\s*[=:]\s*[\"']?)\S+"
                     r"|[\w-]{16,}\.[\w-]{16,}\.[\w-]{16,}")


@dataclass(frozen=True)
class ExecSpec:
    """How to run the plugin. `env` is added to this process's environment; `cluster` is passed on when asked for."""

    command: str
    args: tuple[str, ...] = field(default=(), repr=False)
    env: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    api_version: str = _API_VERSIONS[0]
    cluster: dict[str, Any] | None = field(default=None, repr=False, compare=False)
    install_hint: str = ""

    @classmethod
    def parse(cls, config: dict[str, Any], *, cluster: dict[str, Any] | None = None) -> ExecSpec:
        """From the `exec` mapping of a kubeconfig; nulls count as empty. Raises ConfigError."""
        command, version = config.get("command"), config.get("apiVersion")
        if not isinstance(command, str) or not command:
            raise ConfigError("the exec plugin of the kubeconfig names no command")
        if version not in _API_VERSIONS:
            raise ConfigError(f"the exec plugin {command} speaks {version!r}: "
                              f"expected one of {', '.join(_API_VERSIONS)}")
        if config.get("interactiveMode") == "Always":
            raise ConfigError(f"the exec plugin {command} needs a terminal (interactiveMode: Always): "
                              "use credentials that need none, e.g. a service account's token")
        env = tuple((str(entry["name"]), str(entry.get("value") or "")) for entry in config.get("env") or ())
        return cls(command, tuple(map(str, config.get("args") or ())), env, version,
                   cluster if config.get("provideClusterInfo") else None, str(config.get("installHint") or ""))


@dataclass(frozen=True)
class _Snapshot:
    header: str | None = field(repr=False)
    certificate: ClientCertificate | None
    renew_at: datetime | None
    expires_at: datetime | None


class _Status(msgspec.Struct, rename="camel"):
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: datetime | None = None


class _ExecCredential(msgspec.Struct):
    status: _Status


class ExecCredentials:
    """Credentials that a plugin provides. Safe to use from any thread; may block as long as the plugin runs."""

    def __init__(self, spec: ExecSpec, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._spec = spec
        self._clock = clock
        self._lock = threading.Lock()
        self._snapshot: _Snapshot | None = None
        self._failed: tuple[float, AuthError] | None = None
        self._forced_at = float("-inf")

    def header(self) -> str | None:
        snapshot = self._snapshot
        if snapshot is not None and self._fresh(snapshot):
            return snapshot.header
        with self._lock:
            snapshot = self._snapshot
            if snapshot is None or not self._fresh(snapshot):
                snapshot = self._renew(snapshot)
            return snapshot.header

    def refresh(self, rejected: str | None) -> bool:
        with self._lock:
            before = self._snapshot
            if before is not None and before.header != rejected:
                return True  # another thread has been here
            now = self._clock.monotonic()
            if now - self._forced_at < QUIET_PERIOD:
                return False
            self._forced_at = now
            return self._run() != before

    def certificate(self) -> ClientCertificate | None:
        snapshot = self._snapshot
        return snapshot.certificate if snapshot is not None else None

    def _fresh(self, snapshot: _Snapshot) -> bool:
        return snapshot.renew_at is None or self._clock.now() < snapshot.renew_at

    def _renew(self, old: _Snapshot | None) -> _Snapshot:
        """New credentials; the old ones while they are still valid and the plugin fails. The caller holds the lock."""
        now = self._clock.monotonic()
        failed = self._failed
        error = failed[1] if failed is not None and now - failed[0] < QUIET_PERIOD else None
        if error is None:
            try:
                return self._run()
            except AuthError as fresh:
                error = fresh
                self._failed = (now, fresh)
                log.warning("%s", fresh)
        if old is not None and old.expires_at is not None and self._clock.now() < old.expires_at:
            return old
        raise AuthError(str(error))

    def _run(self) -> _Snapshot:
        self._snapshot = snapshot = self._parse(self._output())
        self._failed = None
        return snapshot

    def _output(self) -> bytes:
        spec = self._spec
        info = {"apiVersion": spec.api_version, "kind": "ExecCredential", "spec": {"interactive": False}}
        if spec.cluster is not None:
            info["spec"] = {"interactive": False, "cluster": spec.cluster}
        environment = {**os.environ, **dict(spec.env), "KUBERNETES_EXEC_INFO": json.dumps(info)}
        try:
            done = subprocess.run([spec.command, *spec.args], env=environment, stdin=subprocess.DEVNULL,
                                  capture_output=True, timeout=RUN_TIMEOUT, check=False)
        except subprocess.TimeoutExpired:
            raise AuthError(f"the exec plugin {spec.command} did not end within {RUN_TIMEOUT:g} s") from None
        except OSError as error:
            hint = f": {spec.install_hint}" if spec.install_hint else ""
            raise AuthError(f"the exec plugin {spec.command} cannot be run ({error.strerror}){hint}") from None
        if done.returncode != 0:
            said = _tail(done.stderr)
            raise AuthError(f"the exec plugin {spec.command} failed with exit code {done.returncode}"
                            + (f": {said}" if said else " and no message"))
        return done.stdout

    def _parse(self, output: bytes) -> _Snapshot:
        command = self._spec.command
        try:
            status = _decode(output).status
        except (msgspec.MsgspecError, ValueError):
            raise AuthError(f"the exec plugin {command} printed no ExecCredential with a status") from None
        if bool(status.client_certificate_data) != bool(status.client_key_data):
            raise AuthError(f"the exec plugin {command} gave only one of certificate and key")
        certificate = None
        if status.client_certificate_data and status.client_key_data:
            certificate = ClientCertificate(status.client_certificate_data.encode(), status.client_key_data.encode())
        if not status.token and certificate is None:
            raise AuthError(f"the exec plugin {command} gave neither a token nor a client certificate")
        header = None
        if status.token:
            header = checked_header(f"Bearer {status.token.strip()}", f"the token of the exec plugin {command}")
        expires = status.expiration_timestamp
        return _Snapshot(header, certificate, None if expires is None else expires - self._margin(expires), expires)

    def _margin(self, expires: datetime) -> timedelta:
        life = expires - self._clock.now()
        return min(timedelta(seconds=60), max(timedelta(), life / 5))

    def __repr__(self) -> str:
        return f"<exec plugin {self._spec.command}>"


def _decode(output: bytes) -> _ExecCredential:
    try:
        return msgspec.json.decode(output, type=_ExecCredential)
    except msgspec.DecodeError:
        documents = read_text(output)  # plugins may print YAML, few do
        return msgspec.convert(documents[0].value if documents else None, _ExecCredential, strict=False)


def _tail(stderr: bytes) -> str:
    """The end of what the plugin said, with everything that looks like a credential taken out."""
    text = stderr.decode("utf-8", "replace").strip()[-_STDERR_TAIL:]
    return _SECRET.sub(lambda match: (match.group(1) or "") + "[withheld]", text)
