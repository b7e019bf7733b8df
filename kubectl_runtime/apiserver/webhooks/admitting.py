"""The calls of mutating policies and webhooks (`mutate`), and of validating webhooks (`validate`).

Mutating policies and then mutating webhooks are called one after the other. Each sees the changes of the earlier ones.
If a policy or webhook changes the object, earlier ones with reinvocationPolicy IfNeeded are called once more, in a
second round.

All validating webhooks are called with the object as it will be stored, even if one webhook has refused the request.
The first refusal in the webhooks' order is the answer. (The real server takes the quickest refusal.) HTTPS webhooks are
called in parallel, each in its own thread. Mounted webhooks are called one after the other, in the request's thread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.context import RequestContext
from kubectl_runtime.apiserver.encoding import parse_json
from kubectl_runtime.apiserver.kinds import typed
from kubectl_runtime.apiserver.managedfields.entries import EntryError, read
from kubectl_runtime.apiserver.patching.json_patch import PatchFailed, patched
from kubectl_runtime.apiserver.policies.configured import Policy
from kubectl_runtime.apiserver.policies.judging import matching, mutated
from kubectl_runtime.apiserver.storage import ServedResource
from kubectl_runtime.apiserver.webhooks.calls import CallingFailed, accept, ask, failed, time_left, timed_out
from kubectl_runtime.apiserver.webhooks.hooks import Hook
from kubectl_runtime.apiserver.webhooks.review import (
    JSON_PATCH,
    Attributes,
    Invocation,
    Verdict,
    as_version,
    back,
    invocation,
)
from kubectl_runtime.apiserver.wire import Object
from kubectl_runtime.core.base.threads import Thread
from kubectl_runtime.core.codec.jsonbytes import same_json

_BAD_MANAGERS = (".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated "
                 "mutating admission controller; please fix your requests: ")


Mutator = Hook | Policy


def mutate(ctx: RequestContext, asked: Attributes, hooks: tuple[Mutator, ...]) -> None:
    """Let policies and webhooks change `asked.object`. Raises StatusError if one of them refuses the request. Callers
    hold the cluster's lock, which is released during webhook calls."""
    asking = _Asking()
    if _round(ctx, asked, hooks, asking):
        asking.is_second = True
        _round(ctx, asked, hooks, asking)


def keep_managers(ctx: RequestContext, obj: Object, managers: Any) -> None:
    """If admission has made the managedFields unreadable, restore the earlier managedFields, `managers`."""
    meta = obj.get("metadata") or {}
    try:
        read(meta.get("managedFields"))
    except EntryError as error:
        meta["managedFields"] = managers
        ctx.warnings.append(f"{_BAD_MANAGERS}{error}")


@dataclass(slots=True)
class _Asking:
    """The policies and webhooks of the second round. A change in that round can add a later webhook to the round."""

    is_second: bool = False
    earlier: set[Mutator] = field(default_factory=set)  # called again if a later webhook or policy changes the object
    again: set[Mutator] = field(default_factory=set)

    def note(self, hook: Mutator, *, changed: bool) -> None:
        if changed:
            self.again |= self.earlier
            self.earlier.clear()
        if hook.reinvoked:
            self.earlier.add(hook)


def _round(ctx: RequestContext, asked: Attributes, hooks: tuple[Mutator, ...], asking: _Asking) -> bool:
    """Call the webhooks and policies of one round. Returns whether any changed the object."""
    any_changed = False
    for hook in hooks:
        if asking.is_second and hook not in asking.again:
            continue
        if isinstance(hook, Policy):
            found = _evaluate(ctx, hook, asked)
        else:
            called = invocation(ctx, hook, asked)
            found = None if called is None else _call(ctx, called, asked)
        if found is None:
            continue
        changed = found
        any_changed = any_changed or changed
        asking.note(hook, changed=changed)
    return any_changed


def _evaluate(ctx: RequestContext, policy: Policy, asked: Attributes) -> bool | None:
    """Let one policy change the object, once per binding. Returns whether the object changed, or None if the policy
    does not apply."""
    changed: bool | None = None
    for _, binding, target in list(matching(ctx, asked, (policy,))):
        resource = target[0]
        before = as_version(asked.object, asked, resource)
        after = mutated(ctx, asked, policy, binding, target)
        if before is None or after is None:
            continue
        _decode(resource, f'admission policy "{policy.name}"', asked, after, before)
        asked.object = back(after, asked, resource)
        changed = bool(changed) or not same_json(before, after)
    return changed


def _call(ctx: RequestContext, called: Invocation, asked: Attributes) -> bool:
    """Call one webhook. Returns whether it changed the object."""
    with ctx.cluster.released():
        shown, old = (as_version(obj, asked, called.resource) for obj in (asked.object, asked.old))
        try:
            verdict = ask(ctx, called, asked, shown, old, mutating=True)
            accept(ctx, called.hook, verdict)
            changed = _patched(called, asked, shown, verdict)
        except CallingFailed as error:
            if (refusal := failed(ctx, called.hook, error)) is not None:
                raise refusal from None
            return False
        if changed is None:
            return False
        asked.object = back(changed, asked, called.resource)
    return not same_json(shown, changed)


def _patched(called: Invocation, asked: Attributes, shown: Object | None, verdict: Verdict) -> Object | None:
    """The object after the verdict's patch, decoded and defaulted; None if there is no patch."""
    hook = called.hook
    if not verdict.patch:
        return None
    try:
        operations, _ = parse_json(verdict.patch)
    except ValueError as error:
        raise CallingFailed(hook, f"received undecodable patch in webhook response: {error}") from None
    if problem := _list_problem(operations):
        raise CallingFailed(hook, f"received undecodable patch in webhook response: json: cannot unmarshal {problem}")
    if not operations:
        return None
    if shown is None:
        raise errors.internal(f'admission webhook "{hook.name}" attempted to modify the object, which is not supported '
                              "for this operation")
    if verdict.patch_type != JSON_PATCH:
        raise CallingFailed(hook, f'unsupported patch type "{verdict.patch_type}"')
    try:
        changed: Object = patched(shown, operations)  # `_decode` refuses a result that is not an object
    except PatchFailed as error:
        raise errors.internal(str(error)) from None
    _decode(called.resource, f'admission webhook "{hook.name}"', asked, changed, shown)
    return changed


def _list_problem(operations: Any) -> str:
    """The real decoder's error for a patch that is not a list of objects; "" if the patch is readable."""
    names = {dict: "object", str: "string", bool: "bool", int: "number", float: "number", list: "array"}
    if not isinstance(operations, list | None):
        return f"{names[type(operations)]} into Go value of type jsonpatch.Patch"
    wrong = next((entry for entry in operations or () if not isinstance(entry, dict | None)), None)
    return "" if wrong is None else f"{names[type(wrong)]} into Go value of type jsonpatch.Operation"


def _decode(resource: ServedResource, by: str, asked: Attributes, changed: Any, shown: Object) -> None:
    """Decode the patched object, and fill in its kind's defaults."""
    if not isinstance(changed, dict) or any(changed.get(key) != shown[key] for key in ("kind", "apiVersion")):
        raise errors.internal(f"{by} changed the kind or apiVersion of the object")
    package = asked.kind.group.partition(".")[0] or "core"
    type_name = f"{package}.{asked.kind.version}.{asked.kind.kind}"  # may be a subresource's kind
    try:
        if asked.is_own_kind:
            resource.strategy.decode(changed)
        elif typed.known(type_name):
            typed.decode(type_name, changed)
    except errors.BodyDecodeError as error:
        raise errors.internal(str(error)) from None
    if not asked.is_own_kind:
        return
    changed["metadata"] = changed.get("metadata") or {}
    resource.strategy.default(changed)


Outcome = Verdict | Exception


def validate(ctx: RequestContext, asked: Attributes, hooks: tuple[Hook, ...]) -> None:
    """Call the validating webhooks, with the caller's lock released. Raises StatusError if one refuses."""
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
    """The result of each call, in the order of the webhooks."""
    outcomes: list[Outcome] = [RuntimeError("not asked")] * len(matching)
    threads, here = [], []
    for index, called in enumerate(matching):
        call = _call_validating(ctx, called, asked, outcomes, index)
        if len(matching) > 1 and ctx.hooks.caller.is_remote(called.hook.target.url):
            threads.append(Thread(target=call, name=f"webhook-{called.hook.name}", daemon=True))
        else:
            here.append(call)
    for thread in threads:
        thread.start()
    for call in here:
        call()
    for thread in threads:
        thread.join()  # ends at the webhook's timeout at the latest
    return outcomes


def _call_validating(ctx: RequestContext, called: Invocation, asked: Attributes, outcomes: list[Outcome], index: int
          ) -> Callable[[], None]:
    def call() -> None:
        try:
            shown, old = (as_version(obj, asked, called.resource) for obj in (asked.object, asked.old))
            outcomes[index] = ask(ctx, called, asked, shown, old, mutating=False)
        except Exception as error:  # noqa: BLE001 - the request's thread raises or reports it
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
