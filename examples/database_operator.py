"""An operator: a Database becomes a Secret, a Service, a StatefulSet, and a folder for backups outside the cluster.

    cd examples && kubectl-runtime crd database_operator:Database | kubectl apply --server-side -f -     once, at first
    python examples/database_operator.py DIRECTORY                                    until Ctrl-C or SIGTERM

Kubernetes deletes what the Database owns in the cluster. The folder stands for what no cluster can delete, such as a
bucket, a DNS record or an account: a finalizer keeps the Database until its folder is deleted.
"""
from __future__ import annotations

import logging
import os
import secrets
import shutil
import sys
from pathlib import Path
from typing import Annotated

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
    FinalizingReconciler,
    KubeError,
    MapKeys,
)
from kubectl_runtime.resources import Secret, Service, StatefulSet


class Spec(msgspec.Struct):
    replicas: int = 1
    image: str = "postgres:17"


class Status(msgspec.Struct):
    conditions: Annotated[list[Condition] | None, MapKeys("type")] = None


class Database(CustomResource, group="demo.kubectl-runtime.dev", version="v1", kind="Database", short_names=("db",)):
    """A database server and a place for its backups."""

    spec: Spec
    status: Status | None = None


class Operate(FinalizingReconciler[Database]):
    """The controller's context is the directory that holds all backups."""

    finalizer_name = "databases.demo.kubectl-runtime.dev/backups"

    def apply(self, obj: Database, ctx: Context[Path]) -> Action:
        (ctx.data / obj.uid).mkdir(exist_ok=True)  # by uid: a later Database of this name is a different object
        if ctx.api(Secret).get_opt(obj.name) is None:  # the password is made once, then kept
            ctx.ensure(obj, Secret(name=obj.name, string_data={"password": secrets.token_hex()}))
        labels = {"app.kubernetes.io/name": "database", "app.kubernetes.io/instance": obj.name}
        service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": obj.name}, "spec": {
            "clusterIP": "None", "selector": labels, "ports": [{"port": 5432}]}}
        password = {"name": "POSTGRES_PASSWORD", "valueFrom": {"secretKeyRef": {"name": obj.name, "key": "password"}}}
        container = {"name": "server", "image": obj.spec.image, "env": [password]}
        servers = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": obj.name}, "spec": {
            "replicas": obj.spec.replicas, "serviceName": obj.name, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}}}}
        ctx.ensure(obj, service, servers)
        server = ctx.store(StatefulSet).get(obj.name, obj.namespace)
        self.report(obj, server.status.ready_replicas if server and server.status else 0, ctx)
        return Action.requeue(300)

    def cleanup(self, obj: Database, ctx: Context[Path]) -> Action:
        """Deletes the backups, which the cluster cannot do. `apply` may never have run, and `cleanup` may run twice."""
        if (ctx.data / obj.uid).exists():
            shutil.rmtree(ctx.data / obj.uid)
            ctx.record("BackupsDeleted", f"the backups of {obj.name} are gone")
        return Action.await_change()

    def report(self, obj: Database, ready: int, ctx: Context[Path]) -> None:
        """Sends nothing if the status has this condition already, so a second run causes no event."""
        serves = ready >= obj.spec.replicas
        condition = Condition(type="Ready", status=str(serves), reason="Serving" if serves else "Starting",
                              message=f"{ready} of {obj.spec.replicas} replicas are ready",
                              observed_generation=obj.generation)
        ctx.report(obj, condition)


def controller(client: Client) -> Controller[Database]:
    return (Controller(Api.all(client, Database)).owns(Api.all(client, Secret))
            .owns(Api.all(client, Service)).owns(Api.all(client, StatefulSet), whole=True))


def operator(client: Client) -> BoundController[Database]:
    """What `kubectl-runtime run database_operator:operator` runs; BACKUPS names the backup directory."""
    return controller(client).bind(Operate(), context=Path(os.environ.get("BACKUPS", "backups")))


# --- end of the controller; what follows is the command line ---


def main(directory: Path) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)-7s %(message)s", datefmt="%H:%M:%S")
    directory.mkdir(parents=True, exist_ok=True)
    try:
        with Client.try_default() as client:
            controller(client).shutdown_on_signal().run(Operate(), context=directory)
    except KubeError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "backups"))
