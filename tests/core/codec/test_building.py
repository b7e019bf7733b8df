"""Decoders that several threads need for the first time at once."""
from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kubectl_runtime.core.codec import building
from kubectl_runtime.core.codec.building import decoder_of

ROOT = Path(__file__).parents[3]
LIMIT = 20.0

ALL_AT_ONCE = """
import sys, threading
sys.setswitchinterval(1e-6)
from kubectl_runtime.resources import Pod
raw = b'{"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c"}]}}'
together, seen = threading.Barrier(8), []

def read():
    together.wait()
    seen.append(Pod.from_bytes(raw).spec.containers[0].name)

threads = [threading.Thread(target=read) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("".join(seen))
"""


@pytest.mark.parametrize("_attempt", range(3))
def test_threads_that_read_a_kind_for_the_first_time_all_at_once_do_not_crash_the_process(_attempt: int) -> None:
    done = subprocess.run([sys.executable, "-c", ALL_AT_ONCE], capture_output=True, text=True, timeout=60, check=False,
                          cwd=ROOT)
    assert (done.returncode, done.stdout) == (0, "cccccccc\n"), done.stderr


def test_while_one_thread_builds_others_wait() -> None:
    order: list[str] = []
    inside, go_on = threading.Event(), threading.Event()

    def slow() -> None:
        with building._building.alone():
            inside.set()
            go_on.wait(LIMIT)
            order.append("first")

    def second() -> None:
        decoder_of(msgspec.defstruct("Late", [("a", int)]))
        order.append("second")

    threads = [threading.Thread(target=slow), threading.Thread(target=second)]
    threads[0].start()
    assert inside.wait(LIMIT)
    threads[1].start()
    go_on.set()
    for thread in threads:
        thread.join(LIMIT)
    assert order == ["first", "second"]


def test_annotations_may_need_a_decoder_themselves_and_one_that_never_ends_delays_others_only(
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "LONGEST", 0.05)
    inside, go_on = threading.Event(), threading.Event()

    def stuck() -> None:
        with building._building.alone():
            assert decoder_of(int)(b"1") == 1
            inside.set()
            go_on.wait(LIMIT)

    thread = threading.Thread(target=stuck)
    thread.start()
    assert inside.wait(LIMIT)
    kind: Any = msgspec.defstruct("Other", [("a", int)])
    assert decoder_of(kind)(b'{"a": 1}').a == 1
    go_on.set()
    thread.join(LIMIT)
