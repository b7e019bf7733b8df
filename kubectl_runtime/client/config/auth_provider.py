"""The one place that touches the `kubernetes` package: what its `config` module makes of a selected context.

It is imported inside functions only (it costs half a second and 43 MiB). Of what it offers the client uses two things,
which its majors 32 to 37 have in common and which the contract tests pin: `load_kube_config_from_dict` into a
`Configuration` of our own, and `refresh_api_key_hook` for the auth providers that were built into clients once (oidc,
gcp). Tokens, plugins, keys and certificates never pass through it: it would write them to files, and keeps no token
fresh.
"""
from __future__ import annotations

import threading
from typing import Any

from kubectl_runtime.client.config.auth import ClientCertificate, checked_header
from kubectl_runtime.client.config.kubeconfig import Selected
from kubectl_runtime.core.base.clock import SYSTEM_CLOCK, Clock
from kubectl_runtime.core.base.errors import AuthError, ConfigError

_CLUSTER_KEYS = ("server", "insecure-skip-tls-verify")
_TOKEN_KEYS = ("BearerToken", "authorization")  # since 36, and before
_PERIOD = 60.0


def load(selected: Selected) -> Any:
    """The `kubernetes.client.Configuration` of the context's endpoint. Raises ConfigError with its reason."""
    from kubernetes import client, config

    configuration = client.Configuration()
    user = {key: value for key, value in selected.user.items() if key == "auth-provider"}
    document = {
        "apiVersion": "v1", "kind": "Config", "current-context": selected.context,
        "contexts": [{"name": selected.context, "context": {"cluster": selected.cluster_name, "user": "user"}}],
        "clusters": [{"name": selected.cluster_name,
                      "cluster": {key: selected.cluster[key] for key in _CLUSTER_KEYS if key in selected.cluster}}],
        "users": [{"name": "user", "user": user}],
    }
    try:
        config.load_kube_config_from_dict(document, client_configuration=configuration, persist_config=False)
    except config.ConfigException as error:
        raise ConfigError(f"{selected.origin}: {error}") from None
    except Exception as error:  # noqa: BLE001 - whatever a provider's library raises; its text may quote a token
        raise ConfigError(f"{selected.origin}: the official client cannot load it ({type(error).__name__})") from None
    return configuration


class AuthProviderCredentials:
    """A token kept fresh by the official client's auth provider. Safe to use from any thread; blocks while it is
    renewed.
    """

    def __init__(self, configuration: Any, name: str, *, clock: Clock = SYSTEM_CLOCK) -> None:
        """Raises ConfigError when the provider gave no token."""
        self._configuration = configuration
        self._name = name
        self._clock = clock
        self._lock = threading.Lock()
        self._checked_at = clock.monotonic()
        self._header = _token_of(configuration)
        if self._header is None:
            raise ConfigError(f"the auth provider {name!r} of the kubeconfig gave no token: "
                              "use an exec plugin or a token instead")

    def header(self) -> str | None:
        if self._is_due():
            with self._lock:
                if self._is_due():  # no other thread has been here meanwhile
                    self._renew()
        return self._header

    def refresh(self, rejected: str | None) -> bool:
        with self._lock:
            if self._header == rejected:
                self._renew()
            return self._header != rejected

    def certificate(self) -> ClientCertificate | None:
        return None

    def _is_due(self) -> bool:
        return self._clock.monotonic() - self._checked_at >= _PERIOD

    def _renew(self) -> None:
        self._checked_at = self._clock.monotonic()
        hook = getattr(self._configuration, "refresh_api_key_hook", None)
        if hook is None:
            return
        try:
            hook(self._configuration)
        except Exception as error:  # noqa: BLE001 - as above
            raise AuthError(f"the auth provider {self._name!r} could not renew its token "
                            f"({type(error).__name__})") from None
        self._header = _token_of(self._configuration) or self._header

    def __repr__(self) -> str:
        return f"<auth provider {self._name}>"


def _token_of(configuration: Any) -> str | None:
    found = next((value for key in _TOKEN_KEYS if (value := configuration.api_key.get(key))), None)
    if found is None:
        return None
    return checked_header(found if found.startswith("Bearer ") else f"Bearer {found}", "the auth provider's token")
