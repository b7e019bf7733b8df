"""The evaluation of admission policies: how they validate and change a request. Callers hold the cluster's lock.

If a policy and its binding match a request, the policy's expressions are evaluated once for each parameter object. A
validation that is false is a failure. Unless failurePolicy is Ignore, missing parameters are a failure too, and so is
an expression that cannot be evaluated. The validationAction Deny refuses the request with the first failure. Warn adds
Warning headers. Audit has no effect, because this server has no audit log.
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.context import RequestContext
from kubectl_runtime.apiserver.kinds.base import label_selector
from kubectl_runtime.apiserver.managedfields.typed_merge import merge, typed_errors
from kubectl_runtime.apiserver.output.negotiation import shown_object
from kubectl_runtime.apiserver.patching.json_patch import PatchFailed, TestFailed, patched
from kubectl_runtime.apiserver.policies.configured import Binding, Match, Policy
from kubectl_runtime.apiserver.query import LabelSelector
from kubectl_runtime.apiserver.schemas import ANY, Schema
from kubectl_runtime.apiserver.storage import ServedResource
from kubectl_runtime.apiserver.webhooks.review import Attributes, Kind, as_version, decision_of, matched, request_of
from kubectl_runtime.apiserver.wire import Object
from kubectl_runtime.core.base.errors import MissingExtra
from kubectl_runtime.core.codec.jsonbytes import json_copy
from kubectl_runtime.schema.cel import CelError
from kubectl_runtime.schema.policycel import Values

Target = tuple[ServedResource, Kind]

_CODES = {"Unauthorized": 401, "Forbidden": 403, "RequestEntityTooLarge": 413}
LONGEST_MESSAGE = 5120


class PolicyFailure(Exception):
    """A policy cannot be evaluated for a request. The text is part of the response."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A reason to refuse a request: a validation of the policy is not met, or the policy cannot be evaluated."""

    policy: Policy
    binding: Binding | None
    message: str
    reason: str = ""


def judge(ctx: RequestContext, asked: Attributes, policies: tuple[Policy, ...]) -> None:
    """Evaluate validating policies. Raises StatusError if a policy refuses the request."""
    denied: list[Refusal] = []
    for policy, binding, target in matching(ctx, asked, policies):
        try:
            failures = [failure for params in _params(ctx, policy, binding, asked)
                        for failure in _failures(ctx, policy, binding, asked, target, params)]
        except PolicyFailure as error:
            if policy.fails_closed:  # the request is refused, even if the binding's actions do not include Deny
                denied.append(Refusal(policy, binding, f"failed to configure binding: {error}"))
            continue
        if "Deny" in binding.actions:
            denied += failures
        if "Warn" in binding.actions:
            ctx.warnings += (f"Validation failed for ValidatingAdmissionPolicy '{policy.name}' with binding "
                             f"'{binding.name}': {failure.message}" for failure in failures)
    if denied:
        raise _refused(asked, denied[0])


def matching(ctx: RequestContext, asked: Attributes, policies: tuple[Policy, ...]
             ) -> Iterator[tuple[Policy, Binding, Target]]:
    """The matching policies and bindings, each with the resource and kind under which the policy sees the object."""
    for policy in policies:
        target = matched(ctx, policy.match, asked)
        if target is None or _is_excluded(ctx, policy.match, asked):
            continue
        for binding in policy.bindings:
            if binding.match is None or (matched(ctx, binding.match, asked, rules=binding.match.rules or _EVERYTHING)
                                         and not _is_excluded(ctx, binding.match, asked)):
                yield policy, binding, target


_EVERYTHING: tuple[Object, ...] = ({"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"],
                                    "resources": ["*", "*/*"]},)


def _is_excluded(ctx: RequestContext, match: Match, asked: Attributes) -> bool:
    everywhere = Match(match.excluded, (), match.matches_equivalents, LabelSelector(), LabelSelector())
    return bool(match.excluded) and matched(ctx, everywhere, asked) is not None


def _params(ctx: RequestContext, policy: Policy, binding: Binding, asked: Attributes) -> list[Object | None]:
    """The parameter objects to evaluate a policy with. If there are none, the policy is skipped. Raises PolicyFailure.
    """
    wanted, reference = policy.spec.get("paramKind"), binding.param_ref
    if not wanted or not reference:
        return [None]
    group, _, version = wanted["apiVersion"].rpartition("/")
    found = ctx.cluster.registry.by_kind(group, version, wanted["kind"])
    if found is None:
        raise PolicyFailure(f"paramKind kind `{wanted['apiVersion']}, Kind={wanted['kind']}` not known")
    namespace = reference.get("namespace") or asked.namespace
    if not found.namespaced and reference.get("namespace"):
        raise PolicyFailure("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
    if found.namespaced and not namespace:
        raise PolicyFailure("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources")
    objects = [shown_object(found, stored)
               for stored in ctx.cluster.storage.bucket(found.storage).scan(namespace if found.namespaced else "")
               if _is_named(reference, stored.name, stored.labels)]
    if not objects and reference.get("parameterNotFoundAction") == "Deny":
        raise PolicyFailure("no params found for policy binding with `Deny` parameterNotFoundAction")
    return list(objects)


def _is_named(reference: Object, name: str, labels: dict[str, str]) -> bool:
    if reference.get("name"):
        return bool(reference["name"] == name)
    selector = label_selector(reference.get("selector"))
    return selector is None or selector.matches(labels)


def _failures(ctx: RequestContext, policy: Policy, binding: Binding, asked: Attributes, target: Target,
              params: Object | None) -> Iterator[Refusal]:
    try:
        values = _values(ctx, asked, target, params)
        if not _conditions_hold(policy, values):
            return
    except (CelError, MissingExtra) as error:
        if policy.fails_closed:
            yield Refusal(policy, binding, str(error))
        return
    for validation in policy.spec.get("validations") or ():
        try:
            holds = policy.expressions.evaluate(validation["expression"], values) is True
        except CelError as error:
            if policy.fails_closed:
                yield Refusal(policy, binding, str(error))
            continue
        if not holds:
            yield Refusal(policy, binding, _message(policy, validation, values), validation.get("reason") or "Invalid")


def _message(policy: Policy, validation: Object, values: Values) -> str:
    """The message of a false validation. A messageExpression that fails, is too long or has several lines is ignored.
    """
    if expression := validation.get("messageExpression"):
        try:
            found = str(policy.expressions.evaluate(expression, values)).strip()
        except CelError:
            found = ""
        if found and len(found) <= LONGEST_MESSAGE and "\n" not in found:
            return found
    stated = (validation.get("message") or "").strip()
    return stated or f"failed expression: {validation['expression'].strip()}"


def _values(ctx: RequestContext, asked: Attributes, target: Target, params: Object | None) -> Values:
    resource, kind = target
    shown, old = (as_version(obj, asked, resource) for obj in (asked.object, asked.old))
    namespace = None
    if asked.namespace and asked.resource.plural != "namespaces":
        stored = ctx.cluster.storage.get("/namespaces", "", asked.namespace)
        namespace = None if stored is None else {"kind": "Namespace", "apiVersion": "v1", **stored.decode()}
    return Values(shown, old, request_of(ctx, kind, resource, asked), namespace, params, decision_of(ctx))


def _conditions_hold(policy: Policy, values: Values) -> bool:
    """Whether all conditions are true. A false condition wins over a condition that cannot be evaluated. Raises
    CelError."""
    problems = []
    for condition in policy.spec.get("matchConditions") or ():
        try:
            if policy.expressions.evaluate(condition["expression"], values) is not True:
                return False
        except CelError as error:
            problems.append(str(error))
    if problems:
        raise CelError(problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]")
    return True


def _refused(asked: Attributes, refusal: Refusal) -> errors.StatusError:
    by = f"ValidatingAdmissionPolicy '{refusal.policy.name}'"
    if refusal.binding is not None:
        by += f" with binding '{refusal.binding.name}'"
    return _invalid(asked, f"{by} denied request: {refusal.message}", refusal.reason or "Invalid")


def _invalid(asked: Attributes, message: str, reason: str) -> errors.StatusError:
    error = errors.forbidden(asked.resource.group, asked.resource.plural, asked.name, message,
                             [errors.Cause("", message, "")])
    error.reason, error.code = reason, _CODES.get(reason, 422)
    return error


# --- mutation ---------------------------------------------------------------------------------------------------------


def mutated(ctx: RequestContext, asked: Attributes, policy: Policy, binding: Binding, target: Target) -> Object | None:
    """The request's object after a mutating policy, in the version that the policy sees; None if the policy is not
    evaluated. Raises StatusError if the policy refuses the request."""
    shown = as_version(asked.object, asked, target[0])
    if shown is None:
        return None
    result: Object | None = None
    failures: list[str] = []
    try:
        for params in _params(ctx, policy, binding, asked):
            changed = _changed(ctx, policy, asked, target, params, result or shown, failures)
            result = result if changed is None else changed
    except (PolicyFailure, CelError, MissingExtra) as error:
        failures.append(str(error))
    if failures and policy.fails_closed:
        told = [f"policy '{policy.name}' with binding '{binding.name}' denied request: {why}" for why in failures]
        refusal = errors.forbidden(asked.resource.group, asked.resource.plural, asked.name, told[0],
                                   [errors.Cause("", why, "") for why in told])
        refusal.message, refusal.reason = told[0], "Invalid"
        raise refusal
    return result


def _changed(ctx: RequestContext, policy: Policy, asked: Attributes, target: Target, params: Object | None,
             shown: Object, failures: list[str]) -> Object | None:
    """The object after all mutations. A mutation that fails is skipped, and its error is added to `failures`."""
    values = _values(ctx, asked, target, params)
    values.data["object"] = shown
    if not _conditions_hold(policy, values):
        return None
    for mutation in policy.spec.get("mutations") or ():
        try:
            shown = _mutated_once(policy, mutation, values, shown, params, target)
        except (PolicyFailure, CelError) as error:
            failures.append(str(error))
    return shown


def _mutated_once(policy: Policy, mutation: Object, before: Values, shown: Object, params: Object | None,
                  target: Target) -> Object:
    data = before.data
    values = Values(shown, data["oldObject"], data["request"], data["namespaceObject"], params, before.decide)
    if mutation.get("patchType") == "JSONPatch":
        return _patched(policy, mutation["jsonPatch"]["expression"], values, shown)
    return _applied(policy, mutation["applyConfiguration"]["expression"], values, shown, target[0].schema or ANY)


def _patched(policy: Policy, expression: str, values: Values, shown: Object) -> Object:
    operations = policy.expressions.evaluate(expression, values)
    try:
        result: Object = patched(json_copy(shown), operations)
    except TestFailed:
        return shown  # a failed `test` operation means that the patch is not applied
    except (PatchFailed, errors.StatusError) as error:
        raise PolicyFailure(f"JSON Patch: {error}") from None
    return result


def _applied(policy: Policy, expression: str, values: Values, shown: Object, schema: Schema) -> Object:
    configuration = policy.expressions.evaluate(expression, values)
    if not isinstance(configuration, dict):
        raise PolicyFailure("error applying patch: must evaluate to Object")
    if wrong := typed_errors(configuration, schema):
        raise PolicyFailure(f"error applying patch: invalid ApplyConfiguration: {wrong}")
    if atomic := list(_atomics(configuration, schema, "")):
        raise PolicyFailure("error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or "
                            f"structs: {', '.join(atomic)}")
    result: Object = merge(shown, configuration, schema)
    return result


def _atomics(value: Any, schema: Schema, path: str) -> Iterator[str]:
    """The paths of lists and maps in a configuration that can only be set as a whole."""
    if schema.leaf and isinstance(value, dict | list):
        yield path
    elif isinstance(value, dict) and schema.kind != "any":
        for key, item in sorted(value.items()):
            yield from _atomics(item, schema.field(key) or ANY, f"{path}.{key}")
    elif isinstance(value, list) and schema.kind != "any":
        for item in value:
            yield from _atomics(item, schema.element or ANY, f"{path}[]")
