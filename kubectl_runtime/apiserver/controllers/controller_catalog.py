"""The controllers by name. The names are kube-controller-manager's, except ``kubelet``."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kubectl_runtime.apiserver.controllers.accounts import RoleAggregation, RootCaPublisher, ServiceAccountController
from kubectl_runtime.apiserver.controllers.budgets import (
    DisruptionController,
    NodeLifecycleController,
    QuotaController,
)
from kubectl_runtime.apiserver.controllers.claims import ClaimProtection, VolumeBinder, VolumeProtection
from kubectl_runtime.apiserver.controllers.cronjobs import CronJobController
from kubectl_runtime.apiserver.controllers.daemonsets import DaemonSetController
from kubectl_runtime.apiserver.controllers.deployments import DeploymentController, ReplicaSetController
from kubectl_runtime.apiserver.controllers.endpoints import EndpointsController, EndpointSliceController
from kubectl_runtime.apiserver.controllers.garbage import GarbageCollector
from kubectl_runtime.apiserver.controllers.jobs import JobController, TtlAfterFinishedController
from kubectl_runtime.apiserver.controllers.loop import ControlLoop
from kubectl_runtime.apiserver.controllers.namespace_controller import NamespaceController
from kubectl_runtime.apiserver.controllers.statefulsets import StatefulSetController
from kubectl_runtime.apiserver.kubelet.kubelet import Kubelet
from kubectl_runtime.apiserver.kubelet.pod_loop import KubeletLoop

ALL = "*"
CONTROLLERS: dict[str, Callable[..., ControlLoop]] = {
    "garbage-collector": GarbageCollector, "namespace": NamespaceController,
    "serviceaccount": ServiceAccountController, "root-ca-certificate-publisher": RootCaPublisher,
    "deployment": DeploymentController, "replicaset": ReplicaSetController, "statefulset": StatefulSetController,
    "daemonset": DaemonSetController, "cronjob": CronJobController, "kubelet": KubeletLoop,
    "job": JobController, "ttl-after-finished": TtlAfterFinishedController,
    DisruptionController.name: DisruptionController, QuotaController.name: QuotaController,
    EndpointsController.name: EndpointsController, EndpointSliceController.name: EndpointSliceController,
    RoleAggregation.name: RoleAggregation, NodeLifecycleController.name: NodeLifecycleController,
    ClaimProtection.name: ClaimProtection, VolumeProtection.name: VolumeProtection, VolumeBinder.name: VolumeBinder}


def build_controllers(names: Iterable[str], *, certificate: str = "", kubelet: Kubelet) -> list[ControlLoop]:
    """The controllers with these names (``none`` for none, ``*`` for all). Raises ValueError for an unknown name.

    `certificate` is the CA certificate of the server as PEM, empty without TLS. `kubelet` holds the rules that a test
    has set for Pods.
    """
    wanted = [name for name in dict.fromkeys(names) if name and name != "none"]
    if ALL in wanted:
        wanted = [*CONTROLLERS, *(name for name in wanted if name != ALL and name not in CONTROLLERS)]
    unknown = [name for name in wanted if name not in CONTROLLERS]
    if unknown:
        raise ValueError(f"unknown controllers: {', '.join(unknown)}; available: {', '.join(CONTROLLERS)}")
    if KubeletLoop.name in wanted:
        kubelet.rules.use()
    made: dict[str, Callable[[], ControlLoop]] = {
        RootCaPublisher.name: lambda: RootCaPublisher(certificate),
        KubeletLoop.name: lambda: KubeletLoop(kubelet, binds_claims=VolumeBinder.name in wanted)}
    return [made.get(name, CONTROLLERS[name])() for name in wanted]
