"""The planned program, and the guard that refuses the program's access to everything except the simulated cluster.

The controllers that `build` returns run with their reconcilers, without an election and shards. The simulated server
calls the program's webhooks in process, under the addresses by which the cluster calls them. Functions of a Manager and
trigger sources that need a thread do not run. The kinds that the controllers watch and declare to read are known before
the program runs; other kinds that the program reads are found while it runs (see `snapshot`).

The guard refuses:

- connections, host look-ups and bound sockets
- subprocesses, forks, and `os.exec`
- writing files outside of the temporary folder
- reading files outside of the temporary folder, except for Python, installed packages and source files; while `build`
  runs, the program may read all files, such as its configuration

Python raises an audit event for each of these operations, even if the C function is called directly, and a hook refuses
the operation by raising an exception. When multiprocessing starts a process, Python raises no event, so the guard
replaces the function that starts the process. Extension modules that open connections on their own (libpq, gRPC) raise
no events, so a hook cannot refuse these connections. Hooks cannot be removed, so the process has one hook for all
plans. During a plan the hook checks the plan's thread and all threads that were started since the plan began. Threads
that a planned program started are checked until they end, also after the plan.
"""
from __future__ import annotations

import os
import sys
import sysconfig
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

import kubectl_runtime
from kubectl_runtime.client.api.client import Client
from kubectl_runtime.core.base.errors import KubeError
from kubectl_runtime.core.meta.gvk import ApiResource, api_resource_of
from kubectl_runtime.crd.conversion import Conversion
from kubectl_runtime.crd.customresource import definitions_of
from kubectl_runtime.manager.manager import Manager
from kubectl_runtime.manifests.scalars import ManifestError
from kubectl_runtime.runtime.controller.controller import BoundController
from kubectl_runtime.runtime.controller.plan import Plan, WatchPlan
from kubectl_runtime.runtime.watch.states import namespaces_of, places_of
from kubectl_runtime.testing.lab.world import controllers_of, kinds_of
from kubectl_runtime.webhooks.answering import Application
from kubectl_runtime.webhooks.server import WebhookServer

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

Object = dict[str, Any]


@dataclass(frozen=True)
class Program:
    """The planned program: the result of `build`."""

    made: BoundController[Any] | Manager
    controllers: tuple[BoundController[Any], ...]
    webhooks: tuple[WebhookServer, ...]

    @classmethod
    def built(cls, build: Callable[[Client], Any], client: Client) -> Program:
        """Call `build` and return its result as a Program. Raises what `build` raises, and TypeError or ValueError for
        an invalid result."""
        made = build(client)
        bound = controllers_of(made, client.config.cluster_url)
        servers = made.servers if isinstance(made, Manager) else ()
        return cls(made, tuple(bound), tuple(server for server in servers if isinstance(server, WebhookServer)))

    def plans(self) -> list[Plan]:
        """The controllers' plans: what each controller watches and runs."""
        return [one.controller.plan() for one in self.controllers]

    def definitions(self) -> list[Object]:
        """The CRDs of the kinds that the program's controllers watch, and of the kinds that its webhooks convert."""
        classes = dict.fromkeys(kinds_of([*self.controllers]))
        for server in self.webhooks:
            for handler in server.app.handlers.values() if isinstance(server.app, Application) else ():
                classes |= dict.fromkeys(handler.classes if isinstance(handler, Conversion) else ())
        return [msgspec.to_builtins(made) for made in definitions_of(classes)]

    def watched(self) -> list[tuple[ApiResource, tuple[str, ...] | None]]:
        """The kinds that the controllers watch or declare to read, each with the namespaces (None: all namespaces)."""
        found: dict[str, tuple[ApiResource, set[str] | None]] = {}
        for resource, namespace in self._declared():
            known = found.get(resource.full_name)
            if namespace is None or (known is not None and known[1] is None):
                found[resource.full_name] = resource, None
            else:
                places = (known[1] if known is not None else None) or set()
                found[resource.full_name] = (known[0] if known is not None else resource), {*places, namespace}
        return [(resource, None if places is None else tuple(sorted(places))) for resource, places in found.values()]

    @staticmethod
    def watched_by(plan: Plan) -> list[ApiResource]:
        """The kinds that a controller watches or declares to read."""
        return [*(resource for watch in (plan.main, *plan.related) if isinstance(watch, WatchPlan)
                  for resource, _ in places_of(watch.api)), *map(api_resource_of, plan.reads)]

    def _declared(self) -> Iterator[tuple[ApiResource, str | None]]:
        for plan in self.plans():
            for watch in (plan.main, *plan.related):
                if isinstance(watch, WatchPlan):
                    yield from places_of(watch.api)
            own = namespaces_of(plan.main.api) if isinstance(plan.main, WatchPlan) else frozenset()
            for resource in map(api_resource_of, plan.reads):
                for namespace in own if own and resource.namespaced else (None,):
                    yield resource, namespace

    def namespaces(self) -> tuple[str, ...] | None:
        """The namespaces in which the program watches; None if it watches a kind in all namespaces."""
        found: set[str] = set()
        for resource, namespaces in self.watched():
            if namespaces is None and resource.namespaced:
                return None
            found |= set(namespaces or ())
        return tuple(sorted(found)) or None

    def not_run(self) -> list[str]:
        """The parts of the program that do not run, as text."""
        found = [f"the function {name} of its Manager" for name in
                 (self.made.runnables() if isinstance(self.made, Manager) else ())]
        return found + [f"the trigger sources of controller {plan.name}" for plan in self.plans()
                        if plan.triggers or plan.bulk_triggers]

    def prefixes(self, configurations: list[Object]) -> dict[str, WebhookServer]:
        """The URLs by which the cluster calls the program's webhooks, each with its server. If a server has neither
        `service` nor `url`, the URLs are taken from the cluster's configurations and definitions that call one of the
        server's paths."""
        found: dict[str, WebhookServer] = {}
        for server in self.webhooks:
            if server.service:
                namespace, _, name = server.service.partition("/")
                found[f"https://{name.partition(':')[0]}.{namespace}.svc"] = server
            if server.url:
                found[server.url.rstrip("/")] = server
            if server.service or server.url or not isinstance(server.app, Application):
                continue
            for config in _client_configs(configurations):
                prefix, path = _called(config)
                if any(path == mount or path.startswith(f"{mount.rstrip('/')}/") for mount in server.app.handlers):
                    found.setdefault(prefix, server)
        return found


def addresses(configuration: Object) -> list[str]:
    """The URLs, without paths, that a webhook configuration calls."""
    return [*dict.fromkeys(prefix for config in _client_configs([configuration])
                           if (prefix := _called(config)[0]).startswith("https://") and prefix != "https://")]


def allow_all(environ: WSGIEnvironment, start_response: StartResponse) -> list[bytes]:
    """A WSGI application that replaces a missing webhook: it allows every request and changes nothing."""
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    review = msgspec.json.decode(body)
    answer = {"apiVersion": review.get("apiVersion"), "kind": review.get("kind"),
              "response": {"uid": review["request"]["uid"], "allowed": True}}
    start_response("200 OK", [("Content-Type", "application/json")])
    return [msgspec.json.encode(answer)]


def _client_configs(objects: list[Object]) -> Iterator[Object]:
    for obj in objects:
        for hook in obj.get("webhooks") or ():
            yield hook.get("clientConfig") or {}
        webhook = (((obj.get("spec") or {}).get("conversion") or {}).get("webhook")) or {} \
            if obj.get("kind") == "CustomResourceDefinition" else {}
        if webhook.get("clientConfig"):
            yield webhook["clientConfig"]


def _called(config: Object) -> tuple[str, str]:
    """The URL, without the path, and the path that a clientConfig calls."""
    if service := config.get("service"):
        return f"https://{service.get('name')}.{service.get('namespace')}.svc", service.get("path") or "/"
    parts = urlsplit(config.get("url") or "")
    return f"{parts.scheme}://{parts.netloc}", parts.path or "/"


_WRITING = {"os.remove": 1, "os.rmdir": 1, "os.mkdir": 1, "os.truncate": 1, "os.chmod": 1, "os.chown": 1,
            "os.utime": 1, "os.rename": 2, "os.link": 2, "os.symlink": 2, "shutil.rmtree": 1, "shutil.move": 2}
"""Audit events that change files, and how many of their arguments are paths."""
_HOSTS = {"socket.getaddrinfo": 2, "socket.gethostbyname": 1, "socket.gethostbyaddr": 1}
_SOCKETS = {"socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg"}
_PROCESSES = {"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty",
              "pty.spawn"}
_SIGNALS = {"os.kill", "os.killpg"}
_LOOKED_AT = {"open", "sqlite3.connect", *_HOSTS, *_SOCKETS, *_PROCESSES, *_SIGNALS, *_WRITING}
_WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CODE = (".py", ".pyc", ".so", ".pyd", ".pth")
_DEVICES = ("/dev/null", "/dev/urandom", "/dev/random", "/dev/zero")
_PACKAGE = str(Path(kubectl_runtime.__file__).parent)
_LIBRARIES = tuple({os.path.realpath(path) + os.sep for path in (
    *sysconfig.get_paths().values(), *(entry for entry in sys.path if "-packages" in entry), _PACKAGE,
    "/usr/share/zoneinfo") if path})


def named(obj: Object, place: str) -> tuple[Object, str]:
    """Return the arguments unchanged. Raises ManifestError if the object lacks apiVersion, kind or a name."""
    metadata = obj.get("metadata")
    for key, inside in (("apiVersion", obj), ("kind", obj), ("name", metadata)):
        if not isinstance(inside, Mapping) or not isinstance(value := inside.get(key), str) or not value:
            raise ManifestError(place, f"{'metadata.name' if inside is metadata else key} must be a non-empty text")
    return obj, place


def with_other_versions(definition: Object, live: Object) -> tuple[Object, list[str]]:
    """Copy the versions that only the cluster's CRD has into the CRD that was made from classes. Returns the CRD and
    the names of the added versions that are served. A version without a class is kept, since an upgrade does not
    necessarily remove it."""
    versions = definition["spec"]["versions"]
    own = {version["name"] for version in versions}
    others = [version for version in live["spec"].get("versions") or () if version["name"] not in own]
    if not others:
        return definition, []
    stored = any(version.get("storage") for version in versions)
    kept = [{**version, "storage": bool(version.get("storage")) and not stored} for version in others]
    return ({**definition, "spec": {**definition["spec"], "versions": [*versions, *kept]}},
            [version["name"] for version in others if version.get("served")])


class OutsideRefused(KubeError):
    """A planned program tried to open a socket or a file, or to start a process; the attempt was refused.

    `address` is the refused target: `db.example.com:5432`, `/etc/app/token`, `the program git`.

    >>> OutsideRefused("db.example.com:5432").address
    'db.example.com:5432'
    """

    def __init__(self, address: str) -> None:
        super().__init__(f"a plan may not reach {address}, which is outside of the cluster: outside= (on the command "
                         "line --outside MODULE:NAME) names a function that replaces it")
        self.address = address


Refused = Callable[[str, str], object]
"""Called for each refused attempt, with the address and the line of the user's code that made the attempt."""


class _Guard:
    def __init__(self, refused: Refused, folders: tuple[str, ...], jailed: Iterable[threading.Thread]) -> None:
        self.refused = refused
        self.building = True
        self.folders = folders
        self.started: list[threading.Thread] = []
        """The threads that the program has started."""
        self._others = {*threading.enumerate()} - {threading.current_thread(), *jailed}
        self._looking: set[int] = set()
        """Threads in which the guard is handling an event. Files that the guard itself opens there are not checked."""

    def look(self, event: str, args: tuple[Any, ...]) -> None:
        if event not in _LOOKED_AT:
            return
        thread = threading.get_ident()
        if thread in self._looking or _is_one_of(self._others, thread):
            return
        self._looking.add(thread)
        try:
            address = self._address(event, args)
            if address is None:
                return
            self.refused(address, users_line(sys._getframe(2)))
        finally:
            self._looking.discard(thread)
        raise OutsideRefused(address)

    def begins(self, thread: threading.Thread) -> None:
        if not _is_one_of(self._others, threading.get_ident()):
            self.started.append(thread)

    def _address(self, event: str, args: tuple[Any, ...]) -> str | None:
        if event == "open":
            return self._file(args[0], args[1], args[2])
        if event in _HOSTS:
            found = [part.decode("utf-8", "replace") if isinstance(part, bytes) else str(part)
                     for part in args[:_HOSTS[event]] if part not in (None, "", 0)]
            return ":".join(found)
        if event in _SOCKETS:
            return _socket_address(args)
        if event in _PROCESSES:
            return f"the program {_program(args)}" if args else "a process of its own"
        if event in _SIGNALS:
            return f"the process {args[0]}"
        if event in _WRITING:
            outside = [path for path in map(_text, args[:_WRITING[event]]) if path and not self._is_inside(path)]
            return outside[0] if outside else None
        if event == "sqlite3.connect":
            path = _text(args[0]) or ""
            return None if path in ("", ":memory:") or path.startswith("file::memory:") or self._is_inside(path) \
                else path
        return None

    def _file(self, path: Any, mode: Any, flags: Any) -> str | None:
        text = _text(path)
        if not text or text in _DEVICES or self._is_inside(text) or "__pycache__" in text:
            return None
        writes = any(letter in mode for letter in "wax+") if isinstance(mode, str) else bool(
            isinstance(flags, int) and flags & _WRITE_FLAGS)
        if writes:
            return text
        if self.building or text.endswith(_CODE):
            return None
        return None if os.path.realpath(text).startswith(_LIBRARIES) else text

    def _is_inside(self, path: str) -> bool:
        return (os.path.realpath(path) + os.sep).startswith(self.folders)


def _is_one_of(threads: Iterable[threading.Thread], ident: int) -> bool:
    """Whether a thread of `threads` that is alive has this identifier. Ended threads are ignored, since their
    identifiers may be used again."""
    return any(one.ident == ident and one.is_alive() for one in threads)


def _text(path: Any) -> str | None:
    if isinstance(path, int) or path is None:
        return None
    try:
        return os.fsdecode(path)
    except TypeError:
        return str(path)


def _socket_address(args: tuple[Any, ...]) -> str:
    address = args[1] if len(args) > 1 else None
    if isinstance(address, tuple) and len(address) >= 2:
        return f"{address[0]}:{address[1]}"
    return os.fsdecode(address) if isinstance(address, str | bytes) else "a socket"


def _program(args: tuple[Any, ...]) -> str:
    """The name of the program that is started. Arguments are left out, since they may contain passwords."""
    first = args[0]
    if isinstance(first, list | tuple):
        first = first[0] if first else ""
    text = (_text(first) or "").strip()
    return text.split()[0] if text else "of a shell"


def users_line(frame: FrameType | None) -> str:
    """The innermost frame of the user's code, as `file.py:12 in function`. Python, installed packages and this library
    are not the user's code. If there is no frame of the user's code, the innermost frame of an installed package."""
    installed = ""
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(("<", _PACKAGE)):
            if not os.path.realpath(name).startswith(_LIBRARIES):
                return _line(name, frame.f_lineno, frame.f_code.co_name)
            if "-packages" in name and not installed:
                installed = _line(name, frame.f_lineno, frame.f_code.co_name)
        frame = frame.f_back
    return installed


def error_line(error: BaseException) -> str:
    """Like `users_line`, for the line that raised `error`."""
    found = installed = ""
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if not code.co_filename.startswith(("<", _PACKAGE)):
            line = _line(code.co_filename, trace.tb_lineno, code.co_name)
            if os.path.realpath(code.co_filename).startswith(_LIBRARIES):
                installed = line
            else:
                found = line
        trace = trace.tb_next
    return found or installed


def _line(file: str, number: int, function: str) -> str:
    try:
        shown = os.path.relpath(file)
    except ValueError:  # the file is on another drive
        shown = file
    return f"{file if shown.startswith('..') else shown}:{number} in {function}"


class _Hook:
    """The process's audit hook, and the guard of the current plan."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.guard: _Guard | None = None
        self.is_installed = False
        self.jailed: frozenset[threading.Thread] = frozenset()
        """Threads that planned programs started. Outside access from these threads is refused after the plan too."""
        self.jail: _Guard | None = None

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        guard = self.guard
        if guard is not None:
            guard.look(event, args)
        elif self.jail is not None and event in _LOOKED_AT and _is_one_of(self.jailed, threading.get_ident()):
            self.jail.look(event, args)


_HOOK = _Hook()


@contextmanager
def threads_jailed() -> Iterator[None]:
    """After the block, refuse outside access from the threads that were started in the block, until they end. Threads
    that a program starts during a plan are treated in the same way."""
    before = {*threading.enumerate()}
    try:
        yield
    finally:
        _jail({*threading.enumerate()} - before)


def _jail(threads: Iterable[threading.Thread]) -> None:
    with _HOOK.lock:
        _HOOK.jailed = frozenset(one for one in (*_HOOK.jailed, *threads) if one.ident is None or one.is_alive())
        if _HOOK.jail is None:
            _HOOK.jail = _Guard(lambda _address, _line: None, _folders(), threading.enumerate())
            _HOOK.jail.building = False
        if not _HOOK.is_installed:
            sys.addaudithook(_HOOK)
            _HOOK.is_installed = True


def _folders() -> tuple[str, ...]:
    return (os.path.realpath(tempfile.gettempdir()) + os.sep,)


@contextmanager
def refused_outside(refused: Refused) -> Iterator[_Guard]:
    """Refuse outside access inside the block, and call `refused` for each attempt. Threads that were started in the
    block have no outside access until they end, even after the block.

    At first the program may read all files, since it is being built; `guard.building = False` ends this. Raises
    RuntimeError if another plan is being made in this process.
    """
    _jail(())
    guard = _Guard(refused, _folders(), _HOOK.jailed)
    with _HOOK.lock:
        if _HOOK.guard is not None:
            raise RuntimeError("another plan is being made in this process: make one plan at a time")
        _HOOK.guard = guard
    with _starts_announced(guard):
        try:
            yield guard
        finally:
            _jail(guard.started)
            _HOOK.guard = None


@contextmanager
def _starts_announced(guard: _Guard) -> Iterator[None]:
    """Notify the guard before a thread starts, and before multiprocessing starts a process by `spawn` or
    `forkserver`."""
    begin: Any = threading.Thread.start

    def begun(thread: threading.Thread) -> None:
        guard.begins(thread)
        begin(thread)

    def announced(*args: Any) -> Any:
        guard.look("os.spawn", args)
        return spawn(*args)

    with ExitStack() as stack:
        stack.enter_context(_replaced(threading.Thread, "start", begun))
        with suppress(ImportError):  # Windows lacks the module; Python's audit event reports the process there
            import _posixsubprocess as spawning

            spawn: Any = spawning.fork_exec
            stack.enter_context(_replaced(spawning, "fork_exec", announced))
        yield


@contextmanager
def _replaced(owner: Any, name: str, function: Callable[..., Any]) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, function)
    try:
        yield
    finally:
        setattr(owner, name, before)
