"""One source, copies in several namespaces: a SecretSync copies a Secret of its namespace into the namespaces it names.

    cd examples && kubectl-runtime crd secret_syncer:SecretSync | kubectl apply --server-side -f -      once
    python examples/secret_syncer.py                                                until Ctrl-C or SIGTERM

A SecretSync is reconciled again when any object that its run read with `ctx.read` changes. An object cannot own objects
in another namespace, so `ctx.ensure` does not make the copies: a label names the owner of a copy, and a finalizer keeps
the SecretSync until all copies are deleted. A NamespacePolicy (namespace_policy.py) is cluster-scoped, and owns its
copies.
"""
import logging
import sys
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
    """Copies a Secret from its own namespace into other namespaces."""

    spec: Spec
    status: Status | None


class CopySecrets(FinalizingReconciler[SecretSync]):
    finalizer_name = "demo.kubectl-runtime.dev/copies"

    def apply(self, obj: SecretSync, ctx: Context[None]) -> Action:
        source = ctx.read(Secret, obj.spec.secret)
        problems = self.copy(source, obj, ctx) if source else [f"there is no Secret {obj.spec.secret}"]
        ctx.report(obj, state="; ".join(problems) or "complete")
        return Action.requeue(60) if problems else Action.await_change()

    def copy(self, source: Secret, obj: SecretSync, ctx: Context[None]) -> list[str]:
        wanted, problems = set(obj.spec.namespaces) - {obj.namespace or ""}, list[str]()
        self.delete_copies(obj, ctx, wanted)
        for where in sorted(wanted):
            one = Secret(name=source.name, namespace=where, labels={OWNER: obj.uid}, data=source.data, type=source.type)
            try:
                if (there := ctx.read(Secret, one)) and there.labels.get(OWNER) != obj.uid:
                    raise KubeError("another owner's Secret has that name")
                if there and (there.data, there.type) == (source.data, source.type):
                    continue  # up to date: applying it again would change what this run read, and cause a run
                Api.namespaced(ctx.client, Secret, where).apply(one, force=True)
            except KubeError as error:  # the namespace may be created later: go on with the other copies
                problems.append(f"{where}: {error}")
        return problems

    def cleanup(self, obj: SecretSync, ctx: Context[None]) -> Action:
        return Action.requeue(60) if self.delete_copies(obj, ctx, set()) else Action.await_change()

    def delete_copies(self, obj: SecretSync, ctx: Context[None], beside: set[str]) -> int:
        left = [one for one in ctx.read_all(Secret, labels={OWNER: obj.uid}) if one.namespace not in beside]
        for copy in left:
            Api.namespaced(ctx.client, Secret, copy.namespace).delete(copy.name)
        return len(left)


def controller(client: Client) -> Controller[SecretSync]:
    return Controller(Api.all(client, SecretSync)).reads(Secret)


def operator(client: Client) -> BoundController[SecretSync]:
    """What `kubectl-runtime run secret_syncer:operator` runs."""
    return controller(client).bind(CopySecrets())


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)-7s %(message)s", datefmt="%H:%M:%S")
    try:
        with Client.try_default() as client:
            controller(client).shutdown_on_signal().run(CopySecrets())
    except KubeError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
