"""Kubernetes controllers for Python code that blocks: the names that a controller's author imports.

Each name is imported on first use, so that `import kubectl_runtime` costs nothing.
"""
from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from kubectl_runtime.core.version import VERSION

if TYPE_CHECKING:  # the same names for type checkers, which do not follow the table
    from kubectl_runtime.client.api import Api as Api
    from kubectl_runtime.client.client import Client as Client
    from kubectl_runtime.client.config import Config as Config
    from kubectl_runtime.client.config import NotConfiguredError as NotConfiguredError
    from kubectl_runtime.client.failures import KindNotServedError as KindNotServedError
    from kubectl_runtime.client.listing import ObjectList as ObjectList
    from kubectl_runtime.client.retry import RetryPolicy as RetryPolicy
    from kubectl_runtime.core.child_name import child_name as child_name
    from kubectl_runtime.core.conditions import set_condition as set_condition
    from kubectl_runtime.core.dynamic import DynamicObject as DynamicObject
    from kubectl_runtime.core.dynamic import dynamic as dynamic
    from kubectl_runtime.core.errors import ApiError as ApiError
    from kubectl_runtime.core.errors import AuthError as AuthError
    from kubectl_runtime.core.errors import ConfigError as ConfigError
    from kubectl_runtime.core.errors import DiscoveryError as DiscoveryError
    from kubectl_runtime.core.errors import KubeError as KubeError
    from kubectl_runtime.core.errors import PartialObjectError as PartialObjectError
    from kubectl_runtime.core.errors import RequestError as RequestError
    from kubectl_runtime.core.errors import RequestTimeout as RequestTimeout
    from kubectl_runtime.core.errors import TransportError as TransportError
    from kubectl_runtime.core.errors import WriteBackError as WriteBackError
    from kubectl_runtime.core.gvk import ApiResource as ApiResource
    from kubectl_runtime.core.gvk import GroupVersionKind as GroupVersionKind
    from kubectl_runtime.core.gvk import Scope as Scope
    from kubectl_runtime.core.invalid import InvalidObject as InvalidObject
    from kubectl_runtime.core.metav1 import Condition as Condition
    from kubectl_runtime.core.metav1 import LabelSelector as LabelSelector
    from kubectl_runtime.core.metav1 import ListMeta as ListMeta
    from kubectl_runtime.core.metav1 import ObjectMeta as ObjectMeta
    from kubectl_runtime.core.metav1 import OwnerReference as OwnerReference
    from kubectl_runtime.core.objects import Resource as Resource
    from kubectl_runtime.core.params import DeleteParams as DeleteParams
    from kubectl_runtime.core.params import GetParams as GetParams
    from kubectl_runtime.core.params import ListParams as ListParams
    from kubectl_runtime.core.params import PatchParams as PatchParams
    from kubectl_runtime.core.params import PostParams as PostParams
    from kubectl_runtime.core.params import Preconditions as Preconditions
    from kubectl_runtime.core.params import WatchParams as WatchParams
    from kubectl_runtime.core.partial import PartialObjectMeta as PartialObjectMeta
    from kubectl_runtime.core.partial import PartialView as PartialView
    from kubectl_runtime.core.patch import Patch as Patch
    from kubectl_runtime.core.patch import pointer as pointer
    from kubectl_runtime.core.problems import DecodeError as DecodeError
    from kubectl_runtime.core.prune import strip_managed_fields as strip_managed_fields
    from kubectl_runtime.core.refs import ObjectRef as ObjectRef
    from kubectl_runtime.core.selectors import Selector as Selector
    from kubectl_runtime.core.status import Status as Status
    from kubectl_runtime.core.stop import StopToken as StopToken
    from kubectl_runtime.core.wire import MapKeys as MapKeys
    from kubectl_runtime.crd.customresource import CustomResource as CustomResource
    from kubectl_runtime.crd.customresource import PrinterColumn as PrinterColumn
    from kubectl_runtime.runtime import conditions as conditions
    from kubectl_runtime.runtime import predicates as predicates
    from kubectl_runtime.runtime import status as status
    from kubectl_runtime.runtime.action import Action as Action
    from kubectl_runtime.runtime.adapters import applied_objects as applied_objects
    from kubectl_runtime.runtime.adapters import predicate_filter as predicate_filter
    from kubectl_runtime.runtime.adapters import touched_objects as touched_objects
    from kubectl_runtime.runtime.apply_crd import apply_crd as apply_crd
    from kubectl_runtime.runtime.backoff import WatchBackoff as WatchBackoff
    from kubectl_runtime.runtime.context import Context as Context
    from kubectl_runtime.runtime.controller import Controller as Controller
    from kubectl_runtime.runtime.create_or_update import create_or_update as create_or_update
    from kubectl_runtime.runtime.events import Apply as Apply
    from kubectl_runtime.runtime.events import Delete as Delete
    from kubectl_runtime.runtime.events import Event as Event
    from kubectl_runtime.runtime.events import Failed as Failed
    from kubectl_runtime.runtime.events import Init as Init
    from kubectl_runtime.runtime.events import InitApply as InitApply
    from kubectl_runtime.runtime.events import InitDone as InitDone
    from kubectl_runtime.runtime.failures import KeyBackoff as KeyBackoff
    from kubectl_runtime.runtime.gate import SyncTimeoutError as SyncTimeoutError
    from kubectl_runtime.runtime.reconciler import Reconciler as Reconciler
    from kubectl_runtime.runtime.reflector import reflector as reflector
    from kubectl_runtime.runtime.retry_on_conflict import ConflictBackoff as ConflictBackoff
    from kubectl_runtime.runtime.retry_on_conflict import retry_on_conflict as retry_on_conflict
    from kubectl_runtime.runtime.running import ControllerError as ControllerError
    from kubectl_runtime.runtime.running import Running as Running
    from kubectl_runtime.runtime.store import Store as Store
    from kubectl_runtime.runtime.store import StoreNotReady as StoreNotReady
    from kubectl_runtime.runtime.store_writer import store as store
    from kubectl_runtime.runtime.triggers import ReconcileRequest as ReconcileRequest
    from kubectl_runtime.runtime.wait import WaitStopped as WaitStopped
    from kubectl_runtime.runtime.wait import WaitTimeout as WaitTimeout
    from kubectl_runtime.runtime.wait import await_condition as await_condition
    from kubectl_runtime.runtime.wait import delete_and_finalize as delete_and_finalize
    from kubectl_runtime.runtime.watcher import metadata_watcher as metadata_watcher
    from kubectl_runtime.runtime.watcher import watch_object as watch_object
    from kubectl_runtime.runtime.watcher import watcher as watcher
    from kubectl_runtime.runtime.watcher_config import ListSemantic as ListSemantic
    from kubectl_runtime.runtime.watcher_config import WatcherConfig as WatcherConfig

__version__ = VERSION

_HOME = {
    "Action": "runtime.action",
    "Api": "client.api",
    "ApiError": "core.errors",
    "ApiResource": "core.gvk",
    "Apply": "runtime.events",
    "AuthError": "core.errors",
    "Client": "client.client",
    "Condition": "core.metav1",
    "Config": "client.config",
    "ConfigError": "core.errors",
    "ConflictBackoff": "runtime.retry_on_conflict",
    "Context": "runtime.context",
    "Controller": "runtime.controller",
    "ControllerError": "runtime.running",
    "CustomResource": "crd.customresource",
    "DecodeError": "core.problems",
    "Delete": "runtime.events",
    "DeleteParams": "core.params",
    "DiscoveryError": "core.errors",
    "DynamicObject": "core.dynamic",
    "Event": "runtime.events",
    "Failed": "runtime.events",
    "GetParams": "core.params",
    "GroupVersionKind": "core.gvk",
    "Init": "runtime.events",
    "InitApply": "runtime.events",
    "InitDone": "runtime.events",
    "InvalidObject": "core.invalid",
    "KeyBackoff": "runtime.failures",
    "KindNotServedError": "client.failures",
    "KubeError": "core.errors",
    "LabelSelector": "core.metav1",
    "ListMeta": "core.metav1",
    "ListParams": "core.params",
    "ListSemantic": "runtime.watcher_config",
    "MapKeys": "core.wire",
    "NotConfiguredError": "client.config",
    "ObjectList": "client.listing",
    "ObjectMeta": "core.metav1",
    "ObjectRef": "core.refs",
    "OwnerReference": "core.metav1",
    "PartialObjectError": "core.errors",
    "PartialObjectMeta": "core.partial",
    "PartialView": "core.partial",
    "Patch": "core.patch",
    "PatchParams": "core.params",
    "PostParams": "core.params",
    "Preconditions": "core.params",
    "PrinterColumn": "crd.customresource",
    "ReconcileRequest": "runtime.triggers",
    "Reconciler": "runtime.reconciler",
    "RequestError": "core.errors",
    "RequestTimeout": "core.errors",
    "Resource": "core.objects",
    "RetryPolicy": "client.retry",
    "Running": "runtime.running",
    "Scope": "core.gvk",
    "Selector": "core.selectors",
    "Status": "core.status",
    "StopToken": "core.stop",
    "Store": "runtime.store",
    "StoreNotReady": "runtime.store",
    "SyncTimeoutError": "runtime.gate",
    "TransportError": "core.errors",
    "WaitStopped": "runtime.wait",
    "WaitTimeout": "runtime.wait",
    "WatchBackoff": "runtime.backoff",
    "WatchParams": "core.params",
    "WatcherConfig": "runtime.watcher_config",
    "WriteBackError": "core.errors",
    "applied_objects": "runtime.adapters",
    "apply_crd": "runtime.apply_crd",
    "await_condition": "runtime.wait",
    "child_name": "core.child_name",
    "conditions": "runtime.conditions",
    "create_or_update": "runtime.create_or_update",
    "delete_and_finalize": "runtime.wait",
    "dynamic": "core.dynamic",
    "metadata_watcher": "runtime.watcher",
    "pointer": "core.patch",
    "predicate_filter": "runtime.adapters",
    "predicates": "runtime.predicates",
    "reflector": "runtime.reflector",
    "retry_on_conflict": "runtime.retry_on_conflict",
    "set_condition": "core.conditions",
    "status": "runtime.status",
    "store": "runtime.store_writer",
    "strip_managed_fields": "core.prune",
    "touched_objects": "runtime.adapters",
    "watch_object": "runtime.watcher",
    "watcher": "runtime.watcher",
}
"""Where each public name lives, below this package."""

_MODULES = frozenset({"conditions", "predicates", "status"})
"""Those that are modules themselves."""

__all__ = sorted(_HOME)  # noqa: PLE0605 - computed from the one table above


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
