"""The guide's sections for frameworks work: with the framework where it is installed, else with what little of it they
use."""
from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from kubectl_runtime import Api, Client
from kubectl_runtime.resources import ConfigMap
from kubectl_runtime.testing import ApiServer, eventually
from tests.examples.programs import ROOT, blocks

GUIDE = ROOT / "examples" / "guides" / "frameworks.md"


INSTALLED = {name for name in ("flask", "django", "fastapi", "celery") if importlib.util.find_spec(name) is not None}


class Routes:
    """An application of decorators: each adds a function at a path."""

    def __init__(self, *_: object, lifespan: Any = None) -> None:
        self.routes: dict[tuple[str, str], Any] = {}
        self.lifespan = lifespan

    def get(self, path: str) -> Any:
        return lambda function: self.routes.setdefault(("GET", path), function)

    def post(self, path: str, status_code: int = 200) -> Any:
        return lambda function: self.routes.setdefault(("POST", path), function)

    def task(self, **_: object) -> Any:
        return lambda function: function


class Signal:
    def __init__(self) -> None:
        self.heard: list[Any] = []

    def connect(self, function: Any, weak: bool = True) -> Any:
        self.heard.append(function)
        return function

    def send(self, sender: object) -> None:
        for function in self.heard:
            function(sender=sender)


def module(name: str, **members: Any) -> ModuleType:
    made = ModuleType(name)
    vars(made).update(members)
    return made


def stand_ins() -> dict[str, ModuleType]:
    return {
        "flask": module("flask", Flask=Routes, jsonify=lambda value: value),
        "fastapi": module("fastapi", FastAPI=Routes),
        "django": module("django"),
        "django.http": module("django.http", JsonResponse=lambda value: SimpleNamespace(content=json.dumps(value))),
        "celery": module("celery", Celery=Routes),
        "celery.signals": module("celery.signals", worker_process_init=Signal(), worker_process_shutdown=Signal())}


@pytest.fixture
def guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files of the guide, on Python's path; stand-ins for frameworks that are not installed."""
    for language in ("python", "py"):
        for text in blocks(GUIDE, language):
            (tmp_path / text.partition("\n")[0].removeprefix("# ")).write_text(text)
    for name in ("inventory", "flask_app", "django_views", "fastapi_app", "celery_tasks"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, stand_in in stand_ins().items():
        if name.partition(".")[0] not in INSTALLED:
            monkeypatch.setitem(sys.modules, name, stand_in)
    return tmp_path


@pytest.fixture
def client() -> Iterator[Client]:
    with ApiServer() as server, server.client() as made:
        yield made


@pytest.fixture
def found(guide: Path, client: Client, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    import inventory

    made = inventory.Inventory(client)
    monkeypatch.setattr(inventory, "_inventory", made)
    yield made
    made.maps.close()


def test_flask(found: Any) -> None:
    from flask_app import create_app

    app = create_app()
    found.add("default", "a")
    if "flask" in INSTALLED:
        web = app.test_client()
        assert web.get("/default").json == ["a"]
        return
    assert app.routes["GET", "/<namespace>"]("default") == ["a"]


def test_django(found: Any) -> None:
    if "django" in INSTALLED:
        from django.conf import settings

        if not settings.configured:
            settings.configure(DEFAULT_CHARSET="utf-8")
    import django_views

    found.add("default", "a")
    answer = django_views.names(SimpleNamespace(method="GET"), "default")
    assert json.loads(answer.content) == {"names": ["a"]}


def test_fastapi(found: Any) -> None:
    from fastapi_app import create_app

    app = create_app()
    if "fastapi" in INSTALLED:
        from fastapi.testclient import TestClient

        with TestClient(app) as web:
            found.add("default", "a")
            assert web.get("/default").json() == ["a"]
    else:
        async def live() -> None:
            async with app.lifespan(app):
                await asyncio.to_thread(found.add, "default", "a")
                assert await asyncio.to_thread(app.routes["GET", "/{namespace}"], "default") == ["a"]

        asyncio.run(live())
    assert found.maps.has_ended  # the end of the application closed it


def test_celery(found: Any) -> None:
    import celery_tasks

    signals = sys.modules["celery.signals"]
    signals.worker_process_init.send(sender=None)
    assert celery_tasks.add("default", "a") == ["a"]
    signals.worker_process_shutdown.send(sender=None)
    assert found.maps.has_ended


def test_changes_are_worked_on_by_a_thread_that_may_block(found: Any, client: Client) -> None:
    import threading

    seen: list[str] = []
    thread = threading.Thread(target=found.each_change, args=(lambda change: seen.append(change.obj.name),))
    thread.start()
    Api.namespaced(client, ConfigMap, "default").create(ConfigMap(name="a"))
    eventually(lambda: seen == ["a"], timeout=30)
    found.close()
    thread.join(30)
    assert not thread.is_alive()


def test_the_process_makes_one(guide: Path, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    import inventory

    monkeypatch.setattr(inventory.Client, "try_default", classmethod(lambda cls: client))
    monkeypatch.setattr(inventory.atexit, "register", lambda function: function)
    made = inventory.inventory()
    assert inventory.inventory() is made
    made.maps.close()
