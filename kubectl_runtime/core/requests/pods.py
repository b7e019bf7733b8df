"""The requests of a Pod's subresources: log, exec, attach, port-forward. Pure functions, no I/O.

Requests of exec, attach and port-forward are GETs for a websocket; the client adds the handshake's headers.
"""
from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import force_setattr

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.threads import Duration, seconds
from kubectl_runtime.core.meta.metav1 import format_time
from kubectl_runtime.core.requests.params import DeleteParams, check_flag, check_flags
from kubectl_runtime.core.requests.request import Named, Place, Request, Retry, create, object_name

MOST_PORTS = 128
"""The maximum number of ports in one port-forward (as in kube-rs): each uses two of a websocket's 256 channels."""

Query = Iterator[tuple[str, str]]


class LogParams(msgspec.Struct, frozen=True, kw_only=True):
    r"""Which part of a container's log to read; by default the whole log of the Pod's only (or default) container.

    `tail_lines`: only the last `tail_lines` lines. `since_seconds`: only lines of the last `since_seconds` seconds.
    `since_time`: only lines since an aware datetime; servers use whole seconds. `previous`: the log of the
    container's previous instance. `timestamps`: each line begins with its time. `limit_bytes`: at most that many bytes,
    even if that cuts a line. Raises RequestError for contradictory options.

    >>> server.kubelet.logs("web-0", "one\ntwo\nthree\n")
    <...>
    >>> print(Api.namespaced(client, Pod, "default").logs("web-0", LogParams(tail_lines=1)).decode(), end="")
    three
    """

    container: str | None = None
    tail_lines: int | None = None
    since_seconds: Duration | None = None
    since_time: datetime | None = None
    previous: bool = False
    timestamps: bool = False
    limit_bytes: int | None = None

    def __post_init__(self) -> None:
        check_flags(self, "previous", "timestamps")
        _check_count("tail_lines", self.tail_lines, 0)
        _check_count("limit_bytes", self.limit_bytes, 1)
        if self.since_seconds is not None and self.since_time is not None:
            raise RequestError("since_seconds= and since_time= are both given: a log begins at one moment")
        if self.since_seconds is not None and seconds(self.since_seconds) <= 0:
            raise RequestError(f"since_seconds={self.since_seconds}: a time above 0 is expected")
        if self.since_time is not None and self.since_time.tzinfo is None:
            raise RequestError("since_time= has no time zone: an aware datetime is expected")

    def query(self) -> Query:
        """The parameters of the request, as the API server names them."""
        if self.container is not None:
            yield "container", self.container
        if self.tail_lines is not None:
            yield "tailLines", str(self.tail_lines)
        if self.since_seconds is not None:
            yield "sinceSeconds", str(max(1, round(seconds(self.since_seconds))))
        if self.since_time is not None:
            yield "sinceTime", format_time(self.since_time)
        if self.previous:
            yield "previous", "true"
        if self.timestamps:
            yield "timestamps", "true"
        if self.limit_bytes is not None:
            yield "limitBytes", str(self.limit_bytes)


class AttachParams(msgspec.Struct, frozen=True, kw_only=True):
    """The streams of a container's process to attach to. A terminal (`tty`) has no separate stderr: what
    the process writes to stderr arrives as stdout.

    By default stderr is attached, except with a terminal. Raises RequestError if no stream is attached, and for a
    terminal with stderr.

    >>> AttachParams(stdin=True, tty=True).stderr
    False
    """

    container: str | None = None
    stdin: bool = False
    stdout: bool = True
    stderr: bool | None = None
    tty: bool = False

    def __post_init__(self) -> None:
        check_flags(self, "stdin", "stdout", "tty", *(("stderr",) if self.stderr is not None else ()))
        if self.tty and self.stderr:
            raise RequestError("tty=True and stderr=True: a terminal sends stderr as part of stdout, so stderr must be "
                               "off")
        force_setattr(self, "stderr", not self.tty if self.stderr is None else self.stderr)
        if not (self.stdin or self.stdout or self.stderr):
            raise RequestError("neither stdin, stdout nor stderr is requested: nothing would be attached")

    def query(self) -> Query:
        """The parameters of the request, as the API server names them."""
        if self.container is not None:
            yield "container", self.container
        for name in ("stdin", "stdout", "stderr", "tty"):
            if getattr(self, name):
                yield name, "true"


def log(place: Place, name: Named, params: LogParams, *, follow: bool = False) -> Request:
    """The request that reads a container's log; with `follow` the answer ends only when the container ends."""
    check_flag("follow", follow)
    query = params.query()
    return _of_pod(place, name, "log", "logs", (*query, ("follow", "true")) if follow else query, None)


def exec_(place: Place, name: Named, command: Sequence[str], params: AttachParams) -> Request:
    """The request that runs a command in a container: a program and its arguments, without a shell."""
    if isinstance(command, str) or not command or not all(isinstance(part, str) for part in command):
        raise RequestError(f"{place.words('exec', name)}: the command must be a list, a program and its arguments, "
                           "such as ['sh', '-c', 'echo hello']")
    return _of_pod(place, name, "exec", "exec", (*(("command", part) for part in command), *params.query()))


def attach(place: Place, name: Named, params: AttachParams) -> Request:
    """The request that attaches to the streams of a container's main process."""
    return _of_pod(place, name, "attach", "attach", params.query())


def port_forward(place: Place, name: Named, ports: Sequence[int]) -> Request:
    """The request that connects to ports of a Pod."""
    operation = place.words("port-forward", name)
    if isinstance(ports, str | bytes) or not isinstance(ports, Collection) or not 1 <= len(ports) <= MOST_PORTS:
        raise RequestError(f"{operation}: 1 to {MOST_PORTS} ports are expected, as in [80], not {ports!r}")
    wrong: list[Any] = [port for port in ports if type(port) is not int or not 0 < port < 1 << 16]
    if wrong:
        raise RequestError(f"{operation}: {wrong[0]!r} is not a port: a number from 1 to 65535 is expected")
    if len(set(ports)) < len(ports):
        raise RequestError(f"{operation}: a port occurs twice in {list(ports)}; for a second connection to it, use "
                           "a second port-forward")
    return _of_pod(place, name, "portforward", "port-forward", (("ports", str(port)) for port in ports))


def eviction(place: Place, name: Named, params: DeleteParams) -> Request:
    """The request that deletes a Pod if the disruption budgets allow it. The options are sent only in the body."""
    named = object_name(place, name)
    body: dict[str, Any] = {"apiVersion": "policy/v1", "kind": "Eviction",
                            "metadata": {"name": named, "namespace": place.namespace}}
    if options := params.body():
        body["deleteOptions"] = options
    return create(place, body, name=named, subresource="eviction")


def _of_pod(place: Place, name: Named, subresource: str, verb: str, query: Iterable[tuple[str, str]],
            retry: Retry | None = Retry.UNSENT_ONLY) -> Request:
    try:
        named = object_name(place, name)
        path = place.path(named, subresource)
    except RequestError as error:
        raise RequestError(f"{place.words(verb, name, subresource)}: {error}") from None
    if place.namespace is None and place.resource.namespaced:
        raise RequestError(f"{place.words(verb, named, subresource)}: a namespace is required: "
                           "use Api.namespaced(client, kind, namespace)")
    return Request("GET", path, verb, place.resource, "", place.namespace, named, tuple(query), (("Accept", "*/*"),),
                   None, retry, subresource)


def _check_count(name: str, value: object, least: int) -> None:
    if value is not None and (type(value) is not int or value < least):
        raise RequestError(f"{name}={value!r}: a whole number from {least} up is expected")
