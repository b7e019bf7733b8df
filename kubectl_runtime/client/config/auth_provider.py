"""Auth providers of kubeconfigs (`auth-provider`: oidc, gcp), by way of the official client.

This is the one place of the client that touches the `kubernetes` package, which is imported when a token is needed and
not at hand: it costs half a second and 43 MiB. Used is what its majors 32 to 37 have in common and the contract tests
pin: `load_kube_config_from_dict` into a `Configuration` of our own, which asks the provider for a new token when the
one at hand has expired, and puts it into the mapping that it was given.

Left to itself it does not verify an OIDC provider for which the kubeconfig names no authority; here it verifies with
the system's. It knows no time limit; `Renewal` gives it a thread that no caller waits for beyond its deadline.
"""
from __future__ import annotations

import base64
import os
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec

from kubectl_runtime.client.config.auth import ClientCertificate, bearer, checked_header
from kubectl_runtime.client.config.proxies import is_loopback_url
from kubectl_runtime.client.config.renewal import Renewal
from kubectl_runtime.core.base.building import decoded
from kubectl_runtime.core.base.clock import SYSTEM_CLOCK, Clock
from kubectl_runtime.core.base.errors import AuthError
from kubectl_runtime.core.base.stop import StopToken
from kubectl_runtime.core.interpreter.forks import unforked
from kubectl_runtime.core.meta.problems import DECODE_FAILURES

PROVIDERS = ("oidc", "gcp")
"""Those that the official client knows."""
_REMEDY = "use an exec plugin or a token instead, or sign in again"
_TOKEN_KEYS = ("BearerToken", "authorization")  # since 36, and before
_PERIOD = 60.0
_AUTHORITY = ("idp-certificate-authority-data", "idp-certificate-authority")


class AuthProviderCredentials:
    """A token that an auth provider keeps fresh. Safe to use from any thread; opens no connection before it is asked
    for the token. Blocks until the caller's deadline at most while the token is renewed.
    """

    def __init__(self, name: str, config: Mapping[str, str], *, clock: Clock = SYSTEM_CLOCK) -> None:
        """`config`: the provider's, as in the kubeconfig."""
        self._name = name
        self._config = dict(config)
        self._clock = clock
        self._asked_at = float("-inf")
        self._renewal = Renewal(f"the auth provider {name!r}", self._ask, is_due=self._is_due, is_valid=self._is_valid,
                                clock=clock)

    def header(self, deadline: float | None = None) -> str | None:
        """`Bearer` and the token, renewed if it has expired. Blocks meanwhile, until `deadline` at most; raises
        AuthError."""
        return self._renewal.current(deadline)

    def refresh(self, rejected: str | None, deadline: float | None = None) -> bool:
        """Renew the token; whether there is another one than the `rejected` one. Blocks and raises as `header`."""
        return self._renewal.replaced(lambda header: header == rejected, deadline)

    def certificate(self) -> ClientCertificate | None:
        """None: there is only the header."""
        return None

    def _is_due(self, header: str) -> bool:
        return self._clock.monotonic() - self._asked_at >= _PERIOD or not self._is_valid(header)

    def _is_valid(self, header: str) -> bool:
        expires = _expiry(header)
        return expires is None or self._clock.now() < expires

    def _ask(self, _stop: StopToken) -> str:
        """The provider's token, a new one if it has expired. In a thread of its own; raises AuthError."""
        self._asked_at = self._clock.monotonic()
        if self._name == "oidc" and self._config.get("id-token") and self._is_valid(self._config["id-token"]):
            token: str | None = self._config["id-token"]
        else:
            if self._name == "oidc":
                self._prepare_oidc()
            try:
                token = _official_token(self._name, self._config)
            except Exception as error:  # noqa: BLE001 - whatever a provider's library raises; it may quote a token
                raise AuthError(f"the auth provider {self._name!r} gave no token "
                                f"({_root_cause(error)}): {_REMEDY}") from None
        if not token:
            raise AuthError(f"the auth provider {self._name!r} gave no token: {_REMEDY}")
        header = checked_header(bearer(token.removeprefix("Bearer ")),
                                f"the token of the auth provider {self._name!r}")
        if not self._is_valid(header):
            raise AuthError(f"the auth provider {self._name!r} gave no token: the one at hand has expired and the "
                            f"provider did not renew it: {_REMEDY}")
        return header

    def _prepare_oidc(self) -> None:
        """What the official client needs to renew a token, and to verify whom it asks."""
        config = self._config
        config["id-token"] = _EXPIRED  # it looks at nothing else, and by its own clock, to see that one is needed
        for key in ("idp-issuer-url", "client-id", "refresh-token"):
            if not config.get(key):
                raise AuthError(f"the auth provider 'oidc' cannot renew its token, which has expired: its config has "
                                f"no {key}: sign in again")
        if not config["idp-issuer-url"].startswith("https://") and not is_loopback_url(config["idp-issuer-url"]):
            raise AuthError("the auth provider 'oidc' is not asked: its idp-issuer-url is not https")
        config.setdefault("client-secret", "")
        config["idp-issuer-url"] = config["idp-issuer-url"].rstrip("/")
        for key in _AUTHORITY:
            if not config.get(key):
                config.pop(key, None)
        if not any(key in config for key in _AUTHORITY):
            config["idp-certificate-authority"] = _system_authorities()

    def __reduce__(self) -> tuple[Any, ...]:
        """For pickles: with the settings as they are now."""
        return partial(type(self), self._name, self._config, clock=self._clock), ()

    def __repr__(self) -> str:
        return f"<auth provider {self._name}>"


def _official_token(name: str, config: dict[str, str]) -> str | None:
    """What the official client makes of the provider. It changes `config` when it renews the token."""
    with unforked():
        from kubernetes import client
        from kubernetes import config as official

    configuration = client.Configuration()
    document = {
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1"}}],
        "users": [{"name": "u", "user": {"auth-provider": {"name": name, "config": config}}}],
    }
    official.load_kube_config_from_dict(document, client_configuration=configuration, persist_config=False)
    return next((value for key in _TOKEN_KEYS if (value := configuration.api_key.get(key))), None)


def _system_authorities() -> str:
    """The file with the authorities that this system trusts."""
    paths = ssl.get_default_verify_paths()
    if paths.cafile and os.path.exists(paths.cafile):
        return paths.cafile
    import certifi

    return certifi.where()


def _root_cause(error: BaseException) -> str:
    """The names of the exceptions, the innermost last: they tell an untrusted certificate from a closed port."""
    names = [type(error).__name__]
    while True:
        reason: Any = getattr(error, "reason", None)
        inner = reason if isinstance(reason, BaseException) else next(
            (argument for argument in error.args if isinstance(argument, BaseException)), None)
        if inner is None:
            return ": ".join(dict.fromkeys(names))
        error = inner
        names.append(type(error).__name__)


class _Claims(msgspec.Struct):
    exp: float | None = None


def _expiry(header: str) -> datetime | None:
    """When a JWT expires; None for one that does not say, and for other tokens. The signature is the server's matter.
    """
    parts = header.removeprefix("Bearer ").split(".")
    if len(parts) != 3:
        return None
    try:
        claims = decoded(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)), _Claims)
        return None if claims.exp is None else datetime.fromtimestamp(claims.exp, UTC)
    except (ValueError, OverflowError, OSError, *DECODE_FAILURES):  # binascii.Error is a ValueError
        return None


_EXPIRED = ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in (b"{}", b'{"exp":1}', b"-"))
"""A JWT that expired in 1970."""
