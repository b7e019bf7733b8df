"""`fenced`: runs whose writes are behind the fences of their controller's client, whichever of its relatives writes."""
from __future__ import annotations

from typing import Any

from kubectl_runtime.client.http.run_fence import Behind, enter_fence, leave_fence
from kubectl_runtime.runtime.queue.runs import Execute, Outcome, Run


def fenced(execute: Execute, client: Any) -> Execute:
    """`execute` in a thread that is behind the fences of `client`; without any, `execute` itself. `client` may be what
    stands for one in a test."""
    fences = getattr(client, "fences", ())
    if not fences:
        return execute
    behind = Behind(client.shared, fences)

    def execute_fenced(run: Run) -> Outcome:
        entered = enter_fence(behind)
        try:
            return execute(run)
        finally:
            leave_fence(entered)

    return execute_fenced
