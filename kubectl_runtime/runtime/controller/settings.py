"""From the arguments of a controller to its `Plan`: what both kinds of controllers are told, checked."""
from __future__ import annotations

from typing import TYPE_CHECKING

from kubectl_runtime.client.api.writes import OwnWrites
from kubectl_runtime.core.base.clock import Duration, duration_of, period_of
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.observer import NO_OBSERVER, Observer, together
from kubectl_runtime.runtime.controller.plan import MainStream, Plan, WatchPlan, clock_of
from kubectl_runtime.runtime.given import check_type
from kubectl_runtime.runtime.queue.key_backoff import KeyBackoff
from kubectl_runtime.runtime.queue.retry_brake import RetryBrake

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from kubectl_runtime.client.api.client import Client


def plan_of(main: WatchPlan | MainStream, client: Client, name: str | None, concurrency: int, debounce: Duration,
            max_wait: Duration | None, backoff: KeyBackoff, sync_timeout: Duration | None, observer: Observer | None,
            executor: Executor | None, retry_rate: float | None, run_timeout: Duration | None) -> Plan:
    """What both kinds of controllers are told. Raises as `Controller`."""
    if not isinstance(concurrency, int) or isinstance(concurrency, bool) or concurrency < 1:
        raise RequestError(f"concurrency must be a whole number of at least 1, not {concurrency}")
    quiet, longest = duration_of("debounce", debounce), None if max_wait is None else duration_of("max_wait", max_wait)
    if longest is not None and longest < quiet:
        raise RequestError(f"debounce must be at most max_wait, not {debounce} and {max_wait}")
    check_type("backoff", backoff, KeyBackoff, "KeyBackoff(maximum=60)")
    if name is not None:
        check_type("name", name, str, "'web'")
    if retry_rate is not None:
        RetryBrake(retry_rate)  # refuses a number that makes no sense
    resource = main.api.resource if isinstance(main, WatchPlan) else main.store.resource
    return Plan(
        name=name or resource.kind.lower(), client=client, clock=clock_of(client), resource=resource, main=main,
        concurrency=concurrency, debounce=quiet, max_wait=longest, backoff=backoff, executor=executor,
        sync_timeout=None if sync_timeout is None else duration_of("sync_timeout", sync_timeout),
        run_timeout=None if run_timeout is None else period_of("run_timeout", run_timeout), retry_rate=retry_rate,
        own_writes=own_writes_of(client),
        observer=together(getattr(client, "observer", NO_OBSERVER) if observer is None else observer))


def own_writes_of(client: Client, wanted: OwnWrites | None = None) -> OwnWrites:
    """How the stores of a controller read what this process wrote. Raises RequestError."""
    return OwnWrites.checked(getattr(client, "own_writes", OwnWrites.OVERLAY) if wanted is None else wanted)
