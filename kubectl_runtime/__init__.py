"""Kubernetes controllers for Python code that blocks: the names that a controller's author imports.

`from kubectl_runtime import NAME`; `help(NAME)` shows an example. Built-in kinds are in `kubectl_runtime.resources`, an
API server for tests is in `kubectl_runtime.testing`, applications of webhooks are made by `kubectl_runtime.webhooks`.

    Reach a cluster                 Client, Config, Impersonation, RateLimit, RetryPolicy, Stack, Discovery, ServedKind,
                                    ApiGroup, ensure_queryable
    Read and write objects          Api, Namespaces, Entry, ObjectList, fetch, create_or_update, retry_on_conflict,
                                    ConflictBackoff, GetParams, ListParams, WatchParams, PostParams, PatchParams,
                                    DeleteParams, Preconditions, Patch, pointer, Selector
    Pods, Nodes and accounts        AttachParams, AttachedProcess, CompletedExec, LogParams, LogStream, PortForward,
                                    LocalPort, drain, DrainReport, PodOutcome, ServiceAccountToken
    Objects                         Resource, Object, DynamicObject, dynamic, ObjectMeta, TemplateMeta, ListMeta,
                                    OwnerReference, ObjectRef, Condition, LabelSelector, Part, FrozenPart,
                                    PartialObjectMeta, PartialView, InvalidObject, MapKeys, Quantity, GoDuration,
                                    child_name, set_condition, Status
    Kinds                           ApiResource, GroupVersionKind, GroupVersionResource, Scope, version_priority,
                                    version_generation
    Kinds of your own               CustomResource, apply_crd, merge_crds, Rule, rules, OneOf, ListType, MapType,
                                    FieldSchema, EmbeddedResource, PreserveUnknownFields, PrinterColumn,
                                    ScaleSubresource, Validator, Conversion, ConversionReview
    Controllers                     Controller, BoundController, Running, Reconciler, SupportsReconcile, Context,
                                    Action, KeyBackoff, RunReport, RunResult, FinalizingReconciler, finalizer, OwnWrites
    What triggers a run             predicates, Predicate, ObjectEvent, ReconcileRequest, EVERYTHING, Everything
    Status and events               status, Recorder
    Several controllers or replicas Manager, LeaderElection, elect, Sharding
    Waiting in scripts              await_condition, conditions, delete_and_finalize, StopToken
    Manifests                       apply_manifests, diff_manifests, delete_manifests, ManifestReport, ManifestOutcome
    Watches and stores              watch_store, WatchedStore, store, Store, reflector, watcher, metadata_watcher,
                                    watch_object, WatcherConfig, InitialListStrategy, ListSemantic, WatchBackoff,
                                    WatchState, Phase, strip_managed_fields, applied_objects, touched_objects,
                                    predicate_filter, Event, Init, InitApply, InitDone, Apply, Delete, Failed
    Webhooks                        Admission, AdmissionRequest, AdmissionReview, Denied, WebhookServer, SelfSigned,
                                    apply_webhooks
    Watching the program            logs, Metrics, Observer, together, HealthServer, DebugPage
    Errors                          KubeError, ApiError, KindNotServedError, RequestError, TransportError,
                                    RequestTimeout, OutcomeUnknownError, UnexpectedAnswer, ConfigError,
                                    NotConfiguredError, AuthError, DiscoveryError, MissingRights, DecodeError,
                                    PartialObjectError, WriteBackError,
                                    ConversionError, DowngradeError, TerminalError, ControllerError, SyncTimeoutError,
                                    StoreNotReady, WaitTimeout, WaitStopped, NotLeaderError, LeadershipLost, DrainError,
                                    ManifestError, ManifestsFailed, ExecFailed

Each name is imported on first use, so that `import kubectl_runtime` costs nothing.
"""
from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from kubectl_runtime.core.base.version import VERSION

if TYPE_CHECKING:  # the same names for type checkers, which do not follow the table
    from kubectl_runtime.client.api.api import Api as Api
    from kubectl_runtime.client.api.api import Namespaces as Namespaces
    from kubectl_runtime.client.api.api_base import ObjectList as ObjectList
    from kubectl_runtime.client.api.client import Client as Client
    from kubectl_runtime.client.api.discovery import Discovery as Discovery
    from kubectl_runtime.client.api.entry import Entry as Entry
    from kubectl_runtime.client.api.kind_verbs import ServiceAccountToken as ServiceAccountToken
    from kubectl_runtime.client.api.queryable import MissingRights as MissingRights
    from kubectl_runtime.client.api.queryable import ensure_queryable as ensure_queryable
    from kubectl_runtime.client.api.queryable import fetch as fetch
    from kubectl_runtime.client.api.writes import OwnWrites as OwnWrites
    from kubectl_runtime.client.config.checks import Impersonation as Impersonation
    from kubectl_runtime.client.config.config import Config as Config
    from kubectl_runtime.client.config.config import NotConfiguredError as NotConfiguredError
    from kubectl_runtime.client.http.layers import Stack as Stack
    from kubectl_runtime.client.http.reachability import RateLimit as RateLimit
    from kubectl_runtime.client.http.retry import KindNotServedError as KindNotServedError
    from kubectl_runtime.client.http.retry import RetryPolicy as RetryPolicy
    from kubectl_runtime.client.http.retry import UnexpectedAnswer as UnexpectedAnswer
    from kubectl_runtime.client.server.discovery_documents import ApiGroup as ApiGroup
    from kubectl_runtime.client.server.discovery_documents import ServedKind as ServedKind
    from kubectl_runtime.client.streaming.forwarding import LocalPort as LocalPort
    from kubectl_runtime.client.streaming.forwarding import PortForward as PortForward
    from kubectl_runtime.client.streaming.logs import LogStream as LogStream
    from kubectl_runtime.client.streaming.process import AttachedProcess as AttachedProcess
    from kubectl_runtime.client.streaming.process import CompletedExec as CompletedExec
    from kubectl_runtime.client.streaming.process import ExecFailed as ExecFailed
    from kubectl_runtime.core.base.errors import ApiError as ApiError
    from kubectl_runtime.core.base.errors import AuthError as AuthError
    from kubectl_runtime.core.base.errors import ConfigError as ConfigError
    from kubectl_runtime.core.base.errors import DiscoveryError as DiscoveryError
    from kubectl_runtime.core.base.errors import KubeError as KubeError
    from kubectl_runtime.core.base.errors import OutcomeUnknownError as OutcomeUnknownError
    from kubectl_runtime.core.base.errors import PartialObjectError as PartialObjectError
    from kubectl_runtime.core.base.errors import RequestError as RequestError
    from kubectl_runtime.core.base.errors import RequestTimeout as RequestTimeout
    from kubectl_runtime.core.base.errors import Status as Status
    from kubectl_runtime.core.base.errors import TransportError as TransportError
    from kubectl_runtime.core.base.errors import WriteBackError as WriteBackError
    from kubectl_runtime.core.base.observer import Observer as Observer
    from kubectl_runtime.core.base.observer import RunResult as RunResult
    from kubectl_runtime.core.base.observer import together as together
    from kubectl_runtime.core.base.stop import StopToken as StopToken
    from kubectl_runtime.core.base.wire import MapKeys as MapKeys
    from kubectl_runtime.core.codec.record import strip_managed_fields as strip_managed_fields
    from kubectl_runtime.core.meta.godurations import GoDuration as GoDuration
    from kubectl_runtime.core.meta.gvk import ApiResource as ApiResource
    from kubectl_runtime.core.meta.gvk import GroupVersionKind as GroupVersionKind
    from kubectl_runtime.core.meta.gvk import GroupVersionResource as GroupVersionResource
    from kubectl_runtime.core.meta.gvk import Scope as Scope
    from kubectl_runtime.core.meta.gvk import version_generation as version_generation
    from kubectl_runtime.core.meta.gvk import version_priority as version_priority
    from kubectl_runtime.core.meta.metav1 import Condition as Condition
    from kubectl_runtime.core.meta.metav1 import FrozenPart as FrozenPart
    from kubectl_runtime.core.meta.metav1 import LabelSelector as LabelSelector
    from kubectl_runtime.core.meta.metav1 import ListMeta as ListMeta
    from kubectl_runtime.core.meta.metav1 import ObjectMeta as ObjectMeta
    from kubectl_runtime.core.meta.metav1 import OwnerReference as OwnerReference
    from kubectl_runtime.core.meta.metav1 import Part as Part
    from kubectl_runtime.core.meta.metav1 import TemplateMeta as TemplateMeta
    from kubectl_runtime.core.meta.metav1 import set_condition as set_condition
    from kubectl_runtime.core.meta.problems import DecodeError as DecodeError
    from kubectl_runtime.core.meta.quantities import Quantity as Quantity
    from kubectl_runtime.core.meta.refs import ObjectRef as ObjectRef
    from kubectl_runtime.core.meta.selectors import Selector as Selector
    from kubectl_runtime.core.objects.admission import AdmissionReview as AdmissionReview
    from kubectl_runtime.core.objects.conversion import ConversionReview as ConversionReview
    from kubectl_runtime.core.objects.dynamic import DynamicObject as DynamicObject
    from kubectl_runtime.core.objects.dynamic import Object as Object
    from kubectl_runtime.core.objects.dynamic import dynamic as dynamic
    from kubectl_runtime.core.objects.ownership import child_name as child_name
    from kubectl_runtime.core.objects.partial import InvalidObject as InvalidObject
    from kubectl_runtime.core.objects.partial import PartialObjectMeta as PartialObjectMeta
    from kubectl_runtime.core.objects.partial import PartialView as PartialView
    from kubectl_runtime.core.objects.resource import Resource as Resource
    from kubectl_runtime.core.requests.body import Patch as Patch
    from kubectl_runtime.core.requests.body import pointer as pointer
    from kubectl_runtime.core.requests.params import DeleteParams as DeleteParams
    from kubectl_runtime.core.requests.params import GetParams as GetParams
    from kubectl_runtime.core.requests.params import ListParams as ListParams
    from kubectl_runtime.core.requests.params import PatchParams as PatchParams
    from kubectl_runtime.core.requests.params import PostParams as PostParams
    from kubectl_runtime.core.requests.params import Preconditions as Preconditions
    from kubectl_runtime.core.requests.params import WatchParams as WatchParams
    from kubectl_runtime.core.requests.pods import AttachParams as AttachParams
    from kubectl_runtime.core.requests.pods import LogParams as LogParams
    from kubectl_runtime.crd.conversion import Conversion as Conversion
    from kubectl_runtime.crd.conversion import ConversionError as ConversionError
    from kubectl_runtime.crd.customresource import CustomResource as CustomResource
    from kubectl_runtime.crd.customresource import merge_crds as merge_crds
    from kubectl_runtime.crd.marks import EmbeddedResource as EmbeddedResource
    from kubectl_runtime.crd.marks import FieldSchema as FieldSchema
    from kubectl_runtime.crd.marks import ListType as ListType
    from kubectl_runtime.crd.marks import MapType as MapType
    from kubectl_runtime.crd.marks import OneOf as OneOf
    from kubectl_runtime.crd.marks import PreserveUnknownFields as PreserveUnknownFields
    from kubectl_runtime.crd.marks import PrinterColumn as PrinterColumn
    from kubectl_runtime.crd.marks import Rule as Rule
    from kubectl_runtime.crd.marks import ScaleSubresource as ScaleSubresource
    from kubectl_runtime.crd.marks import rules as rules
    from kubectl_runtime.crd.validator import Validator as Validator
    from kubectl_runtime.kubectl.apply import apply_manifests as apply_manifests
    from kubectl_runtime.kubectl.apply import delete_manifests as delete_manifests
    from kubectl_runtime.kubectl.diff import diff_manifests as diff_manifests
    from kubectl_runtime.kubectl.drain import DrainError as DrainError
    from kubectl_runtime.kubectl.drain import DrainReport as DrainReport
    from kubectl_runtime.kubectl.drain import PodOutcome as PodOutcome
    from kubectl_runtime.kubectl.drain import drain as drain
    from kubectl_runtime.kubectl.report import ManifestOutcome as ManifestOutcome
    from kubectl_runtime.kubectl.report import ManifestReport as ManifestReport
    from kubectl_runtime.kubectl.report import ManifestsFailed as ManifestsFailed
    from kubectl_runtime.manager.elector import NotLeaderError as NotLeaderError
    from kubectl_runtime.manager.elector import elect as elect
    from kubectl_runtime.manager.leases import LeaderElection as LeaderElection
    from kubectl_runtime.manager.manager import Manager as Manager
    from kubectl_runtime.manager.members import LeadershipLost as LeadershipLost
    from kubectl_runtime.manager.sharding import Sharding as Sharding
    from kubectl_runtime.manifests.problems import ManifestError as ManifestError
    from kubectl_runtime.runtime import conditions as conditions
    from kubectl_runtime.runtime import logs as logs
    from kubectl_runtime.runtime import status as status
    from kubectl_runtime.runtime.apply_crd import DowngradeError as DowngradeError
    from kubectl_runtime.runtime.apply_crd import apply_crd as apply_crd
    from kubectl_runtime.runtime.controller.controller import BoundController as BoundController
    from kubectl_runtime.runtime.controller.controller import Controller as Controller
    from kubectl_runtime.runtime.controller.plan import ControllerError as ControllerError
    from kubectl_runtime.runtime.controller.running import Running as Running
    from kubectl_runtime.runtime.controller.sync_gate import SyncTimeoutError as SyncTimeoutError
    from kubectl_runtime.runtime.events import Recorder as Recorder
    from kubectl_runtime.runtime.finalizer import FinalizingReconciler as FinalizingReconciler
    from kubectl_runtime.runtime.finalizer import finalizer as finalizer
    from kubectl_runtime.runtime.observe.debug import DebugPage as DebugPage
    from kubectl_runtime.runtime.observe.health import HealthServer as HealthServer
    from kubectl_runtime.runtime.observe.metrics import Metrics as Metrics
    from kubectl_runtime.runtime.queue.key_backoff import KeyBackoff as KeyBackoff
    from kubectl_runtime.runtime.reconcile.reconciler import Action as Action
    from kubectl_runtime.runtime.reconcile.reconciler import Context as Context
    from kubectl_runtime.runtime.reconcile.reconciler import Reconciler as Reconciler
    from kubectl_runtime.runtime.reconcile.reconciler import RunReport as RunReport
    from kubectl_runtime.runtime.reconcile.reconciler import SupportsReconcile as SupportsReconcile
    from kubectl_runtime.runtime.reconcile.reconciler import TerminalError as TerminalError
    from kubectl_runtime.runtime.retry import ConflictBackoff as ConflictBackoff
    from kubectl_runtime.runtime.retry import create_or_update as create_or_update
    from kubectl_runtime.runtime.retry import retry_on_conflict as retry_on_conflict
    from kubectl_runtime.runtime.store.reflector import reflector as reflector
    from kubectl_runtime.runtime.store.store import Store as Store
    from kubectl_runtime.runtime.store.store import StoreNotReady as StoreNotReady
    from kubectl_runtime.runtime.store.store_writer import store as store
    from kubectl_runtime.runtime.triggers import predicates as predicates
    from kubectl_runtime.runtime.triggers.predicates import ObjectEvent as ObjectEvent
    from kubectl_runtime.runtime.triggers.predicates import Predicate as Predicate
    from kubectl_runtime.runtime.triggers.streams import applied_objects as applied_objects
    from kubectl_runtime.runtime.triggers.streams import predicate_filter as predicate_filter
    from kubectl_runtime.runtime.triggers.streams import touched_objects as touched_objects
    from kubectl_runtime.runtime.triggers.triggers import EVERYTHING as EVERYTHING
    from kubectl_runtime.runtime.triggers.triggers import Everything as Everything
    from kubectl_runtime.runtime.triggers.triggers import ReconcileRequest as ReconcileRequest
    from kubectl_runtime.runtime.triggers.watch_store import WatchedStore as WatchedStore
    from kubectl_runtime.runtime.triggers.watch_store import watch_store as watch_store
    from kubectl_runtime.runtime.wait import WaitStopped as WaitStopped
    from kubectl_runtime.runtime.wait import WaitTimeout as WaitTimeout
    from kubectl_runtime.runtime.wait import await_condition as await_condition
    from kubectl_runtime.runtime.wait import delete_and_finalize as delete_and_finalize
    from kubectl_runtime.runtime.watch.backoff import WatchBackoff as WatchBackoff
    from kubectl_runtime.runtime.watch.config import InitialListStrategy as InitialListStrategy
    from kubectl_runtime.runtime.watch.config import ListSemantic as ListSemantic
    from kubectl_runtime.runtime.watch.config import WatcherConfig as WatcherConfig
    from kubectl_runtime.runtime.watch.event import Apply as Apply
    from kubectl_runtime.runtime.watch.event import Delete as Delete
    from kubectl_runtime.runtime.watch.event import Event as Event
    from kubectl_runtime.runtime.watch.event import Failed as Failed
    from kubectl_runtime.runtime.watch.event import Init as Init
    from kubectl_runtime.runtime.watch.event import InitApply as InitApply
    from kubectl_runtime.runtime.watch.event import InitDone as InitDone
    from kubectl_runtime.runtime.watch.states import Phase as Phase
    from kubectl_runtime.runtime.watch.states import WatchState as WatchState
    from kubectl_runtime.runtime.watch.watcher import metadata_watcher as metadata_watcher
    from kubectl_runtime.runtime.watch.watcher import watch_object as watch_object
    from kubectl_runtime.runtime.watch.watcher import watcher as watcher
    from kubectl_runtime.webhooks.configurations import apply_webhooks as apply_webhooks
    from kubectl_runtime.webhooks.handler import Admission as Admission
    from kubectl_runtime.webhooks.handler import AdmissionRequest as AdmissionRequest
    from kubectl_runtime.webhooks.handler import Denied as Denied
    from kubectl_runtime.webhooks.server import WebhookServer as WebhookServer
    from kubectl_runtime.webhooks.serving_certificates import SelfSigned as SelfSigned

__version__ = VERSION

_HOME = {
    "Action": "runtime.reconcile.reconciler",
    "Admission": "webhooks.handler",
    "AdmissionRequest": "webhooks.handler",
    "AdmissionReview": "core.objects.admission",
    "Api": "client.api.api",
    "ApiError": "core.base.errors",
    "ApiGroup": "client.server.discovery_documents",
    "ApiResource": "core.meta.gvk",
    "Apply": "runtime.watch.event",
    "AttachParams": "core.requests.pods",
    "AttachedProcess": "client.streaming.process",
    "AuthError": "core.base.errors",
    "BoundController": "runtime.controller.controller",
    "Client": "client.api.client",
    "CompletedExec": "client.streaming.process",
    "Condition": "core.meta.metav1",
    "Config": "client.config.config",
    "ConfigError": "core.base.errors",
    "ConflictBackoff": "runtime.retry",
    "Context": "runtime.reconcile.reconciler",
    "Controller": "runtime.controller.controller",
    "ControllerError": "runtime.controller.plan",
    "Conversion": "crd.conversion",
    "ConversionError": "crd.conversion",
    "ConversionReview": "core.objects.conversion",
    "CustomResource": "crd.customresource",
    "DebugPage": "runtime.observe.debug",
    "DecodeError": "core.meta.problems",
    "Delete": "runtime.watch.event",
    "DeleteParams": "core.requests.params",
    "Denied": "webhooks.handler",
    "Discovery": "client.api.discovery",
    "DiscoveryError": "core.base.errors",
    "DowngradeError": "runtime.apply_crd",
    "DrainError": "kubectl.drain",
    "DrainReport": "kubectl.drain",
    "DynamicObject": "core.objects.dynamic",
    "EVERYTHING": "runtime.triggers.triggers",
    "Everything": "runtime.triggers.triggers",
    "EmbeddedResource": "crd.marks",
    "Entry": "client.api.entry",
    "Event": "runtime.watch.event",
    "ExecFailed": "client.streaming.process",
    "Failed": "runtime.watch.event",
    "FieldSchema": "crd.marks",
    "FinalizingReconciler": "runtime.finalizer",
    "FrozenPart": "core.meta.metav1",
    "GetParams": "core.requests.params",
    "GoDuration": "core.meta.godurations",
    "GroupVersionKind": "core.meta.gvk",
    "GroupVersionResource": "core.meta.gvk",
    "HealthServer": "runtime.observe.health",
    "Impersonation": "client.config.checks",
    "Init": "runtime.watch.event",
    "InitApply": "runtime.watch.event",
    "InitDone": "runtime.watch.event",
    "InitialListStrategy": "runtime.watch.config",
    "InvalidObject": "core.objects.partial",
    "KeyBackoff": "runtime.queue.key_backoff",
    "KindNotServedError": "client.http.retry",
    "KubeError": "core.base.errors",
    "LabelSelector": "core.meta.metav1",
    "LeaderElection": "manager.leases",
    "LeadershipLost": "manager.members",
    "ListMeta": "core.meta.metav1",
    "ListParams": "core.requests.params",
    "ListSemantic": "runtime.watch.config",
    "ListType": "crd.marks",
    "LocalPort": "client.streaming.forwarding",
    "LogParams": "core.requests.pods",
    "LogStream": "client.streaming.logs",
    "Manager": "manager.manager",
    "ManifestError": "manifests.problems",
    "ManifestOutcome": "kubectl.report",
    "ManifestReport": "kubectl.report",
    "ManifestsFailed": "kubectl.report",
    "MapKeys": "core.base.wire",
    "MapType": "crd.marks",
    "Metrics": "runtime.observe.metrics",
    "MissingRights": "client.api.queryable",
    "Namespaces": "client.api.api",
    "NotConfiguredError": "client.config.config",
    "NotLeaderError": "manager.elector",
    "Object": "core.objects.dynamic",
    "ObjectEvent": "runtime.triggers.predicates",
    "ObjectList": "client.api.api_base",
    "ObjectMeta": "core.meta.metav1",
    "ObjectRef": "core.meta.refs",
    "Observer": "core.base.observer",
    "OneOf": "crd.marks",
    "OutcomeUnknownError": "core.base.errors",
    "OwnWrites": "client.api.writes",
    "OwnerReference": "core.meta.metav1",
    "Part": "core.meta.metav1",
    "PartialObjectError": "core.base.errors",
    "PartialObjectMeta": "core.objects.partial",
    "PartialView": "core.objects.partial",
    "Patch": "core.requests.body",
    "PatchParams": "core.requests.params",
    "Phase": "runtime.watch.states",
    "PodOutcome": "kubectl.drain",
    "PortForward": "client.streaming.forwarding",
    "PostParams": "core.requests.params",
    "Preconditions": "core.requests.params",
    "Predicate": "runtime.triggers.predicates",
    "PreserveUnknownFields": "crd.marks",
    "PrinterColumn": "crd.marks",
    "Quantity": "core.meta.quantities",
    "RateLimit": "client.http.reachability",
    "ReconcileRequest": "runtime.triggers.triggers",
    "Reconciler": "runtime.reconcile.reconciler",
    "Recorder": "runtime.events",
    "RequestError": "core.base.errors",
    "RequestTimeout": "core.base.errors",
    "Resource": "core.objects.resource",
    "RetryPolicy": "client.http.retry",
    "Rule": "crd.marks",
    "RunReport": "runtime.reconcile.reconciler",
    "RunResult": "core.base.observer",
    "Running": "runtime.controller.running",
    "ScaleSubresource": "crd.marks",
    "Scope": "core.meta.gvk",
    "Selector": "core.meta.selectors",
    "SelfSigned": "webhooks.serving_certificates",
    "ServedKind": "client.server.discovery_documents",
    "ServiceAccountToken": "client.api.kind_verbs",
    "Sharding": "manager.sharding",
    "Stack": "client.http.layers",
    "Status": "core.base.errors",
    "StopToken": "core.base.stop",
    "Store": "runtime.store.store",
    "StoreNotReady": "runtime.store.store",
    "SupportsReconcile": "runtime.reconcile.reconciler",
    "SyncTimeoutError": "runtime.controller.sync_gate",
    "TemplateMeta": "core.meta.metav1",
    "TerminalError": "runtime.reconcile.reconciler",
    "TransportError": "core.base.errors",
    "UnexpectedAnswer": "client.http.retry",
    "Validator": "crd.validator",
    "WaitStopped": "runtime.wait",
    "WaitTimeout": "runtime.wait",
    "WatchBackoff": "runtime.watch.backoff",
    "WatchParams": "core.requests.params",
    "WatchState": "runtime.watch.states",
    "WatchedStore": "runtime.triggers.watch_store",
    "WatcherConfig": "runtime.watch.config",
    "WebhookServer": "webhooks.server",
    "WriteBackError": "core.base.errors",
    "applied_objects": "runtime.triggers.streams",
    "apply_crd": "runtime.apply_crd",
    "apply_manifests": "kubectl.apply",
    "apply_webhooks": "webhooks.configurations",
    "await_condition": "runtime.wait",
    "child_name": "core.objects.ownership",
    "conditions": "runtime.conditions",
    "create_or_update": "runtime.retry",
    "delete_and_finalize": "runtime.wait",
    "delete_manifests": "kubectl.apply",
    "diff_manifests": "kubectl.diff",
    "drain": "kubectl.drain",
    "dynamic": "core.objects.dynamic",
    "elect": "manager.elector",
    "ensure_queryable": "client.api.queryable",
    "fetch": "client.api.queryable",
    "finalizer": "runtime.finalizer",
    "logs": "runtime.logs",
    "merge_crds": "crd.customresource",
    "metadata_watcher": "runtime.watch.watcher",
    "pointer": "core.requests.body",
    "predicate_filter": "runtime.triggers.streams",
    "predicates": "runtime.triggers.predicates",
    "reflector": "runtime.store.reflector",
    "retry_on_conflict": "runtime.retry",
    "rules": "crd.marks",
    "set_condition": "core.meta.metav1",
    "status": "runtime.status",
    "store": "runtime.store.store_writer",
    "strip_managed_fields": "core.codec.record",
    "together": "core.base.observer",
    "touched_objects": "runtime.triggers.streams",
    "version_generation": "core.meta.gvk",
    "version_priority": "core.meta.gvk",
    "watch_object": "runtime.watch.watcher",
    "watch_store": "runtime.triggers.watch_store",
    "watcher": "runtime.watch.watcher",
}
"""Where each public name lives, below this package."""

_MODULES = frozenset({"conditions", "logs", "predicates", "status"})
"""Those that are modules themselves."""

# Written out for `from kubectl_runtime import *`: type checkers cannot read a computed list.
__all__ = [  # noqa: RUF022 - in the order of `sorted`, several names a line
    "Action", "Admission", "AdmissionRequest", "AdmissionReview", "Api", "ApiError", "ApiGroup", "ApiResource",
    "Apply", "AttachParams", "AttachedProcess", "AuthError", "BoundController", "Client", "CompletedExec",
    "Condition", "Config", "ConfigError", "ConflictBackoff", "Context", "Controller", "ControllerError",
    "Conversion", "ConversionError", "ConversionReview", "CustomResource", "DebugPage", "DecodeError", "Delete",
    "DeleteParams", "Denied", "Discovery", "DiscoveryError", "DowngradeError", "DrainError", "DrainReport",
    "DynamicObject", "EVERYTHING", "EmbeddedResource", "Entry", "Event", "Everything", "ExecFailed", "Failed",
    "FieldSchema", "FinalizingReconciler", "FrozenPart", "GetParams", "GoDuration", "GroupVersionKind",
    "GroupVersionResource", "HealthServer", "Impersonation", "Init", "InitApply", "InitDone", "InitialListStrategy",
    "InvalidObject", "KeyBackoff", "KindNotServedError", "KubeError", "LabelSelector", "LeaderElection",
    "LeadershipLost", "ListMeta", "ListParams", "ListSemantic", "ListType", "LocalPort", "LogParams", "LogStream",
    "Manager", "ManifestError", "ManifestOutcome", "ManifestReport", "ManifestsFailed", "MapKeys", "MapType",
    "Metrics", "MissingRights", "Namespaces", "NotConfiguredError", "NotLeaderError", "Object", "ObjectEvent",
    "ObjectList", "ObjectMeta", "ObjectRef", "Observer", "OneOf", "OutcomeUnknownError", "OwnWrites",
    "OwnerReference", "Part", "PartialObjectError", "PartialObjectMeta", "PartialView", "Patch", "PatchParams",
    "Phase", "PodOutcome", "PortForward", "PostParams", "Preconditions", "Predicate", "PreserveUnknownFields",
    "PrinterColumn", "Quantity",
    "RateLimit", "ReconcileRequest", "Reconciler", "Recorder", "RequestError", "RequestTimeout", "Resource",
    "RetryPolicy", "Rule", "RunReport", "RunResult", "Running", "ScaleSubresource", "Scope", "Selector",
    "SelfSigned", "ServedKind", "ServiceAccountToken", "Sharding", "Stack", "Status", "StopToken", "Store",
    "StoreNotReady", "SupportsReconcile", "SyncTimeoutError", "TemplateMeta", "TerminalError", "TransportError",
    "UnexpectedAnswer", "Validator", "WaitStopped", "WaitTimeout", "WatchBackoff", "WatchParams", "WatchState",
    "WatchedStore", "WatcherConfig", "WebhookServer", "WriteBackError", "applied_objects", "apply_crd",
    "apply_manifests", "apply_webhooks", "await_condition", "child_name", "conditions", "create_or_update",
    "delete_and_finalize", "delete_manifests", "diff_manifests", "drain", "dynamic", "elect", "ensure_queryable",
    "fetch", "finalizer", "logs", "merge_crds", "metadata_watcher", "pointer", "predicate_filter", "predicates",
    "reflector", "retry_on_conflict", "rules", "set_condition", "status", "store", "strip_managed_fields",
    "together", "touched_objects", "version_generation", "version_priority", "watch_object", "watch_store",
    "watcher",
]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{home}")
    value = module if name in _MODULES else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
