"""An operator with state: it runs database servers with claims, upgrades them step by step, and restores backups.

    cd examples && kubectl-runtime crd stateful_database:Postgres | kubectl apply --server-side -f -     once, at first
    python examples/stateful_database.py                                              until Ctrl-C or SIGTERM

A Postgres becomes a headless Service, a StatefulSet whose Pods have a claim each, and a CronJob for backups.
`partition` keeps an upgrade from the servers with lower numbers. `restore` names a backup, which each server loads
before it starts.
Claims stay when the Postgres is scaled down, so that scaling it up again restores the data.
"""
from __future__ import annotations

import logging
import sys
from typing import Annotated, Any

import msgspec

from kubectl_runtime import (
    Action,
    Api,
    BoundController,
    Client,
    Condition,
    Context,
    Controller,
    CustomResource,
    KubeError,
    MapKeys,
    Reconciler,
)
from kubectl_runtime.resources import CronJob, Service, StatefulSet


class Spec(msgspec.Struct):
    replicas: int = 1
    image: str = "postgres:17"
    storage: str = "1Gi"
    partition: int = 0
    schedule: str = "0 3 * * *"
    restore: str = ""


class Status(msgspec.Struct):
    conditions: Annotated[list[Condition] | None, MapKeys("type")] = None


class Postgres(CustomResource, group="demo.kubectl-runtime.dev", version="v1", kind="Postgres", plural="postgreses"):
    """Database servers, their volumes and their backups."""

    spec: Spec
    status: Status | None = None


class Operate(Reconciler[Postgres]):
    def reconcile(self, obj: Postgres, ctx: Context[None]) -> Action:
        labels = {"app.kubernetes.io/name": "postgres", "app.kubernetes.io/instance": obj.name}
        service = child("v1", "Service", obj, {"clusterIP": "None", "selector": labels, "ports": [{"port": 5432}]})
        servers = child("apps/v1", "StatefulSet", obj, {
            "replicas": obj.spec.replicas, "serviceName": obj.name, "selector": {"matchLabels": labels},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": obj.spec.partition}},
            "template": {"metadata": {"labels": labels}, "spec": pods(obj.spec)},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": obj.spec.storage}}}}]})
        command = ["pg_dump", "--host", f"{obj.name}-0.{obj.name}"]
        backup = {"name": "backup", "image": obj.spec.image, "command": command}
        backups = child("batch/v1", "CronJob", obj, {
            "schedule": obj.spec.schedule, "concurrencyPolicy": "Forbid", "jobTemplate": {"spec": {"template": {
                "spec": {"restartPolicy": "OnFailure", "containers": [backup]}}}}})
        ctx.ensure(obj, service, servers, backups, prune=True)
        self.report(obj, ctx.store(StatefulSet).get(obj.name, obj.namespace), ctx)
        return Action.await_change()

    def report(self, obj: Postgres, server: StatefulSet | None, ctx: Context[None]) -> None:
        found = server.status if server else None
        ready, updated = (found.ready_replicas or 0, found.updated_replicas or 0) if found else (0, 0)
        wanted = obj.spec.replicas - min(obj.spec.partition, obj.spec.replicas)
        serves = ready >= obj.spec.replicas and updated >= wanted
        condition = Condition(type="Ready", status=str(serves), reason="Serving" if serves else "Changing",
                              message=f"{ready} of {obj.spec.replicas} servers are ready, {updated} are updated",
                              observed_generation=obj.generation)
        ctx.report(obj, condition)


def pods(spec: Spec) -> dict[str, Any]:
    """The Pods' spec. A change of `restore` replaces the Pods one after the other."""
    mount = [{"name": "data", "mountPath": "/var/lib/postgresql/data"}]
    found: dict[str, Any] = {"containers": [{"name": "server", "image": spec.image, "volumeMounts": mount}]}
    if spec.restore:
        found["initContainers"] = [{"name": "restore", "image": spec.image, "volumeMounts": mount,
                                   "command": ["pg_restore", spec.restore]}]
    return found


def child(api_version: str, kind: str, owner: Postgres, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": owner.name}, "spec": spec}


def controller(client: Client) -> Controller[Postgres]:
    return (Controller(Api.all(client, Postgres)).owns(Api.all(client, Service))
            .owns(Api.all(client, CronJob)).owns(Api.all(client, StatefulSet), whole=True))


def operator(client: Client) -> BoundController[Postgres]:
    """What `kubectl-runtime run stateful_database:operator` runs."""
    return controller(client).bind(Operate())


# --- end of the controller; what follows is the command line ---


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)-7s %(message)s", datefmt="%H:%M:%S")
    try:
        with Client.try_default() as client:
            controller(client).shutdown_on_signal().run(Operate())
    except KubeError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
