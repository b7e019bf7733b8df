"""The server's own admission plugins (Pod security and quotas), and warnings about kinds that no controller handles.

`secure` runs before the validating policies, `charge` after the validating webhooks. Without Namespace labels or quotas
each of the two functions costs only a dict look-up. Callers hold the cluster's lock.

If the server stores an object without acting on it, the create response has a Warning. `WITHOUT_CONTROLLER` lists the
kinds that only an optional controller acts on, with the controller's name. `NEVER` lists the kinds that nothing acts
on. The guide "What the embedded server obeys" lists both.
"""
from __future__ import annotations

from collections.abc import Collection

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.context import RequestContext
from kubectl_runtime.apiserver.kinds.base import dig
from kubectl_runtime.apiserver.policies import podsecurity, quotas
from kubectl_runtime.apiserver.policies.podsecurity import PREFIX, TEMPLATES, violation
from kubectl_runtime.apiserver.wire import Object

_JUDGED = frozenset({"", "ephemeralcontainers", "resize"})
_MOST_PODS = 3000  # maximum number of Pods that are checked when their Namespace's level changes


def secure(ctx: RequestContext, new: Object, old: Object | None, subresource: str = "") -> None:
    """Check an object against Pod security. Raises StatusError, and adds warnings to the context."""
    kind = ctx.type.kind
    if kind == "Namespace" and not ctx.type.group:
        _secure_namespace(ctx, new, old, subresource)
        return
    if kind == "PriorityClass" and new.get("globalDefault") and not ctx.type.is_custom:
        _refuse_second_default(ctx, new)
    if (kind != "Pod" and kind not in TEMPLATES) or ctx.type.is_custom or subresource not in _JUDGED:
        return
    namespace = ctx.cluster.storage.get("/namespaces", "", new["metadata"].get("namespace") or "")
    if namespace is None or not any(label.startswith(PREFIX) for label in namespace.labels):
        return
    pod = new if kind == "Pod" else dig(new, TEMPLATES[kind])
    before = old if kind == "Pod" or old is None else dig(old, TEMPLATES[kind])
    if not pod or (before is not None and before.get("spec") == pod.get("spec")):
        return
    spec, meta = pod["spec"], pod.get("metadata") or {}
    if kind == "Pod" and (found := violation(namespace.labels, "enforce", spec, meta)):
        error = errors.forbidden("", "pods", new["metadata"].get("name") or "", f"violates {found}")
        error.from_webhook = True  # like a webhook's refusal: a retry may succeed, after a change of the labels
        raise error
    if found := violation(namespace.labels, "warn", spec, meta):
        ctx.warnings.append(f"would violate {found}")


def _refuse_second_default(ctx: RequestContext, new: Object) -> None:
    """Refuse a second default PriorityClass."""
    for other in ctx.cluster.storage.bucket(ctx.type.storage).scan(""):
        if other.name != new["metadata"].get("name") and other.decode().get("globalDefault"):
            raise errors.forbidden(ctx.type.group, ctx.type.plural, new["metadata"].get("name") or "", (
                f"PriorityClass {other.name} is already marked as default. Only one default can exist"))


def _secure_namespace(ctx: RequestContext, new: Object, old: Object | None, subresource: str) -> None:
    """Refuse an update that makes a Namespace's labels invalid, and warn about Pods that a new level would refuse."""
    labels = new["metadata"].get("labels") or {}
    before = (old["metadata"].get("labels") or {}) if old is not None else {}
    if old is None or subresource:
        return  # on create, the validation of Namespaces refuses invalid labels
    problems = list(podsecurity.label_problems(labels))
    if problems and not any(podsecurity.label_problems(before)):
        raise errors.invalid("", "Namespace", new["metadata"]["name"], [
            errors.invalid_value(f"metadata.labels[{label}]", value, why) for label, value, why in problems])
    key = f"{PREFIX}enforce"
    if problems or labels.get(key) in (None, "privileged", before.get(key)):
        return
    found: dict[str, list[str]] = {}
    for number, version in enumerate(ctx.cluster.storage.bucket("/pods").scan(new["metadata"]["name"])):
        if number >= _MOST_PODS:
            break
        pod = version.decode()
        reasons = podsecurity.problems(labels[key], pod["spec"], pod["metadata"])
        if reasons:
            found.setdefault(", ".join(reason for reason, _ in reasons), []).append(version.name)
    if found:
        level = f"{labels[key]}:{labels.get(f'{key}-version', 'latest')}"
        ctx.warnings.append(f'existing pods in namespace "{new["metadata"]["name"]}" violate the new PodSecurity '
                            f'enforce level "{level}"')
        for reasons_text, names in sorted(found.items()):
            more = f" (and {len(names) - 1} other pod{'s' if len(names) > 2 else ''})" if len(names) > 1 else ""
            ctx.warnings.append(f"{names[0]}{more}: {reasons_text}")


def charge(ctx: RequestContext, new: Object, old: Object | None, subresource: str = "") -> None:
    """Check the namespace's quotas. Raises a 403 if the object would exceed a quota."""
    if subresource not in _JUDGED or not ctx.type.namespaced:
        return
    try:
        quotas.charge(ctx.cluster.storage, ctx.type, new, old)
    except errors.StatusError as error:
        error.from_webhook = True  # like a webhook's refusal: a retry may succeed, after other objects are deleted
        raise


WITHOUT_CONTROLLER: dict[tuple[str, str], str] = {
    ("apps", "Deployment"): "deployment", ("apps", "ReplicaSet"): "replicaset", ("apps", "StatefulSet"): "statefulset",
    ("apps", "DaemonSet"): "daemonset", ("batch", "Job"): "job", ("batch", "CronJob"): "cronjob",
    ("", "PersistentVolumeClaim"): "persistentvolume-binder", ("policy", "PodDisruptionBudget"): "disruption"}
NEVER: dict[tuple[str, str], str] = {
    ("", "ReplicationController"): "no Pod is created",
    ("autoscaling", "HorizontalPodAutoscaler"): "nothing is scaled",
    ("networking.k8s.io", "Ingress"): "no traffic is routed",
    ("networking.k8s.io", "NetworkPolicy"): "no traffic is filtered",
    ("certificates.k8s.io", "CertificateSigningRequest"): "nothing is signed",
    ("apiregistration.k8s.io", "APIService"): "no request is proxied",
    ("flowcontrol.apiserver.k8s.io", "FlowSchema"): "no request is queued",
    ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration"): "no request is queued",
    ("resource.k8s.io", "ResourceClaim"): "no device is allocated",
    ("resource.k8s.io", "ResourceClaimTemplate"): "no device is allocated",
    ("storage.k8s.io", "VolumeAttachment"): "no volume is attached"}


def warning(group: str, kind: str, controllers: Collection[str]) -> str:
    """The warning for the creation of a built-in kind's object; "" if the server acts on the kind."""
    if why := NEVER.get((group, kind)):
        return f"the embedded API server stores this {kind} without acting on it: {why}"
    wanted = WITHOUT_CONTROLLER.get((group, kind))
    if wanted is None or wanted in controllers:
        return ""
    return (f"the embedded API server stores this {kind} without acting on it: its controller does not run; "
            f'ApiServer(controllers=[..., "{wanted}"]) starts it')
