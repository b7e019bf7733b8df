"""An operator as a user of kopf writes it: it makes a ConfigMap of each Widget, keeps it up to date, and clears up.

It is run by `kopf run`; nothing in it knows that the server is an embedded one.
"""

from __future__ import annotations

import kopf
import kubernetes


def _core() -> kubernetes.client.CoreV1Api:
    kubernetes.config.load_kube_config()
    return kubernetes.client.CoreV1Api()


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_):
    settings.persistence.finalizer = "example.com/kopf-finalizer"
    settings.posting.enabled = True
    settings.watching.server_timeout = 5  # so that watches end and begin anew meanwhile


@kopf.on.create("example.com", "v1", "widgets")
def create(spec, name, namespace, body, **_):
    child = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{name}-child"},
             "data": {"size": str(spec.get("size"))}}
    kopf.adopt(child, owner=body)
    made = _core().create_namespaced_config_map(namespace, child)
    kopf.info(body, reason="Made", message="made the child")
    return {"child": made.metadata.name}


@kopf.on.update("example.com", "v1", "widgets", field="spec.size")
def update(new, name, namespace, **_):
    _core().patch_namespaced_config_map(f"{name}-child", namespace, {"data": {"size": str(new)}})
    return {"size": new}


@kopf.on.delete("example.com", "v1", "widgets")
def delete(name, namespace, **_):
    _core().create_namespaced_config_map(namespace, {"metadata": {"name": f"{name}-tombstone"}})
