"""A clock for what has to happen while somebody waits, and not before, however busy the machine is."""
from __future__ import annotations

import threading
from collections.abc import Callable

from kubectl_runtime.core.base.threads import SystemClock


class Meanwhile(SystemClock):
    """The system's clock; whenever somebody begins to wait on it, another thread calls `happens`."""

    def __init__(self, happens: Callable[[], object]) -> None:
        self._happens = happens

    def wait(self, condition: threading.Condition, timeout: float | None) -> bool:
        threading.Thread(target=self._happens, name="meanwhile", daemon=True).start()
        return super().wait(condition, timeout)
