"""`--perturb` as a project sees it: what is played without it, with it, and by the command of a report."""
from __future__ import annotations

import re
import shlex

import pytest

from tests.testing.plugin.test_pytest_plugin import _LOAD

pytest_plugins = ("pytester",)
pytestmark = pytest.mark.timeout(400)

TEST = """
    import pytest
    from kubectl_runtime import Action, Api, Controller
    from kubectl_runtime.resources import ConfigMap, Secret
    from kubectl_runtime.testing import perturb

    def build(client):
        def reconcile(obj, ctx):
            if obj.name != "a" or "done" in obj.labels:
                return Action.await_change()
            Api.namespaced(client, ConfigMap, "default").patch("a", PATCH)
            Api.namespaced(client, Secret, "default").apply(Secret(name="a"), field_manager="test")
            return Action.await_change()
        return Controller(Api.all(client, ConfigMap)).bind(reconcile)

    from kubectl_runtime import Patch
    PATCH = Patch.merge({"metadata": {"labels": {"done": "yes"}}})

    def story(client):
        Api.namespaced(client, ConfigMap, "default").create(ConfigMap(name="a"))

    @pytest.mark.parametrize("word", ["one two"])
    def test_by_fixture(kube_perturb, word):
        kube_perturb(build, story)

    def test_by_call():
        report = perturb(build, story)
        assert report.ok, str(report)
"""


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makepyfile(test_it=TEST)
    return pytester


def test_without_the_option_the_fixture_plays_the_undisturbed_story_alone(project: pytest.Pytester) -> None:
    project.runpytest_subprocess(*_LOAD, "-k", "fixture").assert_outcomes(passed=1)


@pytest.mark.long
def test_with_it_a_run_that_ends_elsewhere_fails_the_test_and_its_command_repeats_it(project: pytest.Pytester) -> None:
    result = project.runpytest_subprocess(*_LOAD, "--perturb", "-k", "fixture")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*secrets default/a is missing*"])
    found = re.search(r"again: pytest (.*)", result.stdout.str())
    assert found is not None
    arguments = shlex.split(found[1])
    assert arguments == ["test_it.py::test_by_fixture[one two]", "--perturb-only", "crash-after-1", "--perturb-seed",
                         "0"]
    again = project.runpytest_subprocess(*_LOAD, *arguments)
    again.assert_outcomes(failed=1)
    again.stdout.fnmatch_lines(["1 of 1 disturbed runs*"])
    other = project.runpytest_subprocess(*_LOAD, *arguments[:1], "--perturb-only", "crash-after-2")
    other.assert_outcomes(passed=1)


@pytest.mark.long
def test_the_options_repeat_what_a_test_plays_itself(project: pytest.Pytester) -> None:
    result = project.runpytest_subprocess(*_LOAD, "-k", "call", "--perturb-only", "crash-after-1")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*1 of 1 disturbed runs*"])
    project.runpytest_subprocess(*_LOAD, "-k", "call", "--perturb-only", "crash-after-2").assert_outcomes(passed=1)


def test_a_point_that_is_none_is_told_at_once(project: pytest.Pytester) -> None:
    result = project.runpytest_subprocess(*_LOAD, "--perturb-only", "crash-3")
    result.stderr.fnmatch_lines(["*--perturb-only: 'crash-3' is not a point such as*"])
