"""Neither an import nor a start of the server calls what only POSIX systems have."""
from __future__ import annotations

import subprocess
import sys

PROGRAM = r'''
import concurrent.futures, logging.handlers, multiprocessing, os, pkgutil, random, select, signal, socket, socketserver
import ssl, subprocess, sys, tempfile, threading, urllib.request, http.server, wsgiref.simple_server, asyncio, shutil
import requests, pytest

for module in ("fcntl", "pwd", "grp", "resource", "termios", "tty", "pty", "syslog"):
    sys.modules[module] = None
for module, names in ((os, "fork forkpty register_at_fork geteuid getuid getgid getloadavg killpg setsid fchmod "
                           "O_NOFOLLOW O_NONBLOCK O_CLOEXEC O_DIRECTORY getpgid mkfifo"),
                      (select, "poll epoll POLLIN POLLOUT POLLHUP POLLERR POLLRDHUP kqueue"),
                      (signal, "SIGHUP SIGKILL SIGUSR1 SIGUSR2 SIGCHLD SIGPIPE SIGALRM SIGWINCH SIGTSTP pthread_kill "
                               "pthread_sigmask sigwait setitimer alarm siginterrupt pause"),
                      (socket, "SO_REUSEPORT")):
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)

import kubectl_runtime
from kubectl_runtime.core.base.errors import MissingExtra
failed = []
for found in pkgutil.walk_packages(kubectl_runtime.__path__, "kubectl_runtime."):
    if found.name.endswith("__main__"):
        continue
    try:
        __import__(found.name)
    except MissingExtra:
        pass
    except ImportError as error:
        if "prometheus" not in str(error) and "opentelemetry" not in str(error):
            failed.append((found.name, repr(error)))
    except Exception as error:
        failed.append((found.name, repr(error)))
assert not failed, failed

problems = []
threading.excepthook = lambda hook: problems.append((hook.thread.name, hook.exc_value))
from kubectl_runtime import Api
from kubectl_runtime.resources import ConfigMap
from kubectl_runtime.testing import ApiServer
with ApiServer(tls=True) as server, server.client() as client:
    maps = Api.namespaced(client, ConfigMap, "default")
    for _ in range(3):
        with maps.open_watch(resource_version="0") as watch:
            maps.apply({"metadata": {"name": "a"}, "data": {"n": str(_)}}, field_manager="t")
            next(batch for batch in watch if batch)
    assert maps.get("a")["data"]["n"] == "2"
    gone = any("reaper" in thread.name for thread in threading.enumerate())
    assert gone, [thread.name for thread in threading.enumerate()]
assert not problems, problems
print("fine")
'''


def test_without_posix_everything_imports_and_the_server_serves() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.strip() == "fine", done.stdout + done.stderr
