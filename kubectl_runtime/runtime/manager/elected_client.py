"""The client of the elected one: begins no write once its time is over.

    GET                                            sent
    any other method, while leading                sent, unless its first byte would leave past the deadline
    any other method, before, between and after    NotLeaderError; nothing was sent

Within a run of an elected controller the same holds for every client that shares the connections of its `ctx.client`,
so that an Api made outside is not a back door (see `client.http.run_fence`). It does not hold for such a client in a
thread that the run started, nor for one that was made by itself: there it has to be `ctx.client`, or `lock.guard(it)`.

The check is made before an attempt, after retries, credentials and every other layer, and again right before its first
byte is sent: after the name was looked up, the connection and its handshake were made. So no wait of the library stands
between it and the first byte. What is left is a window that no check can close: the thread, the process or the whole
machine may be stopped right after it, and the bytes may be on their way for as long as the network keeps them. While
the machine runs it is microseconds. Another leader begins `lease - renew_deadline` (5 s) after
that deadline at the earliest, so only a stop longer than that lets two writers meet. Against those the fence is the
object's resourceVersion: a `replace`, or a patch that tests it, made from what an earlier leader read, is refused by
the server once somebody has written since. A blind write (an apply, a merge patch, a delete without preconditions) has
no such fence: inside the window it would be carried out.
"""
from __future__ import annotations

from collections.abc import Callable

from kubectl_runtime.client.http.middleware import Call
from kubectl_runtime.client.http.run_fence import Fence
from kubectl_runtime.core.base.clock import Clock
from kubectl_runtime.core.base.errors import KubeError


class NotLeaderError(KubeError):
    """A write was refused, or a wait ended, because this process is not the leader, or no longer.

    >>> issubclass(NotLeaderError, KubeError)
    True
    """


def only_while_leading(deadline: Callable[[], float | None], describe: Callable[[], str], clock: Clock) -> Fence:
    """`deadline()`: until when this process leads, on the clock's `boottime`; None when it does not. `describe()` says
    for the error why it does not."""

    def check(call: Call) -> None:
        until = deadline()
        left = 0.0 if until is None else until - clock.boottime()
        if left <= 0:
            raise NotLeaderError(f"{call.request.operation}: not sent, as {describe()}")
        call.send_by = clock.monotonic() + left

    return Fence(check)
