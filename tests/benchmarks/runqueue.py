"""The queue alone: keys per second through scheduler, runner and a no-op reconciler. Prints one JSON line.

    python tests/benchmarks/runqueue.py [KEYS] [WORKERS] [ROUNDS]

Triggers come in batches of 16 from one thread, as a watch's would; nothing else of the library takes part. The figure
is that of the best round, as the others say more about what else the machine did.
"""
from __future__ import annotations

import json
import sys
import threading
import time

from kubectl_runtime.core.base.threads import SYSTEM_CLOCK
from kubectl_runtime.core.meta.gvk import ApiResource, ObjectRef
from kubectl_runtime.runtime.queue.runs import SUCCEEDED, Outcome, RetryRateLimit, Run
from kubectl_runtime.runtime.queue.scheduler import Scheduler
from kubectl_runtime.runtime.queue.work_queue import WorkQueue
from kubectl_runtime.runtime.reconcile.runner import Runner, ThreadExecutor
from kubectl_runtime.runtime.triggers.triggers import ReconcileRequest

POD = ApiResource("", "v1", "Pod", "pods")


def main(keys: int = 100_000, workers: int = 10, rounds: int = 5) -> None:
    times = sorted(seconds(keys, workers) for _ in range(rounds))
    print(json.dumps({"benchmark": "runqueue", "keys": keys, "workers": workers, "keys_per_s": round(keys / times[0]),
                      "us_per_key": round(times[0] / keys * 1e6, 2), "rounds_s": [round(time, 2) for time in times]}))


def seconds(keys: int, workers: int) -> float:
    """How long it takes until each of so many triggered keys has run."""
    done = threading.Event()
    left = keys
    lock = threading.Lock()

    def execute(run: Run) -> Outcome:
        nonlocal left
        with lock:
            left -= 1
        if not left:
            done.set()
        return SUCCEEDED

    executor = ThreadExecutor(workers, "worker", lambda error: print(repr(error), file=sys.stderr))
    for thread in executor.threads:
        thread.start()
    rate_limit = RetryRateLimit()
    queue = WorkQueue(Scheduler(rate_limit=rate_limit), rate_limit)
    runner = Runner(queue, execute, executor, concurrency=workers, clock=SYSTEM_CLOCK)
    runner.open()
    threading.Thread(target=runner.dispatch, args=(lambda: None,), name="dispatcher", daemon=True).start()
    requests = [ReconcileRequest(ObjectRef(POD, f"pod-{number}", "default"), "object updated", (f"uid-{number}", "1"))
                for number in range(keys)]
    start = time.perf_counter()
    for at in range(0, keys, 16):
        runner.trigger_all(requests[at:at + 16])
    done.wait(120)
    elapsed = time.perf_counter() - start
    runner.drain()
    executor.close()
    return elapsed


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
