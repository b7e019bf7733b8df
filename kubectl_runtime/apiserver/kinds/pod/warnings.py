"""Texts for the Warning headers of Pods and pod templates, in the real server's order.

Paths begin with ``spec.`` for a Pod and with ``spec.template.spec.`` for a workload.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from kubectl_runtime.apiserver.kinds.base import ip_warnings
from kubectl_runtime.apiserver.names import dns_label_errors, label_value_errors
from kubectl_runtime.apiserver.wire import Object
from kubectl_runtime.core.codec.jsonbytes import remembers_good
from kubectl_runtime.core.meta.quantities import value_of

DEPRECATED_NODE_LABELS = {
    "beta.kubernetes.io/arch": 'deprecated since v1.14; use "kubernetes.io/arch" instead',
    "beta.kubernetes.io/os": 'deprecated since v1.14; use "kubernetes.io/os" instead',
    "failure-domain.beta.kubernetes.io/region": 'deprecated since v1.17; use "topology.kubernetes.io/region" instead',
    "failure-domain.beta.kubernetes.io/zone": 'deprecated since v1.17; use "topology.kubernetes.io/zone" instead',
    "beta.kubernetes.io/instance-type": 'deprecated since v1.17; use "node.kubernetes.io/instance-type" instead',
    "app.kubernetes.io/created-by": "deprecated since v1.9",
    "scheduler.alpha.kubernetes.io/preferAvoidPods": "deprecated since v1.22; use Taints and Tolerations instead",
    "node-role.kubernetes.io/master": 'use "node-role.kubernetes.io/control-plane" instead',
}
DEPRECATED_VOLUMES = {
    "photonPersistentDisk": "deprecated in v1.11, non-functional in v1.16+",
    "gitRepo": "deprecated in v1.11, and disabled by default in v1.33+",
    "scaleIO": "deprecated in v1.16, non-functional in v1.22+",
    "flocker": "deprecated in v1.22, non-functional in v1.25+",
    "storageos": "deprecated in v1.22, non-functional in v1.25+",
    "quobyte": "deprecated in v1.22, non-functional in v1.25+",
    "glusterfs": "deprecated in v1.25, non-functional in v1.26+",
    "cephfs": "deprecated in v1.28, non-functional in v1.31+",
    "rbd": "deprecated in v1.28, non-functional in v1.31+",
}
_DEPRECATED_ANNOTATIONS = {
    "scheduler.alpha.kubernetes.io/critical-pod":
        'non-functional in v1.16+; use the "priorityClassName" field instead',
    "security.alpha.kubernetes.io/sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
    "security.alpha.kubernetes.io/unsafe-sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
}
_NO_SELECTOR = "a null labelSelector results in matching no pod"
_REQUIRED, _PREFERRED = (f"{verb}DuringSchedulingIgnoredDuringExecution" for verb in ("required", "preferred"))
_BYTES = ("memory", "ephemeral-storage")


def name_warnings(name: str, used: str = "Pod names and hostnames") -> list[str]:
    """Warn about a name that is used in hostnames and is not a DNS label."""
    found = dns_label_errors(name)
    return [f"metadata.name: this is used in {used}, which can result in surprising behavior; a DNS label is "
            f"recommended: [{' '.join(found)}]"] if found else []


def template_warnings(template: Object, path: str) -> list[str]:
    """The warnings for a Pod (`path` is "") or a template (`path` is ``spec.template.``)."""
    annotations = (template.get("metadata") or {}).get("annotations") or {}
    return _warnings(template.get("spec") or {}, path, tuple(key for key in _DEPRECATED_ANNOTATIONS
                                                             if key in annotations))


@remembers_good
def _warnings(spec: Object, path: str, deprecated_annotations: tuple[str, ...]) -> list[str]:
    at = f"{path}spec"
    return [
        *_node_labels(spec, at), *_spread(spec.get("topologySpreadConstraints") or (), at),
        *(f"{path}metadata.annotations[{key}]: {_DEPRECATED_ANNOTATIONS[key]}" for key in deprecated_annotations),
        *_volumes(spec.get("volumes") or (), at), *_overlaps(spec.get("volumes") or ()),
        *_repeated(spec.get("hostAliases") or (), "ip", f"{at}.hostAliases"),
        *_repeated(spec.get("imagePullSecrets") or (), "name", f"{at}.imagePullSecrets"),
        *(f'{at}.imagePullSecrets[{index}].name: invalid empty name ""'
          for index, entry in enumerate(spec.get("imagePullSecrets") or ()) if not entry.get("name")),
        *_fractions(spec.get("overhead") or {}, f"{at}.overhead"),
        *_containers(spec, at), *_ports(spec, at), *_port_names(spec, at),
        *([f"{at}.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1"]
          if (spec.get("terminationGracePeriodSeconds") or 0) < 0 else []),
        *_affinity(spec.get("affinity") or {}, f"{at}.affinity"), *_addresses(spec, at),
    ]


def containers_with_paths(spec: Object, path: str) -> Iterator[tuple[str, Object]]:
    """All containers in the real server's order: init containers first."""
    for key in ("initContainers", "containers", "ephemeralContainers"):
        for index, container in enumerate(spec.get(key) or ()):
            yield f"{path}.{key}[{index}]", container


def selector_term_warnings(term: Object, path: str, *, values: bool) -> Iterator[str]:
    """Warnings about deprecated node labels in a node selector term.

    With `values` also about invalid label values, which validation does not refuse.
    """
    for index, expression in enumerate(term.get("matchExpressions") or ()):
        at, key = f"{path}.matchExpressions[{index}]", expression.get("key", "")
        if key in DEPRECATED_NODE_LABELS:
            yield f"{at}.key: {key} is {DEPRECATED_NODE_LABELS[key]}"
        for number, value in enumerate(expression.get("values") or () if values else ()):
            yield from (f"{at}.values[{number}]: {value} is invalid, {why}" for why in label_value_errors(value))


def claim_spec_warnings(spec: Object, path: str) -> Iterator[str]:
    """Warnings about amounts in a claim that are fractions of bytes."""
    for part in ("requests", "limits"):
        amounts = (spec.get("resources") or {}).get(part) or {}
        yield from _fractions({key: value for key, value in amounts.items() if key == "storage"},
                              f"{path}.resources.{part}", ("storage",))


def _fractions(amounts: Object, path: str, names: Iterable[str] = _BYTES) -> Iterator[str]:
    for name in names:
        if name in amounts and value_of(amounts[name]).denominator != 1:
            yield f'{path}[{name}]: fractional byte value "{amounts[name]}" is invalid, must be an integer'


def _node_labels(spec: Object, path: str) -> Iterator[str]:
    for key in spec.get("nodeSelector") or ():
        if key in DEPRECATED_NODE_LABELS:
            yield f"{path}.nodeSelector[{key}]: {DEPRECATED_NODE_LABELS[key]}"
    affinity: Object = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    for index, term in enumerate((affinity.get(_REQUIRED) or {}).get("nodeSelectorTerms") or ()):
        yield from selector_term_warnings(
            term, f"{path}.affinity.nodeAffinity.{_REQUIRED}.nodeSelectorTerms[{index}]", values=False)
    for index, term in enumerate(affinity.get(_PREFERRED) or ()):
        yield from selector_term_warnings(term.get("preference") or {},
                                          f"{path}.affinity.nodeAffinity.{_PREFERRED}[{index}].preference", values=True)


def _spread(constraints: Iterable[Object], path: str) -> Iterator[str]:
    for index, constraint in enumerate(constraints):
        at, key = f"{path}.topologySpreadConstraints[{index}]", constraint.get("topologyKey", "")
        if key in DEPRECATED_NODE_LABELS:
            yield f"{at}.topologyKey: {key} is {DEPRECATED_NODE_LABELS[key]}"
        if constraint.get("labelSelector") is None:
            yield f"{at}.labelSelector: {_NO_SELECTOR}"


def _volumes(volumes: Iterable[Object], path: str) -> Iterator[str]:
    for index, volume in enumerate(volumes):
        at = f"{path}.volumes[{index}]"
        yield from (f"{at}.{_GO_NAMES.get(kind, kind)}: {why}" for kind, why in DEPRECATED_VOLUMES.items()
                    if volume.get(kind) is not None)
        if claim := (volume.get("ephemeral") or {}).get("volumeClaimTemplate"):
            yield from claim_spec_warnings(claim.get("spec") or {}, f"{at}.ephemeral.volumeClaimTemplate.spec")


_GO_NAMES = {"storageos": "storageOS"}


def _overlaps(volumes: Iterable[Object]) -> Iterator[str]:
    """Warnings about files in one volume whose paths overlap."""
    for volume in volumes:
        name = volume.get("name", "")
        for kind, title, key in (("configMap", "ConfigMap", "name"), ("secret", "Secret", "secretName"),
                                 ("downwardAPI", "DownwardAPI", "")):
            source = volume.get(kind) or {}
            described = f'{title} "{source.get(key, "")}"' if key else title
            paths = [(item.get("path", ""), "") for item in source.get("items") or ()]
            yield from (f'volume "{name}" ({described}): overlapping paths: {text}' for text in _collisions(paths))
        paths = []
        for source in (volume.get("projected") or {}).get("sources") or ():
            if not source:
                yield f'volume "{name}" (Projected) has no sources provided'
            paths += _projected_paths(source)
        yield from (f'volume "{name}" (Projected): overlapping paths: {text}' for text in _collisions(paths))


def _projected_paths(source: Object) -> list[tuple[str, str]]:
    for kind, title in (("configMap", "ConfigMap"), ("secret", "Secret"), ("downwardAPI", "DownwardAPI")):
        if (part := source.get(kind)) is not None:
            described = title if kind == "downwardAPI" else f'{title} "{part.get("name", "")}"'
            return [(item.get("path", ""), described) for item in part.get("items") or ()]
    if (token := source.get("serviceAccountToken")) is not None:
        return [(token.get("path", ""), "ServiceAccountToken")]
    if (bundle := source.get("clusterTrustBundle")) is not None:
        name = bundle.get("name") or bundle.get("signerName", "")
        return [(bundle.get("path", ""), f'ClusterTrustBundle "{name}"')]
    return []


def _collisions(paths: Iterable[tuple[str, str]]) -> Iterator[str]:
    seen: list[tuple[str, str]] = []
    for raw, source in paths:
        path = raw.rstrip("/")
        for other, of in seen if path else ():
            if path == other or path.startswith(f"{other}/") or other.startswith(f"{path}/"):
                yield " with ".join(f'"{text}" ({origin})' if origin else f'"{text}"'
                                    for text, origin in ((path, source), (other, of)))
        seen.append((path, source))


def _repeated(entries: Iterable[Object], key: str, path: str) -> Iterator[str]:
    seen = set()
    for index, entry in enumerate(entries):
        value = entry.get(key, "")
        if value in seen:
            yield f'{path}[{index}].{key}: duplicate {key} "{value}"'
        seen.add(value)


def _containers(spec: Object, path: str) -> Iterator[str]:
    for at, container in containers_with_paths(spec, path):
        resources = container.get("resources") or {}
        for name in _BYTES:
            for part in ("limits", "requests"):
                yield from _fractions(resources.get(part) or {}, f"{at}.resources.{part}", (name,))
        seen = set()
        for index, variable in enumerate(container.get("env") or ()):
            name, value = variable.get("name", ""), variable.get("value") or ""
            reference = f"$({name})"
            if name in seen and (variable.get("valueFrom") is not None or value == reference or reference not in value):
                yield f'{at}.env[{index}]: hides previous definition of "{name}", which may be dropped when using apply'
            seen.add(name)


def _ports(spec: Object, path: str) -> Iterator[str]:
    known: dict[tuple[Any, Any], list[tuple[str, str, int]]] = {}
    for at, container in containers_with_paths(spec, path):
        for index, port in enumerate(container.get("ports") or ()):
            place, ip, host = f"{at}.ports[{index}]", port.get("hostIP") or "", port.get("hostPort") or 0
            others = known.setdefault((port.get("containerPort"), port.get("protocol")), [])
            for other, other_ip, other_host in others:
                if (ip, host) == (other_ip, other_host):
                    yield f"{place}: duplicate port definition with {other}"
                elif not host or not other_host:
                    yield f"{place}: overlapping port definition with {other}"
                elif host == other_host and bool(ip) != bool(other_ip):
                    yield f"{place}: dangerously ambiguous port definition with {other}"
            others.append((place, ip, host))


def _port_names(spec: Object, path: str) -> Iterator[str]:
    known: dict[str, str] = {}
    for at, container in containers_with_paths(spec, path):
        for index, port in enumerate(container.get("ports") or ()):
            place, name = f"{at}.ports[{index}]", port.get("name") or ""
            if name in known:
                yield (f'{place}: duplicate port name "{name}" with {known[name]}, services and probes that select '
                       f"ports by name will use {known[name]}")
            elif name:
                known[name] = place


def _affinity(affinity: Object, path: str) -> Iterator[str]:
    for kind in ("podAffinity", "podAntiAffinity"):
        part: Object = affinity.get(kind) or {}
        for index, term in enumerate(part.get(_REQUIRED) or ()):
            if term.get("labelSelector") is None:
                yield f"{path}.{kind}.{_REQUIRED}[{index}].labelSelector: {_NO_SELECTOR}"
        for index, weighted in enumerate(part.get(_PREFERRED) or ()):
            if (weighted.get("podAffinityTerm") or {}).get("labelSelector") is None:
                yield f"{path}.{kind}.{_PREFERRED}[{index}].podAffinityTerm.labelSelector: {_NO_SELECTOR}"


def _addresses(spec: Object, path: str) -> Iterator[str]:
    for index, server in enumerate((spec.get("dnsConfig") or {}).get("nameservers") or ()):
        yield from ip_warnings(f"{path}.dnsConfig.nameservers[{index}]", server)
    for index, alias in enumerate(spec.get("hostAliases") or ()):
        yield from ip_warnings(f"{path}.hostAliases[{index}].ip", alias.get("ip") or "")
