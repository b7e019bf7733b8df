"""The layers that a client has by itself, made from its configuration."""
from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

from kubectl_runtime.client.config.auth import ClientCertificate, FixedCredentials
from kubectl_runtime.client.config.config import Config
from kubectl_runtime.client.http.headers import fixed_headers
from kubectl_runtime.client.http.middleware import Send, authenticating, base_url, extra_headers, retrying
from kubectl_runtime.client.http.observed import ObservedCredentials, observed
from kubectl_runtime.client.http.rate_limit import RateLimit, limiting
from kubectl_runtime.client.http.reachability import Reachability, noting
from kubectl_runtime.client.http.retry import RetryPolicy
from kubectl_runtime.client.http.stack import AUTH, BASE_URL, HEADERS, RATE_LIMIT, RETRY, Stack
from kubectl_runtime.client.http.wire_rules import WireRules
from kubectl_runtime.core.base.clock import Clock
from kubectl_runtime.core.base.observer import NO_OBSERVER, Observer


def stack_of(config: Config, rules: WireRules, retry: RetryPolicy, rate_limit: RateLimit | None, clock: Clock,
             observer: Observer, use_certificate: Callable[[ClientCertificate], None]) -> Stack:
    """What stands around each call, by name, for the user to change."""
    host, fixed = _host(config), fixed_headers(config, rules.headers)
    credentials = None if rules.auth or "Authorization" in fixed else config.credentials(clock)
    if credentials is not None and observer is not NO_OBSERVER and not isinstance(credentials, FixedCredentials):
        credentials = ObservedCredentials(credentials, observer, host, clock)
    return Stack((
        (BASE_URL, base_url(config.cluster_url)),
        (RETRY, retrying(retry, clock, host, observer)),
        (AUTH, None if credentials is None else authenticating(credentials, use_certificate)),
        (HEADERS, extra_headers(fixed)),
        (RATE_LIMIT, None if rate_limit is None else limiting(rate_limit, clock)),
    ))


def innermost(exchange: Send, config: Config, clock: Clock, observer: Observer, reachability: Reachability) -> Send:
    """`exchange`, which notes whether the server is there, and outside that, where somebody observes, each attempt."""
    send = noting(reachability)(exchange)
    return send if observer is NO_OBSERVER else observed(observer, _host(config), clock)(send)


def _host(config: Config) -> str:
    return urlsplit(config.cluster_url).netloc.rpartition("@")[2]
