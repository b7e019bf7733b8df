"""`WebhookSetup`: applies the configurations of a webhook server, and keeps them applied.

    fails                           logged, and tried again: after 1 s, doubling up to 30 s
    applied                         ready; the objects are watched
    deleted, or changed by others   logged; not ready until it is applied again: at once, and after 1 s, doubling up to
                                    30 s, if it happened within the last minute
    applied by another process      left alone: another version of the program is being rolled out
    with the same field manager
    a CA file that has changed      added; the file is looked at each minute

Where the authority is the server's own, `CaBundles` keeps it in the objects. What a webhook's class leaves to the
server's default is not compared: others may set it.
"""
from __future__ import annotations

import base64
import binascii
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from kubectl_runtime.certificates.bundles import certificates_in
from kubectl_runtime.client.api.api import Api
from kubectl_runtime.client.api.client import Client
from kubectl_runtime.core.base.guarded_log import guarded_logger, pass_interrupt
from kubectl_runtime.core.base.scope import CallScope, enter_scope, leave_scope
from kubectl_runtime.core.base.stop import StopToken
from kubectl_runtime.runtime.usercode import described
from kubectl_runtime.runtime.watcher.watcher import watch_object
from kubectl_runtime.runtime.webhooks.apply_webhooks import CLASSES, CONVERSION, apply_webhooks
from kubectl_runtime.webhooks.application import Application
from kubectl_runtime.webhooks.configurations import Object, Target, configurations

log = guarded_logger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
"""Seconds between two attempts, doubling."""
CALM = 60.0
"""Seconds without a change by others after which the next one is undone at once."""
LOOK = 60.0
"""Seconds between two looks at a CA in a file."""

Named = tuple[str, str]
"""The kind and name of an object."""


class WebhookSetup:
    """Applies the configurations of a server's webhooks, and keeps them. `run` is for one thread, the rest safe from
    any."""

    def __init__(self, client: Client, app: Application, name: str, *, service: str | None, url: str | None,
                 ca_bundle: Callable[[], bytes], follows: bool,
                 add_thread: Callable[[str, Callable[[], None]], None] | None = None) -> None:
        """As the arguments of `apply_webhooks`. `follows`: whether `ca_bundle` is to be looked at again. `add_thread`
        starts a thread, by its name, which ends soon after the token of `run` is set. Without it what others change
        is not noticed."""
        self._client, self._app, self._name = client, app, name
        self._service, self._url = service, url
        self._ca_bundle, self._follows, self._add_thread = ca_bundle, follows, add_thread
        self._change = threading.Lock()
        self._not_applied = f"the configurations called {name} are not applied yet"
        self._lacking: dict[Named, str] = {}
        """By object: what others have taken out of it."""
        self._applied_at: dict[Named, str] = {}
        """When our field manager last applied an object, as the answer to our own request says."""
        self._news = threading.Event()

    @property
    def why_not_ready(self) -> str:
        """Which configuration is not as it should be, for people; empty when all are."""
        with self._change:
            return self._not_applied or "; ".join(self._lacking.values())

    def run(self, end: StopToken) -> None:
        """Apply and keep them. Blocks until `end` is set, which ends a call under way as well, or until nothing is left
        to be kept."""
        entered = enter_scope(CallScope(end, end))
        forget = end.on_set(self._news.set)
        try:
            self._keep(end)
        finally:
            forget()
            leave_scope(entered)

    def _keep(self, end: StopToken) -> None:
        clock = self._client.clock
        pause, applied_at, watched = FIRST_PAUSE, -CALM, False
        while not end.is_set():
            bundle = self._ca_bundle()
            if not self._applied(bundle):
                end.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
                continue
            if self._add_thread is None and not self._follows:
                return
            if self._add_thread is not None and not watched:
                watched = True
                self._watch(end, self._add_thread)
            if clock.monotonic() - applied_at >= CALM:
                pause = FIRST_PAUSE
            applied_at = clock.monotonic()
            if self._await_news(bundle, end) and clock.monotonic() - applied_at < pause:
                end.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE)

    def _applied(self, bundle: bytes) -> bool:
        self._news.clear()
        with self._change:
            lacking, first = dict(self._lacking), bool(self._not_applied)
        try:
            found = apply_webhooks(self._client, self._app, self._name, service=self._service, url=self._url,
                                   ca_bundle=bundle, field_manager=self._name, force=True)
        except BaseException as error:  # noqa: BLE001 - whatever it is, it has to be logged, and may pass
            pass_interrupt(error)
            reason = f"the configurations called {self._name} are not applied: {described(error)}"
            with self._change:
                self._not_applied = reason
            log.warning("%s", reason)
            return False
        with self._change:
            self._not_applied = ""
            self._applied_at = {(one.api_resource.kind, one.name or ""): self._time_of(one.to_dict()) for one in found}
            self._lacking = {named: why for named, why in self._lacking.items() if lacking.get(named) != why}
        if first or not lacking:
            log.info("the configurations called %s are applied", self._name)
        for kind, name in lacking:
            log.info("%s %s is as it should be again", kind, name)
        return True

    def _await_news(self, bundle: bytes, end: StopToken) -> bool:
        """Block until something has to be applied again; whether others have changed it."""
        while not end.is_set():
            if self._news.wait(LOOK):
                return not end.is_set()
            if self._follows and self._ca_bundle() != bundle:
                return False
        return False

    # What others do

    def _watch(self, end: StopToken, add_thread: Callable[[str, Callable[[], None]], None]) -> None:
        target = Target.url(self._url) if self._url is not None else Target.service(self._service or "")
        for manifest in configurations(self._app, self._name, target):
            add_thread(f"webhooks {self._name} {manifest['kind']}", partial(self._follow, manifest, end))

    def _follow(self, manifest: Object, end: StopToken) -> None:
        name = manifest["metadata"]["name"]
        api: Any = Api.all(self._client, CLASSES[manifest["kind"]])
        for found in watch_object(api, name, stop=end, clock=self._client.clock):
            self._look(manifest, None if found is None else found.to_dict())

    def _look(self, manifest: Object, found: Object | None) -> None:
        named = manifest["kind"], manifest["metadata"]["name"]
        why = "was deleted" if found is None else self._difference(manifest, found)
        with self._change:
            before = self._lacking.pop(named, "")
            if why:
                self._lacking[named] = why = f"{named[0]} {named[1]} {why}"
        if why:
            if why != before:
                log.warning("%s; it is applied again", why)
            self._news.set()

    def _difference(self, manifest: Object, found: Object) -> str:
        """What others have changed; empty if nothing, or if another process applied it as we do."""
        named = manifest["kind"], manifest["metadata"]["name"]
        at = self._time_of(found)
        place = lacking({**manifest, "metadata": {}}, found, "")
        if not place and self._follows and not _holds(found, self._ca_bundle()):
            place = "caBundle"
        with self._change:
            is_another = at not in ("", self._applied_at.get(named, ""))
            if not place and at:
                self._applied_at[named] = at  # by another replica, for its authority
        return f"was changed by others at {place}" if place and not is_another else ""

    def _time_of(self, found: Object) -> str:
        """When our field manager last applied the object; empty when it owns nothing of it."""
        manager = f"{self._name}{CONVERSION}" if found["kind"] == "CustomResourceDefinition" else self._name
        times = [str(entry.get("time", "")) for entry in found["metadata"].get("managedFields") or ()
                 if entry.get("manager") == manager and entry.get("operation") == "Apply"]
        return max(times, default="")


def lacking(wanted: Any, found: Any, path: str) -> str:
    """The place of the first value in `wanted` that `found` does not have; empty when it has all of them. Further keys
    may be there, and further objects in lists of named ones.

    >>> lacking({"a": [{"name": "x", "b": 1}]}, {"a": [{"name": "y"}, {"name": "x", "b": 2, "c": 3}]}, "")
    'a.x.b'
    """
    if isinstance(wanted, dict):
        pairs = [(key, value, found.get(key) if isinstance(found, dict) else None) for key, value in wanted.items()]
    elif isinstance(wanted, list) and wanted and all(isinstance(one, dict) and "name" in one for one in wanted):
        there = {one.get("name"): one for one in found or () if isinstance(one, dict)}
        pairs = [(one["name"], one, there.get(one["name"])) for one in wanted]
    elif isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        pairs = [(str(index), *both) for index, both in enumerate(zip(wanted, found, strict=True))]
    else:
        return "" if wanted == found else path
    return next((place for key, one, other in pairs
                 if (place := lacking(one, other, f"{path}.{key}" if path else key))), "")


def _holds(found: Object, bundle: bytes) -> bool:
    """Whether each place of `found` that tells whom to call holds the authorities of `bundle`."""
    wanted = set(certificates_in(bundle))
    conversion = ((found.get("spec") or {}).get("conversion") or {}).get("webhook")
    for webhook in [conversion] if conversion else found.get("webhooks") or ():
        try:
            there = base64.b64decode((webhook.get("clientConfig") or {}).get("caBundle") or "")
        except (binascii.Error, ValueError):
            return False
        if not wanted <= set(certificates_in(there)):
            return False
    return True
