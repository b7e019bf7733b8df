"""Endpoints and EndpointSlices: the current addresses of the Pods that a Service selects.

A Service without a selector is left alone, because a client manages its endpoints. A slice has up to 100 endpoints, all
with one address type and one set of ports. A Pod that is not ready is included and marked as not ready.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator
from ipaddress import ip_address

from kubectl_runtime.apiserver.controllers.deployments import ENDED
from kubectl_runtime.apiserver.controllers.loop import KeyQueue
from kubectl_runtime.apiserver.kinds.base import dig, true_conditions
from kubectl_runtime.apiserver.loopback import create, delete, patch
from kubectl_runtime.apiserver.storage import Bucket, Change, Cluster, Version
from kubectl_runtime.apiserver.wire import Object

Ports = tuple[tuple[str, int, str, str], ...]  # (name, number, protocol, application protocol) of each port

SERVICES, PODS, ENDPOINTS, SLICES = "/services", "/pods", "/endpoints", "discovery.k8s.io/endpointslices"
SERVICE_NAME, MANAGED_BY = "kubernetes.io/service-name", "endpointslice.kubernetes.io/managed-by"
MANAGER = "endpointslice-controller.k8s.io"
HEADLESS = "service.kubernetes.io/headless"
PER_SLICE = 100
_PER_SECOND = 1000  # endpoints written per second: a Service with more Pods is written less often


class _OfServices(KeyQueue):
    """The base of both controllers. They reconcile Services, and observe the Pods that Services select."""

    storage = SERVICES
    written = ""  # set by subclasses: the storage key of the type that the controller writes

    def __init__(self) -> None:
        super().__init__()
        self._sizes: dict[str, int] = {}  # key of a Service -> number of its Pods at the last write
        self._selected: dict[str, set[str]] = {}  # key of a Service -> keys of the Pods that its selector matches

    def start(self, cluster: Cluster) -> None:
        self._selected.clear()
        super().start(cluster)

    def _note_pod(self, key: str) -> None:
        """Queue a Service whose Pod has changed. If it has many Pods, changes are first collected for a while."""
        size = self._sizes.get(key, 0)
        if size <= PER_SLICE // 2 or self._cluster is None:
            self._keys[key] = None
        elif key not in self._later:
            self._later[key] = self._cluster.clock.monotonic() + size / _PER_SECOND

    def pods_of(self, cluster: Cluster, service: Version) -> Iterator[tuple[Object, bool, Ports]]:
        """For each Pod of a Service that has an address: the Pod, whether it is ready for traffic, and its ports.

        The Pods are searched once for each version of the Service. After the search `_observe` keeps their keys up to
        date.
        """
        spec, pods = service.read()["spec"], cluster.storage.bucket(PODS)
        keys = self._selected.get(service.key)
        if keys is None:
            wanted = spec["selector"].items()
            keys = {pod.key for pod in pods.scan(service.namespace) if wanted <= pod.labels.items()}
            self._selected[service.key] = keys
        for pod in [pods.objects[key] for key in sorted(keys)]:
            if pod.fields.get("status.phase") in ENDED:
                continue
            obj = pod.decode()
            if dig(obj, "status.podIP"):
                ready = "Ready" in true_conditions(obj.get("status") or {})
                anyway = bool(spec.get("publishNotReadyAddresses"))
                yield obj, anyway or (ready and not pod.deleting), _ports(service.read(), obj)

    def _observe(self, bucket: Bucket, change: Change) -> None:
        super()._observe(bucket, change)
        services = self._cluster.storage.buckets.get(SERVICES) if self._cluster is not None else None
        if services is None or not services.objects:
            return
        if bucket.key == PODS:
            labels = [version.labels for version in (change.old, change.new) if version is not None]
            for service in services.scan(change.new.namespace):
                selector = dig(service.read(), "spec.selector")
                if selector and any(selector.items() <= each.items() for each in labels):
                    self._note_pod(service.key)
                    if (known := self._selected.get(service.key)) is not None:
                        gone = change.deleted or not selector.items() <= change.new.labels.items()
                        (known.discard if gone else known.add)(change.new.key)
        elif bucket.key == SERVICES:
            self._selected.pop(change.new.key, None)
        elif bucket.key == self.written:
            name = change.new.labels.get(SERVICE_NAME, change.new.name)
            self._keys[f"{change.new.namespace}/{name}"] = None


def _ports(service: Object, pod: Object) -> Ports:
    found = []
    for port in dig(service, "spec.ports") or ():
        number = _number(port, pod)
        if number is not None:
            found.append((port.get("name") or "", number, port.get("protocol") or "TCP", port.get("appProtocol") or ""))
    return tuple(found)


def _number(port: Object, pod: Object) -> int | None:
    target = port.get("targetPort") or port["port"]
    if isinstance(target, int):
        return target
    protocol = port.get("protocol") or "TCP"
    declared = (each for container in pod["spec"]["containers"] for each in container.get("ports") or ())
    return next((each["containerPort"] for each in declared
                 if each.get("name") == target and (each.get("protocol") or "TCP") == protocol), None)


def _shown(ports: Ports) -> list[Object]:
    return [{"port": number, "protocol": protocol, **({"name": name} if name else {}),
             **({"appProtocol": application} if application else {})} for name, number, protocol, application in ports]


def _target(pod: Object) -> Object:
    meta = pod["metadata"]
    return {"kind": "Pod", "namespace": meta["namespace"], "name": meta["name"], "uid": meta["uid"]}


def _host_name(pod: Object, service: Version) -> str:
    return (dig(pod, "spec.hostname") or "") if dig(pod, "spec.subdomain") == service.name else ""


class EndpointsController(_OfServices):
    name = "endpoint"
    written = ENDPOINTS

    def __init__(self) -> None:
        super().__init__()
        self._gone: list[str] = []  # keys of deleted Services

    def reconcile(self, cluster: Cluster, version: Version) -> None:
        """Write a Service's Endpoints if they changed.

        (Endpoints have the Service's name and no owner, so the garbage collector does not delete them. This controller
        deletes them after the Service.)
        """
        service = version.decode()
        if not dig(service, "spec.selector") or dig(service, "spec.type") == "ExternalName" or version.deleting:
            return
        groups: dict[Ports, tuple[list[Object], list[Object]]] = {}
        self._sizes[version.key] = 0
        for pod, ready, ports in self.pods_of(cluster, version):
            host = _host_name(pod, version)
            address = {"ip": pod["status"]["podIP"], "targetRef": _target(pod), **({"hostname": host} if host else {}),
                       **({"nodeName": node} if (node := dig(pod, "spec.nodeName")) else {})}
            groups.setdefault(ports, ([], []))[not ready].append(address)
            self._sizes[version.key] += 1
        headless = dig(service, "spec.clusterIP") == "None"
        subsets = [{key: value for key, value in (("addresses", good), ("notReadyAddresses", bad),
                                                  ("ports", _shown(ports))) if value}
                   for ports, (good, bad) in sorted(groups.items()) if ports or headless]
        labels = {**(service["metadata"].get("labels") or {}), "endpoints.kubernetes.io/managed-by":
                  "endpoint-controller"}
        if headless:
            labels[HEADLESS] = ""
        known = cluster.storage.get(ENDPOINTS, version.namespace, version.name)
        if known is None:
            create(cluster, ENDPOINTS, version.namespace, {
                "metadata": {"name": version.name, "labels": labels}, "subsets": subsets})
        elif (known.decode().get("subsets") or []) != subsets or known.labels != labels:
            gone = dict.fromkeys(known.labels.keys() - labels.keys())
            patch(cluster, ENDPOINTS, known, {"metadata": {"labels": {**gone, **labels}}, "subsets": subsets})

    def _observe(self, bucket: Bucket, change: Change) -> None:
        super()._observe(bucket, change)
        if bucket.key == SERVICES and change.deleted:
            self._gone = [*self._gone, change.new.key]

    def due(self) -> float | None:
        return 0.0 if self._gone else super().due()

    def step(self, cluster: Cluster) -> None:
        """Delete the Endpoints of deleted Services, then reconcile some Services."""
        with cluster.locked():
            gone, self._gone = self._gone, []
            for key in gone:
                known = cluster.storage.bucket(ENDPOINTS).objects.get(key)
                if known is not None and key not in cluster.storage.bucket(SERVICES).objects:
                    delete(cluster, ENDPOINTS, known)
        super().step(cluster)


class EndpointSliceController(_OfServices):
    name = "endpointslice"
    written = SLICES

    def reconcile(self, cluster: Cluster, version: Version) -> None:
        service = version.decode()
        if not dig(service, "spec.selector") or version.deleting:
            return
        wanted = list(_slices(service, version, self.pods_of(cluster, version)))
        self._sizes[version.key] = sum(len(content["endpoints"]) for content in wanted)
        known = [found for found in cluster.storage.bucket(SLICES).scan(version.namespace)
                 if found.labels.get(SERVICE_NAME) == version.name and found.labels.get(MANAGED_BY) == MANAGER]
        labels = {**(service["metadata"].get("labels") or {}), SERVICE_NAME: version.name, MANAGED_BY: MANAGER}
        if dig(service, "spec.clusterIP") == "None":
            labels[HEADLESS] = ""
        for content in wanted:
            same = next((found for found in known if found.decode().get("addressType") == content["addressType"]), None)
            if same is None:
                create(cluster, SLICES, version.namespace, {
                    **content, "metadata": {
                        "generateName": f"{version.name}-", "labels": labels, "ownerReferences": [{
                            "apiVersion": "v1", "kind": "Service", "name": version.name, "uid": version.uid,
                            "controller": True, "blockOwnerDeletion": True}]}})
                continue
            known.remove(same)
            before = same.decode()
            if same.labels != labels or any((before.get(key) or []) != content[key] for key in ("endpoints", "ports")):
                gone = dict.fromkeys(same.labels.keys() - labels.keys())
                patch(cluster, SLICES, same, {**content, "metadata": {"labels": {**gone, **labels}}})
        for found in known:
            delete(cluster, SLICES, found)


def _slices(service: Object, version: Version, pods: Iterable[tuple[Object, bool, Ports]]) -> Iterator[Object]:
    """The contents of the wanted slices; one empty slice if there are no endpoints."""
    groups: dict[tuple[str, Ports], list[Object]] = {}
    for pod, ready, ports in pods:
        address = pod["status"]["podIP"]
        serving = "Ready" in true_conditions(pod["status"])
        ending = "deletionTimestamp" in pod["metadata"]
        host = _host_name(pod, version)
        groups.setdefault((f"IPv{ip_address(address).version}", ports), []).append({
            "addresses": [address], "conditions": {"ready": ready, "serving": serving, "terminating": ending},
            "targetRef": _target(pod), **({"hostname": host} if host else {}),
            **({"nodeName": node} if (node := dig(pod, "spec.nodeName")) else {})})
    families = dig(service, "spec.ipFamilies") or ["IPv4"]
    for (family, ports), endpoints in sorted(groups.items()) or [((families[0], ()), [])]:
        for start in range(0, max(1, len(endpoints)), PER_SLICE):
            yield {"addressType": family, "ports": _shown(ports), "endpoints": endpoints[start:start + PER_SLICE]}
