"""The embedded server answers as a real kube-apiserver 1.36 did: every recorded vector, over real HTTP."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest

from tests.tools.recorder.files import RecordingFile

NOT_YET: dict[str, str] = {}  # topic/name of a vector -> why it does not pass
LONG = {"sets/cron-job"}  # waits for a minute to begin; its short form is in tests/apiserver/controllers

WITHOUT_CEL = importlib.util.find_spec("cel_expr_python") is None
RULES = re.compile("x-kubernetes-validations|matchConditions|admissionpolic(y|ies)", re.IGNORECASE)


def recorded():
    """(topic/name, vector) of everything in vectors, which was given, and in recorded, which was made here."""
    for path in sorted(Path(__file__).parent.glob("*/*.json")):
        file = RecordingFile.read(path)
        for vector in file.entries:
            yield file.label(vector), vector


def _vectors():
    for label, vector in recorded():
        marks = [pytest.mark.xfail(reason=NOT_YET[label], strict=True)] if label in NOT_YET else []
        marks += [pytest.mark.long] if label in LONG else []
        yield pytest.param(label, vector, id=label, marks=marks)


@pytest.mark.parametrize(("label", "vector"), list(_vectors()))
def test_the_answers_are_those_of_a_real_server(golden, label, vector):
    differences = golden.differences(label)
    # conftest.py cannot see this: the servers need the engine in the background, during any test
    if differences and WITHOUT_CEL and RULES.search(json.dumps(vector)):
        pytest.skip("it evaluates rules in CEL, and cel-expr-python is not installed")
    assert not differences, vector["shows"]


def test_what_does_not_pass_yet_is_recorded():
    assert NOT_YET.keys() <= {label for label, _ in recorded()}
