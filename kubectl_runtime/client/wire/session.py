"""What the client takes from a `requests.Session`, read once: where each request goes, and with what added.

    adapters   the one mounted for the server's URL; requests' own default is replaced by two `ApiAdapter`s
    verify     False: verify nothing; a path: trust these CAs      cert     the client certificate
    proxies    outrank the kubeconfig's and the environment's      auth     outranks every configured credential
    headers    those that differ from requests' defaults           hooks    the response hooks
    trust_env  False: no environment proxies

Not used: netrc, cookies, redirects, environment CA bundles, `params`. With `use_session_send` requests go through
`Session.send` (for mocks of it); session adapters and `responses` or requests_mock work without.
"""
from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import requests
from requests.adapters import BaseAdapter, HTTPAdapter
from requests.auth import HTTPBasicAuth
from requests.models import PreparedRequest
from requests.utils import default_headers, select_proxy

from kubectl_runtime.client.config.auth import ClientCertificate
from kubectl_runtime.client.config.config import Config
from kubectl_runtime.client.config.header_text import is_credential
from kubectl_runtime.client.config.secrets import reading_problem, secret_file, secret_headers
from kubectl_runtime.client.http.wire_rules import WireRules
from kubectl_runtime.core.base.errors import ConfigError
from kubectl_runtime.core.base.guarded_log import guarded_logger

log = guarded_logger(__name__)


def rules_with(session: requests.Session | None, config: Config, *, connections: int,
               through_session: bool) -> WireRules:
    """The rules of a client that was given `session` (None: one of requests' own, for `through_session`). Raises
    ConfigError for settings that cannot work."""
    if session is None:
        session = requests.Session()
    _check(session)
    rules = WireRules.of(config, connections=connections, trust_env=session.trust_env,
                         proxy=select_proxy(config.cluster_url, session.proxies) if session.proxies else None)
    defaults = default_headers()
    rules.session, rules.through_session = session, through_session
    rules.verify = session.verify
    rules.headers = tuple(secret_headers({str(name): str(value) for name, value in session.headers.items()
                                          if defaults.get(name) != value}).items())
    rules.auth = _auth(session.auth)
    rules.hooks = tuple(_listed(session.hooks.get("response")))
    if rules.config.withholds_credentials:
        _withhold_credentials(rules)
    try:
        mounted = session.get_adapter(config.cluster_url)
    except requests.exceptions.InvalidSchema:
        raise ConfigError(f"the session has no adapter for {config.cluster_url}: mount one, or leave requests' own "
                          "where they are") from None
    if through_session or not _is_default(mounted):
        rules.mounted, rules.arguments = mounted, _arguments(session, rules)
    else:
        rules.certificate = _certificate(session)
    return rules


def _check(session: requests.Session) -> None:
    """Raises ConfigError for what is not a session, or holds what requests itself would fail on, at the first call."""
    if not isinstance(session, requests.Session):
        raise ConfigError(f"session= takes a requests.Session, not {_kind(session)}")
    verify, cert, auth = session.verify, session.cert, session.auth
    if verify is not None and not isinstance(verify, bool | str | os.PathLike):
        raise ConfigError(f"the session's verify is True, False or a path, not {_kind(verify)}")
    if not (cert is None or isinstance(cert, str | os.PathLike) or (isinstance(cert, tuple) and len(cert) == 2)):
        raise ConfigError(f"the session's cert is a path, or a pair of certificate and key, not {_kind(cert)}")
    if not (auth is None or callable(auth) or (isinstance(auth, tuple) and len(auth) == 2)):
        raise ConfigError(f"the session's auth is a pair of name and password or a function, not {_kind(auth)}")


def _kind(value: object) -> str:
    """What a value is, without showing it: it may be a credential."""
    return f"the class {value.__name__}" if isinstance(value, type) else f"of type {type(value).__name__}"


def _withhold_credentials(rules: WireRules) -> None:
    """Keep the session's own back as well; see `Config.withholds_credentials`."""
    kept = tuple((name, value) for name, value in rules.headers if not is_credential(name))
    if rules.auth is not None or len(kept) < len(rules.headers):
        log.warning("the session's credentials are not sent to %s, which is neither https nor loopback: use "
                    "https, or Config(allow_plain_http_credentials=True) where that is safe", rules.config.cluster_url)
    rules.auth, rules.headers = None, kept


def _is_default(adapter: BaseAdapter) -> bool:
    """Whether requests itself mounted it."""
    return type(adapter) is HTTPAdapter and adapter.max_retries.total == 0


def _arguments(session: requests.Session, rules: WireRules) -> dict[str, Any]:
    """An adapter that is not ours takes trust and identity as arguments, which are files."""
    config = rules.config
    verify: bool | str | None = session.verify
    if verify is True:
        verify = not config.insecure_skip_tls_verify and (config.ca_file or _ca_path(rules) or True)
    cert = session.cert
    if cert is None and config.client_certificate_file and config.client_key_file:
        cert = (config.client_certificate_file, config.client_key_file)
    if cert is None and config.client_certificate_data:
        raise ConfigError(f"{config.origin}: a client certificate given as data cannot be used by an adapter "
                          "mounted on the session or with use_session_send: give it as files, or mount no adapter")
    proxies = {"http": rules.proxy, "https": rules.proxy} if rules.proxy else {}
    return {"verify": verify, "cert": cert, "proxies": proxies}


def _ca_path(rules: WireRules) -> str | None:
    if not rules.config.ca_data:
        return None
    descriptor, path = tempfile.mkstemp(suffix=".pem")  # a CA is not a secret; the file goes with the rules
    with os.fdopen(descriptor, "wb") as file:
        file.write(rules.config.ca_data)
    weakref.finalize(rules, _remove, path, os.getpid())
    return path


def _remove(path: str, process: int) -> None:
    if process == os.getpid():  # not in the child of a fork, which shares the parent's file
        Path(path).unlink(missing_ok=True)


def _auth(auth: Any) -> Callable[[PreparedRequest], PreparedRequest] | None:
    if isinstance(auth, tuple):
        return HTTPBasicAuth(*auth)
    return auth  # type: ignore[no-any-return]


def _listed(hooks: Any) -> Iterable[Callable[..., Any]]:
    if hooks is None:
        return ()
    return (hooks,) if callable(hooks) else hooks


def _certificate(session: requests.Session) -> ClientCertificate | None:
    if session.cert is None:
        return None
    certificate, key = session.cert if isinstance(session.cert, tuple) else (session.cert, session.cert)
    try:
        return ClientCertificate(secret_file(certificate), secret_file(key) if key != certificate else b"")
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read the session's client certificate: {reading_problem(error)}") from None
