"""`Api[K]`: the verbs of one kind, in one namespace or in all.

- `Api.all(client, Pod)`: every namespace, or a cluster-scoped kind; for reads, lists and watches
- `Api.namespaced(client, Pod, "default")`: one namespace
- `Api.default_namespaced(client, Pod)`: the namespace of the client's configuration
- `Api.namespaces(client, Pod, ["a", "b"])`: several namespaces, for controllers (see `Namespaces`)
- `Api.namespaces(client, Pod, like="team-*")`: the namespaces that currently match (see `SelectedNamespaces`)

Pass options either as keywords or as one prepared value (`params`), not as both.

`Namespaces`, made by `Api.namespaces`, is one kind in several namespaces: a controller opens one watch per namespace
and keeps all objects in one store. To call verbs, use `Api.namespaced`, or `Api.all` if the permissions cover all
namespaces.

`KindVerbs` has the verbs that only some kinds have: restart of workloads, cordon of Nodes, tokens of ServiceAccounts,
approval of CertificateSigningRequests. These verbs block and raise like the other verbs, and raise RequestError for a
kind that lacks them.
"""
from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, TypeVar, overload

import msgspec
from msgspec.structs import replace

from kubectl_runtime.client.api.api_base import ListVerbs, ObjectList, gone
from kubectl_runtime.client.api.client import Client
from kubectl_runtime.client.api.entry import Entry
from kubectl_runtime.client.api.pods import PodVerbs
from kubectl_runtime.client.api.selected import NamespaceSelection, NamespaceSet, SelectedNamespaces
from kubectl_runtime.client.api.watch import WatchEvent, WatchStream, open_watch
from kubectl_runtime.client.http.retry import KindNotServedError
from kubectl_runtime.core.base.errors import ApiError, RequestError, Status, TransportError, class_named
from kubectl_runtime.core.base.threads import Duration, period_of, seconds
from kubectl_runtime.core.codec.views import is_in_shard
from kubectl_runtime.core.meta.gvk import ApiResource, ObjectRef, api_resource_of
from kubectl_runtime.core.meta.metav1 import format_time, parse_time
from kubectl_runtime.core.meta.problems import DecodeError
from kubectl_runtime.core.meta.selectors import FieldSelection, LabelSelection
from kubectl_runtime.core.objects.partial import DynamicObject, FieldsForm, PartialObjectMeta, PartialView, dynamic
from kubectl_runtime.core.objects.resource import Resource
from kubectl_runtime.core.requests import request as build
from kubectl_runtime.core.requests.params import (
    IDLE_MARGIN,
    Body,
    DeleteParams,
    FieldValidation,
    GetParams,
    ListParams,
    Patch,
    PatchParams,
    PostParams,
    Preconditions,
    Propagation,
    VersionMatch,
    WatchParams,
    chosen,
    chosen_of_said,
    params_or_default,
)
from kubectl_runtime.core.requests.request import Named, Place, Retry, object_name
from kubectl_runtime.core.scope import StopToken

K = TypeVar("K")

RESTARTED_AT = "kubectl.kubernetes.io/restartedAt"
"""The annotation of the Pod template that `kubectl rollout restart` sets; a changed value makes the workload replace
its Pods."""

_RESTARTABLE = frozenset((("apps", "Deployment"), ("apps", "StatefulSet"), ("apps", "DaemonSet")))
_NODE = frozenset((("", "Node"),))
_ACCOUNT = frozenset((("", "ServiceAccount"),))
_SIGNING = frozenset((("certificates.k8s.io", "CertificateSigningRequest"),))
_SHORTEST = 600


@dataclass(frozen=True, slots=True)
class ServiceAccountToken:
    """A token of a ServiceAccount; `expiration` is the time at which it expires. The repr does not show the token.

    >>> from kubectl_runtime.resources import ServiceAccount
    >>> Api.namespaced(client, ServiceAccount, "default").create(ServiceAccount(name="robot")).name
    'robot'
    >>> Api.namespaced(client, ServiceAccount, "default").create_token("robot").expiration > datetime.now(UTC)
    True
    """

    token: str = field(repr=False)
    expiration: datetime


class KindVerbs(PodVerbs[K]):
    """The verbs of `Api` that only some kinds have: workloads, Nodes, ServiceAccounts, CertificateSigningRequests. Each
    verb blocks until its calls are answered, and raises like `Api.get` and `Api.patch`."""

    __slots__ = ()

    def restart(self, name: Named, *, field_manager: str | None = None, dry_run: bool = False,
                timeout: Duration | None = None) -> K:
        """Make a Deployment, StatefulSet or DaemonSet replace its Pods one after the other. Like `kubectl rollout
        restart`, this sets an annotation of the Pod template."""
        self._only("restart", _RESTARTABLE)
        now = format_time(self.client.clock.now())
        return self._patched(name, {"spec": {"template": {"metadata": {"annotations": {RESTARTED_AT: now}}}}},
                             field_manager, dry_run, timeout)

    def cordon(self, name: Named, *, field_manager: str | None = None, dry_run: bool = False,
               timeout: Duration | None = None) -> K:
        """Mark a Node as unschedulable, so that it gets no new Pods. `kubectl.drain` also evicts its Pods."""
        self._only("cordon", _NODE)
        return self._patched(name, {"spec": {"unschedulable": True}}, field_manager, dry_run, timeout)

    def uncordon(self, name: Named, *, field_manager: str | None = None, dry_run: bool = False,
                 timeout: Duration | None = None) -> K:
        """Make a Node schedulable again, after `cordon`."""
        self._only("uncordon", _NODE)
        return self._patched(name, {"spec": {"unschedulable": None}}, field_manager, dry_run, timeout)

    def create_token(self, name: Named, *, audiences: Sequence[str] = (), expiration: Duration | None = None,
                     bound_object: ObjectRef | None = None, bound_uid: str = "",
                     timeout: Duration | None = None) -> ServiceAccountToken:
        """Request a token for a ServiceAccount (a TokenRequest).

        `audiences`: the services that accept the token; by default the API server. `expiration`: its lifetime in
        seconds, at least 600; by default the server chooses. `bound_object`: a Pod, Secret or Node; the token becomes
        invalid when that object is deleted. `bound_uid`: the uid of that object.
        """
        self._only("create_token", _ACCOUNT)
        operation = self.place.words("create", name, "token")
        if isinstance(audiences, str):
            raise RequestError(f"{operation}: audiences must be a list, not {audiences!r}")
        spec: dict[str, Any] = {"audiences": list(audiences)}
        if expiration is not None:
            if seconds(expiration) < _SHORTEST:
                raise RequestError(f"{operation}: expiration must be at least {_SHORTEST} s, not {expiration}")
            spec["expirationSeconds"] = int(seconds(expiration))
        if bound_object is not None:
            spec["boundObjectRef"] = {"apiVersion": bound_object.resource.api_version, "kind": bound_object.kind,
                                      "name": bound_object.name, **({"uid": bound_uid} if bound_uid else {})}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        status = self.create_subresource(name, "token", body, timeout=timeout).get("status") or {}
        try:
            return ServiceAccountToken(status["token"], parse_time(status["expirationTimestamp"]))
        except (KeyError, ValueError, TypeError):
            raise DecodeError(None, "$.status", f"{operation}: the answer holds no token") from None

    def get_approval(self, name: Named, *, timeout: Duration | None = None) -> K:
        """Read a CertificateSigningRequest through its approval subresource."""
        return self._ask(build.get(self.place, name, subresource="approval"), timeout)

    def replace_approval(self, body: Any, params: PostParams | None = None, *, field_manager: str | None = None,
                         field_validation: FieldValidation | None = None, dry_run: bool = False,
                         timeout: Duration | None = None) -> K:
        """Replace the conditions of a CertificateSigningRequest that approve or deny it."""
        params = self._write_params(params, PostParams, field_manager=field_manager, field_validation=field_validation,
                                    dry_run=dry_run)
        request = build.replace(self.place, body, params, subresource="approval")
        return self._ask(request, timeout)

    def patch_approval(self, name: Named, patch: Patch, params: PatchParams | None = None, *,
                       field_manager: str | None = None, field_validation: FieldValidation | None = None,
                       dry_run: bool = False, force: bool = False, timeout: Duration | None = None) -> K:
        """Patch the conditions of a CertificateSigningRequest."""
        params = self._write_params(params, PatchParams, field_manager=field_manager, field_validation=field_validation,
                                    dry_run=dry_run, force=force)
        request = build.patch(self.place, name, patch, params, subresource="approval")
        return self._ask(request, timeout)

    def approve(self, name: Named, reason: str, message: str = "", *, field_manager: str | None = None,
                dry_run: bool = False, timeout: Duration | None = None) -> K:
        """Approve a CertificateSigningRequest, so that its signer signs it. `reason` is one word, `message` is for
        people.

        The method makes two calls, each limited by `timeout`. Raises ApiError when the CertificateSigningRequest is
        already denied (`is_invalid`), and when another client changed it between the two calls (`is_conflict`).
        """
        return self._judged(name, "Approved", reason, message, PostParams(field_manager=field_manager, dry_run=dry_run),
                            timeout)

    def deny(self, name: Named, reason: str, message: str = "", *, field_manager: str | None = None,
             dry_run: bool = False, timeout: Duration | None = None) -> K:
        """Deny a CertificateSigningRequest, so that it is never signed. Arguments and errors as for `approve`."""
        return self._judged(name, "Denied", reason, message, PostParams(field_manager=field_manager, dry_run=dry_run),
                            timeout)

    def _judged(self, name: Named, verdict: str, reason: str, message: str, params: PostParams,
                timeout: Duration | None) -> K:
        self._only("approve" if verdict == "Approved" else "deny", _SIGNING)
        found: Any = self.get_approval(name, timeout=timeout)
        body = found.to_dict()
        status = body.setdefault("status", {})
        conditions = [entry for entry in status.get("conditions") or () if entry.get("type") != verdict]
        status["conditions"] = [*conditions, {
            "type": verdict, "status": "True", "reason": reason, "message": message,
            "lastUpdateTime": format_time(self.client.clock.now())}]
        return self.replace_approval(body, params, timeout=timeout)

    def _patched(self, name: Named, change: dict[str, Any], field_manager: str | None, dry_run: bool,
                 timeout: Duration | None) -> K:
        params = self._write_params(PatchParams(field_manager=field_manager, dry_run=dry_run), PatchParams)
        return self._ask(build.patch(self.place, name, Patch.merge(change), params), timeout)

    def _only(self, verb: str, kinds: frozenset[tuple[str, str]]) -> None:
        if (self.resource.group, self.resource.kind) not in kinds:
            known = ", ".join(sorted(kind for _, kind in kinds))
            raise RequestError(f"{verb} is a verb of {known}, not of {self.resource.full_name}")


class Namespaces(msgspec.Struct, Generic[K], frozen=True):
    """One kind in several namespaces, made by `Api.namespaces`. A controller opens one watch per namespace, keeps one
    store, and waits until all of the watches are ready.

    `apis` holds one `Api` for each namespace, in the given order; it is never empty. Immutable; safe to use from any
    thread.

    >>> Controller(Api.namespaces(client, ConfigMap, ["default", "kube-system"]))
    <...Controller ...>
    """

    apis: tuple[Any, ...]  # each an `Api[K]`, a class that is defined below

    @property
    def client(self) -> Client:
        """The client that all of the Apis share."""
        return self.apis[0].client  # type: ignore[no-any-return]

    @property
    def resource(self) -> ApiResource:
        """The kind's ApiResource."""
        return self.apis[0].resource  # type: ignore[no-any-return]

    @property
    def kind(self) -> type[K]:
        """The kind's resource class."""
        return self.apis[0].kind  # type: ignore[no-any-return]

    @property
    def namespaces(self) -> tuple[str | None, ...]:
        """The names of the namespaces, in the given order."""
        return tuple(api.namespace for api in self.apis)

    def with_metadata_only(self) -> Namespaces[PartialObjectMeta]:
        """An Api of the same namespaces that requests only metadata: see `Api.with_metadata_only`."""
        return Namespaces(tuple(api.with_metadata_only() for api in self.apis))

    def with_fields(self, view: type[Any]) -> Namespaces[Any]:
        """An Api of the same namespaces whose objects have only the fields of `view`: see `Api.with_fields`."""
        return Namespaces(tuple(api.with_fields(view) for api in self.apis))

    def list_all(self, params: ListParams | None = None, *, label_selector: LabelSelection | None = None,
                 field_selector: FieldSelection | None = None, limit: int | None = None,
                 resource_version: str | None = None, resource_version_match: VersionMatch | None = None,
                 timeout: Duration | None = None) -> Iterator[K]:
        """Iterate over all objects, namespace by namespace and page by page. Arguments and errors are those of
        `Api.list_all`: `limit` and `timeout` apply to each page."""
        for api in self.apis:
            yield from api.list_all(params, label_selector=label_selector, field_selector=field_selector, limit=limit,
                                    resource_version=resource_version, resource_version_match=resource_version_match,
                                    timeout=timeout)

    def __repr__(self) -> str:
        return f"<Api of {self.resource.full_name} in the namespaces {', '.join(map(str, self.namespaces))}>"


R = TypeVar("R", bound=Resource)
V = TypeVar("V", bound=PartialView)

WATCH_TIMEOUT = 290.0
"""Seconds that the server keeps a watch open when the caller sets no timeout."""


class Api(ListVerbs[K], KindVerbs[K]):
    """The verbs of one kind, in one namespace or in all: `get`, `list`, `create`, `apply`, `patch`, `delete`, …

    The kind is a resource class, which types the results, or an `ApiResource`, whose verbs return `DynamicObject`s.
    Writes take a dict, a resource object or a model of the official client; instead of a name you can pass the object
    itself.

    Create an Api with `Api.all`, `Api.namespaced` and the like. It holds no state: use it from any thread. Each verb
    blocks for one call, at most for `timeout` (seconds or a timedelta, retries included; by default the client's
    timeout, 60 s). Verbs raise RequestError for arguments that cannot work, ApiError for an error from the server,
    TransportError when no API server answered (UnexpectedAnswer if a web page came), OutcomeUnknownError for a write
    that was sent and not answered, and AuthError when credentials cannot be obtained. Reads, reviews, dry runs,
    applies, and deletes with a uid precondition are sent again when their answer is lost; other writes are not. No verb
    waits for a state: use `await_condition` for that.

    >>> maps = Api.namespaced(client, ConfigMap, "default")
    >>> maps.get("settings").data
    {'color': 'blue'}
    >>> maps.apply(ConfigMap(name="made", data={"a": "1"}), field_manager="me").name
    'made'
    """

    __slots__ = ()

    @overload
    @classmethod
    def all(cls, client: Client, kind: type[R]) -> Api[R]: ...
    @overload
    @classmethod
    def all(cls, client: Client, kind: ApiResource) -> Api[DynamicObject]: ...
    @classmethod
    def all(cls, client: Client, kind: type[Any] | ApiResource) -> Api[Any]:
        """The Api of `kind` in all namespaces, or of a cluster-scoped kind. No request is made."""
        return _api(client, kind, None)

    @overload
    @classmethod
    def namespaced(cls, client: Client, kind: type[R], namespace: str | None) -> Api[R]: ...
    @overload
    @classmethod
    def namespaced(cls, client: Client, kind: ApiResource, namespace: str | None) -> Api[DynamicObject]: ...
    @classmethod
    def namespaced(cls, client: Client, kind: type[Any] | ApiResource, namespace: str | None) -> Api[Any]:
        """The Api of `kind` in one namespace. Raises RequestError for a cluster-scoped kind, or if `namespace` is
        empty."""
        return _api(client, kind, namespace or "")

    @overload
    @classmethod
    def default_namespaced(cls, client: Client, kind: type[R]) -> Api[R]: ...
    @overload
    @classmethod
    def default_namespaced(cls, client: Client, kind: ApiResource) -> Api[DynamicObject]: ...
    @classmethod
    def default_namespaced(cls, client: Client, kind: type[Any] | ApiResource) -> Api[Any]:
        """The Api of `kind` in the namespace that the client's configuration names."""
        return _api(client, kind, client.default_namespace)

    @overload
    @classmethod
    def namespaces(cls, client: Client, kind: type[R],  # type: ignore[overload-overlap]  # a set is iterable, too
                   namespaces: NamespaceSet) -> SelectedNamespaces[R]: ...
    @overload
    @classmethod
    def namespaces(cls, client: Client, kind: ApiResource,  # type: ignore[overload-overlap]  # as above
                   namespaces: NamespaceSet) -> SelectedNamespaces[DynamicObject]: ...
    @overload
    @classmethod
    def namespaces(cls, client: Client, kind: type[R], *, like: str | None = ...,
                   labels: LabelSelection | None = ...) -> SelectedNamespaces[R]: ...
    @overload
    @classmethod
    def namespaces(cls, client: Client, kind: ApiResource, *, like: str | None = ...,
                   labels: LabelSelection | None = ...) -> SelectedNamespaces[DynamicObject]: ...
    @overload
    @classmethod
    def namespaces(cls, client: Client, kind: type[R], namespaces: Iterable[str]) -> Namespaces[R]: ...
    @overload
    @classmethod
    def namespaces(cls, client: Client, kind: ApiResource, namespaces: Iterable[str]) -> Namespaces[DynamicObject]: ...
    @classmethod
    def namespaces(cls, client: Client, kind: type[Any] | ApiResource, namespaces: Any = None, *,
                   like: str | None = None, labels: LabelSelection | None = None) -> Any:
        """The Api of `kind` in several namespaces, for a controller. No request is made.

        With a list of names, each namespace has its own watch, and all watches share one store. With a `NamespaceSet`,
        a pattern (`like="team-*"`, with `*` and `?`) or `labels` of the namespaces, the selection may change at any
        time. One watch then covers the whole cluster, and objects outside the selected namespaces are dropped. Without
        permission for that watch, each selected namespace has its own watch (at most 100 watches). Raises RequestError
        for a cluster-scoped kind, for no selection, for names combined with `like` or `labels`, for a string in place
        of a list, and for a malformed pattern or selector.
        """
        if namespaces is not None and (like is not None or labels is not None):
            raise RequestError("namespaces are chosen by names or by like= and labels=, not by both")
        if isinstance(namespaces, NamespaceSet):
            return SelectedNamespaces(_api(client, kind, None), NamespaceSelection(chosen=namespaces))
        if like is not None or labels is not None:
            return SelectedNamespaces(_api(client, kind, None), NamespaceSelection.of(like, labels))
        names = () if isinstance(namespaces, str | None) else tuple(dict.fromkeys(namespaces))
        if not names:
            raise RequestError(f"the namespaces of an Api must be a list of at least one name, not {namespaces!r}")
        return Namespaces(tuple(_api(client, kind, name or "") for name in names))

    def with_metadata_only(self) -> Api[PartialObjectMeta]:
        """An Api of the same scope whose verbs all request only metadata from the server."""
        return Api(self.client, PartialObjectMeta.of(self.resource), replace(self.place, metadata_only=True))

    def with_fields(self, view: type[V]) -> Api[V]:
        """An Api of the same scope whose objects have only the fields of the frozen class `view`, and are read-only."""
        return Api(self.client, view, self.place, FieldsForm(self.resource, view))

    # Reading

    def get(self, name: Named, params: GetParams | None = None, *, timeout: Duration | None = None) -> K:
        """Read one object. Raises ApiError (`is_not_found`) when it does not exist."""
        return self._ask(build.get(self.place, name, params), timeout)

    def get_opt(self, name: Named, params: GetParams | None = None, *, timeout: Duration | None = None) -> K | None:
        """Read one object; None when it does not exist. Raises ApiError for a kind that the server does not serve."""
        try:
            return self.get(name, params, timeout=timeout)
        except KindNotServedError:
            raise
        except ApiError as error:
            if error.is_not_found:
                return None
            raise

    def entry(self, name: Named, *, timeout: Duration | None = None) -> Entry[K]:
        """An `Entry` for the object `name`, which may not exist: `api.entry("a").or_insert(make)`. Sends one get."""
        return Entry(self, object_name(self.place, name), self.get_opt(name, timeout=timeout))

    def watch(self, params: WatchParams | None = None, resource_version: str | None = None,
              stop: StopToken | None = None, *, label_selector: LabelSelection | None = None,
              field_selector: FieldSelection | None = None, bookmarks: bool | None = None,
              send_initial_events: bool = False, timeout: Duration | None = None) -> Generator[WatchEvent[K]]:
        """Iterate over the events of one watch request, which is sent when the first event is read. To keep watching
        after the request has ended, use `watcher`.

        `event.obj` is None for an ERROR (usually 410: list again) and for a BOOKMARK, which is sent only if `bookmarks`
        or `params` requests it. `resource_version`: where to begin, usually the version of a list. With None, the watch
        begins with an ADDED event for each existing object. The iteration ends when the connection ends (after 290 s,
        unless `params` sets another time), when `stop` is set, and after `timeout` seconds. The server counts `timeout`
        in whole seconds; opening the watch may take up to `timeout` in addition. Raises RequestTimeout for a dead
        connection.
        """
        params = chosen_of_said(params, WatchParams, {
            "label_selector": label_selector, "field_selector": field_selector, "bookmarks": bookmarks,
            "send_initial_events": send_initial_events or None})
        if timeout is not None and params.timeout is None:
            params = replace(params, timeout=timeout)
        try:
            opened = self.open_watch(params, resource_version, stop, timeout=timeout)
        except TransportError:
            if stop is not None and stop.is_set():
                return
            raise
        with opened as batches:
            for batch in batches:
                for event in batch:
                    if event.record is not None and not is_in_shard(params.shard, event.record):
                        continue
                    if event.type != "BOOKMARK" or params.with_bookmarks:
                        found = None if event.record is None else self._object(event.record)
                        yield WatchEvent(event.type, found, event.resource_version, event.status)

    def open_watch(self, params: WatchParams | None = None, resource_version: str | None = None,
                   stop: StopToken | None = None, *, timeout: Duration | None = None) -> WatchStream:
        """Open a watch like `watch`, but block until the watch is open. The result yields batches of `RecordEvent`s;
        watchers use it.

        A failure is not retried: watchers have their own backoff.
        """
        params = params_or_default(params, WatchParams)
        lasting = WATCH_TIMEOUT if params.timeout is None else seconds(params.timeout)
        request = build.watch(self.place, replace(params, timeout=lasting), resource_version, retry=Retry.NEVER)
        deadline = None if timeout is None else self.client.clock.monotonic() + period_of("timeout", timeout)
        try:
            return open_watch(self.client, request, self.form, stop, read_timeout=lasting + IDLE_MARGIN,
                              deadline=deadline)
        except ApiError as error:
            raise self._explained(request, error) from None

    # Writing

    def create(self, body: Body[K], params: PostParams | None = None, *, field_manager: str | None = None,
               field_validation: FieldValidation | None = None, dry_run: bool = False,
               timeout: Duration | None = None) -> K:
        """Create an object; returns it as the server stored it. Raises ApiError (`is_already_exists`) if it exists."""
        params = self._write_params(params, PostParams, field_manager=field_manager, field_validation=field_validation,
                                    dry_run=dry_run)
        return self._ask(build.create(self.place, body, params), timeout)

    def replace(self, body: Body[K], params: PostParams | None = None, *, field_manager: str | None = None,
                field_validation: FieldValidation | None = None, dry_run: bool = False,
                timeout: Duration | None = None) -> K:
        """Replace an object. If `body` has a resourceVersion and the object has changed since, raises ApiError
        (`is_conflict`)."""
        params = self._write_params(params, PostParams, field_manager=field_manager, field_validation=field_validation,
                                    dry_run=dry_run)
        return self._ask(build.replace(self.place, body, params), timeout)

    def patch(self, name: Named, patch: Patch, params: PatchParams | None = None, *, field_manager: str | None = None,
              field_validation: FieldValidation | None = None, dry_run: bool = False, force: bool = False,
              timeout: Duration | None = None) -> K:
        """Patch an object: `Patch.merge({...})`, `Patch.json([...])`, `Patch.strategic({...})`, `Patch.apply(...)`."""
        params = self._write_params(params, PatchParams, field_manager=field_manager, field_validation=field_validation,
                                    dry_run=dry_run, force=force)
        return self._ask(build.patch(self.place, name, patch, params), timeout)

    def apply(self, body: Body[K], *, field_manager: str | None = None, force: bool = False,
              field_validation: FieldValidation | None = None, dry_run: bool = False, defaults: bool = False,
              timeout: Duration | None = None) -> K:
        """Server-side apply of the fields in `body`; creates the object if it does not exist. Raises ApiError
        (`is_conflict`) when another manager owns one of the fields; with `force` this call takes over such fields.

        For a typed object that this program created, fields equal to their class's default are left out, at any depth;
        with `defaults=True` they are sent, so this field manager owns them. A dict is sent as it is. Fields that the
        server sets are always left out, even uid and resourceVersion, because an apply does not depend on the object's
        version. Use `replace` or a patch to require a resourceVersion.
        """
        params = self._write_params(PatchParams(field_manager=field_manager, force=force, dry_run=dry_run,
                                                field_validation=field_validation), PatchParams)
        return self._ask(build.apply(self.place, body, params, defaults=defaults), timeout)

    def delete(self, name: Named, params: DeleteParams | None = None, *,
               propagation_policy: Propagation | None = None, grace_period_seconds: int | None = None,
               preconditions: Preconditions | None = None, dry_run: bool = False,
               timeout: Duration | None = None) -> K | Status:
        """Delete an object. Returns the object if it still waits for finalizers or its grace period, and a Status if it
        is gone (for some kinds the server returns the object even when it is gone).

        With `preconditions=Preconditions(uid=obj.uid)` only the object with this uid is deleted. A lost answer does no
        harm with this precondition: the call is sent again, and succeeds if the object is gone by then.
        """
        params = self._write_params(params, DeleteParams, propagation_policy=propagation_policy,
                                    preconditions=preconditions, grace_period_seconds=grace_period_seconds,
                                    dry_run=dry_run)
        answer = self._answered(build.delete(self.place, name, params), self._deleted, timeout)
        return answer if isinstance(answer, Status) else self._object(answer)

    def delete_collection(self, params: DeleteParams | None = None, selection: ListParams | None = None, *,
                          label_selector: LabelSelection | None = None, field_selector: FieldSelection | None = None,
                          propagation_policy: Propagation | None = None, grace_period_seconds: int | None = None,
                          preconditions: Preconditions | None = None, dry_run: bool = False,
                          timeout: Duration | None = None) -> ObjectList[K] | Status:
        """Delete every object that `selection` or the selectors match; by default all objects of this Api. Returns the
        deleted objects, or a Status."""
        selection = chosen(selection, ListParams, "selection", label_selector=label_selector,
                           field_selector=field_selector)
        if selection.shard is not None:
            raise RequestError("delete_collection takes no shard=, because a server without support for shards would "
                               "delete all objects; list the objects, and delete each one")
        params = self._write_params(params, DeleteParams, propagation_policy=propagation_policy,
                                    preconditions=preconditions, grace_period_seconds=grace_period_seconds,
                                    dry_run=dry_run)
        request = build.delete_collection(self.place, params, selection)
        answer = self._answered(request, lambda body: gone(body) or self.form.decode_list(body), timeout)
        return answer if isinstance(answer, Status) else ObjectList([*map(self._object, answer[1])], answer[0])

    def __repr__(self) -> str:
        everywhere = "all namespaces" if self.resource.namespaced else "the cluster"
        where = f"namespace {self.namespace}" if self.namespace else everywhere
        return f"<Api of {self.resource.full_name} in {self.resource.api_version}, {where}>"


def _api(client: Client, kind: type[Any] | ApiResource, namespace: str | None) -> Api[Any]:
    if not hasattr(client, "answer") or isinstance(client, type):
        raise RequestError("the client of an Api must be a Client, such as Client.try_default(), not "
                           f"{class_named(client)}")
    if isinstance(kind, ApiResource):
        return Api(client, dynamic(kind), Place(kind, namespace))
    return Api(client, kind, Place(api_resource_of(kind), namespace))  # type: ignore[arg-type] # checked there
