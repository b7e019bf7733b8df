"""`ServerWarnings`: what the API server says in `Warning` headers, each text once in a client's life."""
from __future__ import annotations

import re

from kubectl_runtime.core.base.guarded_log import guarded_logger
from kubectl_runtime.core.interpreter.forks import ForkSafeLock

log = guarded_logger(__name__)

_WARNING = r'299 \S+ "((?:[^"\\]|\\.)*)"'
_REMEMBERED = 1000


class ServerWarnings:
    """Logs the warnings that the server sends with its answers, each text once. Safe to use from any thread, and after
    a fork."""

    def __init__(self) -> None:
        self._lock = ForkSafeLock()
        self._told: set[str] = set()

    def tell(self, header: str, operation: str) -> None:
        """Log the warnings in `header`, which came with the answer to `operation`, that were not logged before. After a
        thousand texts, which memory bears, one more line says that further ones are not shown."""
        for text in re.findall(_WARNING, header):
            with self._lock:
                number = len(self._told)
                known = text in self._told or number > _REMEMBERED
                if not known:
                    self._told.add(text)
            if not known and number < _REMEMBERED:
                log.warning("%s: the API server warns: %s", operation, text.replace('\\"', '"'))
            elif not known:
                log.warning("%s: the API server has given %d different warnings; further ones are not shown",
                            operation, number)
