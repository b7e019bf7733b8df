"""What a type checker says of reconcilers and their context."""
from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = '''
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, assert_type

from kubectl_runtime import Action, Api, Client, Context, Controller, Manager, Reconciler, Resource, Store


class Pod(Resource, group="", version="v1", kind="Pod"):
    spec: dict[str, int]


@dataclass
class Deps:
    url: str


class More(Deps):
    pass


class Mine(Reconciler[Pod]):
    def reconcile(self, obj: Pod, ctx: Context[Deps]) -> Action:
        assert_type(ctx.data, Deps)
        assert_type(ctx.store(Pod), Store[Pod])
        return Action.requeue(1)


class Plain(Reconciler[Pod]):
    def reconcile(self, obj: Pod, ctx: Context[None]) -> Action:
        return Action.requeue(1)


class Anyone(Reconciler[Pod]):
    def reconcile(self, obj: Pod, ctx: Context[Any]) -> Action:
        return Action.requeue(1)


def function(obj: Pod, ctx: Context[Deps]) -> Action:
    return Action.await_change()


def nothing(obj: Pod, ctx: Context[None]) -> Action:
    return Action.await_change()


def main(client: Client) -> None:
    controller = Controller(Api.all(client, Pod))
    controller.run(Mine(), context=Deps("x"))
    controller.run(Mine(), context=More("x"))
    controller.run(Plain())
    controller.run(Anyone())
    controller.run(Anyone(), context=3)
    controller.run(function, context=Deps("x"))
    controller.run(nothing)
    controller.run(lambda obj, ctx: Action.await_change())
    controller.start(function, context=Deps("x"))
    controller.bind(Mine(), context=Deps("x")).run()
    manager = Manager(client)
    manager.add(controller, Mine(), context=Deps("x")).add(controller, nothing, needs_leader=False)
    manager.add(controller.bind(Mine(), context=Deps("x")), needs_leader=False)
    manager.add(controller)  # type: ignore[call-overload]
    manager.add(controller, Mine())  # type: ignore[arg-type]
    controller.run(Mine())  # type: ignore[arg-type]
    controller.run(Mine(), context=3)  # type: ignore[arg-type]
    controller.start(function)  # type: ignore[arg-type]
    controller.bind(function, context="x")  # type: ignore[arg-type]
'''

STREAMS = '''
from __future__ import annotations

from contextlib import closing

from kubectl_runtime import Api, Resource, metadata_watcher, predicates, reflector, watch_object, watcher
from kubectl_runtime.watch import Failed, applied_objects, modify, predicate_filter, store, touched_objects


class Pod(Resource, group="", version="v1", kind="Pod"):
    spec: dict[str, int]


def main(pods: Api[Pod]) -> None:
    _, writer = store(Pod)
    with closing(watcher(pods)) as events, closing(reflector(writer, events)) as kept:
        print(next(kept))
    with closing(pods.watch()) as raw, closing(watch_object(pods, "a")) as one, closing(metadata_watcher(pods)) as few:
        print(next(raw), next(one), next(few))
    with closing(predicate_filter(modify(watcher(pods), print), predicates.generation)) as filtered:
        print(next(filtered))
    with closing(applied_objects(watcher(pods))) as applied, closing(touched_objects(watcher(pods))) as touched:
        print(next(applied).spec, next(touched).spec)
    for event in (next(watcher(pods, backoff=None)), next(metadata_watcher(pods, backoff=None))):
        print(event.error if isinstance(event, Failed) else event)
'''


VIEWS = '''
from __future__ import annotations

import msgspec

from kubectl_runtime import Action, Api, Context, Controller, Resource, watch_store
from kubectl_runtime.objects import PartialView


class Pod(Resource, group="", version="v1", kind="Pod"):
    spec: dict[str, int]


class Spec(msgspec.Struct, frozen=True):
    node: str = ""


class Place(PartialView, frozen=True):
    spec: Spec


def reconcile(obj: Place, ctx: Context[None]) -> Action:
    node: str = obj.spec.node
    others: list[str] = [other.spec.node for other in ctx.store(Place)]
    return Action.requeue(1) if node in others else Action.await_change()


def main(pods: Api[Pod]) -> None:
    with watch_store(pods.with_fields(Place)) as places:
        print([place.spec.node for place in places])
    Controller(pods.with_fields(Place)).run(reconcile)
'''


def complaints(program: str, folder: Path) -> str:
    """What a type checker has to say of it. An `ignore` that is not needed would be an error as well."""
    pytest.importorskip("mypy", reason="mypy comes with the extra 'lint'")
    # A name of its own: mypy takes a file of the same size and second for the one that it has seen.
    name = f"program{len(list(folder.glob('*.py')))}.py"
    (folder / name).write_text(program)
    done = subprocess.run([sys.executable, "-m", "mypy", "--strict", name], cwd=folder, capture_output=True, text=True,
                          check=False)
    return done.stdout if done.returncode else ""


def test_what_is_watched_as_a_view_is_one_to_a_type_checker(tmp_path: Path) -> None:
    assert complaints(VIEWS, tmp_path) == ""
    wrong = complaints(VIEWS.replace("node: str = obj.spec", "node: int = obj.spec"), tmp_path)
    assert "Incompatible types in assignment" in wrong


def test_the_context_has_the_type_that_the_reconciler_asks_for_and_another_one_is_an_error(tmp_path: Path) -> None:
    assert complaints(PROGRAM, tmp_path) == ""


def test_every_stream_is_something_that_closing_takes(tmp_path: Path) -> None:
    assert complaints(STREAMS, tmp_path) == ""
