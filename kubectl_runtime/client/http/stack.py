"""`Stack`: the layers of a client by name, outermost first, to be changed before the client is made of them.

    base url -> retry -> auth -> headers -> rate limit -> the user's list -> the adapter

    def layers(stack: Stack) -> Stack:                      Client(config, layers=layers)
        return stack.outside("retry", counting)             one sighting a call, however often it is tried
                    .replaced("auth", own_credentials)

What stands outside `retry` sees a call once, what stands inside sees each attempt, what stands inside `auth` also the
second one that follows a 401. Layers given as a list stand innermost, the first outermost of them. Immutable.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from kubectl_runtime.client.http.middleware import Layer, Send, stacked
from kubectl_runtime.core.base.errors import ConfigError

BASE_URL, RETRY, AUTH, HEADERS, RATE_LIMIT = "base url", "retry", "auth", "headers", "rate limit"


class Stack(msgspec.Struct, frozen=True):
    """Layers with their names, outermost first; a built-in one that this client does not need is None.

    >>> own = Client(Config(cluster_url=server.url), layers=lambda stack: stack.without("retry"))
    >>> own.close()
    """

    entries: tuple[tuple[str, Layer | None], ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the built-in layers that are still there, outermost first; the user's own have no names."""
        return tuple(name for name, _ in self.entries if name)

    def outside(self, name: str, *layers: Layer) -> Stack:
        """The stack with `layers` around the built-in layer `name`, the first outermost. Raises ConfigError when there
        is no such layer."""
        return self._spliced(self._index(name), 0, layers)

    def inside(self, name: str, *layers: Layer) -> Stack:
        """The stack with `layers` directly inside the built-in layer `name`, the first outermost. Raises ConfigError
        when there is no such layer."""
        return self._spliced(self._index(name) + 1, 0, layers)

    def innermost(self, *layers: Layer) -> Stack:
        """The stack with `layers` next to the connection, the first outermost: they see each attempt."""
        return self._spliced(len(self.entries), 0, layers)

    def replaced(self, name: str, layer: Layer) -> Stack:
        """The stack with `layer` in place of the built-in one of that name. Raises ConfigError when there is no such
        layer."""
        at = self._index(name)
        return Stack((*self.entries[:at], (name, _checked(layer)), *self.entries[at + 1:]))

    def without(self, name: str) -> Stack:
        """The stack without the built-in layer `name`. Raises ConfigError when there is no such layer."""
        return self._spliced(self._index(name), 1, ())

    def around(self, exchange: Send) -> Send:
        """What the client sends calls through."""
        return stacked([layer for _, layer in self.entries if layer is not None], exchange)

    def _index(self, name: str) -> int:
        if name not in self.names:
            raise ConfigError(f"the client has no layer {name!r}: it has {', '.join(map(repr, self.names))}")
        return next(index for index, (known, _) in enumerate(self.entries) if known == name)

    def _spliced(self, at: int, removed: int, layers: Iterable[Layer]) -> Stack:
        added = tuple(("", _checked(layer)) for layer in layers)
        return Stack((*self.entries[:at], *added, *self.entries[at + removed:]))


Layers = Iterable[Layer] | Callable[[Stack], Stack]
"""What a client takes: layers next to the adapter, or a function that puts them anywhere."""


def with_layers(stack: Stack, layers: Layers) -> Stack:
    """`stack` as the user wants it. Raises ConfigError."""
    if not callable(layers):
        return stack.innermost(*layers)
    changed = layers(stack)
    if not isinstance(changed, Stack):
        raise ConfigError("layers= takes a list of layers, or a function that is given the Stack and returns a Stack, "
                          f"not {type(changed).__name__}")
    return changed


def _checked(layer: Layer) -> Layer:
    if not callable(layer):
        raise ConfigError(f"a layer is a function from Send to Send, not {type(layer).__name__}")
    return layer
