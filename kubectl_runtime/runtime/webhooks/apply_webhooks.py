"""`apply_webhooks`: have the API server call one's webhooks, by server-side apply of what their classes say."""
from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from kubectl_runtime.certificates.bundles import certificates_in, joined
from kubectl_runtime.client.api.api import Api
from kubectl_runtime.client.api.client import Client
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.objects.resource import Resource
from kubectl_runtime.resources import (
    CustomResourceDefinition,
    MutatingWebhookConfiguration,
    ValidatingWebhookConfiguration,
)
from kubectl_runtime.webhooks.answering import Converts
from kubectl_runtime.webhooks.application import Application
from kubectl_runtime.webhooks.configurations import Target, configurations
from kubectl_runtime.webhooks.handler import Admission

CONVERSION = "-conversion"
"""What a field manager's name ends with where it applies a conversion alone. One manager cannot apply both a definition
and a part of it: each apply takes back what the other one said."""
BUNDLES = "kubectl-runtime-webhooks"
"""Whose field a caBundle is that `CaBundles` wrote."""

CLASSES: dict[str, type[Resource]] = {kind.api_resource.kind: kind for kind in (
    CustomResourceDefinition, MutatingWebhookConfiguration, ValidatingWebhookConfiguration)}


def apply_webhooks(client: Client, app: Application | Mapping[str, Admission[Any] | Converts], name: str, *,
                   service: str | None = None, url: str | None = None, ca_bundle: bytes = b"",
                   annotations: Mapping[str, str] | None = None, field_manager: str = "kubectl_runtime",
                   force: bool = False) -> list[Resource]:
    """Apply the configurations called `name` for the webhooks of `app`, and the conversion of their CRDs; the objects.

    `service`: `NAMESPACE/NAME` or `NAMESPACE/NAME:PORT`; or `url`: `https://HOST:PORT`. `ca_bundle`: PEM, whom the API
    server is to trust (`WebhookServer.ca_bundle`); what is in a bundle already stays in it. A CRD must be there before.
    `annotations`: for the configurations. `force` takes over fields of other managers, a conversion that somebody else
    set up included. The conversion of a CRD is applied by a field manager of its own, `FIELD_MANAGER-conversion`, so
    that `apply_crd` may own the rest of the definition under the same name.

    Blocks for the calls. Raises RequestError for what makes no sense, ApiError when the server refuses. Needs get,
    create and patch on the three resources, where they are used.

    >>> from kubectl_runtime import webhooks
    >>> class Quota(Admission[Pod]):
    ...     def validate(self, request): ...
    >>> app = webhooks.application({"/quota": Quota()})
    >>> [made] = apply_webhooks(client, app, "quota.example.com", service="default/quota")
    >>> made.api_resource.kind
    'ValidatingWebhookConfiguration'
    """
    if (service is None) == (url is None):
        raise RequestError("apply_webhooks takes service='NAMESPACE/NAME' or url='https://HOST:PORT', one of them")
    target = Target.url(url) if url is not None else Target.service(service or "")
    applied: list[Resource] = []
    converting = f"{field_manager}{CONVERSION}"
    for manifest in configurations(app, name, target, ca_bundle=ca_bundle, annotations=annotations):
        api: Api[Any] = Api.all(client, CLASSES[manifest["kind"]])
        manager, taking = field_manager, force
        if manifest["kind"] == "CustomResourceDefinition":
            there = api.get(manifest["metadata"]["name"])  # a part of a definition makes none
            manager = converting
            taking = force or _may_be_taken(there.to_dict(), {field_manager, converting})
        else:
            there = api.get_opt(manifest["metadata"]["name"])
        if ca_bundle and there is not None:
            _keep_bundles(manifest, there.to_dict(), ca_bundle)
        applied.append(api.apply(manifest, field_manager=manager, force=taking))
    return applied


def _may_be_taken(definition: dict[str, Any], ours: set[str]) -> bool:
    """Whether the conversion belongs to nobody else: it does not convert yet (the default counts as a field of the
    definition's creator), or only managers that are `ours` have applied it."""
    conversion = (definition.get("spec") or {}).get("conversion") or {}
    if conversion.get("strategy", "None") == "None":
        return True
    owners = {entry.get("manager") for entry in definition["metadata"].get("managedFields") or ()
              if ((entry.get("fieldsV1") or {}).get("f:spec") or {}).get("f:conversion")}
    return owners <= {*ours, BUNDLES}


def _keep_bundles(manifest: dict[str, Any], there: dict[str, Any], ca_bundle: bytes) -> None:
    """Put into `manifest` the bundles that the object has, with ours: who applies owns the field, and would otherwise
    take the authorities of other replicas out of it."""
    held = {name: config.get("caBundle") for name, config in _client_configs(there)}
    for name, config in _client_configs(manifest):
        if bundle := held.get(name):
            whole = joined(base64.b64decode(bundle), certificates_in(ca_bundle))
            config["caBundle"] = base64.b64encode(whole).decode()


def _client_configs(content: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """By the webhook's name; the one of a conversion has none."""
    found = [(hook["name"], hook["clientConfig"]) for hook in content.get("webhooks") or ()]
    webhook = ((content.get("spec") or {}).get("conversion") or {}).get("webhook") or {}
    return [*found, ("", webhook["clientConfig"])] if webhook.get("clientConfig") else found
