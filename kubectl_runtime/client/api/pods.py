"""The verbs of a running Pod: logs, exec, attach, port-forward, eviction, ephemeral containers, resize.

exec, attach and port-forward open a websocket with its own thread (see client/streaming). The websocket lasts until it
is closed, `stop` is set, or the client is closed; `timeout` applies only to opening it. The verbs raise like the other
verbs of `Api`. They also raise RequestError for contradictory options, and TransportError if the server opens no
websocket.
"""
from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from kubectl_runtime.client.api.api_base import accepted
from kubectl_runtime.client.api.subresources import Subresources
from kubectl_runtime.client.http.retry import is_web_page, no_api_server
from kubectl_runtime.core.base.errors import ApiError
from kubectl_runtime.core.base.threads import Duration, period_of
from kubectl_runtime.core.requests import pods as build
from kubectl_runtime.core.requests import request as requests
from kubectl_runtime.core.requests.params import (
    DeleteParams,
    FieldValidation,
    Patch,
    PatchParams,
    PostParams,
    Preconditions,
    Propagation,
    chosen,
    chosen_of_said,
)
from kubectl_runtime.core.requests.pods import AttachParams, LogParams
from kubectl_runtime.core.requests.request import Named, Request
from kubectl_runtime.core.scope import StopToken

if TYPE_CHECKING:
    from kubectl_runtime.client.streaming.forwarding import LocalPort, PortForward
    from kubectl_runtime.client.streaming.logs import LogStream
    from kubectl_runtime.client.streaming.process import AttachedProcess, Channels

K = TypeVar("K")

_EPHEMERAL = "ephemeralcontainers"


class PodVerbs(Subresources[K]):
    """The verbs of `Api` for a running Pod: logs, exec, attach, port-forward, evict."""

    __slots__ = ()

    def logs(self, name: Named, params: LogParams | None = None, *, container: str | None = None,
             tail_lines: int | None = None, since_seconds: Duration | None = None, since_time: datetime | None = None,
             previous: bool = False, timestamps: bool = False, limit_bytes: int | None = None,
             timeout: Duration | None = None) -> bytes:
        """A container's log up to now, as bytes, because a log may contain bytes that are not text. See `LogParams`."""
        params = chosen(params, LogParams, container=container, tail_lines=tail_lines, since_seconds=since_seconds,
                        since_time=since_time, previous=previous, timestamps=timestamps, limit_bytes=limit_bytes)
        return self._answered(build.log(self.place, name, params), bytes, timeout)

    def log_stream(self, name: Named, params: LogParams | None = None, *, container: str | None = None,
                   tail_lines: int | None = None, since_seconds: Duration | None = None,
                   since_time: datetime | None = None, previous: bool = False, timestamps: bool = False,
                   limit_bytes: int | None = None, follow: bool = True, stop: StopToken | None = None,
                   timeout: Duration | None = None) -> LogStream:
        """A container's log as it arrives: `with api.log_stream("web") as log: for line in log.lines(): …`.

        With `follow=True` the stream stays open until the container ends or `stop` is set. Blocks until the stream is
        open.
        """
        from kubectl_runtime.client.streaming.logs import LogStream  # few programs need it

        params = chosen(params, LogParams, container=container, tail_lines=tail_lines, since_seconds=since_seconds,
                        since_time=since_time, previous=previous, timestamps=timestamps, limit_bytes=limit_bytes)
        request = build.log(self.place, name, params, follow=follow)
        try:
            stream = self.client.stream(request, stop=stop, deadline=self._deadline(timeout))
        except ApiError as error:
            raise self._explained(request, error) from None
        if is_web_page(stream.headers):
            with stream:
                page = next(iter(stream.chunks()), b"")
            raise no_api_server(request, stream.status, stream.headers, page)
        return LogStream(stream)

    def exec(self, name: Named, command: Sequence[str], params: AttachParams | None = None, *,
             container: str | None = None, stdin: bool | None = None, stdout: bool | None = None,
             stderr: bool | None = None, tty: bool | None = None, stop: StopToken | None = None,
             timeout: Duration | None = None) -> AttachedProcess:
        """Run `command`, a program and its arguments, in a container: `api.exec("web", ["ls", "/"]).run()`.

        stdout and stderr are attached unless they are turned off; stdin is attached only with `stdin=True`. With
        `tty=True` (a terminal) there is no separate stderr. Closing the session does not end the process, unless the
        process reacts to the end of its streams.
        """
        held = _held(params, container, stdin, stdout, stderr, tty)
        return self._attached(build.exec_(self.place, name, command, held), held, stop, timeout)

    def attach(self, name: Named, params: AttachParams | None = None, *, container: str | None = None,
               stdin: bool | None = None, stdout: bool | None = None, stderr: bool | None = None,
               tty: bool | None = None, stop: StopToken | None = None,
               timeout: Duration | None = None) -> AttachedProcess:
        """Attach to the streams of a container's main process. Arguments, blocking and errors as for `exec`."""
        held = _held(params, container, stdin, stdout, stderr, tty)
        return self._attached(build.attach(self.place, name, held), held, stop, timeout)

    def portforward(self, name: Named, ports: Sequence[int], *, stop: StopToken | None = None,
                    timeout: Duration | None = None) -> PortForward:
        """Open connections to 1 to 128 ports of a Pod: `api.portforward("web", [80]).socket(80)` is the connection to
        port 80."""
        from kubectl_runtime.client.streaming.forwarding import PortChannels, PortForward
        from kubectl_runtime.client.streaming.process import V4

        request = build.port_forward(self.place, name, ports)
        return PortForward(self._channels(request, PortChannels(ports), (V4,), stop, timeout), ports)

    def portforward_local(self, name: Named, port: int, *, local_port: int = 0, host: str = "127.0.0.1",
                          stop: StopToken | None = None, timeout: Duration | None = None) -> LocalPort:
        """Listen on a local port, by default any free one, and forward each connection to `port` of the Pod:
        `with api.portforward_local("db-0", 5432) as local: connect("127.0.0.1", local.port)`.

        Blocks until the Pod has accepted a first connection, at most `timeout`, which also applies to each later
        connection. Raises OSError if the local port is in use.
        """
        from kubectl_runtime.client.streaming.forwarding import LocalPort

        return LocalPort(lambda: self.portforward(name, [port], stop=stop, timeout=timeout), port, host=host,
                         port=local_port)

    def evict(self, name: Named, params: DeleteParams | None = None, *, propagation_policy: Propagation | None = None,
              grace_period_seconds: int | None = None, preconditions: Preconditions | None = None,
              dry_run: bool = False, timeout: Duration | None = None) -> None:
        """Evict a Pod. Raises ApiError with code 429 while a disruption budget forbids it; `kubectl.drain` waits and
        retries.

        The server answers when the deletion of the Pod has begun; the Pod exists until its grace period has passed.
        """
        params = self._write_params(params, DeleteParams, propagation_policy=propagation_policy,
                                    preconditions=preconditions, grace_period_seconds=grace_period_seconds,
                                    dry_run=dry_run)
        self._answered(build.eviction(self.place, name, params), accepted, timeout)

    def get_ephemeral_containers(self, name: Named, *, timeout: Duration | None = None) -> K:
        """The Pod, read through its ephemeralcontainers subresource."""
        return self._ask(requests.get(self.place, name, subresource=_EPHEMERAL), timeout)

    def replace_ephemeral_containers(self, body: Any, params: PostParams | None = None, *,
                                     field_manager: str | None = None, field_validation: FieldValidation | None = None,
                                     dry_run: bool = False, timeout: Duration | None = None) -> K:
        """Replace the list of ephemeral containers of a Pod; the server allows only additions, and ignores the rest of
        `body`."""
        params = self._write_params(params, PostParams, field_manager=field_manager, field_validation=field_validation,
                                    dry_run=dry_run)
        return self._ask(requests.replace(self.place, body, params, subresource=_EPHEMERAL), timeout)

    def patch_ephemeral_containers(self, name: Named, patch: Patch, params: PatchParams | None = None, *,
                                   field_manager: str | None = None, field_validation: FieldValidation | None = None,
                                   dry_run: bool = False, force: bool = False, timeout: Duration | None = None) -> K:
        """Patch the list of ephemeral containers: `Patch.strategic({"spec": {"ephemeralContainers": [...]}})`."""
        params = self._write_params(params, PatchParams, field_manager=field_manager, field_validation=field_validation,
                                    dry_run=dry_run, force=force)
        return self._ask(requests.patch(self.place, name, patch, params, subresource=_EPHEMERAL), timeout)

    def get_resize(self, name: Named, *, timeout: Duration | None = None) -> K:
        """The Pod, read through its resize subresource (Kubernetes 1.33)."""
        return self._ask(requests.get(self.place, name, subresource="resize"), timeout)

    def replace_resize(self, body: Any, params: PostParams | None = None, *, field_manager: str | None = None,
                       field_validation: FieldValidation | None = None, dry_run: bool = False,
                       timeout: Duration | None = None) -> K:
        """Change the resources of running containers; the server ignores the rest of `body`, a Pod."""
        params = self._write_params(params, PostParams, field_manager=field_manager, field_validation=field_validation,
                                    dry_run=dry_run)
        return self._ask(requests.replace(self.place, body, params, subresource="resize"), timeout)

    def patch_resize(self, name: Named, patch: Patch, params: PatchParams | None = None, *,
                     field_manager: str | None = None, field_validation: FieldValidation | None = None,
                     dry_run: bool = False, force: bool = False, timeout: Duration | None = None) -> K:
        """Patch the resources of running containers."""
        params = self._write_params(params, PatchParams, field_manager=field_manager, field_validation=field_validation,
                                    dry_run=dry_run, force=force)
        return self._ask(requests.patch(self.place, name, patch, params, subresource="resize"), timeout)

    def _attached(self, request: Request, held: AttachParams, stop: StopToken | None,
                  timeout: Duration | None) -> AttachedProcess:
        from kubectl_runtime.client.streaming.process import V4, V5, AttachedProcess, Channels

        return AttachedProcess(self._channels(request, Channels(), (V5, V4), stop, timeout), held)

    def _channels(self, request: Request, channels: Channels, protocols: Sequence[str], stop: StopToken | None,
                  timeout: Duration | None) -> Channels:
        deadline = self._deadline(timeout)
        try:
            channels.carried_by(self.client.connect(request, protocols, inbox=channels, stop=stop, deadline=deadline))
        except ApiError as error:
            raise self._explained(request, error) from None
        return channels

    def _deadline(self, timeout: Duration | None) -> float | None:
        return None if timeout is None else self.client.clock.monotonic() + period_of("timeout", timeout)


def _held(params: AttachParams | None, container: str | None, stdin: bool | None, stdout: bool | None,
          stderr: bool | None, tty: bool | None) -> AttachParams:
    return chosen_of_said(params, AttachParams, {"container": container, "stdin": stdin, "stdout": stdout,
                                                 "stderr": stderr, "tty": tty})
