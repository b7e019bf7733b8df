"""The manifests that make an API server call webhooks: from what their classes say, and where they are served.

    configurations(app, "quota", Target.service("shop/quota"))

    ValidatingWebhookConfiguration quota     a webhook for each class that defines `validate`
    MutatingWebhookConfiguration quota       ... `mutate`, for operations that have something to change
    CustomResourceDefinition widgets.…       `spec.conversion` alone, to be applied beside the rest of the definition,
                                             for each Conversion between classes
"""
from __future__ import annotations

import base64
import re
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.requests.names import checked_label, checked_subdomain
from kubectl_runtime.webhooks.answering import Converts
from kubectl_runtime.webhooks.application import Application
from kubectl_runtime.webhooks.handler import Admission, resource_of
from kubectl_runtime.webhooks.options import OPERATIONS, WITH_CONTENT

Object = dict[str, Any]
_API = "admissionregistration.k8s.io/v1"
_KINDS = {"validate": ("ValidatingWebhookConfiguration", OPERATIONS),
          "mutate": ("MutatingWebhookConfiguration", WITH_CONTENT)}


@dataclass(frozen=True, slots=True)
class Target:
    """Where an API server finds the webhooks: a Service of the cluster, or a URL. Made by the class methods."""

    namespace: str = ""
    name: str = ""
    port: int | None = None
    base: str = ""

    @classmethod
    def service(cls, text: str) -> Target:
        """`NAMESPACE/NAME` or `NAMESPACE/NAME:PORT` (443 by default). Raises RequestError for anything else."""
        namespace, _, rest = text.partition("/")
        name, colon, port = rest.partition(":")
        try:
            checked_label(namespace, "its namespace")
            checked_label(name, "its name")
            if colon and not (port.isascii() and port.isdigit()):
                raise RequestError(f"its port is {port!r}")
        except RequestError as error:
            raise RequestError(f"{text!r} is not a Service, which is named as NAMESPACE/NAME or NAMESPACE/NAME:PORT: "
                               f"{error}") from None
        return cls(namespace, name, int(port) if colon else None)

    @classmethod
    def url(cls, text: str) -> Target:
        """`https://HOST:PORT`, with a path before those of the application if there is one. Raises RequestError."""
        try:
            parts = urllib.parse.urlsplit(text)
            right = parts.scheme == "https" and parts.hostname and parts.port != 0 and not (
                parts.query or parts.fragment or parts.username) and not re.search(r"[\s\x00-\x1f\x7f-\x9f]", text)
        except ValueError:
            right = False
        if not right:
            raise RequestError(f"{text!r} is not the URL of a webhook: https://HOST:PORT, no user, query or fragment")
        return cls(base=text.rstrip("/"))

    def client_config(self, path: str, ca_bundle: bytes = b"") -> Object:
        """How to call what is served at `path`, and whom to trust."""
        trust = {"caBundle": base64.b64encode(ca_bundle).decode()} if ca_bundle else {}
        if self.base:
            return {"url": f"{self.base}{path}", **trust}
        port = {} if self.port is None else {"port": self.port}
        return {"service": {"namespace": self.namespace, "name": self.name, "path": path, **port}, **trust}


def configurations(app: Application | Mapping[str, Admission[Any] | Converts], name: str, target: Target, *,
                   ca_bundle: bytes = b"", annotations: Mapping[str, str] | None = None) -> list[Object]:
    """The manifests, as dicts: see the module. `name`: of the configurations.

    `ca_bundle`: PEM, whom the API server is to trust; without it that is somebody else's to write, cert-manager's say,
    which `annotations` may ask. Raises RequestError for webhooks without a name or a rule of their own, and for two of
    one name.
    """
    if not name:
        raise RequestError("a configuration has a name: configurations(app, 'quota', Target.service('shop/quota'))")
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
        raise RequestError(f"{mount}: {cls.__name__}.{verb} would never be called: say rules=(Rule(...),) for several "
                           f"kinds, and operations= of {', '.join(operations)}")
    return {"name": cls.webhook_name(mount), "clientConfig": target.client_config(f"{mount.rstrip('/')}/{verb}",
                                                                                 ca_bundle),
            "rules": rules, "admissionReviewVersions": ["v1"], **cls.options.to_dict(mutating=verb == "mutate")}


def _check_names(kind: str, hooks: list[Object]) -> None:
    names = [hook["name"] for hook in hooks]
    for name in names:
        if names.count(name) > 1:
            raise RequestError(f"two webhooks of the {kind} are called {name}: say name= in one of their classes")


def _conversion(mount: str, definition: str, target: Target, ca_bundle: bytes) -> Object:
    webhook = {"clientConfig": target.client_config(mount, ca_bundle), "conversionReviewVersions": ["v1"]}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": definition},
            "spec": {"conversion": {"strategy": "Webhook", "webhook": webhook}}}
