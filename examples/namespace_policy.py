"""One source, copies in every namespace: a NamespacePolicy becomes a NetworkPolicy in each namespace it selects.

    cd examples && kubectl-runtime crd namespace_policy:NamespacePolicy | kubectl apply --server-side -f -      once
    python examples/namespace_policy.py                                                until Ctrl-C or SIGTERM

A new namespace gets its copy, and a namespace that is no longer selected loses it. A copy that is changed or
deleted is restored. A NetworkPolicy of that name with another owner is left alone. The policy owns the copies: a
cluster-scoped object may own objects in any namespace. A finalizer keeps the policy until the last copy is deleted, so
that no copy outlives its source.
"""
from __future__ import annotations

import logging
import sys
from typing import Any

import msgspec

from kubectl_runtime import (
    Action,
    Api,
    BoundController,
    Client,
    Context,
    Controller,
    CustomResource,
    FinalizingReconciler,
    KubeError,
    ListParams,
    NotOurs,
    ObjectRef,
    Store,
)
from kubectl_runtime.kinds import Scope
from kubectl_runtime.objects import LabelSelector
from kubectl_runtime.params import Selector
from kubectl_runtime.resources import Namespace, NetworkPolicy

SOURCE = "demo.kubectl-runtime.dev/policy-uid"


class Spec(msgspec.Struct, rename="camel"):
    policy: dict[str, Any]
    namespace_selector: LabelSelector | None = None


class Status(msgspec.Struct):
    namespaces: int = 0


class NamespacePolicy(CustomResource, group="demo.kubectl-runtime.dev", version="v1", kind="NamespacePolicy",
                      plural="namespacepolicies", scope=Scope.CLUSTER):
    """A NetworkPolicy's spec for the namespaces that match the selector; without a selector, for all namespaces."""

    spec: Spec
    status: Status | None = None


class CopyPolicies(FinalizingReconciler[NamespacePolicy]):
    finalizer_name = "demo.kubectl-runtime.dev/copies"
    policies: Store[NamespacePolicy] | None = None

    def all_policies(self, _namespace: Namespace) -> list[ObjectRef]:
        """Returns all policies, because each may select the namespace. Before the first run the list is empty."""
        return [policy.ref for policy in self.policies] if self.policies is not None else []

    def apply(self, obj: NamespacePolicy, ctx: Context[None]) -> Action:
        self.policies = ctx.store(NamespacePolicy)
        selector = Selector.from_label_selector(obj.spec.namespace_selector)
        selected = {namespace.name for namespace in ctx.store(Namespace).filter(selector)
                    if namespace.deletion_timestamp is None}  # terminating namespaces refuse new objects
        copies = [{"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "spec": obj.spec.policy, "metadata": {
            "name": obj.name, "namespace": name, "labels": {SOURCE: obj.uid}}} for name in sorted(selected)]
        try:
            ctx.ensure(obj, *copies, prune=True)
            refused = 0
        except NotOurs as error:  # a namespace has another NetworkPolicy of that name, which stays as it is
            ctx.logger.warning("%s", error)
            refused = len(error.refused)
        ctx.report(obj, namespaces=len(copies) - refused)
        return Action.await_change()

    def cleanup(self, obj: NamespacePolicy, ctx: Context[None]) -> Action:
        """Delete the copies; each deletion causes another run. The server lists them, because a store may lag."""
        left = list(Api.all(ctx.client, NetworkPolicy).with_metadata_only().list_all(copies_of(obj)))
        for copy in left:
            Api.namespaced(ctx.client, NetworkPolicy, copy.namespace).delete_collection(selection=copies_of(obj))
        return Action.requeue(60) if left else Action.await_change()


def copies_of(policy: NamespacePolicy) -> ListParams:
    return ListParams(label_selector={SOURCE: policy.uid})


def controller(client: Client, reconciler: CopyPolicies) -> Controller[NamespacePolicy]:
    return Controller(Api.all(client, NamespacePolicy)).owns(Api.all(client, NetworkPolicy)).watches(
        Api.all(client, Namespace), reconciler.all_policies)


def operator(client: Client) -> BoundController[NamespacePolicy]:
    """What `kubectl-runtime run namespace_policy:operator` runs."""
    reconciler = CopyPolicies()
    return controller(client, reconciler).bind(reconciler)


# --- end of the controller; what follows is the command line ---


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)-7s %(message)s", datefmt="%H:%M:%S")
    reconciler = CopyPolicies()
    try:
        with Client.try_default() as client:
            controller(client, reconciler).shutdown_on_signal().run(reconciler)
    except KubeError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
