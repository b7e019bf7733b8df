"""`ManifestRun`: a set of manifests, and the code that applying, comparing and deleting have in common.

A run finds the kind of each object (in the CRDs of the set, or by discovery) and calls the function that carries out
the verb. After a failure the run continues with the next object. If the server does not respond, credentials cannot be
obtained, or a stop is requested, it skips the remaining objects. Not thread-safe.

A set is read before anything is sent. Namespaces come first, then CustomResourceDefinitions, then everything else in
the order of the source, webhook configurations last. Errors that can be found without the server are reported for all
objects at once: no kind, no name, duplicates (the second apply would remove what the first has set).
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self, TextIO

from kubectl_runtime.client.api.api import Api
from kubectl_runtime.client.api.client import Client
from kubectl_runtime.client.api.discovery import Discovery
from kubectl_runtime.client.server import ServedKind
from kubectl_runtime.core.base.errors import (
    AuthError,
    DiscoveryError,
    KubeError,
    RequestError,
    TransportError,
    error_behind,
)
from kubectl_runtime.core.base.guard import mapping
from kubectl_runtime.core.base.threads import Duration, period_of
from kubectl_runtime.core.meta.gvk import ApiResource, GroupVersionKind, ObjectRef, Scope
from kubectl_runtime.core.objects.partial import DynamicObject
from kubectl_runtime.core.scope import StopToken
from kubectl_runtime.kubectl.readiness import Wait, await_all
from kubectl_runtime.kubectl.report import ManifestAction, ManifestOutcome, ManifestReport, ManifestsFailed, Progress
from kubectl_runtime.manifests.documents import Manifests, read_objects
from kubectl_runtime.runtime.apply_crd import TimeLeft
from kubectl_runtime.runtime.conditions import Missing
from kubectl_runtime.runtime.logs import said


@dataclass(frozen=True, slots=True, eq=False)
class Item:
    """One object of a set. `namespace` is the namespace in the manifest, or empty."""

    content: Mapping[str, Any] = field(repr=False)  # the object may be a Secret
    place: str
    gvk: GroupVersionKind
    name: str
    namespace: str

    @property
    def is_crd(self) -> bool:
        """Whether the object is a CustomResourceDefinition."""
        return self.gvk.kind == "CustomResourceDefinition" and self.gvk.group == "apiextensions.k8s.io"

    @property
    def is_namespace(self) -> bool:
        """Whether the object is a Namespace."""
        return self.gvk.kind == "Namespace" and not self.gvk.group

    @property
    def is_configuration(self) -> bool:
        """Whether the object is a webhook configuration, which makes the API server call a webhook before it stores
        objects."""
        return self.gvk.group == "admissionregistration.k8s.io" and self.gvk.kind.endswith("WebhookConfiguration")

    @property
    def comes_first(self) -> bool:
        """Whether other objects may depend on the object: it is a Namespace or a CustomResourceDefinition."""
        return self.is_namespace or self.is_crd


def read_set(source: Manifests, default_namespace: str, *, recursive: bool = False) -> tuple[Item, ...]:
    """Return the objects of `source` in its order. Raises ManifestError and OSError like `read_objects`, and
    RequestError, which lists all errors in the objects with their positions."""
    items, problems = [], []
    seen: dict[tuple[str, str, str, str], str] = {}
    for content, place in read_objects(source, recursive=recursive, defaults=False):
        try:
            item = _item(content, place)
        except RequestError as error:
            problems.append(f"{place}: {error}")
            continue
        namespace = "" if item.comes_first else item.namespace or default_namespace
        key = (item.gvk.group, item.gvk.kind, namespace, item.name)
        if key in seen:
            problems.append(f"{place}: {item.gvk.kind} {item.name} is already in {seen[key]}")
        seen[key] = place
        items.append(item)
    if problems:
        raise RequestError("\n  ".join(["nothing was sent, because the manifests have errors:", *problems]))
    return tuple(items)


def first_ones(items: Iterable[Item]) -> list[Item]:
    """The Namespaces among these items, then the CustomResourceDefinitions."""
    return sorted((item for item in items if item.comes_first), key=lambda item: item.is_crd)


def other_ones(items: Iterable[Item]) -> list[Item]:
    """The items except Namespaces and CustomResourceDefinitions. Webhook configurations come last: applied earlier,
    they would make the server refuse objects of the same set, because no webhook answers yet."""
    return sorted((item for item in items if not item.comes_first), key=lambda item: item.is_configuration)


def kinds_to_come(items: Iterable[Item]) -> Iterator[ServedKind]:
    """The kinds that the CRDs of the set define. An invalid CRD raises no error here: the server will report the
    error."""
    for item in items:
        if not item.is_crd:
            continue
        spec = mapping(item.content.get("spec"))
        names = mapping(spec.get("names"))
        versions = spec.get("versions")
        for version in map(mapping, versions if isinstance(versions, list) else ()):
            group, name = _text(spec, "group"), _text(version, "name")
            kind, plural = _text(names, "kind"), _text(names, "plural")
            if version.get("served") and group and name and kind and plural:
                scope = Scope.CLUSTER if spec.get("scope") == "Cluster" else Scope.NAMESPACED
                yield ServedKind(ApiResource(group, name, kind, plural, scope),
                                 subresources=tuple(mapping(version.get("subresources"))))


def _item(content: Mapping[str, Any], place: str) -> Item:
    kind, api_version, metadata = content.get("kind"), content.get("apiVersion"), content.get("metadata")
    if not (isinstance(kind, str) and kind and isinstance(api_version, str) and api_version):
        raise RequestError("an object needs an apiVersion and a kind, both as text")
    gvk = GroupVersionKind.parse(api_version, kind)
    if not isinstance(metadata, Mapping):
        raise RequestError(f"a {kind} needs metadata with a name")
    name, namespace = metadata.get("name"), metadata.get("namespace") or ""
    if not name and metadata.get("generateName"):
        raise RequestError(f"a {kind} with a generateName would be a new object each time: give it a name")
    if not (isinstance(name, str) and name and isinstance(namespace, str)):
        raise RequestError(f"a {kind} needs a name; name and namespace must be text: quote a number, as in '5'")
    return Item(content, place, gvk, name, namespace)


def _text(part: Mapping[str, Any], key: str) -> str:
    value = part.get(key)
    return value if isinstance(value, str) else ""


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """An object of the set with its Api. `to_come`: whether a CRD of the set defines the object's kind."""

    item: Item
    kind: ServedKind
    api: Api[DynamicObject]
    ref: ObjectRef
    to_come: bool

    @property
    def body(self) -> dict[str, object]:
        """The body to send. A cluster-scoped object has no namespace, as in kubectl, even if its manifest has one."""
        content = dict(self.item.content)
        if not self.kind.resource.namespaced:
            content["metadata"] = {key: value for key, value in content["metadata"].items() if key != "namespace"}
        return content

    def outcome(self, action: ManifestAction, *, difference: str = "", checked: bool = True) -> ManifestOutcome:
        """The outcome of this object: the action, and the difference from the server's object."""
        return ManifestOutcome(self.ref, self.item.place, action, difference=difference, checked=checked)


class ManifestRun:
    """One run of a verb over a set. A context manager, which erases the progress line when it exits."""

    def __init__(self, client: Client, verb: str, source: Manifests, *, namespace: str | None, recursive: bool,
                 timeout: Duration, progress: TextIO | bool, stop: StopToken | None) -> None:
        """Reads the set and the server's kinds. Raises what `read_set` and `Discovery.kinds` raise, and RequestError
        for a timeout that is not above 0 seconds."""
        span = period_of(f"{verb}: wait", timeout)
        self.client = client
        self.verb = verb
        self.namespace = namespace or client.default_namespace
        self.items = read_set(source, self.namespace, recursive=recursive)
        self.left = TimeLeft(client.clock, span)
        self.stop = stop
        self.progress = Progress(progress)
        self.outcomes: dict[Item, ManifestOutcome] = {}
        self.served: set[GroupVersionKind] = set()  # the set's kinds that are known to be served
        self.namespaces_to_come = {item.name for item in self.items if item.is_namespace}
        self._to_come = {kind.resource.gvk: kind for kind in kinds_to_come(self.items)}
        self._discovery = Discovery(client)
        self._over = ""
        if self.items:
            self._discovery.kinds()

    def each(self, items: Iterable[Item], act: Callable[[Placed], ManifestOutcome]) -> list[Placed]:
        """Call `act` for each item; returns the items that did not fail, so that the caller can wait for them."""
        went_well = []
        for item in items:
            if self.stop is not None and self.stop.is_set():
                self._over = f"a stop was requested ({self.stop.reason})"
            if self._over:
                self._note(item, self._unplaced(item, "skipped", None))
                continue
            try:
                placed = self.place(item)
                self._note(item, act(placed))
                went_well.append(placed)
            except KubeError as error:
                self._note(item, self._unplaced(item, "failed", error))
                if isinstance(error_behind(error), TransportError | AuthError):
                    self._over = "the server did not answer"
        return went_well

    def await_each(self, placed: Sequence[tuple[Placed, Missing]], word: str) -> list[Placed]:
        """Wait for these objects; returns the objects that reached the goal `word` (such as ready or gone)."""
        by_wait = {Wait(one.api, one.ref, missing, word): one for one, missing in placed}
        came = []
        for wait, error in await_all(list(by_wait), self.left, self.stop, self.progress):
            one = by_wait[wait]
            if error is None:
                came.append(one)
                if wait.took_time:
                    self.progress.done(f"{said(one.ref)} {word}")
                self.outcomes[one.item] = replace(self.outcomes[one.item], ready=True)
            else:
                self.fail(one, error)
        return came

    def fail(self, placed: Placed, error: KubeError) -> None:
        """Record that the action succeeded, but that the wait for its result failed."""
        self.progress.done(f"{said(placed.ref)}: {error}")
        self.outcomes[placed.item] = replace(self.outcomes[placed.item], ready=False, error=error)

    def report(self) -> ManifestReport:
        """Return the report. Raises ManifestsFailed when an object failed or was skipped."""
        report = ManifestReport(tuple(self.outcomes[item] for item in self.items))
        if report.failed or any(outcome.action == "skipped" for outcome in report):
            raise ManifestsFailed(self.verb, report, self._over)
        return report

    def place(self, item: Item, *, ask: bool = True) -> Placed:
        """Find the Api of an object. With `ask`, a kind that the server did not serve before is looked up again. Raises
        DiscoveryError for a kind that does not exist."""
        to_come = self._to_come.get(item.gvk)
        kind = to_come or self._served(item.gvk, ask)
        resource = kind.resource
        if resource.namespaced:
            namespace = item.namespace or self.namespace
            api = Api.namespaced(self.client, resource, namespace)
            return Placed(item, kind, api, ObjectRef(resource, item.name, namespace), to_come is not None)
        return Placed(item, kind, Api.all(self.client, resource), ObjectRef(resource, item.name), to_come is not None)

    def versions_of(self, crd: Item) -> list[ApiResource]:
        """The kinds that `crd`, one of the manifests, defines."""
        return [kind.resource for kind in kinds_to_come([crd])]

    def _served(self, gvk: GroupVersionKind, ask: bool) -> ServedKind:
        for refresh in (False, True) if ask else (False,):
            for kind in self._discovery.kinds(refresh=refresh):
                if kind.resource.gvk == gvk:
                    return kind
        others = sorted({kind.resource.api_version for kind in self._discovery.kinds()
                         if kind.resource.kind == gvk.kind})
        hint = f"use {' or '.join(others)}" if others else "install its CRD, or add the CRD to the manifests"
        raise DiscoveryError(f"the server does not serve the kind {gvk.kind} in {gvk.api_version}: {hint}")

    def _unplaced(self, item: Item, action: ManifestAction, error: KubeError | None) -> ManifestOutcome:
        """The outcome of an object whose kind may be unknown."""
        try:
            ref = self.place(item, ask=False).ref
        except KubeError:
            ref = ObjectRef(ApiResource.from_gvk(item.gvk), item.name, item.namespace or None)
        return ManifestOutcome(ref, item.place, action, error=error)

    def _note(self, item: Item, outcome: ManifestOutcome) -> None:
        self.outcomes[item] = outcome
        self.progress.done(f"{outcome}: {outcome.error}" if outcome.error is not None else str(outcome))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.close()
