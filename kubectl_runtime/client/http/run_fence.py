"""`Fence`: a layer that lets no write pass unless its check does, and that a thread can be put behind as a whole.

    the client that has the layer                     each write is checked
    any relative of it, in a thread that is behind    each write is checked as well
    another client; a relative elsewhere              not this fence's business

Relatives are a client and all that were derived from it: they share its connections. So a run of an elected controller
writes through no back door, whichever client its author took. A copy of the thread's context is behind it too, until
the thread leaves; a thread that a run started itself is not.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kubectl_runtime.client.http.middleware import Answer, Call, Layer, Send
from kubectl_runtime.core.interpreter.contexts import RunVariable

READS = frozenset(("GET", "HEAD", "OPTIONS"))


class Fence:
    """A layer: `check(call)` before each attempt of a write, and again right before its first byte is sent: between
    the two a name may be looked up and a connection made. It refuses by raising. Safe from any thread.
    """

    def __init__(self, check: Callable[[Call], None]) -> None:
        self.check = check

    def __call__(self, send: Send) -> Send:
        check = self.check

        def guarded(call: Call) -> Answer:
            if call.request.method not in READS:
                _checked(call, check)
            return send(call)

        return guarded


def _checked(call: Call, check: Callable[[Call], None]) -> None:
    """`check`, now and right before the first byte of each attempt that follows."""
    check(call)
    if check not in call.checks:
        call.checks = (*call.checks, check)


class Behind(NamedTuple):
    """What a thread is behind: these fences, for the clients that have `family` in common."""

    family: object
    fences: tuple[Fence, ...]


_behind: RunVariable[Behind] = RunVariable("kubectl_runtime_fence")

enter_fence, leave_fence = _behind.set, _behind.reset
"""From now on this thread is behind it; as before."""


def fenced_in_runs(family: object) -> Layer:
    """The layer of all clients of a `family`: the fences that the thread is behind."""

    def layer(send: Send) -> Send:
        def fenced(call: Call) -> Answer:
            if call.request.method not in READS:
                behind = _behind.get()
                if behind is not None and behind.family is family:
                    for fence in behind.fences:
                        _checked(call, fence.check)
            return send(call)

        return fenced

    return layer
