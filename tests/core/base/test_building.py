"""Decoders that several threads need for the first time at once, and that nothing goes round them."""
from __future__ import annotations

import ast
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kubectl_runtime.core.base import wire
from kubectl_runtime.core.base.wire import converted, decoded, decoder_of
from kubectl_runtime.core.codec.views import ViewCodec
from kubectl_runtime.core.meta.quantities import Quantity
from kubectl_runtime.core.objects import declare
from kubectl_runtime.core.objects.declare import EMPTY
from kubectl_runtime.core.objects.resource import Resource
from kubectl_runtime.resources import ConfigMap, Pod

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


class Size(msgspec.Struct):
    amount: Quantity | None = None


class Sized(Resource, group="example.com", version="v1", kind="Sized"):
    spec: Size
    status: dict[str, str] = EMPTY


@pytest.mark.parametrize("kind", [ConfigMap, Pod, Sized])
def test_threads_that_need_the_codecs_of_a_kind_at_once_build_each_only_once(
        kind: type[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []

    class Counted(ViewCodec):
        def __init__(self, key: str, *more: Any) -> None:
            built.append(key)
            super().__init__(key, *more)

    declare.codecs_of(Resource)  # all kinds share the codec of metadata
    monkeypatch.setattr(declare, "ViewCodec", Counted)
    monkeypatch.setattr(declare, "_codecs", {})
    together, found = threading.Barrier(8), []

    def read() -> None:
        together.wait(LIMIT)
        found.append(declare.codecs_of(kind))

    threads = [threading.Thread(target=read) for _ in range(8)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT)
    finally:
        sys.setswitchinterval(interval)
    assert len({id(codecs) for codecs in found}) == 1
    assert len(found) == 8
    assert sorted(built) == sorted(found[0].keys() - {"metadata"})


LOOKS_AT_TYPES = ("convert", "decode", "Decoder")
KNOWN = {"int", "str", "bool", "float", "bytes", "datetime", "dict", "list", "tuple", "Any", "msgspec", "Raw"}
"""Types that msgspec knows without looking at them."""
NAMES_MSGSPEC = re.compile(rf"from\s+msgspec|msgspec[\w\s.]*\.\s*({'|'.join(LOOKS_AT_TYPES)})\b")


def round_the_lock(source: str) -> Iterator[str]:
    """Where msgspec is made to look at a class without the lock of `building`."""
    if not NAMES_MSGSPEC.search(source):
        return  # parsing every module takes seconds
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "msgspec":
            yield from (f"{node.lineno}: {name.name} imported" for name in node.names
                        if name.name in LOOKS_AT_TYPES or name.name in ("json", "msgpack", "yaml", "toml"))
        if not isinstance(node, ast.Call):
            continue
        module, _, name = ast.unparse(node.func).rpartition(".")
        if module.partition(".")[0] != "msgspec" or name not in LOOKS_AT_TYPES:
            continue
        given = [keyword.value for keyword in node.keywords if keyword.arg in ("type", None)]
        for kind in [*given, *node.args[0 if name == "Decoder" else 1:]]:
            words = {part.id for part in ast.walk(kind) if isinstance(part, ast.Name)} | {
                part.attr for part in ast.walk(kind) if isinstance(part, ast.Attribute)}
            if not words <= KNOWN:
                yield f"{node.lineno}: {ast.unparse(node)}"


def test_every_type_meets_msgspec_in_one_place() -> None:
    package = ROOT / "kubectl_runtime"
    found = {str(path.relative_to(package)): list(round_the_lock(path.read_text())) for path in package.rglob("*.py")
             if path != Path(wire.__file__)}
    assert {path: places for path, places in found.items() if places} == {}


@pytest.mark.parametrize("source", [
    "msgspec.convert(value, Condition)", "msgspec.convert(value, type=list[Condition])", "msgspec.json.Decoder(_Page)",
    "msgspec.json.decode(body, type=Status)", "msgspec.yaml.decode(body, type=Status, strict=False)",
    "from msgspec.json import Decoder", "from msgspec import convert", "from msgspec import json",
    "msgspec.json.Decoder(type=_Page)", "msgspec.json.decode(body, **options)"])
def test_a_way_round_the_lock_is_found(source: str) -> None:
    assert len(list(round_the_lock(source))) == 1


@pytest.mark.parametrize("source", [
    "msgspec.json.decode(body)", "msgspec.convert(text, datetime)", "msgspec.json.Decoder().decode",
    "msgspec.json.decode(body, type=dict[str, msgspec.Raw])", "decoded(body, Status)",
    "from msgspec.structs import asdict"])
def test_what_looks_at_no_class_is_free(source: str) -> None:
    assert list(round_the_lock(source)) == []


def test_plain_values_are_converted_as_json_is_decoded() -> None:
    kind: Any = msgspec.defstruct("Size", [("size", Quantity)])
    assert converted({"size": "1Gi"}, kind) == decoded(b'{"size": "1Gi"}', kind)
    assert converted({"size": "1Gi"}, kind).size == Quantity.parse("1Gi")


def test_while_one_thread_builds_others_wait() -> None:
    order: list[str] = []
    inside, go_on = threading.Event(), threading.Event()

    def slow() -> None:
        with wire.building.alone():
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
    monkeypatch.setattr(wire, "LONGEST", 0.05)
    inside, go_on = threading.Event(), threading.Event()

    def stuck() -> None:
        with wire.building.alone():
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
