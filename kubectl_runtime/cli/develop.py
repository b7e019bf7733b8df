"""`kubectl-runtime run MODULE:NAME --dev`: runs an API server, and restarts the operator's process on source changes.

    state       a source changes          the operator ends             signal n arrives
    running     stop and restart it       print its status; -> waiting  ask it to stop; -> ending
    waiting     start it; -> running      -                             exit with status 0
    ending      -                         exit with its status          kill it; exit with status 128 + n

The server and its objects outlive the operator's restarts. If the operator cannot be imported, the command waits for a
change of its sources; a wrong command line at the first start (for example a missing MODULE:NAME) ends the command with
status 2. The folder `.kubectl-runtime/` holds a kubeconfig for kubectl while the command runs. The operator process has
its own copy in a temporary folder, so that no change in `.kubectl-runtime/` moves it to another server. If this command
is killed, the operator process removes the copy. A locked file `.kubectl-runtime/lock` makes a second command in the
same folder an error. The lock ends with its process.

`OperatorProcess` is the child process. `Sources` finds the program's Python files and reports changed files:

- for a module in the current folder: all files below the current folder
- for a module elsewhere: its package, or its single file, unless the module is installed
- for a module that is not found: all files below the current folder, since the module may be created there

Dot files, virtual environments and caches are skipped. A check costs one `stat` per file. It covers only the `MOST`
folders nearest to the top, so that a command started in a home folder does not scan everything below it.
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
import tempfile
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
"""Seconds that the process gets after each SIGTERM: the second SIGTERM asks for an immediate end, then SIGKILL
follows."""


class OperatorProcess:
    """The operator process of `run --dev`, which can be started repeatedly. Not thread-safe. As a context manager, it
    ends the operator process at the end of the block. If the parent process dies, the closed pipe ends the operator
    process."""

    def __init__(self, order: bytes, kubeconfig: Path) -> None:
        """`order`: what to run, see `dev_operator`. `kubeconfig`: the kubeconfig for clients that the program makes
        itself."""
        self._order = order
        kept = {name: value for name, value in os.environ.items() if not name.startswith("KUBERNETES_SERVICE_")}
        self._environment = {**kept, "KUBECONFIG": str(kubeconfig), "PYTHONUNBUFFERED": "1"}
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: int | None = None

    def start(self) -> None:
        """Start the process; a previous process must have ended. Raises OSError."""
        theirs, ours = os.pipe()
        try:
            # -P: a file of the current folder must not shadow a module of Python that we import.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "kubectl_runtime.cli.dev_operator", str(theirs)], pass_fds=[theirs],
                env=self._environment)
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        self._pipe = ours
        with contextlib.suppress(BrokenPipeError):  # the process has already ended; `status` reports this
            os.write(ours, self._order + b"\n")

    def status(self) -> int | None:
        """The exit status, 128 + n for signal n; None while it runs and before the first start."""
        if self._process is None or (status := self._process.poll()) is None:
            return None
        return 128 - status if status < 0 else status

    def tell(self) -> None:
        """Ask the process to stop gracefully. Does not block."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def end(self, patience: float) -> None:
        """Stop the process gracefully and kill it after `patience` seconds. Blocks until it has ended."""
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
"""The maximum number of folders that are checked, nearest first. A check of this many folders, with 7,400 files, took
0.1 s."""

Look = dict[str, tuple[int, int]]


class Sources:
    """Detects changes of a program's source files. Not thread-safe."""

    def __init__(self, module: str) -> None:
        """`module` is the name of the program's module, which is not imported."""
        self.roots = roots_of(module)
        self._last = self._look()

    def changed(self) -> list[str]:
        """Return the files that were added, removed or changed since the last call, sorted."""
        now, before = self._look(), self._last
        self._last = now
        return sorted(name for name in now.keys() | before.keys() if now.get(name) != before.get(name))

    def _look(self) -> Look:
        found: Look = {}
        for root in self.roots:
            for name in files_below(root):
                try:
                    state = os.stat(name)
                except OSError:  # the file was removed, or is a broken link
                    continue
                found[name] = (state.st_mtime_ns, state.st_size)
        return found


def roots_of(module: str) -> list[Path]:
    """Return the folders and files that hold the sources of a module."""
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
    """Yield the Python files below the folder `root`, nearest first; if `root` is a file, yield only `root`."""
    if root.is_file():
        yield str(root)
        return
    folders, known = deque([str(root)]), 1
    while folders:
        folder = folders.popleft()
        try:
            with os.scandir(folder) as found:
                entries = [entry for entry in found if not entry.name.startswith(".")]
        except OSError:  # the folder was removed, or is not readable
            continue
        if folder != str(root) and any(entry.name == "pyvenv.cfg" for entry in entries):
            continue  # a virtual environment of any name
        for entry in entries:
            if entry.name.endswith(".py"):
                yield entry.path
            elif known < MOST and entry.name not in _LEFT_OUT and entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)
                known += 1


_BY_SIGNAL = (128 + signal.SIGTERM, 128 + signal.SIGINT)
"""Exit statuses of an operator that a signal ended while it was starting. Ctrl-C in a terminal also signals the
child."""
FOLDER = ".kubectl-runtime"
LOOK = 0.5
"""Seconds between two checks of the sources. The pause is longer if a check itself takes long, see `SHARE`."""
SHARE = 20
"""The minimum ratio of the pause to the duration of a check."""
SETTLED = 0.2
"""Seconds to wait for further changes before a restart, since a checkout writes several files."""
HINT = 1.0
"""Seconds after the first signal until the user is shown how to end the operator at once."""
RESTART = 5.0
"""Seconds that running reconciles get before a restart."""


def develop(options: RunOptions) -> int:
    """Run the API server and the operator until a signal; return the exit status. Blocks. Only the main thread may call
    it. Raises CommandError."""
    signals: SimpleQueue[int] = SimpleQueue()
    hang_up = getattr(signal, "SIGHUP", None)  # which Windows lacks
    for number in (signal.SIGINT, signal.SIGTERM, *((hang_up,) if hang_up else ())):
        # If SIGHUP is ignored, as under nohup, it stays ignored.
        if number != hang_up or signal.getsignal(number) != signal.SIG_IGN:
            # `put` takes no lock, so it may interrupt `_heard`.
            signal.signal(number, lambda received, _: signals.put(received))
    see_current_folder()
    own = ApiServer(controllers=CONTROLLERS, webhook_services=dict(options.webhook_service), record=False)
    with own as server, _kubeconfig(server) as kubeconfig, _private_kubeconfig(server) as private:
        for manifests in options.load:
            _load(server, manifests)
        with ListenAddress("127.0.0.1", 0).listen() as free:
            serve = f"127.0.0.1:{free.getsockname()[1]}"
        order = Order(replace(options, kubeconfig=str(private)), serve)
        sources = Sources(options.program.module)
        _say(f"kubectl_runtime {VERSION} runs {options.program} on an API server of its own. Ctrl-C ends both.\n\n"
             f"  API server  {server.url}: {'' if options.load else 'empty, '}in memory, gone at the end\n"
             f"  kubectl     export KUBECONFIG={shlex.quote(str(kubeconfig))}\n"
             f"  sources     {', '.join(map(str, sources.roots))}: a change of a .py file restarts the operator; "
             "the server keeps its objects\n")
        with OperatorProcess(msgspec.json.encode(order), private) as operator:
            return _Development(operator, sources, signals).run()


def _load(server: ApiServer, manifests: str) -> None:
    try:
        count = server.load(Path(manifests))
    except (OSError, ValueError) as error:
        raise CommandError(f"--load {manifests}: {error}") from None
    _say(f"loaded {count} object{'s' if count != 1 else ''} from {manifests}")


class _Development:
    """The state machine of the module's docstring."""

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
                    return status  # the operator has printed the reason
                waiting = True
                _say(f"--- the operator has ended with status {status}; it restarts when a .py file changes ---")

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
        return 0 if status in _BY_SIGNAL else status

    def _heard(self, timeout: float) -> int | None:
        with contextlib.suppress(Empty):
            return self._signals.get(timeout=timeout)
        return None


@contextlib.contextmanager
def _kubeconfig(server: ApiServer) -> Iterator[Path]:
    """Write a kubeconfig for kubectl into a folder with its own .gitignore, and lock the folder. Raises CommandError,
    also if another command holds the lock."""
    folder = Path.cwd() / FOLDER
    with contextlib.ExitStack() as held:
        try:
            folder.mkdir(exist_ok=True)
            if folder.is_symlink():
                raise OSError(errno.ENOTDIR, "must be a folder, not a link", str(folder))
            _lock(folder, held)
            write_private(folder / ".gitignore", b"*\n")
            path = server.write_kubeconfig(folder / "kubeconfig")
            written = path.read_text()
        except BlockingIOError:
            raise CommandError(f"another `kubectl-runtime run --dev` runs in {Path.cwd()}, and {folder / 'kubeconfig'} "
                               "belongs to its API server: end the other command, or run this command in another folder"
                               ) from None
        except OSError as error:
            raise CommandError(f"no kubeconfig can be written: {error}; run the command in another folder") from None
        try:
            yield path
        finally:
            with contextlib.suppress(OSError):
                if path.read_text() == written:  # if not, another program has replaced the file
                    path.unlink()


def _lock(folder: Path, held: contextlib.ExitStack) -> None:
    """Lock the folder until `held` is closed or this process ends. On Windows, and on a file system without locks, do
    nothing. Raises BlockingIOError if another process has locked the folder, and OSError."""
    try:
        import fcntl
    except ImportError:  # on Windows
        return
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    held.callback(os.close, descriptor)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        return


@contextlib.contextmanager
def _private_kubeconfig(server: ApiServer) -> Iterator[Path]:
    """Write the operator's kubeconfig into a temporary folder. Raises CommandError."""
    with contextlib.ExitStack() as held:
        try:
            made = tempfile.TemporaryDirectory(prefix="kubectl-runtime-", ignore_cleanup_errors=True)
            path = server.write_kubeconfig(Path(held.enter_context(made)) / "kubeconfig")
        except OSError as error:
            raise CommandError(f"no kubeconfig can be written for the operator: {error}; TMPDIR names another folder "
                               "for temporary files") from None
        yield path


def _named(files: list[str]) -> str:
    first = os.path.relpath(files[0])
    return first if len(files) == 1 else f"{first} and {len(files) - 1} more"


def _say(text: str) -> None:
    print(text, file=sys.stdout, flush=True)
