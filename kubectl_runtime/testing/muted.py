"""`muted_logs`: the library says nothing of what fails on purpose, hundreds of times."""
from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def muted_logs() -> Iterator[None]:
    """Inside, no logger of the library writes anything, but one whose own level was set."""
    logger = logging.getLogger("kubectl_runtime")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)
