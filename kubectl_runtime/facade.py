"""The table of the public names, and the functions that serve it.

To add, move or remove a public name, edit its row here and run `python -m tests.tools.stubs`, which writes the stubs
(`*.pyi`) for type checkers and editors. The facade `kubectl_runtime`, the topic modules, the table of contents of
`help(kubectl_runtime)` and the reference are derived from the table.

A name belongs to one topic and is imported from `kubectl_runtime.TOPIC`. Names whose rows have `TOP` can also be
imported from `kubectl_runtime`; there are at most 80 of them, and none is a general noun. Names whose rows have `MOVED`
were in `kubectl_runtime` in 0.2. Importing them from there still works until 0.4, with a DeprecationWarning.
"""
from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

PACKAGE = "kubectl_runtime"

TOP = "top"
MOVED = "moved"
TOPIC = "topic"

TOPICS = {
    "api": {
        "Api": ("client.api.api", TOP),
        "ConflictBackoff": ("runtime.retry", MOVED),
        "create_or_update": ("runtime.retry", TOP),
        "ensure_queryable": ("client.api.queryable", TOP),
        "Entry": ("client.api.entry", MOVED),
        "fetch": ("client.api.queryable", MOVED),
        "Namespaces": ("client.api.api", MOVED),
        "NamespaceSet": ("client.api.selected", TOPIC),
        "ObjectList": ("client.api.api_base", MOVED),
        "OwnWrites": ("client.api.client", TOP),
        "retry_on_conflict": ("runtime.retry", TOP),
        "Scale": ("client.api.subresources", TOPIC),
        "SelectedNamespaces": ("client.api.selected", TOPIC),
    },
    "client": {
        "ApiGroup": ("client.server", MOVED),
        "Client": ("client.api.client", TOP),
        "Config": ("client.config.config", TOP),
        "Discovery": ("client.api.discovery", MOVED),
        "Impersonation": ("client.config.checks", MOVED),
        "RateLimit": ("client.http.send", MOVED),
        "RetryPolicy": ("client.http.retry", TOP),
        "ServedKind": ("client.server", MOVED),
        "ServiceAccountToken": ("client.api.api", MOVED),
        "Stack": ("client.http.layers", MOVED),
    },
    "controller": {
        "Action": ("runtime.reconcile.reconciler", TOP),
        "BoundController": ("runtime.controller.controller", TOP),
        "Children": ("runtime.children.result", TOPIC),
        "Context": ("runtime.reconcile.reconciler", TOP),
        "Controller": ("runtime.controller.controller", TOP),
        "Debounce": ("runtime.controller.options", TOPIC),
        "ensure_children": ("runtime.children.ensure", TOP),
        "finalizer": ("runtime.finalizer", TOP),
        "FinalizingReconciler": ("runtime.finalizer", TOP),
        "KeyBackoff": ("runtime.queue.runs", MOVED),
        "KeyRate": ("runtime.queue.work_queue", TOPIC),
        "Reconciler": ("runtime.reconcile.reconciler", TOP),
        "Recorder": ("runtime.events", TOP),
        "Running": ("runtime.controller.running", TOP),
        "report": ("runtime.status", TOP),
        "RunReport": ("runtime.reconcile.reconciler", MOVED),
        "status": ("runtime", MOVED),
        "SupportsReconcile": ("runtime.reconcile.reconciler", TOP),
    },
    "crd": {
        "apply_crd": ("runtime.apply_crd", TOP),
        "Conversion": ("crd.conversion", TOP),
        "CustomResource": ("crd.customresource", TOP),
        "EmbeddedResource": ("crd.marks", MOVED),
        "FieldSchema": ("crd.marks", MOVED),
        "ListType": ("crd.marks", MOVED),
        "MapType": ("crd.marks", MOVED),
        "merge_crds": ("crd.customresource", MOVED),
        "OneOf": ("crd.marks", MOVED),
        "PreserveUnknownFields": ("crd.marks", MOVED),
        "PrinterColumn": ("crd.marks", MOVED),
        "Rule": ("crd.marks", MOVED),
        "rules": ("crd.marks", MOVED),
        "ScaleSubresource": ("crd.marks", MOVED),
        "Validator": ("crd.customresource", MOVED),
    },
    "errors": {
        "ApiError": ("core.base.errors", TOP),
        "AuthError": ("core.base.errors", MOVED),
        "ConfigError": ("core.base.errors", TOP),
        "ControllerError": ("runtime.controller.plan", MOVED),
        "ConversionError": ("crd.conversion", MOVED),
        "DeadlineExceeded": ("runtime.wait", TOPIC),
        "DecodeError": ("core.meta.problems", TOP),
        "DiscoveryError": ("core.base.errors", MOVED),
        "DowngradeError": ("runtime.apply_crd", MOVED),
        "DrainError": ("kubectl.drain", MOVED),
        "ExecFailed": ("client.streaming.process", MOVED),
        "KindNotServedError": ("client.http.retry", MOVED),
        "KubeError": ("core.base.errors", TOP),
        "LeadershipLost": ("manager.members", MOVED),
        "ManifestError": ("manifests.scalars", MOVED),
        "ManifestsFailed": ("kubectl.report", MOVED),
        "MissingRights": ("client.api.queryable", MOVED),
        "NotConfiguredError": ("client.config.config", MOVED),
        "NotLeaderError": ("manager.elector", MOVED),
        "NotOurs": ("runtime.children.result", TOP),
        "OutcomeUnknownError": ("core.base.errors", TOP),
        "PartialObjectError": ("core.base.errors", MOVED),
        "RequestError": ("core.base.errors", TOP),
        "RequestTimeout": ("core.base.errors", TOP),
        "StoreNotReady": ("runtime.store.store", MOVED),
        "SyncTimeoutError": ("runtime.controller.housekeeping", MOVED),
        "TerminalError": ("runtime.reconcile.reconciler", TOP),
        "TransportError": ("core.base.errors", TOP),
        "UnexpectedAnswer": ("client.http.retry", MOVED),
        "UnknownFieldError": ("core.base.errors", TOPIC),
        "WaitFailed": ("runtime.wait", TOPIC),
        "WaitStopped": ("runtime.wait", MOVED),
        "WaitTimeout": ("runtime.wait", TOP),
        "WriteBackError": ("core.base.errors", MOVED),
    },
    "kinds": {
        "ApiResource": ("core.meta.gvk", TOP),
        "GroupVersionKind": ("core.meta.gvk", TOP),
        "GroupVersionResource": ("core.meta.gvk", MOVED),
        "Scope": ("core.meta.gvk", MOVED),
        "version_generation": ("core.meta.gvk", MOVED),
        "version_priority": ("core.meta.gvk", MOVED),
    },
    "manager": {
        "elect": ("manager.elector", TOP),
        "LeaderElection": ("manager.leases", TOP),
        "Manager": ("manager.manager", TOP),
        "RunningManager": ("manager.running", TOPIC),
        "Sharding": ("manager.sharding", TOP),
    },
    "manifests": {
        "apply_manifests": ("kubectl.apply", MOVED),
        "delete_manifests": ("kubectl.apply", MOVED),
        "diff_manifests": ("kubectl.apply", MOVED),
        "ManifestOutcome": ("kubectl.report", MOVED),
        "ManifestReport": ("kubectl.report", MOVED),
    },
    "objects": {
        "child_name": ("core.objects.ownership", TOP),
        "Condition": ("core.meta.metav1", TOP),
        "dynamic": ("core.objects.partial", MOVED),
        "DynamicObject": ("core.objects.partial", TOP),
        "FrozenPart": ("core.meta.metav1", MOVED),
        "GoDuration": ("core.meta.metav1", MOVED),
        "InvalidObject": ("core.objects.partial", MOVED),
        "LabelSelector": ("core.meta.metav1", MOVED),
        "ListMeta": ("core.meta.metav1", MOVED),
        "MapKeys": ("core.base.wire", TOP),
        "Object": ("core.objects.partial", MOVED),
        "ObjectMeta": ("core.meta.metav1", TOP),
        "ObjectRef": ("core.meta.gvk", TOP),
        "OwnerReference": ("core.meta.metav1", TOP),
        "Part": ("core.meta.metav1", MOVED),
        "PartialObjectMeta": ("core.objects.partial", TOP),
        "PartialView": ("core.objects.partial", MOVED),
        "Quantity": ("core.meta.quantities", MOVED),
        "Resource": ("core.objects.resource", TOP),
        "set_condition": ("core.meta.metav1", TOP),
        "Status": ("core.base.errors", MOVED),
        "strip_managed_fields": ("core.codec.views", TOP),
        "TemplateMeta": ("core.meta.metav1", MOVED),
    },
    "observe": {
        "DebugPage": ("runtime.observe.debug", MOVED),
        "HealthServer": ("runtime.observe.health", TOP),
        "logs": ("runtime", MOVED),
        "Metrics": ("runtime.observe.metrics", TOP),
        "Observer": ("core.base.observer", MOVED),
        "RunResult": ("core.base.observer", MOVED),
        "together": ("core.base.observer", MOVED),
    },
    "params": {
        "DeleteParams": ("core.requests.params", MOVED),
        "GetParams": ("core.requests.params", MOVED),
        "ListParams": ("core.requests.params", TOP),
        "Patch": ("core.requests.params", TOP),
        "PatchParams": ("core.requests.params", TOP),
        "pointer": ("core.requests.params", MOVED),
        "PostParams": ("core.requests.params", MOVED),
        "Preconditions": ("core.requests.params", MOVED),
        "Selector": ("core.meta.selectors", MOVED),
        "ShardSelector": ("core.meta.selectors", TOPIC),
        "WatchParams": ("core.requests.params", MOVED),
    },
    "plan": {
        "Change": ("plan.report", TOPIC),
        "FieldChange": ("plan.report", TOPIC),
        "OutsideRefused": ("plan.program", TOPIC),
        "Plan": ("plan.report", TOPIC),
        "plan": ("plan.running", TOPIC),
        "Problem": ("plan.report", TOPIC),
        "Snapshot": ("plan.snapshot", TOPIC),
        "SnapshotError": ("plan.stored", TOPIC),
    },
    "pods": {
        "AttachedProcess": ("client.streaming.process", MOVED),
        "AttachParams": ("core.requests.pods", MOVED),
        "CompletedExec": ("client.streaming.process", MOVED),
        "drain": ("kubectl.drain", MOVED),
        "DrainReport": ("kubectl.drain", MOVED),
        "LocalPort": ("client.streaming.forwarding", MOVED),
        "LogParams": ("core.requests.pods", MOVED),
        "LogStream": ("client.streaming.logs", MOVED),
        "PodOutcome": ("kubectl.drain", MOVED),
        "PortForward": ("client.streaming.forwarding", MOVED),
    },
    "testing": {
        "ApiServer": ("apiserver.server", TOPIC),
        "context_for": ("testing.unit_context", TOPIC),
        "CRASH": ("testing.lab.world", TOPIC),
        "Divergence": ("testing.lab.perturb", TOPIC),
        "eventually": ("testing.asking", TOPIC),
        "Fault": ("testing.lab.world", TOPIC),
        "Faults": ("apiserver.transport.faults", TOPIC),
        "MISSED": ("testing.lab.world", TOPIC),
        "objects_of": ("testing.generated", TOPIC),
        "perturb": ("testing.lab.perturb", TOPIC),
        "RecordingError": ("testing.lab.recordings", TOPIC),
        "replay": ("testing.lab.replay", TOPIC),
        "Replayed": ("testing.lab.replay", TOPIC),
        "Report": ("testing.lab.perturb", TOPIC),
        "RequestVerifier": ("testing.request_verifier", TOPIC),
        "SimClock": ("testing.clock", TOPIC),
        "Simulation": ("testing.simulation", TOPIC),
        "STALE": ("testing.lab.world", TOPIC),
    },
    "triggers": {
        "EVERYTHING": ("runtime.triggers.triggers", TOP),
        "Everything": ("runtime.triggers.triggers", MOVED),
        "ObjectEvent": ("runtime.triggers.predicates", TOP),
        "owner_of": ("runtime.triggers.triggers", TOP),
        "Predicate": ("runtime.triggers.predicates", MOVED),
        "predicates": ("runtime.triggers", TOP),
        "ReconcileRequest": ("runtime.triggers.triggers", MOVED),
    },
    "wait": {
        "await_condition": ("runtime.wait", TOP),
        "conditions": ("runtime", TOP),
        "deadline": ("runtime.wait", TOP),
        "delete_and_finalize": ("runtime.wait", TOP),
        "StopToken": ("core.scope", TOP),
    },
    "watch": {
        "applied_objects": ("runtime.triggers.streams", MOVED),
        "Apply": ("runtime.watch.event", MOVED),
        "Delete": ("runtime.watch.event", MOVED),
        "Event": ("runtime.watch.event", MOVED),
        "Failed": ("runtime.watch.event", MOVED),
        "Init": ("runtime.watch.event", MOVED),
        "InitApply": ("runtime.watch.event", MOVED),
        "InitDone": ("runtime.watch.event", MOVED),
        "InitialListStrategy": ("runtime.watch.config", MOVED),
        "ListSemantic": ("runtime.watch.config", MOVED),
        "metadata_watcher": ("runtime.watch.watcher", TOP),
        "modify": ("runtime.triggers.streams", TOPIC),
        "Phase": ("runtime.watch.states", MOVED),
        "predicate_filter": ("runtime.triggers.streams", MOVED),
        "reflector": ("runtime.store.reflector", TOP),
        "Store": ("runtime.store.store", TOP),
        "store": ("runtime.store.reflector", MOVED),
        "touched_objects": ("runtime.triggers.streams", MOVED),
        "watch_object": ("runtime.watch.watcher", TOP),
        "watch_store": ("runtime.triggers.watch_store", TOP),
        "WatchBackoff": ("runtime.watch.backoff", MOVED),
        "WatchedStore": ("runtime.triggers.watch_store", MOVED),
        "watcher": ("runtime.watch.watcher", TOP),
        "WatcherConfig": ("runtime.watch.config", TOP),
        "WatchState": ("runtime.watch.states", MOVED),
    },
    "webhooks": {
        "Admission": ("webhooks.handler", TOP),
        "AdmissionRequest": ("webhooks.handler", TOP),
        "AdmissionReview": ("core.objects.admission", MOVED),
        "Application": ("webhooks.answering", TOPIC),
        "application": ("webhooks.answering", TOPIC),
        "apply_webhooks": ("webhooks.configurations", MOVED),
        "ConversionReview": ("core.objects.conversion", MOVED),
        "Denied": ("webhooks.handler", TOP),
        "Rule": ("webhooks.handler", TOPIC),
        "SelfSigned": ("webhooks.serving_certificates", MOVED),
        "WebhookServer": ("webhooks.server", TOP),
    },
}
"""Maps each topic to its names, and each name to its module (below this package) and to TOP, TOPIC or MOVED."""


def homes(module: str) -> dict[str, str]:
    """Map the public names of the facade or of a topic module to the full names of the modules that define them."""
    topic = module.removeprefix(PACKAGE).removeprefix(".")
    rows = TOPICS[topic].items() if topic else (
        row for names in TOPICS.values() for row in names.items() if row[1][1] == TOP)
    return {name: f"{PACKAGE}.{home}" for name, (home, _) in rows}


def contents() -> str:
    """List the names of the facade by topic, in lines of at most 120 characters."""
    lines = []
    for topic, names in TOPICS.items():
        line = f"    {topic:12}"
        for name in [name for name, (_, place) in names.items() if place == TOP]:
            if len(line) + len(name) > 117:
                lines.append(line.rstrip())
                line = " " * 16
            line += f"{name}, "
        lines.append(line.rstrip(", "))
    return "\n".join(lines)


def door(module: str) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__all__`, `__getattr__` and `__dir__` for the facade or a topic module; names load on first use."""
    found = homes(module)
    moved = {} if module != PACKAGE else {
        name: topic for topic, names in TOPICS.items() for name, (_, place) in names.items() if place == MOVED}

    def load(name: str) -> Any:
        if name in moved:
            place = f"{PACKAGE}.{moved[name]}"
            warnings.warn(f"{PACKAGE}.{name} moved: from {place} import {name}", DeprecationWarning, stacklevel=2)
            return getattr(__import__(place, fromlist=[name]), name)
        if name not in found:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        value = getattr(__import__(found[name], fromlist=[name]), name)
        setattr(sys.modules[module], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[module]), *found})

    return sorted(found), load, names
