"""The embedded server answers as a real kube-apiserver 1.36 did: every recorded vector, over real HTTP."""

from __future__ import annotations

import pytest

from tests.testing.golden.golden_replay import topics
from tests.testing.golden.golden_servers import NOT_YET


def _vectors():
    for topic, vector in topics():
        label = f"{topic}/{vector['name']}"
        marks = [pytest.mark.xfail(reason=NOT_YET[label], strict=True)] if label in NOT_YET else []
        yield pytest.param(label, vector, id=label, marks=marks)


@pytest.mark.parametrize(("label", "vector"), list(_vectors()))
def test_the_answers_are_those_of_a_real_server(golden, label, vector):
    assert not golden.differences(label), vector["shows"]


def test_what_does_not_pass_yet_is_recorded():
    assert NOT_YET.keys() <= {f"{topic}/{vector['name']}" for topic, vector in topics()}
