"""A stop whose grace period passes at once, and whose runs have all the real time that they need to heed it."""
from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from kubectl_runtime import Running
from kubectl_runtime.core.meta.gvk import ObjectRef
from kubectl_runtime.testing import eventually
from kubectl_runtime.testing.clock import SimClock

GRACE = 20.0
LIMIT = 60.0
"""Real seconds after which something hangs."""


def stop_when_told(running: Running[Any], clock: SimClock, *, writes: bool = False) -> list[ObjectRef]:
    """`running.stop()`, while `clock`, which is the controller's, is moved to where runs in progress are told to stop,
    or to where their writes end too, and no further. The stuck keys. Blocks."""
    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(running.stop, GRACE)
        shutdown = running._shutdown
        eventually(shutdown.draining.is_set, timeout=LIMIT)
        at = shutdown.cut_at if writes else shutdown.deadline
        assert at is not None
        clock.advance(at - clock.monotonic() + 0.01)
        return ended.result(LIMIT)
