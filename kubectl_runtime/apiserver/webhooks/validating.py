"""Validating webhooks: all that match are asked about the object as it will be stored; any of them can refuse it.

All are asked even when one has refused; the first refusal, in their order, is the answer. (The real server takes the
quickest.) Those that are somewhere else are asked at the same time, each in a thread of its own; those that are mounted
one after the other, in the thread of the request.
"""

from __future__ import annotations

from collections.abc import Callable

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.context import RequestContext
from kubectl_runtime.apiserver.webhooks.admission_attributes import Attributes
from kubectl_runtime.apiserver.webhooks.admission_review import Verdict
from kubectl_runtime.apiserver.webhooks.attempts import time_left, timed_out
from kubectl_runtime.apiserver.webhooks.calls import CallingFailed, accept, ask, failed
from kubectl_runtime.apiserver.webhooks.hooks import Hook
from kubectl_runtime.apiserver.webhooks.matching import Invocation, invocation
from kubectl_runtime.apiserver.webhooks.versions import as_version
from kubectl_runtime.core.interpreter.contexts import Thread

Outcome = Verdict | Exception


def validate(ctx: RequestContext, asked: Attributes, hooks: tuple[Hook, ...]) -> None:
    """Raises StatusError for what refuses the operation. The cluster's lock is held, and free while they are asked."""
    matching = [called for hook in hooks if (called := invocation(ctx, hook, asked)) is not None]
    if not matching:
        return
    if time_left(ctx) <= 0:
        raise timed_out()
    with ctx.cluster.released():
        outcomes = _outcomes(ctx, matching, asked)
        refusals = [refusal for called, outcome in zip(matching, outcomes, strict=True)
                    if (refusal := _refusal(ctx, called.hook, outcome)) is not None]
    if refusals:
        raise refusals[0]


def _outcomes(ctx: RequestContext, matching: list[Invocation], asked: Attributes) -> list[Outcome]:
    """What came of each call, in the order of the webhooks."""
    outcomes: list[Outcome] = [RuntimeError("not asked")] * len(matching)
    threads, here = [], []
    for index, called in enumerate(matching):
        call = _call(ctx, called, asked, outcomes, index)
        if len(matching) > 1 and ctx.hooks.caller.is_remote(called.hook.target.url):
            threads.append(Thread(target=call, name=f"webhook-{called.hook.name}", daemon=True))
        else:
            here.append(call)
    for thread in threads:
        thread.start()
    for call in here:
        call()
    for thread in threads:
        thread.join()  # each ends at its webhook's timeout
    return outcomes


def _call(ctx: RequestContext, called: Invocation, asked: Attributes, outcomes: list[Outcome], index: int
          ) -> Callable[[], None]:
    def call() -> None:
        try:
            shown, old = (as_version(obj, asked, called.resource) for obj in (asked.object, asked.old))
            outcomes[index] = ask(ctx, called, asked, shown, old, mutating=False)
        except Exception as error:  # noqa: BLE001 - it is raised, or told, in the thread of the request
            outcomes[index] = error
    return call


def _refusal(ctx: RequestContext, hook: Hook, outcome: Outcome) -> errors.StatusError | None:
    if isinstance(outcome, CallingFailed):
        return failed(ctx, hook, outcome)
    if isinstance(outcome, errors.StatusError):
        return outcome
    if isinstance(outcome, Exception):
        raise outcome
    try:
        accept(ctx, hook, outcome)
    except errors.StatusError as error:
        return error
    return None
