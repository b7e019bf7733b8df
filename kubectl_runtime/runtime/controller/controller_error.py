"""`ControllerError`: why a controller is no longer there."""
from __future__ import annotations

from kubectl_runtime.core.base.errors import KubeError


class ControllerError(KubeError):
    """A controller ended by itself: stores that did not fill, a closed client, a given stream that ended, a defect.

    >>> raise ControllerError("the client was closed")
    Traceback (most recent call last):
        ...
    ControllerError: the client was closed
    """
