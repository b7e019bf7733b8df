"""A replica of examples/elected_replicas.py that tells, one JSON line each, what it does and when (CLOCK_BOOTTIME, the
same for all processes of a machine).

    python -m tests.manager.replica_program LEASE RENEW_DEADLINE RETRY

    seen      it has seen who leads             leads    it leads
    begin     a run begins                      end      a run ends
    attempt   a write has passed the check of the elected one's client, `left` seconds before the deadline
"""
from __future__ import annotations

import json
import logging
import os
import sys
import time
from typing import Any

from configmapgen_controller import ConfigMapGenerator, Generate, controller

from kubectl_runtime import Action, Client, Context, LeaderElection, Manager
from kubectl_runtime.client.http.middleware import Answer, Call, Send
from kubectl_runtime.core.base.threads import SYSTEM_CLOCK
from kubectl_runtime.errors import LeadershipLost


def say(event: str, **more: Any) -> None:
    line = json.dumps({"event": event, "at": SYSTEM_CLOCK.boottime(), "pid": os.getpid(), **more})
    os.write(1, f"{line}\n".encode())  # in one piece, also from several threads


def auditing(send: Send) -> Send:
    """The layer next to the connection, behind the check."""

    def audited(call: Call) -> Answer:
        if call.request.method != "GET":
            say("attempt", left=call.send_by - time.monotonic())
        return send(call)

    return audited


class AuditedContext:
    """The run's context, whose client is audited."""

    def __init__(self, ctx: Context[Any]) -> None:
        self._ctx = ctx
        self.client = ctx.client.with_layer(auditing)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ctx, name)


class AuditedGenerate(Generate):
    def reconcile(self, obj: ConfigMapGenerator, ctx: Context[None]) -> Action:
        say("begin", name=obj.name)
        ctx.record("Generated", "its child is as it should be")
        try:
            return super().reconcile(obj, AuditedContext(ctx))  # type: ignore[arg-type]
        finally:
            say("end", name=obj.name)


def main(lease: str, renew_deadline: str, retry: str) -> int:
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    election = LeaderElection(
        "replicas", "default", lease=int(lease), renew_deadline=float(renew_deadline), retry=float(retry),
        on_started=lambda: say("leads"), on_new_leader=lambda _: say("seen"))
    with Client.try_default() as client:
        try:
            Manager(client, leader=election, serve=None).add(controller(client), AuditedGenerate()).run()
        except LeadershipLost:
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
