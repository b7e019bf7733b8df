"""Quantities and Go durations as field types: read, changed, written back, compared, refused with their path."""
from __future__ import annotations

import pickle
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.meta.metav1 import GoDuration
from kubectl_runtime.core.meta.problems import DecodeError
from kubectl_runtime.core.meta.quantities import Quantity
from kubectl_runtime.core.objects.resource import Resource


class Part(msgspec.Struct):
    memory: Quantity
    cpu: Quantity | None = None


@dataclass
class Pause:
    grace_period: GoDuration


class Spec(msgspec.Struct):
    part: Part
    limits: dict[str, Quantity] = {}
    parts: list[Part] = []
    timeout: GoDuration = GoDuration.parse("1s")
    pause: Pause | None = None


class Job(Resource, group="example.com", version="v1", kind="Job", plural="jobs"):
    spec: Spec


RECEIVED = {"part": {"memory": "1024Mi", "other": 1}, "limits": {"cpu": "0.50"}, "parts": [{"memory": 2}],
            "pause": {"gracePeriod": "90m"}}


def received(spec: Any) -> Job:
    return Job.from_dict({"apiVersion": "example.com/v1", "kind": "Job", "metadata": {"name": "a"}, "spec": spec})


def test_they_are_read_from_text_and_from_numbers_at_every_depth() -> None:
    spec = received(RECEIVED).spec
    assert (spec.part.memory, spec.limits["cpu"]) == (Quantity.parse("1Gi"), Quantity.parse("500m"))
    assert (int(spec.parts[0].memory), spec.timeout.seconds) == (2, 1.0)
    assert spec.pause is not None
    assert spec.pause.grace_period.seconds == 5400


def test_what_was_not_changed_is_written_back_as_it_came() -> None:
    job = received(RECEIVED)
    _ = job.spec.limits
    assert job.to_dict()["spec"] == RECEIVED
    job.spec.part.cpu = Quantity.parse("0.1")
    assert job.spec.pause is not None
    job.spec.pause.grace_period = GoDuration.parse("2h")
    assert job.to_dict()["spec"] == RECEIVED | {"part": {"memory": "1024Mi", "other": 1, "cpu": "100m"},
                                                "pause": {"gracePeriod": "2h0m0s"}}


def test_a_new_object_has_their_canonical_text() -> None:
    job = Job(name="a", spec=Spec(Part(Quantity.parse("2048Mi")), {"cpu": Quantity.parse("1500m")}))
    assert job.to_dict()["spec"] == {"part": {"memory": "2Gi"}, "limits": {"cpu": "1500m"}, "parts": [],
                                     "timeout": "1s"}


@pytest.mark.parametrize(("spec", "said"), [
    ({"part": {"memory": "much"}}, r"\$\.spec\.part\.memory: 'much' is not a quantity"),
    ({"part": {"memory": 1.5}}, r"\$\.spec\.part\.memory: 1\.5 is not a quantity"),
    ({"part": {"memory": True}}, r"\$\.spec\.part\.memory: True is not a quantity"),
    ({"part": {"memory": 1}, "limits": {"cpu": []}}, r"\$\.spec\.limits.*is not a quantity"),
    ({"part": {"memory": 1}, "timeout": 5}, r"\$\.spec\.timeout: 5 is not a duration"),
    ({"part": {"memory": 1}, "timeout": "PT5S"}, r"\$\.spec\.timeout: time: invalid duration"),
])
def test_another_text_is_an_error_that_says_where(spec: Any, said: str) -> None:
    with pytest.raises(DecodeError, match=said):
        _ = received(spec).spec


@pytest.mark.parametrize("value", [Quantity.parse("1Gi"), Quantity.parse("1e3"), GoDuration.parse("-1h2.5s")])
def test_they_are_data(value: Any) -> None:
    assert pickle.loads(pickle.dumps(value)) == value
    assert deepcopy(value) == value
    assert str(pickle.loads(pickle.dumps(value))) == str(value)
    assert repr(value) == f"{type(value).__name__}.parse({str(value)!r})"
    with pytest.raises(AttributeError):
        value.value = 1
    assert hash(value) == hash(type(value).parse(str(value)))
    assert value != str(value)


def test_any_other_class_is_still_no_json_value() -> None:
    job = received(RECEIVED)
    job.spec.limits["cpu"] = object()  # type: ignore[assignment]
    with pytest.raises(RequestError, match="a value of type object cannot be sent as JSON"):
        job.to_dict()
