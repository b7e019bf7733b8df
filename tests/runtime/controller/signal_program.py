"""A program for the signal tests: a controller on an in-memory cluster. Prints what happens, one word a line.

    python -m tests.runtime.controller.signal_program SCENARIO
"""
from __future__ import annotations

import logging
import multiprocessing
import os
import queue
import signal
import socket
import sys
import threading
from itertools import count
from typing import Any

from kubectl_runtime import Action, Api, Client, Config, Context, Controller, Running
from kubectl_runtime.errors import ControllerError
from kubectl_runtime.resources import ConfigMap
from kubectl_runtime.runtime.lifecycle import signals
from kubectl_runtime.runtime.lifecycle.lifecycle import ABORT_MOST, DEFAULT_GRACE
from kubectl_runtime.testing.clock import SimClock
from tests.runtime.scripted_cluster import Child, Cluster, Parent

forever = threading.Event()
asked_again = threading.Event()
cluster = Cluster(blocking=True)
run_numbers = count(1)


def say(word: str) -> None:
    os.write(1, f"{word}\n".encode())  # in one piece, also from several threads


def busy(obj: Parent, ctx: Context[Any]) -> Action:
    """Work that always continues, as in the busy part of a program's life."""
    number = next(run_numbers)
    if number == 200:
        say("busy")
    if number % 3 == 0:
        raise ValueError("planned")
    return Action.requeue(0)


def patient(obj: Parent, ctx: Context[Any]) -> Action:
    """Notices the stop in its own time."""
    say("begun")
    threading.Event().wait(0.3)
    say("finished")
    return Action.await_change()


def until_asked_again(obj: Parent, ctx: Context[Any]) -> Action:
    """Ends when the program's own handler has got a signal."""
    say("begun")
    asked_again.wait(20)
    return Action.await_change()


def stuck_in_here(obj: Parent, ctx: Context[Any]) -> Action:
    say("begun")
    forever.wait(60)
    return Action.await_change()


def kills_itself(obj: Parent, ctx: Context[Any]) -> Action:
    os.kill(os.getpid(), signal.SIGTERM)
    return Action.await_change()


def failing(obj: Parent, ctx: Context[Any]) -> Action:
    if ctx.attempt == 8:
        say("failed")
    raise ValueError("planned")


class SayStages(logging.Handler):
    """Prints `starting` and `stopping` when the controller logs that it does."""

    def emit(self, record: logging.LogRecord) -> None:
        word = record.getMessage().split(":")[0]
        if word in ("starting", "stopping"):
            say(word)


def controller(name: str = "story") -> Controller[Parent]:
    return Controller(cluster.api(Parent), concurrency=3, name=name).owns(cluster.api(Child))


def ended_by_itself() -> None:
    """The controller stops from inside a run; nobody calls `stop`, and the program goes on."""
    signal.signal(signal.SIGTERM, lambda *_: say("custom-handler"))
    holder: list[Running[Parent]] = []
    started = threading.Event()

    def stop_it(obj: Parent, ctx: Context[Any]) -> Action:
        started.wait(10)
        holder[0].stop()
        return Action.await_change()

    holder.append(controller().shutdown_on_signal().start(stop_it))
    started.set()
    while not holder[0].has_ended:
        threading.Event().wait(0.01)
    os.kill(os.getpid(), signal.SIGTERM)
    say("custom-is-back" if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL else "lost")


def own_handlers(kind: str) -> None:
    """The program installs handlers of its own while a controller obeys signals, and a signal comes after the end."""
    with controller().shutdown_on_signal().start(patient) as running:
        before = signal.getsignal(signal.SIGTERM)

        def calls_the_one_before(number: int, frame: Any) -> None:
            say("own")
            before(number, frame)  # type: ignore[misc, operator]

        own: Any = {"plain": lambda *_: say("own"), "calling": calls_the_one_before, "ignoring": signal.SIG_IGN}[kind]
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, own)
        say("started")
        if kind == "calling":
            running.wait()
            say("noticed")
    say("kept" if {signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)} == {own} else "lost")
    os.kill(os.getpid(), signal.SIGTERM)
    say("went-on")


def begin_and_wait(begun: Any) -> None:
    begun.set()
    forever.wait(60)


def pool_of_children() -> None:
    """Forked children of a program whose controller obeys signals."""
    with controller().shutdown_on_signal().start(patient) as running:
        running.wait_until_ready(10)
        context = multiprocessing.get_context("fork")
        begun = context.Event()
        child = context.Process(target=begin_and_wait, args=(begun,))
        child.start()
        begun.wait(10)  # Python itself drops a signal that comes before the child has begun
        child.terminate()
        child.join(10)
        say(f"child-{child.exitcode}")
        with context.Pool(1) as pool:
            say(f"pool-{pool.apply(abs, (-3,))}")
        say("left-the-pool")


def frozen_call() -> None:
    """A run that is in a call which is never answered. Of the grace period passes what is left to runs, and at once."""
    clock = SimClock()
    still = Cluster(clock, blocking=True)
    still.put(Parent, "p")

    class PassesTheGrace(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.getMessage().startswith("stopping"):
                clock.advance(DEFAULT_GRACE - ABORT_MOST)

    logging.getLogger("kubectl_runtime.controller").addHandler(PassesTheGrace())
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = Client(Config(cluster_url=f"http://127.0.0.1:{silent.getsockname()[1]}"))

        def call(obj: Parent, ctx: Context[Any]) -> Action:
            say("begun")
            Api.namespaced(client, ConfigMap, "default").get("never")
            return Action.await_change()

        Controller(still.api(Parent), name="story").shutdown_on_signal(grace=DEFAULT_GRACE).run(call)


def main(scenario: str) -> None:
    logging.basicConfig(level=logging.INFO if scenario not in ("busy", "keyboard") else logging.CRITICAL)
    stages = logging.getLogger("kubectl_runtime.controller")
    stages.addHandler(SayStages())
    stages.setLevel(logging.INFO)
    for number in range(20):
        cluster.put(Parent, f"p{number}", number)
    if scenario == "custom-handler":
        signal.signal(signal.SIGTERM, lambda *_: (say("custom-handler"), asked_again.set()))
    if scenario in ("custom-handler", "stuck-for-long", "stuck-unheard"):
        signals.SAME_STOP = 0.0  # no signal is taken for the one before
    if scenario == "stuck-unheard":
        stages.propagate = False  # nothing is written to stderr
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # the tests run in the background of a shell
        signal.signal(signal.SIGINT, signal.default_int_handler)
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    if scenario == "unready":
        cluster.failing.add(Child.api_resource)
    if scenario == "embedded-falls-off":
        controller().start(patient)
        cluster.put(Parent, "one-more")
        return
    if scenario == "embedded-stuck-falls-off":
        begun = threading.Event()

        def hang(obj: Parent, ctx: Context[Any]) -> Action:
            begun.set()
            return stuck_in_here(obj, ctx)

        controller().shutdown_on_signal(grace=0.3).start(hang)
        begun.wait(10)
        return
    if scenario == "forked":
        calls: queue.SimpleQueue[str] = queue.SimpleQueue()

        def note(obj: Parent, ctx: Context[Any]) -> Action:
            calls.put(obj.name)
            return Action.await_change()

        with controller().start(note) as running:
            running.wait_until_ready(10)
            child = os.fork()
            if not child:
                try:
                    running.trigger_all()
                except ControllerError as error:
                    say("it-says-so" if running.wait() and running.has_ended and not running.stop() else str(error))
                # Neither the name nor a lock of the parent's is in the way.
                cluster.changed = threading.Condition()
                with controller().start(patient) as own:
                    own.wait_until_ready(10)
                    say("child-runs-its-own")
                sys.exit(3)  # with everything that ends a program
            say(f"child-{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}")
            cluster.put(Parent, "born-later")
            while calls.get(timeout=10) != "born-later":
                pass
            say("goes-on")
    elif scenario == "two":
        both = [controller(name).shutdown_on_signal(grace=5).start(busy) for name in ("one", "other")]
        for running in both:
            assert running.wait(10)
            say("noticed")
        for running in both:
            running.stop()
    elif scenario == "ended-by-itself":
        ended_by_itself()
    elif scenario.startswith("own-"):
        own_handlers(scenario.removeprefix("own-"))
        return
    elif scenario == "pool":
        pool_of_children()
    elif scenario == "frozen-call":
        frozen_call()
    elif scenario == "embedded-interrupts":
        try:
            with controller().start(stuck_in_here) as running:
                say("started")
                running.wait()
        except KeyboardInterrupt:
            say("interrupted")
            return
    elif scenario == "embedded-signal":
        with controller().shutdown_on_signal(grace=5).start(busy) as running:
            running.wait()
            say("noticed")
    else:
        reconcilers = {"busy": busy, "patient": patient, "custom-handler": until_asked_again, "stuck": stuck_in_here,
                       "stuck-for-long": stuck_in_here, "stuck-unheard": stuck_in_here,
                       "inside": kills_itself, "unready": busy, "backoff": failing}
        try:
            if scenario == "keyboard":
                controller().run(busy)
            controller().shutdown_on_signal(grace=0.4 if scenario == "stuck" else 10).run(reconcilers[scenario])
        except KeyboardInterrupt:
            say("interrupted")
    after = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    say("restored" if after == before else "not-restored")
    left = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    say("no-threads" if not left else f"threads {left}")
    say("returned")


if __name__ == "__main__":
    main(sys.argv[1])
