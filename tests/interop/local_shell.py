"""An exec handler that runs the command on this machine: what a busybox container would answer to simple commands."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading


def local_shell(call):
    """Run the call's command, with its streams; its exit code."""
    process = subprocess.Popen(call.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               env={"PATH": os.environ["PATH"], "TARGET_CONTAINER": call.request.container}, bufsize=0)
    pumps = [threading.Thread(target=_pump, args=pair) for pair in ((process.stdout, call.stdout),
                                                                    (process.stderr, call.stderr))]
    for pump in pumps:
        pump.start()
    if call.request.stdin:
        threading.Thread(target=_feed, args=(call, process.stdin), daemon=True).start()
    else:
        process.stdin.close()
    code = process.wait()
    for pump in pumps:
        pump.join()
    process.stdout.close()
    process.stderr.close()
    return code


def _pump(source, target):
    while data := source.read(4096):
        with contextlib.suppress(ConnectionError):  # nobody listens any more; the command is read to its end
            target.write(data)


def _feed(call, stdin):
    with stdin:
        for data in call.stdin:
            try:
                stdin.write(data)
            except OSError:
                return
