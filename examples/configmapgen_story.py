"""The demo of configmapgen_controller.py: an embedded server, the controller, and a story that checks its outcome.

The controller runs in threads of its own, as in a larger program. The main thread plays the users of the cluster: it
creates, changes and deletes objects, and waits for the controller to react.
"""
from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial

from configmapgen_controller import ConfigMapGenerator, Generate, Spec, controller

from kubectl_runtime import Action, Api, Client, Context, KubeError, NotOurs, Patch, Running, apply_crd
from kubectl_runtime.params import PostParams
from kubectl_runtime.resources import ConfigMap
from kubectl_runtime.testing import ApiServer

PATIENCE = 15.0
"""Seconds to wait for each expected change. On an idle machine a change takes milliseconds."""

CROWD = 100

OBSTRUCTED = "supper"
"""The generator whose reconciler fails on purpose."""


class Unhappy(Exception):
    """The controller did not do what the story expects."""


class Counting(Generate):
    """The controller's reconciler, counting its runs and printing its failures."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # one instance serves all workers
        self.reconciles = 0
        self.errors = 0
        self.others = 0

    def reconcile(self, obj: ConfigMapGenerator, ctx: Context[None]) -> Action:
        with self._lock:
            self.reconciles += 1
        return super().reconcile(obj, ctx)

    def error_policy(self, obj: ConfigMapGenerator, error: BaseException, ctx: Context[None]) -> Action:
        planned = obj.name == OBSTRUCTED and isinstance(error, NotOurs)
        with self._lock:
            self.errors += planned
            self.others += not planned
        if ctx.attempt == 1:
            say(f"{obj.name}: the reconciler failed, the library backs off: {error}")
        return Action.requeue(ctx.backoff_delay)


class Story:
    """The users' actions. Each chapter raises Unhappy when the controller does not react in time."""

    def __init__(self, client: Client, running: Running[ConfigMapGenerator], reconciler: Counting) -> None:
        self.generators = Api.default_namespaced(client, ConfigMapGenerator)
        self.config_maps = Api.default_namespaced(client, ConfigMap)
        self.running = running
        self.reconciler = reconciler
        self.verified = 0

    def tell(self) -> None:
        """Play all chapters."""
        for chapter in (self.children, self.deleted_by_hand, self.change, self.failure, self.crowd, self.family):
            print(f"\n{chapter.__doc__}", flush=True)
            chapter()

    def children(self) -> None:
        """Three generators appear."""
        for name in ("breakfast", "lunch", "dinner"):
            self.create(name, f"{name} is ready")
        for name in ("breakfast", "lunch", "dinner"):
            self.verify(f"{name} has a ConfigMap with its content", partial(self.has_content, name, f"{name} is ready"))
            self.verify(f"{name} reports Ready", partial(self.is_ready, name))

    def deleted_by_hand(self) -> None:
        """A user deletes a ConfigMap by hand."""
        before = self.config_maps.get("lunch").uid
        self.config_maps.delete("lunch")
        self.verify("lunch's ConfigMap is back", lambda: self.uid("lunch") not in (None, before))

    def change(self) -> None:
        """A generator gets another content."""
        self.generators.patch("dinner", Patch.merge({"spec": {"content": "dinner is late"}}))
        self.verify("dinner's ConfigMap follows", lambda: self.content("dinner") == "dinner is late")

    def failure(self) -> None:
        """A ConfigMap of another owner has the name that a new generator needs."""
        theirs = ConfigMap(name=OBSTRUCTED, data={"content": "not yours"})
        self.config_maps.create(theirs, PostParams(field_manager="somebody-else"))
        self.create(OBSTRUCTED, "supper is ready")
        self.verify("the controller tries again and again", lambda: self.reconciler.errors >= 3)
        say("somebody removes the obstacle")
        self.config_maps.delete(OBSTRUCTED)
        self.verify("supper recovers by itself", lambda: self.content(OBSTRUCTED) == "supper is ready")

    def crowd(self) -> None:
        """A hundred guests arrive at once."""
        started = time.monotonic()
        names = [f"guest-{number}" for number in range(CROWD)]
        for name in names:
            self.create(name, "a plate")
        self.verify("all of them are served", lambda: all(self.content(name) for name in names))
        say(f"{CROWD} objects in {time.monotonic() - started:.1f} s, the typing included")

    def family(self) -> None:
        """A generator is deleted."""
        self.generators.delete("breakfast")
        self.verify("breakfast's ConfigMap goes with it", lambda: self.uid("breakfast") is None)

    def create(self, name: str, content: str) -> None:
        self.generators.create(ConfigMapGenerator(name=name, spec=Spec(content=content)))

    def uid(self, name: str) -> str | None:
        found = self.config_maps.get_opt(name)
        return found.uid if found else None

    def content(self, name: str) -> str | None:
        found = self.config_maps.get_opt(name)
        return found.data.get("content") if found else None

    def is_ready(self, name: str) -> bool:
        status = self.generators.get(name).status
        conditions = (status.conditions if status else None) or []
        return any(condition.type == "Ready" and condition.status == "True" for condition in conditions)

    def has_content(self, name: str, content: str) -> bool:
        return self.content(name) == content

    def verify(self, what: str, happened: Callable[[], bool]) -> None:
        """Wait until `happened()` is true, and print `what`."""
        deadline = time.monotonic() + PATIENCE
        while not happened():
            if self.running.wait(0.02):
                raise Unhappy(f"interrupted while waiting: {what}")
            if time.monotonic() > deadline:
                raise Unhappy(f"did not happen within {PATIENCE:.0f} s: {what}")
        self.verified += 1
        print(f"  ✓ {what}", flush=True)


def say(text: str) -> None:
    print(f"    {text}", flush=True)


def play() -> int:
    """The whole demo: 0 when every chapter succeeded, or when a signal ended it; 1 when a chapter failed."""
    started = time.monotonic()
    reconciler = Counting()
    problem = ""
    with ApiServer() as server, server.client() as client:
        apply_crd(client, ConfigMapGenerator)
        with controller(client).shutdown_on_signal().start(reconciler) as running:
            print(f"An embedded API server listens on {server.url}; it serves {ConfigMapGenerator.crd_name()}",
                  flush=True)
            story = Story(client, running, reconciler)
            try:
                story.tell()
            except (Unhappy, KubeError) as error:
                problem = str(error)
            stopped_by = running.reason  # empty unless a signal has stopped the controller
    others = f" and {reconciler.others} others" if reconciler.others else ""
    print(f"\n{reconciler.reconciles} reconciles, {reconciler.errors} errors on purpose{others}, "
          f"{story.verified} things verified in {time.monotonic() - started:.1f} s")
    if stopped_by:
        print(f"stopped by {stopped_by.split()[0]}")
        return 0
    if problem:
        print(f"NOT as it should be: {problem}")
        return 1
    print("Everything happened as it should.")
    return 0
