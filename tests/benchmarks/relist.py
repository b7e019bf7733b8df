"""A list again of objects that have not changed: what it triggers, and how much memory it needs. Prints one JSON line.

    python tests/benchmarks/relist.py [OBJECTS] [RELISTS]     default 20000 3; for Linux, which can reset a peak

The server ends the watch with a 410. `level_mib` is the resident memory before, `peak_mib` the most until the list is
complete and everything is quiet again, both of the whole process; `times_the_level` is the worst of the lists.
"""
from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from firehose import canned_process, resident_mib  # a script's neighbour, not a package

from kubectl_runtime import Action, Api, Client, Config, Context, Controller
from kubectl_runtime.resources import Pod


def reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def peak_mib() -> float:
    """The most that was resident since the last `reset_peak`."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


def main(objects: int = 20_000, relists: int = 3) -> None:
    runs, lock, initial = 0, threading.Lock(), threading.Event()

    def reconcile(obj: Pod, ctx: Context[None]) -> Action:
        nonlocal runs
        with lock:
            runs += 1
            if runs == objects:
                initial.set()
        return Action.await_change()

    levels, peaks, seconds = [], [], []
    with canned_process(objects, 0) as (url, tell), Client(Config(cluster_url=url)) as client:
        with Controller(Api.all(client, Pod)).start(reconcile) as running:
            initial.wait(300)
            for number in range(1, relists + 1):
                time.sleep(1)
                levels.append(resident_mib())
                reset_peak()
                begun = time.perf_counter()
                tell("expire")
                while (state := running.watch_state) is None or state.relists < number:
                    time.sleep(0.01)
                seconds.append(time.perf_counter() - begun)
                time.sleep(1)
                peaks.append(peak_mib())
            triggered = runs - objects
    print(json.dumps({
        "benchmark": "relist", "objects": objects, "relists": relists, "triggered": triggered,
        "times_the_level": round(max(peak / level for peak, level in zip(peaks, levels, strict=True)), 3),
        "level_mib": [round(level) for level in levels], "peak_mib": [round(peak) for peak in peaks],
        "seconds": [round(took, 2) for took in seconds]}), flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
