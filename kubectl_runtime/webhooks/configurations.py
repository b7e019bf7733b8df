"""Builds the manifests that make an API server call webhooks, from the webhooks' class options and address.

    configurations(app, "quota", Target.service("shop/quota"))

returns these manifests, which `apply_webhooks` applies by server-side apply:

- a ValidatingWebhookConfiguration with a webhook for each class that defines `validate`
- a MutatingWebhookConfiguration with a webhook for each class that defines `mutate` (for operations with an object to
  change)
- for each Conversion between classes, a CustomResourceDefinition that contains only `spec.conversion`; the rest of the
  definition must be applied separately

`CaBundles` keeps the CA of a webhook server in each clientConfig whose `service` or `url` names the server: in
webhook configurations (webhooks[*].clientConfig) and CRDs (spec.conversion.webhook.clientConfig). `CaBundles` watches
these objects, so that new or overwritten objects are repaired at once. A bundle is a set that also holds the CAs of
other servers (see `merged`), and each write is conditional on the resourceVersion. When the server stops, `CaBundles`
removes the server's CA from each bundle, unless the bundle has no other CA.

`CaBundles` needs list, watch and patch on webhook configurations and CRDs. If the names of the program's own objects
are known, the permission to patch can be restricted to these objects. Any other object that `CaBundles` may not write
is logged once, and does not affect the server's readiness.
"""
from __future__ import annotations

import base64
import binascii
import re
import threading
import time
import urllib.parse
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from msgspec.structs import replace

from kubectl_runtime.certificates.bundles import certificates_in, joined, merged
from kubectl_runtime.client.api.api import Api
from kubectl_runtime.client.api.client import Client
from kubectl_runtime.core.base.errors import ApiError, KubeError, RequestError, is_lost_test
from kubectl_runtime.core.base.guard import guarded_logger
from kubectl_runtime.core.meta.metav1 import FrozenPart
from kubectl_runtime.core.objects.partial import PartialView
from kubectl_runtime.core.objects.resource import Resource
from kubectl_runtime.core.requests.params import Patch, pointer
from kubectl_runtime.core.requests.request import checked_label, checked_subdomain
from kubectl_runtime.resources import (
    CustomResourceDefinition,
    MutatingWebhookConfiguration,
    ValidatingWebhookConfiguration,
)
from kubectl_runtime.runtime.controller.controller import Controller
from kubectl_runtime.runtime.controller.housekeeping import SyncTimeoutError
from kubectl_runtime.runtime.controller.plan import ControllerError
from kubectl_runtime.runtime.controller.running import Running
from kubectl_runtime.runtime.reconcile.reconciler import Action, Context
from kubectl_runtime.runtime.watch.config import WatcherConfig
from kubectl_runtime.webhooks.answering import Application, Converts
from kubectl_runtime.webhooks.handler import OPERATIONS, WITH_CONTENT, Admission, resource_of
from kubectl_runtime.webhooks.serving_certificates import AUTHORITY_NAME, OwnCertificates, SelfSigned

Object = dict[str, Any]
_API = "admissionregistration.k8s.io/v1"
_KINDS = {"validate": ("ValidatingWebhookConfiguration", OPERATIONS),
          "mutate": ("MutatingWebhookConfiguration", WITH_CONTENT)}


@dataclass(frozen=True, slots=True)
class Target:
    """The address at which an API server calls the webhooks: a Service of the cluster, or a URL. Made by the class
    methods."""

    namespace: str = ""
    name: str = ""
    port: int | None = None
    base: str = ""

    @classmethod
    def service(cls, text: str) -> Target:
        """The Service `NAMESPACE/NAME` or `NAMESPACE/NAME:PORT` (443 by default). Raises RequestError for other texts.
        """
        namespace, _, rest = text.partition("/")
        name, colon, port = rest.partition(":")
        try:
            checked_label(namespace, "its namespace")
            checked_label(name, "its name")
            if colon and not (port.isascii() and port.isdigit()):
                raise RequestError(f"its port must be a number, not {port!r}")
        except RequestError as error:
            raise RequestError(f"{text!r} is not a Service, which must be NAMESPACE/NAME or NAMESPACE/NAME:PORT: "
                               f"{error}") from None
        return cls(namespace, name, int(port) if colon else None)

    @classmethod
    def url(cls, text: str) -> Target:
        """The URL `https://HOST:PORT`, optionally with a prefix for the application's paths. Raises RequestError."""
        try:
            parts = urllib.parse.urlsplit(text)
            right = parts.scheme == "https" and parts.hostname and parts.port != 0 and not (
                parts.query or parts.fragment or parts.username) and not re.search(r"[\s\x00-\x1f\x7f-\x9f]", text)
        except ValueError:
            right = False
        if not right:
            raise RequestError(f"{text!r} is not the URL of a webhook: must be https://HOST:PORT, "
                               "without user, query and fragment")
        return cls(base=text.rstrip("/"))

    def client_config(self, path: str, ca_bundle: bytes = b"") -> Object:
        """The clientConfig for `path`, with the CA that the API server must trust."""
        trust = {"caBundle": base64.b64encode(ca_bundle).decode()} if ca_bundle else {}
        if self.base:
            return {"url": f"{self.base}{path}", **trust}
        port = {} if self.port is None else {"port": self.port}
        return {"service": {"namespace": self.namespace, "name": self.name, "path": path, **port}, **trust}


def configurations(app: Application | Mapping[str, Admission[Any] | Converts], name: str, target: Target, *,
                   ca_bundle: bytes = b"", annotations: Mapping[str, str] | None = None) -> list[Object]:
    """Return the manifests that register the webhooks of `app`, as dicts (see the module docstring).

    `name` is the name of the webhook configurations. `ca_bundle` is the CA that the API server must trust, as PEM. If
    `ca_bundle` is empty, another component, such as cert-manager, must write the CA, and `annotations` may request
    this. Raises RequestError for webhooks without a name or a rule, and for two webhooks with the same name.
    """
    if not name:
        raise RequestError("a configuration needs a name: configurations(app, 'quota', Target.service('shop/quota'))")
    checked_subdomain(name, "the name of a configuration")
    handlers = app.handlers if isinstance(app, Application) else dict(app)
    metadata = {"name": name, **({"annotations": dict(annotations)} if annotations else {})}
    found: list[Object] = []
    for verb, (kind, operations) in _KINDS.items():
        hooks = [_webhook(mount, handler, verb, operations, target, ca_bundle) for mount, handler in handlers.items()
                 if isinstance(handler, Admission) and verb in type(handler).verbs()]
        _check_names(kind, hooks)
        if hooks:
            found.append({"apiVersion": _API, "kind": kind, "metadata": dict(metadata), "webhooks": hooks})
    for mount, handler in handlers.items():
        definition = getattr(handler, "crd_name", None)
        if not isinstance(handler, Admission) and definition:
            found.append(_conversion(mount, definition, target, ca_bundle))
    return found


def _webhook(mount: str, handler: Admission[Any], verb: str, operations: tuple[str, ...], target: Target,
             ca_bundle: bytes) -> Object:
    cls = type(handler)
    rules = cls.options.rules_for(resource_of(cls.kind()), operations)
    if not rules:
        raise RequestError(f"{mount}: {cls.__name__}.{verb} would never be called: set rules=(Rule(...),) if the "
                           f"class is for several kinds, and include one of {', '.join(operations)} in operations=")
    return {"name": cls.webhook_name(mount), "clientConfig": target.client_config(f"{mount.rstrip('/')}/{verb}",
                                                                                 ca_bundle),
            "rules": rules, "admissionReviewVersions": ["v1"], **cls.options.to_dict(mutating=verb == "mutate")}


def _check_names(kind: str, hooks: list[Object]) -> None:
    names = [hook["name"] for hook in hooks]
    for name in names:
        if names.count(name) > 1:
            raise RequestError(f"two webhooks of the {kind} are called {name}: set name= in one of their classes")


def _conversion(mount: str, definition: str, target: Target, ca_bundle: bytes) -> Object:
    webhook = {"clientConfig": target.client_config(mount, ca_bundle), "conversionReviewVersions": ["v1"]}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": definition},
            "spec": {"conversion": {"strategy": "Webhook", "webhook": webhook}}}


CONVERSION = "-conversion"
"""The suffix of the field manager that applies a conversion alone. One manager cannot apply both a definition and
a part of the definition, because each apply would remove the fields of the other."""
BUNDLES = "kubectl-runtime-webhooks"
"""The field manager of a caBundle that `CaBundles` wrote."""

CLASSES: dict[str, type[Resource]] = {kind.api_resource.kind: kind for kind in (
    CustomResourceDefinition, MutatingWebhookConfiguration, ValidatingWebhookConfiguration)}


def apply_webhooks(client: Client, app: Application | Mapping[str, Admission[Any] | Converts], name: str, *,
                   service: str | None = None, url: str | None = None, ca_bundle: bytes = b"",
                   annotations: Mapping[str, str] | None = None, field_manager: str = "kubectl_runtime",
                   force: bool = False) -> list[Resource]:
    """Apply the manifests that make the API server call the webhooks of `app`. Returns the applied objects.

    These are the webhook configurations called `name`, and `spec.conversion` of the CRDs that `app` converts. The CRDs
    must exist. The webhooks' address is either `service` (`NAMESPACE/NAME` or `NAMESPACE/NAME:PORT`) or `url`
    (`https://HOST:PORT`). `ca_bundle` is the CA that the API server must trust, as PEM (`WebhookServer.ca_bundle`). CAs
    that are already in a bundle stay. `annotations` are written into the configurations. `force` takes over fields of
    other managers, including a conversion that another manager has set. The conversion of a CRD is applied by a
    separate field manager, `FIELD_MANAGER-conversion`, so that `apply_crd` may own the rest of the definition as
    `FIELD_MANAGER`.

    Blocks for the calls. Raises RequestError for invalid arguments, and ApiError if the server refuses a request. Needs
    get and patch on the applied objects, and create on the kinds of webhook configurations.

    >>> from kubectl_runtime import webhooks
    >>> class Quota(Admission[Pod]):
    ...     def validate(self, request): ...
    >>> app = webhooks.application({"/quota": Quota()})
    >>> [made] = apply_webhooks(client, app, "quota.example.com", service="default/quota")
    >>> made.api_resource.kind
    'ValidatingWebhookConfiguration'
    """
    if (service is None) == (url is None):
        raise RequestError("apply_webhooks needs service='NAMESPACE/NAME' or url='https://HOST:PORT', "
                           "exactly one of them")
    target = Target.url(url) if url is not None else Target.service(service or "")
    applied: list[Resource] = []
    converting = f"{field_manager}{CONVERSION}"
    for manifest in configurations(app, name, target, ca_bundle=ca_bundle, annotations=annotations):
        api: Api[Any] = Api.all(client, CLASSES[manifest["kind"]])
        manager, taking = field_manager, force
        if manifest["kind"] == "CustomResourceDefinition":
            there = api.get(manifest["metadata"]["name"])  # must exist, since a partial definition cannot be created
            manager = converting
            taking = force or _may_be_taken(there.to_dict(), {field_manager, converting})
        else:
            there = api.get_opt(manifest["metadata"]["name"])
        if ca_bundle and there is not None:
            _keep_bundles(manifest, there.to_dict(), ca_bundle)
        applied.append(api.apply(manifest, field_manager=manager, force=taking))
    return applied


def _may_be_taken(definition: dict[str, Any], ours: set[str]) -> bool:
    """Whether no other manager owns the conversion: it is still the default (which counts as a field of the
    definition's creator), or only managers in `ours` have applied it."""
    conversion = (definition.get("spec") or {}).get("conversion") or {}
    if conversion.get("strategy", "None") == "None":
        return True
    owners = {entry.get("manager") for entry in definition["metadata"].get("managedFields") or ()
              if ((entry.get("fieldsV1") or {}).get("f:spec") or {}).get("f:conversion")}
    return owners <= {*ours, BUNDLES}


def _keep_bundles(manifest: dict[str, Any], there: dict[str, Any], ca_bundle: bytes) -> None:
    """Merge the object's bundles into `manifest`, which would otherwise remove the CAs of other replicas."""
    held = {name: config.get("caBundle") for name, config in _client_configs(there)}
    for name, config in _client_configs(manifest):
        if bundle := held.get(name):
            whole = joined(base64.b64decode(bundle), certificates_in(ca_bundle))
            config["caBundle"] = base64.b64encode(whole).decode()


def _client_configs(content: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The clientConfigs by webhook name; the name is empty for a conversion."""
    found = [(hook["name"], hook["clientConfig"]) for hook in content.get("webhooks") or ()]
    webhook = ((content.get("spec") or {}).get("conversion") or {}).get("webhook") or {}
    return [*found, ("", webhook["clientConfig"])] if webhook.get("clientConfig") else found


log = guarded_logger(__name__)

AT_THE_END = 2.0
"""Seconds for the requests that remove the server's CA if `stop` has no time left."""
AGAIN = 1.0
"""Seconds until the retry after a conflict, unless the watch reports the change earlier."""
KINDS = (ValidatingWebhookConfiguration, MutatingWebhookConfiguration, CustomResourceDefinition)


class _Service(FrozenPart, frozen=True):
    namespace: str = ""
    name: str = ""


class _ClientConfig(FrozenPart, frozen=True):
    service: _Service | None = None
    url: str | None = None
    ca_bundle: str | None = None


class _Webhook(FrozenPart, frozen=True):
    client_config: _ClientConfig | None = None


class _Conversion(FrozenPart, frozen=True):
    webhook: _Webhook | None = None


class _Definition(FrozenPart, frozen=True):
    conversion: _Conversion | None = None


class Caller(PartialView, frozen=True):
    """The part of a webhook configuration or CRD that makes an API server call webhooks."""

    webhooks: tuple[_Webhook, ...] = ()
    spec: _Definition = _Definition()

    def places(self) -> Iterator[tuple[str, _ClientConfig]]:
        """Each clientConfig with its JSON pointer."""
        for index, webhook in enumerate(self.webhooks):
            if webhook.client_config is not None:
                yield pointer("webhooks", index, "clientConfig"), webhook.client_config
        conversion = self.spec.conversion
        if conversion is not None and conversion.webhook is not None and conversion.webhook.client_config is not None:
            yield "/spec/conversion/webhook/clientConfig", conversion.webhook.client_config


class CaBundles:
    """Keeps a webhook server's CA in the webhook configurations and CRDs that name the server. Thread-safe."""

    def __init__(self, client: Client, wanted: SelfSigned, certificates: OwnCertificates) -> None:
        """Makes no requests before `start`."""
        self._client, self._wanted, self._certificates = client, wanted, certificates
        self._running: list[Running[Any]] = []
        self._own: dict[str, Collection[str]] = {}
        self._refused: dict[tuple[str, str], None] = {}
        """(plural, name) of objects that name this server but may not be written, except the program's own objects."""

    def start(self, kinds: Mapping[Any, Collection[str]], port: int) -> None:
        """Begin to watch the objects, in new threads. `kinds` maps each watched kind to the known names of the
        program's own objects. `port` makes the controllers' names distinct from those of another server with the same
        client."""
        self._own = {kind.api_resource.plural: names for kind, names in kinds.items() if names}
        for kind in kinds:
            api: Any = Api.all(self._client, kind)
            name = f"webhook-ca-{port}-{kind.api_resource.plural}"
            controller: Controller[Any] = Controller(api, watch=WatcherConfig(fields=Caller), concurrency=1, name=name)
            running: Running[Any] = Running(replace(controller.plan(), housekeeping=True), partial(self._keep, api),
                                            None, None)
            running.launch(signal_thread=False)
            self._running.append(running)

    def owns(self, thread: threading.Thread) -> bool:
        """Whether `thread` belongs to one of the controllers that watch the objects."""
        return any(running.owns(thread) for running in self._running)

    def renewed(self) -> None:
        """Check all objects again, because the CAs have changed."""
        for running in self._running:
            running.trigger_all()

    def why_not_ready(self) -> str:
        """The first object that lacks the current CAs, as text; empty when all objects hold them. Does not block."""
        for running in self._running:
            try:
                running.wait_until_ready(0)
            except (SyncTimeoutError, ControllerError) as error:
                return str(error)
            wanted = self._certificates.authorities
            for caller in _readable(running):
                if (running.store.resource.plural, caller.name) in self._refused:
                    continue
                lacking = [place for place, config in caller.places() if self._is_ours(config)
                           and not set(wanted) <= set(certificates_in(_decoded(config)))]
                if lacking:
                    return f"{running.store.resource.kind} {caller.name} does not hold the CA of this server yet"
        return ""

    def stop(self, timeout: float) -> None:
        """Stop watching, and remove the server's CA from every bundle that also holds other CAs. Blocks for at most
        `timeout` seconds plus `AT_THE_END`. A CA that cannot be removed stays until it expires."""
        end = time.monotonic() + timeout
        named = [(running.store.resource, caller) for running in self._running for caller in _readable(running)]
        for running in self._running:
            running.stop(max(0.0, end - time.monotonic()))
        end = max(end, time.monotonic() + AT_THE_END)
        for resource, caller in named:
            if (left := end - time.monotonic()) > 0:
                self._take_out(resource, caller, left)

    def _keep(self, api: Any, obj: Any, _ctx: Context[Any]) -> Action:
        if not isinstance(obj, Caller):
            return Action.await_change()
        try:
            if self._write(api, obj, self._kept):
                log.info("wrote the CA of this webhook server into %s %s", api.resource.kind, obj.name)
            self._refused.pop((api.resource.plural, obj.name), None)
        except ApiError as error:
            if error.is_not_found:
                return Action.await_change()
            place = api.resource.plural, obj.name
            if error.is_forbidden and obj.name not in self._own.get(place[0], (obj.name,)):
                if place not in self._refused:
                    log.warning("%s %s names this webhook server, but does not get the server's CA: %s",
                                api.resource.kind, obj.name, error)
                    self._refused[place] = None
                return Action.await_change()
            if is_lost_test(error):
                log.debug("%s %s was changed by another client: %s", api.resource.kind, obj.name, error)
                return Action.requeue(AGAIN)
            raise
        return Action.await_change()

    def _kept(self, bundle: bytes) -> bytes:
        certificates = self._certificates
        return merged(bundle, certificates.authorities, certificates.gone, name=AUTHORITY_NAME,
                      now=self._client.clock.now())

    def _without_ours(self, bundle: bytes) -> bytes:
        left = merged(bundle, (), self._certificates.authorities, name=AUTHORITY_NAME, now=self._client.clock.now())
        return left or bundle

    def _take_out(self, resource: Any, caller: Caller, timeout: float) -> None:
        api = Api.all(self._client, resource)
        try:
            self._write(api, caller, self._without_ours, timeout=timeout)
        except KubeError as error:
            log.debug("could not remove the CA of this webhook server from %s %s: %s", resource.kind, caller.name,
                      error)

    def _write(self, api: Any, caller: Caller, change: Callable[[bytes], bytes], timeout: float | None = None) -> bool:
        """Returns whether the object was written. Raises ApiError, including a conflict if the object has changed."""
        operations: list[dict[str, Any]] = []
        for place, config in caller.places():
            if self._is_ours(config):
                before = _decoded(config)
                after = change(before)
                if after != before:
                    operations.append({"op": "add", "path": f"{place}/caBundle",
                                       "value": base64.b64encode(after).decode()})
        if not operations:
            return False
        guard = {"op": "test", "path": "/metadata/resourceVersion", "value": caller.resource_version}
        api.patch(caller.name, Patch.json([guard, *operations]), field_manager=BUNDLES, timeout=timeout)
        return True

    def _is_ours(self, config: _ClientConfig) -> bool:
        if config.service is not None:
            return f"{config.service.namespace}/{config.service.name}" == self._wanted.service
        try:
            host = urllib.parse.urlsplit(config.url or "").hostname
        except ValueError:
            return False
        return host is not None and host in self._wanted.names


def _decoded(config: _ClientConfig) -> bytes:
    try:
        return base64.b64decode(config.ca_bundle or "")
    except binascii.Error:
        return b""


def _readable(running: Running[Any]) -> Iterator[Caller]:
    return (found for found in running.store if isinstance(found, Caller))
