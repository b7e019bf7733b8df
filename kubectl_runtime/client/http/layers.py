"""The layers of a client, which are made from its configuration, and how a program changes them.

`Stack` names the layers of a client, outermost first, so that they can be changed before the client is built:

    base url -> retry -> auth -> headers -> rate limit -> the user's list -> the adapter

    def layers(stack: Stack) -> Stack:
        # `counting` sees each call once, however often the call is retried
        return stack.outside("retry", counting).replaced("auth", own_credentials)

    Client(config, layers=layers)

Layers outside `retry` see each call once, layers inside see each attempt, and layers inside `auth` also see the second
attempt after a 401. Layers that are passed to the client as a list are placed innermost; the first layer of the list is
the outermost of them.

`ObservedCredentials` report changes of credentials to the client's observer, if there is one. Other reports to the
observer come from the retry layer (retries), from `send.exchange` (attempts) and from the verbs (writes).
"""
from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec

from kubectl_runtime.client.config.auth import ClientCertificate, Credentials, FixedCredentials
from kubectl_runtime.client.config.config import Config
from kubectl_runtime.client.config.secrets import secret
from kubectl_runtime.client.http.middleware import (
    Layer,
    Send,
    authenticating,
    base_url,
    extra_headers,
    fixed_headers,
    retrying,
    stacked,
)
from kubectl_runtime.client.http.retry import RetryPolicy
from kubectl_runtime.client.http.send import RateLimit, limiting
from kubectl_runtime.client.http.wire_rules import WireRules
from kubectl_runtime.core.base.errors import ConfigError
from kubectl_runtime.core.base.observer import Observer, is_observed
from kubectl_runtime.core.base.threads import Clock, ForkSafeLock

T = TypeVar("T")


class ObservedCredentials:
    """Credentials that report renewals to an observer. A change is reported when a call, or its repetition after a 401,
    uses other credentials than the previous call. A failure is reported when no credentials can be obtained. Safe to
    use from any thread."""

    def __init__(self, credentials: Credentials, observer: Observer, host: str, clock: Clock) -> None:
        self._credentials = credentials
        self._observer = observer
        self._host = host
        self._clock = clock
        self._lock = ForkSafeLock()
        self._last: tuple[str | None, ClientCertificate | None] | None = None

    def header(self, deadline: float | None = None) -> str | None:
        """Return the value of the wrapped credentials; report a changed value and a failure to the observer."""
        if not is_observed(self._observer):
            return self._credentials.header(deadline)
        begun = self._clock.monotonic()
        header: str | None = secret(self._ask(begun, lambda: self._credentials.header(deadline)))
        self._tell_if_new(begun, header)
        return header

    def refresh(self, rejected: str | None, deadline: float | None = None) -> bool:
        """Refresh the wrapped credentials; report success and failure to the observer."""
        begun = self._clock.monotonic()
        helped = self._ask(begun, lambda: self._credentials.refresh(rejected, deadline))
        if helped:
            self._tell_if_new(begun, secret(self._ask(begun, lambda: self._credentials.header(deadline))))
        return helped

    def certificate(self) -> ClientCertificate | None:
        """The client certificate of the wrapped credentials."""
        return self._credentials.certificate()

    def _ask(self, begun: float, ask: Callable[[], T]) -> T:
        try:
            return ask()
        except Exception as error:
            self._observer.credentials_refreshed(self._host, self._clock.monotonic() - begun, error)
            raise

    def _tell_if_new(self, begun: float, header: str | None) -> None:
        current = header, self._credentials.certificate()
        with self._lock:
            new, self._last = current != self._last, current
        if new:
            self._observer.credentials_refreshed(self._host, self._clock.monotonic() - begun, None)

    def __repr__(self) -> str:
        return repr(self._credentials)


BASE_URL, RETRY, AUTH, HEADERS, RATE_LIMIT = "base url", "retry", "auth", "headers", "rate limit"


class Stack(msgspec.Struct, frozen=True):
    """Named layers, outermost first; a built-in layer that this client does not need is None. Immutable.

    >>> own = Client(Config(cluster_url=server.url), layers=lambda stack: stack.without("retry"))
    >>> own.close()
    """

    entries: tuple[tuple[str, Layer | None], ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the remaining built-in layers, outermost first; the user's layers have no names."""
        return tuple(name for name, _ in self.entries if name)

    def outside(self, name: str, *layers: Layer) -> Stack:
        """The stack with `layers` around the built-in layer `name`; the first layer is the outermost. Raises
        ConfigError when there is no layer `name`."""
        return self._spliced(self._index(name), 0, layers)

    def inside(self, name: str, *layers: Layer) -> Stack:
        """The stack with `layers` directly inside the built-in layer `name`; the first layer is the outermost. Raises
        ConfigError when there is no layer `name`."""
        return self._spliced(self._index(name) + 1, 0, layers)

    def innermost(self, *layers: Layer) -> Stack:
        """The stack with `layers` next to the connection, where they see each attempt; the first is the outermost."""
        return self._spliced(len(self.entries), 0, layers)

    def replaced(self, name: str, layer: Layer) -> Stack:
        """The stack with `layer` in place of the built-in layer `name`. Raises ConfigError when there is no layer
        `name`."""
        at = self._index(name)
        return Stack((*self.entries[:at], (name, _checked(layer)), *self.entries[at + 1:]))

    def without(self, name: str) -> Stack:
        """The stack without the built-in layer `name`. Raises ConfigError when there is no layer `name`."""
        return self._spliced(self._index(name), 1, ())

    def around(self, exchange: Send) -> Send:
        """The function that sends calls through all layers to `exchange`."""
        return stacked([layer for _, layer in self.entries if layer is not None], exchange)

    def _index(self, name: str) -> int:
        if name not in self.names:
            raise ConfigError(f"the client has no layer {name!r}: it has {', '.join(map(repr, self.names))}")
        return next(index for index, (known, _) in enumerate(self.entries) if known == name)

    def _spliced(self, at: int, removed: int, layers: Iterable[Layer]) -> Stack:
        added = tuple(("", _checked(layer)) for layer in layers)
        return Stack((*self.entries[:at], *added, *self.entries[at + removed:]))


Layers = Iterable[Layer] | Callable[[Stack], Stack]
"""The `layers` argument of a client: layers to put next to the adapter, or a function that puts them anywhere."""


def with_layers(stack: Stack, layers: Layers) -> Stack:
    """`stack` with the user's layers. Raises ConfigError if `layers` is unusable."""
    if not callable(layers):
        return stack.innermost(*layers)
    changed = layers(stack)
    if not isinstance(changed, Stack):
        raise ConfigError("layers= must be a list of layers, or a function that takes the Stack and returns a Stack, "
                          f"not {type(changed).__name__}")
    return changed


def _checked(layer: Layer) -> Layer:
    if not callable(layer):
        raise ConfigError(f"a layer must be a function from Send to Send, not {type(layer).__name__}")
    return layer


def stack_of(config: Config, rules: WireRules, retry: RetryPolicy, rate_limit: RateLimit | None, clock: Clock,
             observer: Observer, use_certificate: Callable[[ClientCertificate], None]) -> Stack:
    """The layers of a client by name, for the user to change."""
    host, fixed = _host(config), fixed_headers(config, rules.headers)
    credentials = None if rules.auth or "Authorization" in fixed else config.credentials(clock)
    if credentials is not None and not isinstance(credentials, FixedCredentials):
        credentials = ObservedCredentials(credentials, observer, host, clock)
    return Stack((
        (BASE_URL, base_url(config.cluster_url)),
        (RETRY, retrying(retry, clock, host, observer)),
        (AUTH, None if credentials is None else authenticating(credentials, use_certificate)),
        (HEADERS, extra_headers(fixed)),
        (RATE_LIMIT, None if rate_limit is None else limiting(rate_limit, clock)),
    ))


def _host(config: Config) -> str:
    return urlsplit(config.cluster_url).netloc.rpartition("@")[2]
