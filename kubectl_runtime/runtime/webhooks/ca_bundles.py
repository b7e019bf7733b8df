"""`CaBundles`: keeps the authority of a webhook server in everything that tells an API server to call it.

    ValidatingWebhookConfiguration, MutatingWebhookConfiguration    webhooks[*].clientConfig
    CustomResourceDefinition                                        spec.conversion.webhook.clientConfig

whose `service` is ours, or whose `url` has one of our hosts. Each is watched, so that one that comes later, or that
somebody overwrites, is mended at once. A bundle is a set: other servers keep theirs in it (see `merged`), and each
write holds only if nobody else has written since. At the end our authority is taken out, unless it is the last one.

Needs list, watch and patch on the three resources. Where the program's own objects are known by name, patch on those is
enough: an object of others that may not be written is logged once, and keeps nobody waiting.
"""
from __future__ import annotations

import base64
import binascii
import time
import urllib.parse
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from kubectl_runtime.certificates.bundles import certificates_in, merged
from kubectl_runtime.client.api.api import Api
from kubectl_runtime.client.api.client import Client
from kubectl_runtime.core.base.errors import ApiError, KubeError
from kubectl_runtime.core.base.guarded_log import guarded_logger
from kubectl_runtime.core.meta.metav1 import FrozenPart
from kubectl_runtime.core.objects.partial import PartialView
from kubectl_runtime.core.requests.patch import Patch, pointer
from kubectl_runtime.resources import (
    CustomResourceDefinition,
    MutatingWebhookConfiguration,
    ValidatingWebhookConfiguration,
)
from kubectl_runtime.runtime.controller.controller import Controller
from kubectl_runtime.runtime.controller.controller_error import ControllerError
from kubectl_runtime.runtime.controller.running import Running
from kubectl_runtime.runtime.controller.sync_gate import SyncTimeoutError
from kubectl_runtime.runtime.reconcile.action import Action
from kubectl_runtime.runtime.reconcile.context import Context
from kubectl_runtime.runtime.watcher.watcher_config import WatcherConfig
from kubectl_runtime.runtime.webhooks.apply_webhooks import BUNDLES
from kubectl_runtime.runtime.webhooks.serving_certificates import AUTHORITY_NAME, OwnCertificates, SelfSigned

log = guarded_logger(__name__)

AT_THE_END = 2.0
"""Seconds for the requests that take our authority out again, where nothing is left of the time."""
AGAIN = 1.0
"""Seconds after which an object that changed meanwhile is tried again, if no news of the change brings that forward."""
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
    """What is kept of an object that tells an API server whom to call."""

    webhooks: tuple[_Webhook, ...] = ()
    spec: _Definition = _Definition()

    def places(self) -> Iterator[tuple[str, _ClientConfig]]:
        """Each clientConfig, and the JSON pointer to it."""
        for index, webhook in enumerate(self.webhooks):
            if webhook.client_config is not None:
                yield pointer("webhooks", index, "clientConfig"), webhook.client_config
        conversion = self.spec.conversion
        if conversion is not None and conversion.webhook is not None and conversion.webhook.client_config is not None:
            yield "/spec/conversion/webhook/clientConfig", conversion.webhook.client_config


class CaBundles:
    """Keeps the authority of a server in the webhook configurations and CRDs that name it. Safe to use from any
    thread."""

    def __init__(self, client: Client, wanted: SelfSigned, certificates: OwnCertificates) -> None:
        """Nothing is sent before `start`."""
        self._client, self._wanted, self._certificates = client, wanted, certificates
        self._running: list[Running[Any]] = []
        self._own: dict[str, Collection[str]] = {}
        self._refused: dict[tuple[str, str], None] = {}
        """Plural and name of objects of others, which name this server and which it may not write."""

    def start(self, kinds: Mapping[Any, Collection[str]], port: int) -> None:
        """Begin to watch, in threads of its own. `kinds`: which of the three, and the names of their objects that are
        this program's own, where they are known; `port`: tells these controllers from those of another server of the
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

    def renewed(self) -> None:
        """The authorities have changed: look at everything again."""
        for running in self._running:
            running.trigger_all()

    def why_not_ready(self) -> str:
        """Which object does not hold the present authorities yet; empty when all do. Does not block."""
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
                    return f"{running.store.resource.kind} {caller.name} does not hold the authority of this server yet"
        return ""

    def stop(self, timeout: float) -> None:
        """Watch no more, and take our authority out of every bundle that holds another one. Blocks, at most `timeout`
        seconds and `AT_THE_END`; what cannot be written stays, and expires."""
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
                log.info("%s %s holds the authority of this webhook server", api.resource.kind, obj.name)
            self._refused.pop((api.resource.plural, obj.name), None)
        except ApiError as error:
            if error.is_not_found:
                return Action.await_change()
            place = api.resource.plural, obj.name
            if error.is_forbidden and obj.name not in self._own.get(place[0], (obj.name,)):
                if place not in self._refused:
                    log.warning("%s %s names this webhook server and does not get its authority: %s", api.resource.kind,
                                obj.name, error)
                    self._refused[place] = None
                return Action.await_change()
            if error.is_conflict or error.is_invalid:  # as what is invalid a failed `test` is answered
                log.debug("%s %s has changed meanwhile: %s", api.resource.kind, obj.name, error)
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
            log.debug("%s %s keeps the authority of this webhook server: %s", resource.kind, caller.name, error)

    def _write(self, api: Any, caller: Caller, change: Callable[[bytes], bytes], timeout: float | None = None) -> bool:
        """Whether something was written. Raises ApiError for a conflict as well: then there is a newer one."""
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
