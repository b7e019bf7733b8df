"""Auth providers of kubeconfigs (`auth-provider`: oidc, gcp).

An OIDC token is renewed here (OpenID Connect Discovery 1.0, and RFC 6749, section 6) with urllib3. The official
client's libraries are not used, because they write tokens to the log and send tokens to the targets of redirects.
Requests go over https (or http to loopback) to a provider whose certificate is verified by the CA in the kubeconfig,
else by the system's CAs. A redirect is a failure. The environment's proxies are used by the same rules as for an API
server.

A gcp token is renewed by the official client. No other module imports the `kubernetes` package, and this one does so
only when a gcp token has to be renewed, since the import takes half a second and 43 MiB. This module uses only the
class `Configuration` and the function `load_kube_config_from_dict`, which major versions 32 to 37 of the package have
in common. The function asks the provider for a new token when the current token has expired, and has no time limit.
`Renewal` calls the function in a separate thread, so that every caller waits only until its own deadline.
"""
from __future__ import annotations

import base64
import os
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import quote_plus, unquote, urlencode

import msgspec

from kubectl_runtime.client.config.auth import ClientCertificate, Renewal, bearer, checked_header
from kubectl_runtime.client.config.checks import checked_url
from kubectl_runtime.client.config.proxies import environment_proxy, is_loopback_url, without_password
from kubectl_runtime.client.config.secrets import MOST_BYTES, Secret, reading_problem, secret_file
from kubectl_runtime.core.base.errors import AuthError, ConfigError
from kubectl_runtime.core.base.threads import SYSTEM_CLOCK, Clock, unforked
from kubectl_runtime.core.base.wire import decoded
from kubectl_runtime.core.meta.problems import DECODE_FAILURES
from kubectl_runtime.core.scope import StopToken

PROVIDERS = ("oidc", "gcp")
"""The supported providers; the official client supports no others either."""
_REMEDY = "use an exec plugin or a token instead, or sign in again"
_TOKEN_KEYS = ("BearerToken", "authorization")  # the official client's key from version 36 on, and its older key
_PERIOD = 60.0
_CONNECT, _READ = 10.0, 30.0
"""Seconds for a connection to the provider, and for each silence in its answer."""

T = TypeVar("T")


class AuthProviderCredentials:
    """A token that an auth provider renews. Safe to use from any thread; opens no connection before `header` is called.
    During a renewal `header` blocks, until the caller's deadline at most.
    """

    def __init__(self, name: str, config: Mapping[str, str], *, clock: Clock = SYSTEM_CLOCK) -> None:
        """`config`: the provider's settings, as in the kubeconfig."""
        self._name = name
        self._config = dict(config)
        self._clock = clock
        self._asked_at = float("-inf")
        self._renewal = Renewal(f"the auth provider {name!r}", self._ask, is_due=self._is_due, is_valid=self._is_valid,
                                clock=clock)

    def header(self, deadline: float | None = None) -> str | None:
        """`Bearer` and the token, renewed if it has expired; blocks during the renewal until `deadline` at most. Raises
        AuthError."""
        return self._renewal.current(deadline)

    def refresh(self, rejected: str | None, deadline: float | None = None) -> bool:
        """Renew the token; returns whether it differs from the `rejected` one. Blocks and raises like `header`."""
        return self._renewal.replaced(lambda header: header == rejected, deadline)

    def certificate(self) -> ClientCertificate | None:
        """None: these credentials have only a header."""
        return None

    def _is_due(self, header: str) -> bool:
        return self._clock.monotonic() - self._asked_at >= _PERIOD or not self._is_valid(header)

    def _is_valid(self, header: str) -> bool:
        expires = _expiry(header)
        return expires is None or self._clock.now() < expires

    def _ask(self, _stop: StopToken) -> Secret:
        """The provider's token, renewed if it has expired. Called in its own thread; raises AuthError."""
        self._asked_at = self._clock.monotonic()
        try:
            token = self._oidc_token() if self._name == "oidc" else _official_token(self._name, dict(self._config))
        except (AuthError, ImportError) as error:
            raise AuthError(str(error)) from None
        except Exception as error:  # noqa: BLE001 - whatever a provider's library raises; it may quote a token
            raise AuthError(f"the auth provider {self._name!r} gave no token ({_root_cause(error)}): {_REMEDY}"
                            ) from None
        if not token:
            raise AuthError(f"the auth provider {self._name!r} gave no token: {_REMEDY}")
        header = checked_header(bearer(token.removeprefix("Bearer ")),
                                f"the token of the auth provider {self._name!r}")
        if not self._is_valid(header):
            raise AuthError(f"the auth provider {self._name!r} gave no token: the current one has expired and the "
                            f"provider did not renew it: {_REMEDY}")
        return header

    def _oidc_token(self) -> str | None:
        config = self._config
        if config.get("id-token") and self._is_valid(config["id-token"]):
            return config["id-token"]
        for key in ("idp-issuer-url", "client-id", "refresh-token"):
            if not config.get(key):
                raise AuthError(f"the auth provider 'oidc' cannot renew its token, which has expired: its config has "
                                f"no {key}: sign in again")
        issuer = _checked_endpoint(config["idp-issuer-url"], "idp-issuer-url").rstrip("/")
        context = _context(config)
        discovery = _answer("GET", f"{issuer}/.well-known/openid-configuration", context, _Discovery)
        endpoint = _checked_endpoint(discovery.token_endpoint, "token endpoint")
        identity, password = config["client-id"], config.get("client-secret")
        form = {"grant_type": "refresh_token", "refresh_token": config["refresh-token"], "client_id": identity}
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        if password:
            pair = f"{quote_plus(identity)}:{quote_plus(password)}"
            headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        tokens = _answer("POST", endpoint, context, _Tokens, body=urlencode(form).encode(), headers=headers)
        if tokens.id_token:
            config["id-token"] = tokens.id_token
            config["refresh-token"] = tokens.refresh_token or config["refresh-token"]
        return tokens.id_token

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickle has the current settings."""
        return partial(type(self), self._name, self._config, clock=self._clock), ()

    def __repr__(self) -> str:
        return f"<auth provider {self._name}>"


def _official_token(name: str, config: dict[str, str]) -> str | None:
    """The official client's token for this provider. Renewing the token changes `config`."""
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


def _checked_endpoint(url: str, what: str) -> str:
    """`url`, if tokens may be sent there. Raises AuthError."""
    try:
        checked = checked_url(url.partition("?")[0], what, tls=False)
    except ConfigError as error:
        raise AuthError(f"no request was sent to the auth provider 'oidc': {error}") from None
    if not checked.startswith("https://") and not is_loopback_url(checked):
        raise AuthError(f"the auth provider 'oidc' cannot be used: its {what} must be an https URL")
    return url


def _context(config: Mapping[str, str]) -> ssl.SSLContext:
    """A TLS context that trusts the CA of the kubeconfig, else the system's CAs. Raises AuthError."""
    data, path = (config.get(f"idp-certificate-authority{suffix}") for suffix in ("-data", ""))
    try:
        pem = base64.b64decode(data, validate=True) if data else secret_file(path) if path else None
        return ssl.create_default_context(cadata=None if pem is None else pem.decode())
    except (OSError, ValueError) as error:  # an ssl.SSLError is an OSError
        raise AuthError("the auth provider 'oidc' cannot be used: its idp-certificate-authority cannot be used: "
                        f"{reading_problem(error)}") from None


class _Discovery(msgspec.Struct):
    token_endpoint: str


class _Tokens(msgspec.Struct):
    id_token: str | None = None
    refresh_token: str | None = None


def _answer(method: str, url: str, context: ssl.SSLContext, kind: type[T], **request: Any) -> T:
    """The provider's answer. Blocks until the answer has arrived. Raises AuthError, and what urllib3 raises."""
    with unforked():
        import urllib3

    proxy = environment_proxy(url, os.environ)
    options: dict[str, Any] = {"ssl_context": context, "retries": False}
    if proxy is None:
        pools: urllib3.PoolManager = urllib3.PoolManager(**options)
    elif proxy.startswith("socks"):
        from urllib3.contrib.socks import SOCKSProxyManager

        pools = SOCKSProxyManager(proxy, **options)
    else:
        parsed = urllib3.util.parse_url(proxy)
        headers = urllib3.make_headers(proxy_basic_auth=unquote(parsed.auth)) if parsed.auth else None
        pools = urllib3.ProxyManager(without_password(proxy), proxy_headers=headers, **options)
    try:
        response = pools.request(method, url, redirect=False, preload_content=False, decode_content=False,
                                 timeout=urllib3.Timeout(connect=_CONNECT, read=_READ), **request)
        body = response.read(MOST_BYTES + 1)
    finally:
        pools.clear()
    if response.status != HTTPStatus.OK:
        raise AuthError(f"the auth provider 'oidc' gave no token (HTTP {response.status}): {_REMEDY}")
    try:
        return decoded(body[:MOST_BYTES], kind)
    except DECODE_FAILURES:
        raise AuthError(f"the auth provider 'oidc' gave no token (its answer is not the expected JSON): "
                        f"{_REMEDY}") from None


def _root_cause(error: BaseException) -> str:
    """The names of the chained exceptions, innermost last. They show whether, for example, a certificate or a closed
    port was the cause."""
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
    """When a JWT expires; None for a JWT without expiry and for other tokens. The server checks the signature."""
    parts = header.removeprefix("Bearer ").split(".")
    if len(parts) != 3:
        return None
    try:
        claims = decoded(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)), _Claims)
        return None if claims.exp is None else datetime.fromtimestamp(claims.exp, UTC)
    except (ValueError, OverflowError, OSError, *DECODE_FAILURES):  # binascii.Error is a ValueError
        return None

