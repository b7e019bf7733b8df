"""`kubectl-runtime run MODULE:NAME --dev`: an API server, and the operator in a process of its own that comes and goes.

    state       a source changes          the operator ends             a signal n
    running     is stopped, and started   -> waiting, with its status   is told; -> ending
    waiting     is started                -                             the end
    ending      -                         the end                       another one: is killed; status 128 + n

The server and its objects stay through all of that, so an operator that cannot even be imported is only waited for. As
long as no source has changed, a wrong command line (a MODULE:NAME that is not there, say) is the end, with status 2.
A kubeconfig for kubectl lies in `.kubectl-runtime/` of the current folder while this runs.
"""
from __future__ import annotations

import contextlib
import errno
import os
import shlex
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from queue import Empty, SimpleQueue

import msgspec

from kubectl_runtime.apiserver.controllers.controller_catalog import CONTROLLERS
from kubectl_runtime.apiserver.server import ApiServer
from kubectl_runtime.certificates.private_file import write_private
from kubectl_runtime.cli.dev.operator_process import OperatorProcess
from kubectl_runtime.cli.dev.order import Order
from kubectl_runtime.cli.dev.sources import Sources
from kubectl_runtime.cli.places import CommandError, UsageError, see_current_folder
from kubectl_runtime.cli.run_options import RunOptions
from kubectl_runtime.core.base.version import VERSION
from kubectl_runtime.runtime.controller.stopping.signals import SAME_STOP
from kubectl_runtime.runtime.observe.listen_address import ListenAddress

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
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # of nohup
            signal.signal(number, lambda received, _: signals.put(received))  # takes no lock: `_heard` waits for it
    see_current_folder()
    own = ApiServer(controllers=CONTROLLERS, webhook_services=dict(options.webhook_service), record=False)
    with own as server, _kubeconfig(server) as kubeconfig:
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
