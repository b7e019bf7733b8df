"""Auth providers of kubeconfigs, by way of the official client: what it gives, and one renewal for all threads."""
from __future__ import annotations

import base64
import json
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from kubectl_runtime import AuthError, Config, ConfigError
from kubectl_runtime.client.config.auth_provider import AuthProviderCredentials
from kubectl_runtime.testing.clock import SimClock


class Provider:
    """Stands in for the official `Configuration`: counts renewals, which wait at `gate`."""

    def __init__(self) -> None:
        self.renewals = 0
        self.gate = threading.Event()
        self.gate.set()
        self.begun = threading.Event()
        self.error: Exception | None = None
        self.configuration = SimpleNamespace(api_key={"BearerToken": "Bearer 0"}, refresh_api_key_hook=self.renew)

    def renew(self, configuration: SimpleNamespace) -> None:
        self.begun.set()
        assert self.gate.wait(10)
        if self.error is not None:
            raise self.error
        self.renewals += 1
        configuration.api_key["BearerToken"] = f"Bearer {self.renewals}"


def test_the_official_client_gives_the_token_of_an_oidc_provider(tmp_path: Path) -> None:
    def part(content: dict[str, object]) -> str:
        return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")

    token = f"{part({'alg': 'none'})}.{part({'exp': 4102444800})}.{part({})}"
    provider = {"name": "oidc", "config": {"id-token": token, "idp-issuer-url": "https://issuer.invalid"}}
    path = tmp_path / "config"
    path.write_text(json.dumps({
        "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"auth-provider": provider}}]}))
    config = Config.from_kubeconfig(path)
    credentials = config.credentials()
    assert credentials is not None
    assert credentials.header() == f"Bearer {token}"
    assert token not in repr(config)


def test_the_token_is_renewed_after_a_minute_and_not_before() -> None:
    clock, provider = SimClock(), Provider()
    credentials = AuthProviderCredentials(provider.configuration, "oidc", clock=clock)
    clock.advance(59)
    assert credentials.header() == "Bearer 0"
    clock.advance(1)
    assert credentials.header() == "Bearer 1"
    assert credentials.header() == "Bearer 1"


def test_threads_that_find_the_token_old_at_once_renew_it_once() -> None:
    clock, provider = SimClock(), Provider()
    credentials = AuthProviderCredentials(provider.configuration, "oidc", clock=clock)
    clock.advance(60)
    provider.gate.clear()
    headers: list[str | None] = []
    threads = [threading.Thread(target=lambda: headers.append(credentials.header())) for _ in range(5)]
    for thread in threads:
        thread.start()
    assert provider.begun.wait(10)
    provider.gate.set()
    for thread in threads:
        thread.join(10)
    assert provider.renewals == 1
    assert set(headers) <= {"Bearer 0", "Bearer 1"}


def test_a_rejected_token_that_another_thread_has_replaced_is_not_renewed_again() -> None:
    provider = Provider()
    credentials = AuthProviderCredentials(provider.configuration, "oidc", clock=SimClock())
    assert credentials.refresh("Bearer 0")
    assert credentials.refresh("Bearer 0")
    assert provider.renewals == 1


def test_a_renewal_that_fails_is_an_error_without_the_text_of_the_cause() -> None:
    provider = Provider()
    provider.error = ValueError("secret-token")
    credentials = AuthProviderCredentials(provider.configuration, "oidc", clock=SimClock())
    with pytest.raises(AuthError, match="could not renew its token") as raised:
        credentials.refresh("Bearer 0")
    assert "secret-token" not in str(raised.value)


def test_a_provider_without_a_token_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match="gave no token"):
        AuthProviderCredentials(SimpleNamespace(api_key={}), "gcp")
