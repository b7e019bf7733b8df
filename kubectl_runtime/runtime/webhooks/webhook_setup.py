"""`WebhookSetup`: applies the configurations of a webhook server, until it has worked, and again when its CA changes.

    fails       told, and tried again: after 1 s, doubling up to 30 s
    applied     ready; where the authority is the server's own, `CaBundles` keeps it from now on
                where it is a file, that is looked at each minute, and another one is added
"""
from __future__ import annotations

from collections.abc import Callable

from kubectl_runtime.client.api.client import Client
from kubectl_runtime.core.base.guarded_log import guarded_logger, pass_interrupt
from kubectl_runtime.core.base.scope import CallScope, enter_scope, leave_scope
from kubectl_runtime.core.base.stop import StopToken
from kubectl_runtime.runtime.usercode import described
from kubectl_runtime.runtime.webhooks.apply_webhooks import apply_webhooks
from kubectl_runtime.webhooks.application import Application

log = guarded_logger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
"""Seconds between two attempts, doubling."""
LOOK = 60.0
"""Seconds between two looks at a CA in a file."""


class WebhookSetup:
    """Applies the configurations of a server's webhooks. `run` is for one thread, the rest safe from any."""

    def __init__(self, client: Client, app: Application, name: str, *, service: str | None, url: str | None,
                 ca_bundle: Callable[[], bytes], follows: bool) -> None:
        """As the arguments of `apply_webhooks`. `follows`: whether `ca_bundle` is to be looked at again."""
        self.why_not_ready = f"the configurations called {name} are not applied yet"
        """For people; empty when they are."""
        self._client, self._app, self._name = client, app, name
        self._service, self._url = service, url
        self._ca_bundle, self._follows = ca_bundle, follows

    def run(self, end: StopToken) -> None:
        """Block until nothing is left to be done, or `end` is set, which ends a call under way as well."""
        entered = enter_scope(CallScope(end, end))
        try:
            pause = FIRST_PAUSE
            while not end.is_set():
                bundle = self._ca_bundle()
                if self._applied(bundle):
                    if not self._follows:
                        return
                    pause = FIRST_PAUSE
                    self._await_another(bundle, end)
                else:
                    end.wait(pause)
                    pause = min(2 * pause, LONGEST_PAUSE)
        finally:
            leave_scope(entered)

    def _applied(self, bundle: bytes) -> bool:
        try:
            apply_webhooks(self._client, self._app, self._name, service=self._service, url=self._url, ca_bundle=bundle,
                           field_manager=self._name, force=True)
        except BaseException as error:  # noqa: BLE001 - whatever it is, it has to be told, and may pass
            pass_interrupt(error)
            self.why_not_ready = f"the configurations called {self._name} are not applied: {described(error)}"
            log.warning("%s", self.why_not_ready)
            return False
        self.why_not_ready = ""
        log.info("the configurations called %s are applied", self._name)
        return True

    def _await_another(self, bundle: bytes, end: StopToken) -> None:
        while not end.wait(LOOK):
            if self._ca_bundle() != bundle:
                return
