"""Validation of what tells where a Pod may run: node selectors, affinity, spreading, tolerations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds.base import one_of, selector_causes
from kubectl_runtime.apiserver.objectmeta.names import dns_label_errors, label_value_errors, qualified_name_errors
from kubectl_runtime.apiserver.strategy import Object

_REQUIRED, _PREFERRED = (f"{verb}DuringSchedulingIgnoredDuringExecution" for verb in ("required", "preferred"))
_WITH_VALUES, _WITHOUT_VALUES, _WITH_ONE = ("In", "NotIn"), ("Exists", "DoesNotExist"), ("Gt", "Lt")
_UNKNOWN = "not a valid selector operator"


def affinity_causes(affinity: Object, path: str) -> Iterator[Cause]:
    """What is wrong with an affinity."""
    node = affinity.get("nodeAffinity") or {}
    if (required := node.get(_REQUIRED)) is not None:
        yield from node_selector_causes(required, f"{path}.nodeAffinity.{_REQUIRED}")
    for index, term in enumerate(node.get(_PREFERRED) or ()):
        at = f"{path}.nodeAffinity.{_PREFERRED}[{index}]"
        yield from _weight_causes(term, at)
        yield from _node_term_causes(term.get("preference") or {}, f"{at}.preference")
    for kind in ("podAffinity", "podAntiAffinity"):
        part = affinity.get(kind) or {}
        for index, term in enumerate(part.get(_REQUIRED) or ()):
            yield from _pod_term_causes(term, f"{path}.{kind}.{_REQUIRED}[{index}]")
        for index, weighted in enumerate(part.get(_PREFERRED) or ()):
            at = f"{path}.{kind}.{_PREFERRED}[{index}]"
            yield from _weight_causes(weighted, at)
            yield from _pod_term_causes(weighted.get("podAffinityTerm") or {}, f"{at}.podAffinityTerm")


def node_selector_causes(selector: Object, path: str) -> Iterator[Cause]:
    """What is wrong with a node selector."""
    if not selector.get("nodeSelectorTerms"):
        yield errors.required(f"{path}.nodeSelectorTerms", "must have at least one node selector term")
    for index, term in enumerate(selector.get("nodeSelectorTerms") or ()):
        yield from _node_term_causes(term, f"{path}.nodeSelectorTerms[{index}]")


def _weight_causes(term: Object, path: str) -> Iterator[Cause]:
    weight = term.get("weight", 0)
    if not 1 <= weight <= 100:
        yield errors.invalid_value(f"{path}.weight", weight, "must be in the range 1-100")


def _node_term_causes(term: Object, path: str) -> Iterator[Cause]:
    for index, entry in enumerate(term.get("matchExpressions") or ()):
        at = f"{path}.matchExpressions[{index}]"
        operator, values, key = entry.get("operator", ""), entry.get("values") or (), entry.get("key", "")
        if operator in _WITH_VALUES and not values:
            yield errors.required(f"{at}.values", "must be specified when `operator` is 'In' or 'NotIn'")
        elif operator in _WITHOUT_VALUES and values:
            yield errors.forbidden_field(f"{at}.values",
                                         "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
        elif operator in _WITH_ONE and len(values) != 1:
            yield errors.required(f"{at}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'")
        elif operator not in (*_WITH_VALUES, *_WITHOUT_VALUES, *_WITH_ONE):
            yield errors.invalid_value(f"{at}.operator", operator, _UNKNOWN)
        yield from (errors.invalid_value(f"{at}.key", key, why) for why in qualified_name_errors(key))
    for index, entry in enumerate(term.get("matchFields") or ()):
        at = f"{path}.matchFields[{index}]"
        operator, values, key = entry.get("operator", ""), entry.get("values") or (), entry.get("key", "")
        if operator not in _WITH_VALUES:
            yield errors.invalid_value(f"{at}.operator", operator, _UNKNOWN)
        elif len(values) != 1:
            yield errors.required(f"{at}.values",
                                  "must be only one value when `operator` is 'In' or 'NotIn' for node field selector")
        if key != "metadata.name":
            yield errors.invalid_value(f"{at}.key", key, "not a valid field selector key")


def _pod_term_causes(term: Object, path: str) -> Iterator[Cause]:
    for key in ("labelSelector", "namespaceSelector"):
        yield from selector_causes(term.get(key) or {}, f"{path}.{key}")
    for name in term.get("namespaces") or ():
        yield from (errors.invalid_value(f"{path}.namespace", name, why) for why in dns_label_errors(name))
    key = term.get("topologyKey", "")
    if not key:
        yield errors.required(f"{path}.topologyKey", "can not be empty")
    yield from (errors.invalid_value(f"{path}.topologyKey", key, why) for why in qualified_name_errors(key))


def spread_causes(constraints: Iterable[Object], path: str) -> Iterator[Cause]:
    """What is wrong with topology spread constraints."""
    seen = set()
    for index, constraint in enumerate(constraints):
        at, skew, key = f"{path}[{index}]", constraint.get("maxSkew", 0), constraint.get("topologyKey", "")
        when = constraint.get("whenUnsatisfiable", "")
        if skew <= 0:
            yield errors.invalid_value(f"{at}.maxSkew", skew, "must be greater than zero")
        if not key:
            yield errors.required(f"{at}.topologyKey", "can not be empty")
        else:
            yield from (errors.invalid_value(f"{at}.topologyKey", key, why) for why in qualified_name_errors(key))
        if when not in ("DoNotSchedule", "ScheduleAnyway"):
            yield errors.not_supported(f"{at}.whenUnsatisfiable", when, ("DoNotSchedule", "ScheduleAnyway"))
        if (key, when) in seen:
            yield errors.duplicate(f"{path}[{index - 1}].{{topologyKey, whenUnsatisfiable}}", f"{{{key}, {when}}}")
        seen.add((key, when))
        if (least := constraint.get("minDomains")) is not None:
            if least <= 0:
                yield errors.invalid_value(f"{at}.minDomains", least, "must be greater than zero")
            if when != "DoNotSchedule":
                yield errors.invalid_value(f"{at}.minDomains", least, "can only use minDomains if "
                                           f"whenUnsatisfiable=DoNotSchedule, not {when}")
        for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            yield from one_of(constraint.get(policy), ("Honor", "Ignore"), f"{at}.{policy}")
        yield from selector_causes(constraint.get("labelSelector") or {}, f"{at}.labelSelector")


def toleration_causes(tolerations: Iterable[Object], path: str) -> Iterator[Cause]:
    """What is wrong with tolerations."""
    for index, toleration in enumerate(tolerations):
        at, key, value = f"{path}[{index}]", toleration.get("key", ""), toleration.get("value", "")
        operator, effect = toleration.get("operator", ""), toleration.get("effect", "")
        if key:
            yield from (errors.invalid_value(f"{at}.key", key, why) for why in qualified_name_errors(key))
        elif operator != "Exists":
            yield errors.invalid_value(f"{at}.operator", operator, "operator must be Exists when `key` is empty, which "
                                                                   "means \"match all values and all keys\"")
        if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
            yield errors.invalid_value(f"{at}.effect", effect,
                                       "effect must be 'NoExecute' when `tolerationSeconds` is set")
        if operator in ("Equal", ""):
            yield from (errors.invalid_value(f"{at}.operator", value, why) for why in label_value_errors(value))
        elif operator == "Exists" and value:
            yield errors.invalid_value(f"{at}.operator", value, "value must be empty when `operator` is 'Exists'")
        elif operator in _WITH_ONE:  # operators of a feature that is off: the real server names them all the same
            yield errors.not_supported(f"{at}.operator", operator, ("Equal", "Exists", "Lt", "Gt"))
        elif operator != "Exists":
            yield errors.not_supported(f"{at}.operator", operator, ("Equal", "Exists"))
        yield from one_of(effect, ("NoSchedule", "PreferNoSchedule", "NoExecute"), f"{at}.effect")
