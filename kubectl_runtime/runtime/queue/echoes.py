"""`Echoes`: the changes that are still to come back on a watch, of what a key's last runs wrote and ended well with.

    a run of `key` ended well, having made `versions`    `expect`: remembered
    a change to one of them asks for `key`               `met`: True once, then forgotten
    anything else                                        False

Such a change tells its key what it knows, so it need not go before others. It must still be looked at: the server may
have made something else of what was sent. Pure; the owner serialises calls.
"""
from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from kubectl_runtime.core.base.keys import Key
from kubectl_runtime.runtime.queue.own_writes import Version

MAX_EXPECTED = 10_000
"""Of one controller (about 3 MB); older ones are forgotten, and their echo counts as news."""


class Echoes:
    """What one controller's runs wrote and have not heard of yet."""

    __slots__ = ("expected",)

    def __init__(self) -> None:
        self.expected: OrderedDict[tuple[Key, Version], None] = OrderedDict()
        """Not to be changed by others."""

    def __len__(self) -> int:
        return len(self.expected)

    def expect(self, key: Key, versions: Iterable[Version]) -> None:
        """A run of `key` made these."""
        expected = self.expected
        for version in versions:
            expected[(key, version)] = None
        while len(expected) > MAX_EXPECTED:
            expected.popitem(last=False)

    def met(self, key: Key, cause: Version) -> bool:
        """Whether the change to version `cause`, or the end of its object, is one of those that `key` made."""
        expected = self.expected
        for version in (cause, (cause[0], "")):
            if (key, version) in expected:
                del expected[(key, version)]
                return True
        return False

    def clear(self) -> None:
        """Expect nothing."""
        self.expected.clear()
