"""`kubectl-runtime run MODULE:NAME --dev`: an API server, and the operator in a process of its own that comes and goes.

    state       a source changes          the operator ends             a signal n
    running     is stopped, and started   -> waiting, with its status   is told; -> ending
    waiting     is started                -                             the end
    ending      -                         the end                       another one: is killed; status 128 + n

The server and its objects stay through all of that, so an operator that cannot even be imported is only waited for. As
long as no source has changed, a wrong command line (a MODULE:NAME that is not there, say) is the end, with status 2.
A kubeconfig for kubectl lies in `.kubectl-runtime/` of the current folder while this runs.

`OperatorProcess`: the operator below `run --dev`, one life of it at a time.

`Sources`: the Python files of a program, and which of them have changed since the last look.

    module found in the current folder    all below that folder
    module found elsewhere                its package, or the one file, if it is not an installed one
    module not found                      all below the current folder: it may come

What has a dot in front, environments and caches are left out. A look costs one `stat` a file. It goes into the nearest
`MOST` folders: whoever begins in a home folder is not to wait for a look at everything below it.
"""
from __future__ import annotations

import contextlib
import errno
import importlib.machinery
import importlib.util
import os
import shlex
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Self

import msgspec

from kubectl_runtime.apiserver.controllers.controller_catalog import CONTROLLERS
from kubectl_runtime.apiserver.server import ApiServer
from kubectl_runtime.certificates.bundles import write_private
from kubectl_runtime.cli.places import CommandError, UsageError, see_current_folder
from kubectl_runtime.cli.run_options import Order, RunOptions
from kubectl_runtime.core.base.version import VERSION
from kubectl_runtime.runtime.lifecycle.signals import SAME_STOP
from kubectl_runtime.runtime.observe.listener import ListenAddress

AT_ONCE = 2.0
"""Seconds for the end at once that a second SIGTERM asks for, before SIGKILL."""


class OperatorProcess:
    """The operator below `run --dev`, in a process of its own that comes and goes. For one thread. As a context manager
    it does not outlive the block, nor, by its pipe, this process."""

    def __init__(self, order: bytes, kubeconfig: Path) -> None:
        """`order`: what to run, see `dev_operator`. `kubeconfig`: for whatever in it makes a client of its own."""
        self._order = order
        kept = {name: value for name, value in os.environ.items() if not name.startswith("KUBERNETES_SERVICE_")}
        self._environment = {**kept, "KUBECONFIG": str(kubeconfig), "PYTHONUNBUFFERED": "1"}
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: int | None = None

    def start(self) -> None:
        """Begin a life, after the end of the one before. Raises OSError."""
        theirs, ours = os.pipe()
        try:
            # -P: a file of the current folder that is called as a module of Python is not to be imported by us.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "kubectl_runtime.cli.dev_operator", str(theirs)], pass_fds=[theirs],
                env=self._environment)
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        self._pipe = ours
        with contextlib.suppress(BrokenPipeError):  # it has ended already, as its status will say
            os.write(ours, self._order + b"\n")

    def status(self) -> int | None:
        """How it ended, 128 + n for a signal n; None while it runs, and before the first start."""
        if self._process is None or (status := self._process.poll()) is None:
            return None
        return 128 - status if status < 0 else status

    def tell(self) -> None:
        """Ask for an end in good order. Does not block."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it now."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def end(self, patience: float) -> None:
        """End it in good order; at once after `patience` seconds. Blocks until it has ended."""
        for seconds in (patience, AT_ONCE):
            if self._process is None or self._process.poll() is not None:
                break
            self.tell()
            try:
                self._process.wait(seconds)
            except subprocess.TimeoutExpired:
                continue
        self.kill()
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end(AT_ONCE)


_LEFT_OUT = frozenset(("__pycache__", "node_modules", "site-packages", "dist-packages"))

MOST = 2_000
"""Folders, the nearest first: a look into so many, with 7,400 files, took 0.1 s."""

Look = dict[str, tuple[int, int]]


class Sources:
    """The source files of a program, and which of them have changed. For one thread."""

    def __init__(self, module: str) -> None:
        """`module` is not imported."""
        self.roots = roots_of(module)
        self._last = self._look()

    def changed(self) -> list[str]:
        """The files that came, went, or are others than at the last call, sorted."""
        now, before = self._look(), self._last
        self._last = now
        return sorted(name for name in now.keys() | before.keys() if now.get(name) != before.get(name))

    def _look(self) -> Look:
        found: Look = {}
        for root in self.roots:
            for name in files_below(root):
                try:
                    state = os.stat(name)
                except OSError:  # it went, or is a link to nothing
                    continue
                found[name] = (state.st_mtime_ns, state.st_size)
        return found


def roots_of(module: str) -> list[Path]:
    """The folders and files that the sources of a module are in."""
    here = Path.cwd()
    top = module.partition(".")[0]
    try:
        spec = importlib.machinery.PathFinder.find_spec(top, [str(here), *sys.path])
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        return [here]
    folders = [Path(folder).resolve() for folder in spec.submodule_search_locations or ()]
    found = folders or ([Path(spec.origin).resolve()] if spec.origin else [])
    if not found or any(path.is_relative_to(here.resolve()) for path in found):
        return [here]
    return [path for path in found if not _LEFT_OUT & set(path.parts)]


def files_below(root: Path) -> Iterator[str]:
    """The Python files below a folder, the nearest first, or the file."""
    if root.is_file():
        yield str(root)
        return
    folders, known = deque([str(root)]), 1
    while folders:
        folder = folders.popleft()
        try:
            with os.scandir(folder) as found:
                entries = [entry for entry in found if not entry.name.startswith(".")]
        except OSError:  # it went, or is not ours to read
            continue
        if folder != str(root) and any(entry.name == "pyvenv.cfg" for entry in entries):
            continue  # an environment, whatever it is called
        for entry in entries:
            if entry.name.endswith(".py"):
                yield entry.path
            elif known < MOST and entry.name not in _LEFT_OUT and entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)
                known += 1


_AS_TOLD = (128 + signal.SIGTERM, 128 + signal.SIGINT)
"""How the operator ends when it is told so before it has anything to end. A terminal tells it by itself."""
FOLDER = ".kubectl-runtime"
LOOK = 0.5
"""Seconds between two looks at the sources; longer where a look itself takes long."""
SHARE = 20
"""How much longer the pause is than the look, at least."""
SETTLED = 0.2
"""Seconds without a further change after which the sources count as saved: an editor or a checkout writes several."""
HINT = 1.0
"""Seconds of an end after which it is told how to hasten it."""
RESTART = 5.0
"""Seconds for the operator's runs before a restart."""


def develop(options: RunOptions) -> int:
    """Serve and run until a signal; the exit status. Blocks; for the main thread. Raises CommandError."""
    signals: SimpleQueue[int] = SimpleQueue()
    hang_up = getattr(signal, "SIGHUP", None)  # which Windows lacks
    for number in (signal.SIGINT, signal.SIGTERM, *((hang_up,) if hang_up else ())):
        if number != hang_up or signal.getsignal(number) != signal.SIG_IGN:  # of nohup
            signal.signal(number, lambda received, _: signals.put(received))  # takes no lock: `_heard` waits for it
    see_current_folder()
    own = ApiServer(controllers=CONTROLLERS, webhook_services=dict(options.webhook_service), record=False)
    with own as server, _kubeconfig(server) as kubeconfig:
        for manifests in options.load:
            _load(server, manifests)
        with ListenAddress("127.0.0.1", 0).listen() as free:
            serve = f"127.0.0.1:{free.getsockname()[1]}"
        order = Order(replace(options, kubeconfig=str(kubeconfig)), serve)
        sources = Sources(options.program.module)
        _say(f"kubectl_runtime {VERSION} runs {options.program} on an API server of its own. Ctrl-C ends both.\n\n"
             f"  API server  {server.url}: empty, in memory, gone at the end\n"
             f"  kubectl     export KUBECONFIG={shlex.quote(str(kubeconfig))}\n"
             f"  sources     {', '.join(map(str, sources.roots))}: a change of a .py file restarts the operator; "
             "the server keeps its objects\n")
        with OperatorProcess(msgspec.json.encode(order), kubeconfig) as operator:
            return _Development(operator, sources, signals).run()


def _load(server: ApiServer, manifests: str) -> None:
    try:
        count = server.load(Path(manifests))
    except (OSError, ValueError) as error:
        raise CommandError(f"--load {manifests}: {error}") from None
    _say(f"loaded {count} object{'s' if count != 1 else ''} from {manifests}")


class _Development:
    """See the table of the module."""

    def __init__(self, operator: OperatorProcess, sources: Sources, signals: SimpleQueue[int]) -> None:
        self._operator = operator
        self._sources = sources
        self._signals = signals

    def run(self) -> int:
        operator = self._operator
        operator.start()
        waiting, first, pause = False, True, LOOK
        while True:
            if self._heard(pause) is not None:
                return self._end()
            begun = time.monotonic()
            changed = self._sources.changed()
            pause = max(LOOK, SHARE * (time.monotonic() - begun))
            if changed:
                self._settle()
                _say(f"\n--- {_named(changed)} changed: restarting ---")
                operator.end(RESTART)
                operator.start()
                waiting = first = False
            elif not waiting and (status := operator.status()) is not None:
                if first and status == UsageError.status:
                    return status  # it has said why
                waiting = True
                _say(f"--- the operator has ended with status {status}; it restarts when a source changes ---")

    def _settle(self) -> None:
        while True:
            time.sleep(SETTLED)
            if not self._sources.changed():
                return

    def _end(self) -> int:
        if self._operator.status() is not None:
            return 0
        told, hinted = time.monotonic(), False
        self._operator.tell()
        while (status := self._operator.status()) is None:
            again, passed = self._heard(0.1), time.monotonic() - told
            if again is not None and passed > SAME_STOP:
                self._operator.kill()
                return 128 + again
            if passed > HINT and not hinted:
                hinted = True
                _say("--- waiting for runs in progress; Ctrl-C again ends at once ---")
        return 0 if status in _AS_TOLD else status

    def _heard(self, timeout: float) -> int | None:
        with contextlib.suppress(Empty):
            return self._signals.get(timeout=timeout)
        return None


@contextlib.contextmanager
def _kubeconfig(server: ApiServer) -> Iterator[Path]:
    """A kubeconfig in a folder that keeps itself out of version control. Raises CommandError."""
    folder = Path.cwd() / FOLDER
    try:
        folder.mkdir(exist_ok=True)
        if folder.is_symlink():
            raise OSError(errno.ENOTDIR, "it is a link", str(folder))
        write_private(folder / ".gitignore", b"*\n")
        path = server.write_kubeconfig(folder / "kubeconfig")
        written = path.read_text()
    except OSError as error:
        raise CommandError(f"no kubeconfig can be written: {error}; run it from a folder of yours") from None
    try:
        yield path
    finally:
        with contextlib.suppress(OSError):
            if path.read_text() == written:  # and not that of another one that was started here since
                path.unlink()


def _named(files: list[str]) -> str:
    first = os.path.relpath(files[0])
    return first if len(files) == 1 else f"{first} and {len(files) - 1} more"


def _say(text: str) -> None:
    print(text, file=sys.stdout, flush=True)
