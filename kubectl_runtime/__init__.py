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
    from kubectl_runtime.client.api.client import Client as Client
    from kubectl_runtime.client.api.discovery import Discovery as Discovery
    from kubectl_runtime.client.api.entry import Entry as Entry
    from kubectl_runtime.client.api.fetch import fetch as fetch
    from kubectl_runtime.client.api.kind_verbs import ServiceAccountToken as ServiceAccountToken
    from kubectl_runtime.client.api.namespaces import Namespaces as Namespaces
    from kubectl_runtime.client.api.paging import ObjectList as ObjectList
    from kubectl_runtime.client.api.queryable import MissingRights as MissingRights
    from kubectl_runtime.client.api.queryable import ensure_queryable as ensure_queryable
    from kubectl_runtime.client.api.writes import OwnWrites as OwnWrites
    from kubectl_runtime.client.config.config import Config as Config
    from kubectl_runtime.client.config.config import NotConfiguredError as NotConfiguredError
    from kubectl_runtime.client.config.impersonation import Impersonation as Impersonation
    from kubectl_runtime.client.http.failures import KindNotServedError as KindNotServedError
    from kubectl_runtime.client.http.failures import UnexpectedAnswer as UnexpectedAnswer
    from kubectl_runtime.client.http.rate_limit import RateLimit as RateLimit
    from kubectl_runtime.client.http.retry import RetryPolicy as RetryPolicy
    from kubectl_runtime.client.http.stack import Stack as Stack
    from kubectl_runtime.client.server.served_kinds import ApiGroup as ApiGroup
    from kubectl_runtime.client.server.served_kinds import ServedKind as ServedKind
    from kubectl_runtime.client.streaming.forwarding import PortForward as PortForward
    from kubectl_runtime.client.streaming.local_port import LocalPort as LocalPort
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
    from kubectl_runtime.core.base.errors import TransportError as TransportError
    from kubectl_runtime.core.base.errors import WriteBackError as WriteBackError
    from kubectl_runtime.core.base.observer import Observer as Observer
    from kubectl_runtime.core.base.observer import RunResult as RunResult
    from kubectl_runtime.core.base.observer import together as together
    from kubectl_runtime.core.base.status import Status as Status
    from kubectl_runtime.core.base.stop import StopToken as StopToken
    from kubectl_runtime.core.base.wire import MapKeys as MapKeys
    from kubectl_runtime.core.codec.prune import strip_managed_fields as strip_managed_fields
    from kubectl_runtime.core.meta.godurations import GoDuration as GoDuration
    from kubectl_runtime.core.meta.gvk import ApiResource as ApiResource
    from kubectl_runtime.core.meta.gvk import GroupVersionKind as GroupVersionKind
    from kubectl_runtime.core.meta.gvk import GroupVersionResource as GroupVersionResource
    from kubectl_runtime.core.meta.gvk import Scope as Scope
    from kubectl_runtime.core.meta.metav1 import Condition as Condition
    from kubectl_runtime.core.meta.metav1 import FrozenPart as FrozenPart
    from kubectl_runtime.core.meta.metav1 import LabelSelector as LabelSelector
    from kubectl_runtime.core.meta.metav1 import ListMeta as ListMeta
    from kubectl_runtime.core.meta.metav1 import ObjectMeta as ObjectMeta
    from kubectl_runtime.core.meta.metav1 import OwnerReference as OwnerReference
    from kubectl_runtime.core.meta.metav1 import Part as Part
    from kubectl_runtime.core.meta.metav1 import TemplateMeta as TemplateMeta
    from kubectl_runtime.core.meta.problems import DecodeError as DecodeError
    from kubectl_runtime.core.meta.quantities import Quantity as Quantity
    from kubectl_runtime.core.meta.refs import ObjectRef as ObjectRef
    from kubectl_runtime.core.meta.selectors import Selector as Selector
    from kubectl_runtime.core.meta.versions import version_generation as version_generation
    from kubectl_runtime.core.meta.versions import version_priority as version_priority
    from kubectl_runtime.core.objects.admission import AdmissionReview as AdmissionReview
    from kubectl_runtime.core.objects.child_name import child_name as child_name
    from kubectl_runtime.core.objects.conditions import set_condition as set_condition
    from kubectl_runtime.core.objects.conversion import ConversionReview as ConversionReview
    from kubectl_runtime.core.objects.dynamic import DynamicObject as DynamicObject
    from kubectl_runtime.core.objects.dynamic import dynamic as dynamic
    from kubectl_runtime.core.objects.half_typed import Object as Object
    from kubectl_runtime.core.objects.invalid import InvalidObject as InvalidObject
    from kubectl_runtime.core.objects.partial import PartialObjectMeta as PartialObjectMeta
    from kubectl_runtime.core.objects.partial import PartialView as PartialView
    from kubectl_runtime.core.objects.resource import Resource as Resource
    from kubectl_runtime.core.requests.params import DeleteParams as DeleteParams
    from kubectl_runtime.core.requests.params import GetParams as GetParams
    from kubectl_runtime.core.requests.params import ListParams as ListParams
    from kubectl_runtime.core.requests.params import PatchParams as PatchParams
    from kubectl_runtime.core.requests.params import PostParams as PostParams
    from kubectl_runtime.core.requests.params import Preconditions as Preconditions
    from kubectl_runtime.core.requests.params import WatchParams as WatchParams
    from kubectl_runtime.core.requests.patch import Patch as Patch
    from kubectl_runtime.core.requests.patch import pointer as pointer
    from kubectl_runtime.core.requests.pods import AttachParams as AttachParams
    from kubectl_runtime.core.requests.pods import LogParams as LogParams
    from kubectl_runtime.crd.conversion import Conversion as Conversion
    from kubectl_runtime.crd.conversion import ConversionError as ConversionError
    from kubectl_runtime.crd.customresource import CustomResource as CustomResource
    from kubectl_runtime.crd.customresource import PrinterColumn as PrinterColumn
    from kubectl_runtime.crd.marks import EmbeddedResource as EmbeddedResource
    from kubectl_runtime.crd.marks import FieldSchema as FieldSchema
    from kubectl_runtime.crd.marks import ListType as ListType
    from kubectl_runtime.crd.marks import MapType as MapType
    from kubectl_runtime.crd.marks import OneOf as OneOf
    from kubectl_runtime.crd.marks import PreserveUnknownFields as PreserveUnknownFields
    from kubectl_runtime.crd.marks import Rule as Rule
    from kubectl_runtime.crd.marks import rules as rules
    from kubectl_runtime.crd.merge import merge_crds as merge_crds
    from kubectl_runtime.crd.options import ScaleSubresource as ScaleSubresource
    from kubectl_runtime.crd.validator import Validator as Validator
    from kubectl_runtime.manifests.problems import ManifestError as ManifestError
    from kubectl_runtime.runtime import conditions as conditions
    from kubectl_runtime.runtime import logs as logs
    from kubectl_runtime.runtime import status as status
    from kubectl_runtime.runtime.apply_crd import DowngradeError as DowngradeError
    from kubectl_runtime.runtime.apply_crd import apply_crd as apply_crd
    from kubectl_runtime.runtime.controller.controller import BoundController as BoundController
    from kubectl_runtime.runtime.controller.controller import Controller as Controller
    from kubectl_runtime.runtime.controller.controller_error import ControllerError as ControllerError
    from kubectl_runtime.runtime.controller.running import Running as Running
    from kubectl_runtime.runtime.controller.sync_gate import SyncTimeoutError as SyncTimeoutError
    from kubectl_runtime.runtime.create_or_update import create_or_update as create_or_update
    from kubectl_runtime.runtime.drain import DrainError as DrainError
    from kubectl_runtime.runtime.drain import DrainReport as DrainReport
    from kubectl_runtime.runtime.drain import PodOutcome as PodOutcome
    from kubectl_runtime.runtime.drain import drain as drain
    from kubectl_runtime.runtime.events import Recorder as Recorder
    from kubectl_runtime.runtime.finalizer import FinalizingReconciler as FinalizingReconciler
    from kubectl_runtime.runtime.finalizer import finalizer as finalizer
    from kubectl_runtime.runtime.manager.elected_client import NotLeaderError as NotLeaderError
    from kubectl_runtime.runtime.manager.elector import elect as elect
    from kubectl_runtime.runtime.manager.leader_election import LeaderElection as LeaderElection
    from kubectl_runtime.runtime.manager.manager import Manager as Manager
    from kubectl_runtime.runtime.manager.manager_end import LeadershipLost as LeadershipLost
    from kubectl_runtime.runtime.manifests.apply_manifests import apply_manifests as apply_manifests
    from kubectl_runtime.runtime.manifests.delete_manifests import delete_manifests as delete_manifests
    from kubectl_runtime.runtime.manifests.diff_manifests import diff_manifests as diff_manifests
    from kubectl_runtime.runtime.manifests.manifest_report import ManifestOutcome as ManifestOutcome
    from kubectl_runtime.runtime.manifests.manifest_report import ManifestReport as ManifestReport
    from kubectl_runtime.runtime.manifests.manifest_report import ManifestsFailed as ManifestsFailed
    from kubectl_runtime.runtime.observe.debug_page import DebugPage as DebugPage
    from kubectl_runtime.runtime.observe.health_server import HealthServer as HealthServer
    from kubectl_runtime.runtime.observe.metrics import Metrics as Metrics
    from kubectl_runtime.runtime.queue.key_backoff import KeyBackoff as KeyBackoff
    from kubectl_runtime.runtime.reconcile.action import Action as Action
    from kubectl_runtime.runtime.reconcile.action import TerminalError as TerminalError
    from kubectl_runtime.runtime.reconcile.context import Context as Context
    from kubectl_runtime.runtime.reconcile.reconciler import Reconciler as Reconciler
    from kubectl_runtime.runtime.reconcile.reconciler import RunReport as RunReport
    from kubectl_runtime.runtime.reconcile.reconciler import SupportsReconcile as SupportsReconcile
    from kubectl_runtime.runtime.reflector.reflector import reflector as reflector
    from kubectl_runtime.runtime.reflector.store import Store as Store
    from kubectl_runtime.runtime.reflector.store import StoreNotReady as StoreNotReady
    from kubectl_runtime.runtime.reflector.store_writer import store as store
    from kubectl_runtime.runtime.retry_on_conflict import ConflictBackoff as ConflictBackoff
    from kubectl_runtime.runtime.retry_on_conflict import retry_on_conflict as retry_on_conflict
    from kubectl_runtime.runtime.sharding.sharding import Sharding as Sharding
    from kubectl_runtime.runtime.triggers import predicates as predicates
    from kubectl_runtime.runtime.triggers.predicates import ObjectEvent as ObjectEvent
    from kubectl_runtime.runtime.triggers.predicates import Predicate as Predicate
    from kubectl_runtime.runtime.triggers.stages import applied_objects as applied_objects
    from kubectl_runtime.runtime.triggers.stages import predicate_filter as predicate_filter
    from kubectl_runtime.runtime.triggers.stages import touched_objects as touched_objects
    from kubectl_runtime.runtime.triggers.triggers import EVERYTHING as EVERYTHING
    from kubectl_runtime.runtime.triggers.triggers import Everything as Everything
    from kubectl_runtime.runtime.triggers.triggers import ReconcileRequest as ReconcileRequest
    from kubectl_runtime.runtime.triggers.watch_store import WatchedStore as WatchedStore
    from kubectl_runtime.runtime.triggers.watch_store import watch_store as watch_store
    from kubectl_runtime.runtime.wait import WaitStopped as WaitStopped
    from kubectl_runtime.runtime.wait import WaitTimeout as WaitTimeout
    from kubectl_runtime.runtime.wait import await_condition as await_condition
    from kubectl_runtime.runtime.wait import delete_and_finalize as delete_and_finalize
    from kubectl_runtime.runtime.watcher.event import Apply as Apply
    from kubectl_runtime.runtime.watcher.event import Delete as Delete
    from kubectl_runtime.runtime.watcher.event import Event as Event
    from kubectl_runtime.runtime.watcher.event import Failed as Failed
    from kubectl_runtime.runtime.watcher.event import Init as Init
    from kubectl_runtime.runtime.watcher.event import InitApply as InitApply
    from kubectl_runtime.runtime.watcher.event import InitDone as InitDone
    from kubectl_runtime.runtime.watcher.watch_backoff import WatchBackoff as WatchBackoff
    from kubectl_runtime.runtime.watcher.watch_state import Phase as Phase
    from kubectl_runtime.runtime.watcher.watch_state import WatchState as WatchState
    from kubectl_runtime.runtime.watcher.watcher import metadata_watcher as metadata_watcher
    from kubectl_runtime.runtime.watcher.watcher import watch_object as watch_object
    from kubectl_runtime.runtime.watcher.watcher import watcher as watcher
    from kubectl_runtime.runtime.watcher.watcher_config import InitialListStrategy as InitialListStrategy
    from kubectl_runtime.runtime.watcher.watcher_config import ListSemantic as ListSemantic
    from kubectl_runtime.runtime.watcher.watcher_config import WatcherConfig as WatcherConfig
    from kubectl_runtime.runtime.webhooks.apply_webhooks import apply_webhooks as apply_webhooks
    from kubectl_runtime.runtime.webhooks.serving_certificates import SelfSigned as SelfSigned
    from kubectl_runtime.runtime.webhooks.webhook_server import WebhookServer as WebhookServer
    from kubectl_runtime.webhooks.handler import Admission as Admission
    from kubectl_runtime.webhooks.handler import Denied as Denied
    from kubectl_runtime.webhooks.request import AdmissionRequest as AdmissionRequest

__version__ = VERSION

_HOME = {
    "Action": "runtime.reconcile.action",
    "Admission": "webhooks.handler",
    "AdmissionRequest": "webhooks.request",
    "AdmissionReview": "core.objects.admission",
    "Api": "client.api.api",
    "ApiError": "core.base.errors",
    "ApiGroup": "client.server.served_kinds",
    "ApiResource": "core.meta.gvk",
    "Apply": "runtime.watcher.event",
    "AttachParams": "core.requests.pods",
    "AttachedProcess": "client.streaming.process",
    "AuthError": "core.base.errors",
    "BoundController": "runtime.controller.controller",
    "Client": "client.api.client",
    "CompletedExec": "client.streaming.process",
    "Condition": "core.meta.metav1",
    "Config": "client.config.config",
    "ConfigError": "core.base.errors",
    "ConflictBackoff": "runtime.retry_on_conflict",
    "Context": "runtime.reconcile.context",
    "Controller": "runtime.controller.controller",
    "ControllerError": "runtime.controller.controller_error",
    "Conversion": "crd.conversion",
    "ConversionError": "crd.conversion",
    "ConversionReview": "core.objects.conversion",
    "CustomResource": "crd.customresource",
    "DebugPage": "runtime.observe.debug_page",
    "DecodeError": "core.meta.problems",
    "Delete": "runtime.watcher.event",
    "DeleteParams": "core.requests.params",
    "Denied": "webhooks.handler",
    "Discovery": "client.api.discovery",
    "DiscoveryError": "core.base.errors",
    "DowngradeError": "runtime.apply_crd",
    "DrainError": "runtime.drain",
    "DrainReport": "runtime.drain",
    "DynamicObject": "core.objects.dynamic",
    "EVERYTHING": "runtime.triggers.triggers",
    "Everything": "runtime.triggers.triggers",
    "EmbeddedResource": "crd.marks",
    "Entry": "client.api.entry",
    "Event": "runtime.watcher.event",
    "ExecFailed": "client.streaming.process",
    "Failed": "runtime.watcher.event",
    "FieldSchema": "crd.marks",
    "FinalizingReconciler": "runtime.finalizer",
    "FrozenPart": "core.meta.metav1",
    "GetParams": "core.requests.params",
    "GoDuration": "core.meta.godurations",
    "GroupVersionKind": "core.meta.gvk",
    "GroupVersionResource": "core.meta.gvk",
    "HealthServer": "runtime.observe.health_server",
    "Impersonation": "client.config.impersonation",
    "Init": "runtime.watcher.event",
    "InitApply": "runtime.watcher.event",
    "InitDone": "runtime.watcher.event",
    "InitialListStrategy": "runtime.watcher.watcher_config",
    "InvalidObject": "core.objects.invalid",
    "KeyBackoff": "runtime.queue.key_backoff",
    "KindNotServedError": "client.http.failures",
    "KubeError": "core.base.errors",
    "LabelSelector": "core.meta.metav1",
    "LeaderElection": "runtime.manager.leader_election",
    "LeadershipLost": "runtime.manager.manager_end",
    "ListMeta": "core.meta.metav1",
    "ListParams": "core.requests.params",
    "ListSemantic": "runtime.watcher.watcher_config",
    "ListType": "crd.marks",
    "LocalPort": "client.streaming.local_port",
    "LogParams": "core.requests.pods",
    "LogStream": "client.streaming.logs",
    "Manager": "runtime.manager.manager",
    "ManifestError": "manifests.problems",
    "ManifestOutcome": "runtime.manifests.manifest_report",
    "ManifestReport": "runtime.manifests.manifest_report",
    "ManifestsFailed": "runtime.manifests.manifest_report",
    "MapKeys": "core.base.wire",
    "MapType": "crd.marks",
    "Metrics": "runtime.observe.metrics",
    "MissingRights": "client.api.queryable",
    "Namespaces": "client.api.namespaces",
    "NotConfiguredError": "client.config.config",
    "NotLeaderError": "runtime.manager.elected_client",
    "Object": "core.objects.half_typed",
    "ObjectEvent": "runtime.triggers.predicates",
    "ObjectList": "client.api.paging",
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
    "Patch": "core.requests.patch",
    "PatchParams": "core.requests.params",
    "Phase": "runtime.watcher.watch_state",
    "PodOutcome": "runtime.drain",
    "PortForward": "client.streaming.forwarding",
    "PostParams": "core.requests.params",
    "Preconditions": "core.requests.params",
    "Predicate": "runtime.triggers.predicates",
    "PreserveUnknownFields": "crd.marks",
    "PrinterColumn": "crd.customresource",
    "Quantity": "core.meta.quantities",
    "RateLimit": "client.http.rate_limit",
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
    "ScaleSubresource": "crd.options",
    "Scope": "core.meta.gvk",
    "Selector": "core.meta.selectors",
    "SelfSigned": "runtime.webhooks.serving_certificates",
    "ServedKind": "client.server.served_kinds",
    "ServiceAccountToken": "client.api.kind_verbs",
    "Sharding": "runtime.sharding.sharding",
    "Stack": "client.http.stack",
    "Status": "core.base.status",
    "StopToken": "core.base.stop",
    "Store": "runtime.reflector.store",
    "StoreNotReady": "runtime.reflector.store",
    "SupportsReconcile": "runtime.reconcile.reconciler",
    "SyncTimeoutError": "runtime.controller.sync_gate",
    "TemplateMeta": "core.meta.metav1",
    "TerminalError": "runtime.reconcile.action",
    "TransportError": "core.base.errors",
    "UnexpectedAnswer": "client.http.failures",
    "Validator": "crd.validator",
    "WaitStopped": "runtime.wait",
    "WaitTimeout": "runtime.wait",
    "WatchBackoff": "runtime.watcher.watch_backoff",
    "WatchParams": "core.requests.params",
    "WatchState": "runtime.watcher.watch_state",
    "WatchedStore": "runtime.triggers.watch_store",
    "WatcherConfig": "runtime.watcher.watcher_config",
    "WebhookServer": "runtime.webhooks.webhook_server",
    "WriteBackError": "core.base.errors",
    "applied_objects": "runtime.triggers.stages",
    "apply_crd": "runtime.apply_crd",
    "apply_manifests": "runtime.manifests.apply_manifests",
    "apply_webhooks": "runtime.webhooks.apply_webhooks",
    "await_condition": "runtime.wait",
    "child_name": "core.objects.child_name",
    "conditions": "runtime.conditions",
    "create_or_update": "runtime.create_or_update",
    "delete_and_finalize": "runtime.wait",
    "delete_manifests": "runtime.manifests.delete_manifests",
    "diff_manifests": "runtime.manifests.diff_manifests",
    "drain": "runtime.drain",
    "dynamic": "core.objects.dynamic",
    "elect": "runtime.manager.elector",
    "ensure_queryable": "client.api.queryable",
    "fetch": "client.api.fetch",
    "finalizer": "runtime.finalizer",
    "logs": "runtime.logs",
    "merge_crds": "crd.merge",
    "metadata_watcher": "runtime.watcher.watcher",
    "pointer": "core.requests.patch",
    "predicate_filter": "runtime.triggers.stages",
    "predicates": "runtime.triggers.predicates",
    "reflector": "runtime.reflector.reflector",
    "retry_on_conflict": "runtime.retry_on_conflict",
    "rules": "crd.marks",
    "set_condition": "core.objects.conditions",
    "status": "runtime.status",
    "store": "runtime.reflector.store_writer",
    "strip_managed_fields": "core.codec.prune",
    "together": "core.base.observer",
    "touched_objects": "runtime.triggers.stages",
    "version_generation": "core.meta.versions",
    "version_priority": "core.meta.versions",
    "watch_object": "runtime.watcher.watcher",
    "watch_store": "runtime.triggers.watch_store",
    "watcher": "runtime.watcher.watcher",
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
