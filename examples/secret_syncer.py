"""One source, copies in several namespaces: a SecretSync keeps copies of a Secret beside it where it says.

    cd examples && kubectl-runtime crd secret_syncer:SecretSync | kubectl apply --server-side -f -      once
    python examples/secret_syncer.py                                                until Ctrl-C or SIGTERM

Copies follow the source. They are restored when somebody changes or deletes them, and deleted when nobody wants them
any more. Owner references do not reach into other namespaces: labels name the SecretSync of a copy, and a finalizer
keeps it until the last copy is deleted. Of Secrets only metadata is watched, so memory holds no content.
"""
from __future__ import annotations

import logging
import sys
from collections.abc import Set
from typing import Annotated

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
    ObjectRef,
    PartialObjectMeta,
    Store,
)
from kubectl_runtime.crd import ListType, PrinterColumn, Rule
from kubectl_runtime.resources import Secret

OWNER = "demo.kubectl-runtime.dev/sync-uid"


class Spec(msgspec.Struct):
    secret: Annotated[str, msgspec.Meta(min_length=1), Rule("self == oldSelf", message="make a new SecretSync instead")]
    namespaces: Annotated[list[str], ListType("set"), msgspec.Meta(min_length=1, max_length=100),
                          Rule("self.all(name, !name.startsWith('kube-'))", message="not into the system's namespaces")]


class Status(msgspec.Struct):
    state: str = ""


class SecretSync(CustomResource, group="demo.kubectl-runtime.dev", version="v1", kind="SecretSync",
                 printer_columns=(PrinterColumn("Secret", ".spec.secret"), PrinterColumn("State", ".status.state"))):
    """Copies of a Secret of its own namespace in other namespaces."""

    spec: Spec
    status: Status | None


class CopySecrets(FinalizingReconciler[SecretSync]):
    finalizer_name = "demo.kubectl-runtime.dev/copies"
    syncs: Store[SecretSync] | None = None

    def whose(self, secret: PartialObjectMeta) -> list[ObjectRef]:
        """Whose copy or source it is. Before the first run nobody's: that run will see the Secret."""
        return [sync.ref for sync in self.syncs or () if sync.uid == secret.labels.get(OWNER)
                or (sync.namespace, sync.spec.secret) == (secret.namespace, secret.name)]

    def apply(self, obj: SecretSync, ctx: Context[None]) -> Action:
        self.syncs = ctx.store(SecretSync)
        source = ctx.api(Secret).get_opt(obj.spec.secret)
        if source is None:
            return self.report(obj, ctx, [f"there is no Secret {obj.spec.secret}"])
        wanted, problems = set(obj.spec.namespaces) - {obj.namespace or ""}, list[str]()
        self.delete_copies(obj, ctx.client, beside=wanted)
        for namespace in sorted(wanted):
            if (there := ctx.metadata_store(Secret).get(source.name, namespace)) and there.labels.get(OWNER) != obj.uid:
                problems.append(f"{namespace}: somebody else's Secret has that name")
                continue
            copy = Secret(name=source.name, labels={OWNER: obj.uid}, data=source.data, type=source.type)
            try:
                Api.namespaced(ctx.client, Secret, namespace).apply(copy, force=True)
            except KubeError as error:  # the namespace may come later; the other copies do not wait for it
                problems.append(f"{namespace}: {error}")
        return self.report(obj, ctx, problems)

    def cleanup(self, obj: SecretSync, ctx: Context[None]) -> Action:
        return Action.requeue(60) if self.delete_copies(obj, ctx.client) else Action.await_change()

    def delete_copies(self, obj: SecretSync, client: Client, beside: Set[str] = frozenset()) -> int:
        """How many there were, but for those in these namespaces. The server is asked: a store may be behind."""
        copies = ListParams(label_selector={OWNER: obj.uid})
        left = {copy.namespace for copy in Api.all(client, Secret).with_metadata_only().list_all(copies)} - beside
        for namespace in left:
            Api.namespaced(client, Secret, namespace).delete_collection(selection=copies)
        return len(left)

    def report(self, obj: SecretSync, ctx: Context[None], problems: list[str]) -> Action:
        ctx.report(obj, state="; ".join(problems) or "complete")
        return Action.requeue(60) if problems else Action.await_change()


def controller(client: Client, reconciler: CopySecrets) -> Controller[SecretSync]:
    secrets = Api.all(client, Secret).with_metadata_only()
    return Controller(Api.all(client, SecretSync)).watches(secrets, reconciler.whose)


def operator(client: Client) -> BoundController[SecretSync]:
    """What `kubectl-runtime run secret_syncer:operator` runs."""
    reconciler = CopySecrets()
    return controller(client, reconciler).bind(reconciler)


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)-7s %(message)s", datefmt="%H:%M:%S")
    reconciler = CopySecrets()
    try:
        with Client.try_default() as client:
            controller(client, reconciler).shutdown_on_signal().run(reconciler)
    except KubeError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
