"""What `help()` shows of a public name stands alone: it says what it is for, and shows it by an example that runs.

The examples share a world: `client` is that of an embedded server, in whose namespace `default` there are a ConfigMap
`settings`, a Deployment `web` and its Pod `web-0`. All public names are there, and some kinds.
"""
from __future__ import annotations

import doctest
import enum
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import is_dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import msgspec
import pytest

import kubectl_runtime
from kubectl_runtime import resources
from kubectl_runtime.facade import TOPICS
from kubectl_runtime.testing import ApiServer

PUBLIC = {f"{topic}.{name}": getattr(importlib.import_module(f"kubectl_runtime.{topic}"), name)
          for topic, names in TOPICS.items() if topic != "testing" for name in names}
NAMES = sorted(name for name, found in PUBLIC.items() if inspect.isclass(found) or inspect.isfunction(found))
EMPTY = ("see the module", "of ", "the rule.", "frozen.", "the same", "the reading side", "the envelope", "the type of",
         "any kind.", "immutable", "whether ", "does nothing")
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL
KINDS = ("ConfigMap", "CustomResourceDefinition", "Deployment", "Job", "Namespace", "Node", "Pod", "Secret", "Service")


def world(server: ApiServer | None) -> dict[str, Any]:
    """What the examples may use."""
    found: dict[str, Any] = {name.partition(".")[2]: thing for name, thing in PUBLIC.items()}
    found["Rule"] = PUBLIC["crd.Rule"]  # that of webhooks has the same name
    found |= {kind: getattr(resources, kind) for kind in KINDS}
    found |= {"Annotated": Annotated, "Struct": msgspec.Struct, "UTC": UTC, "datetime": datetime,
              "timedelta": timedelta, "__name__": __name__}
    if server is not None:
        found |= {"server": server, "client": server.client()}
        labels, container = {"app": "web"}, {"name": "web", "image": "nginx"}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
        server.load([
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": "default",
                                                                   "labels": labels}, "data": {"color": "blue"}},
            {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
             "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}},
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-0", "namespace": "default", "labels": labels},
             "spec": {"containers": [container]}}])
    return found


def examples_of(name: str) -> doctest.DocTest:
    text = inspect.getdoc(PUBLIC[name]) or ""
    return doctest.DocTestParser().get_doctest(text, {}, name, name, 0)


@pytest.mark.parametrize("name", NAMES)
def test_it_says_what_it_is_for(name: str) -> None:
    found = PUBLIC[name]
    text = (found.__dict__.get("__doc__") if inspect.isclass(found) else found.__doc__) or ""
    first = inspect.cleandoc(text).partition("\n")[0]
    assert len(first.split()) >= 4, first
    assert not first.lower().startswith(EMPTY), first


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.direct("nobody listens where it goes")) if name == "errors.TransportError"
    else name for name in NAMES])
def test_it_shows_an_example_that_runs(name: str) -> None:
    found = examples_of(name)
    assert found.examples
    needs_server = any("client" in each.source or "server" in each.source for each in found.examples)
    with ExitStack() as stack:
        server = stack.enter_context(ApiServer()) if needs_server else None
        found.globs = world(server)
        failures: list[str] = []
        runner = doctest.DocTestRunner(optionflags=FLAGS)
        runner.run(found, out=failures.append, clear_globs=False)
        if client := found.globs.get("client"):
            client.close()
    assert not runner.failures, "".join(failures)


def is_protocol(cls: Any) -> bool:
    return bool(getattr(cls, "_is_protocol", False))


def members() -> Iterator[tuple[str, str]]:
    for name in NAMES:
        cls = PUBLIC[name]
        if inspect.isclass(cls) and not issubclass(cls, BaseException | enum.Enum) and not is_protocol(cls):
            for member, value in vars(cls).items():
                if not member.startswith("_") and (callable(value) or isinstance(value, property | classmethod) or (
                        inspect.ismemberdescriptor(value) and has_properties(cls))):
                    yield name, member


def has_properties(cls: type) -> bool:
    """Whether `help` describes attributes of `cls` one by one. It shows only the names of the others' fields."""
    return not issubclass(cls, msgspec.Struct) and not is_dataclass(cls) and any(
        isinstance(value, property) for value in vars(cls).values())


def test_every_member_says_what_it_does() -> None:
    silent = [f"{name}.{member}" for name, member in members()
              if not inspect.getdoc(getattr(PUBLIC[name], member, None))]
    assert silent == []


def test_help_sends_nobody_to_a_source_file() -> None:
    """Whoever reads `help()` sees names to import, not the files and the tables of modules behind them."""
    texts = {name: inspect.getdoc(PUBLIC[name]) or "" for name in NAMES}
    texts |= {f"{name}.{member}": inspect.getdoc(getattr(PUBLIC[name], member)) or ""
              for name, member in [*members(), *((name, "__init__") for name in NAMES)]}
    elsewhere = re.compile(r"\w/?\w+\.py\b|\b[Ss]ee the module|the module's table")
    assert [name for name, text in texts.items() if elsewhere.search(text)] == []


# Below the facade: what its signatures return, what subclasses and the library's own rooms are made of

APART = ("kubectl_runtime.apiserver", "kubectl_runtime.resources")
"""An API server that is not a part of a program, and classes that are generated from Kubernetes's own texts."""
SAYS_NOTHING = ("see the module", "as the base class", "as the module says", "safe to use from any thread",
                "for one thread", "the same.", "immutable.", "frozen.")


def public_things() -> Iterator[tuple[str, Any]]:
    """Each public class, function and member of the package, by its full name."""
    for found in pkgutil.walk_packages(kubectl_runtime.__path__, "kubectl_runtime."):
        if found.name.startswith(APART) or found.name.endswith("__main__"):
            continue
        module = importlib.import_module(found.name)
        for name, thing in vars(module).items():
            if name.startswith("_") or getattr(thing, "__module__", None) != module.__name__:
                continue
            if inspect.isclass(thing) or inspect.isfunction(thing):
                yield f"{found.name}.{name}", thing
            for member, value in vars(thing).items() if inspect.isclass(thing) else ():
                if not member.startswith("_") and (inspect.isfunction(value) or isinstance(
                        value, property | classmethod | staticmethod)):
                    text_of = value if isinstance(value, property) else getattr(thing, member)
                    yield f"{found.name}.{name}.{member}", text_of


def first_line(thing: Any) -> str:
    """As `help()` shows it; a member without a text of its own has that of the base class."""
    own = vars(thing).get("__doc__") if inspect.isclass(thing) else inspect.getdoc(thing)
    return inspect.cleandoc(own or "").partition("\n")[0]


def test_everything_public_says_what_it_is_for() -> None:
    said = {name: first_line(thing) for name, thing in public_things()}
    assert len(said) > 2000  # the walk did find the package
    assert [name for name, text in said.items() if not text] == []
    assert {name: text for name, text in said.items() if text.lower().startswith(SAYS_NOTHING)} == {}


def test_a_dataclass_has_more_than_its_signature() -> None:
    """Python writes `Name(field: type)` where nothing is said."""
    assert [name for name, thing in public_things()
            if inspect.isclass(thing) and first_line(thing).startswith(f"{thing.__name__}(")] == []
