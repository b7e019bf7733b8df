"""An object changed in its views and in its plain form: both are sent, or it is said that they cannot be."""
from __future__ import annotations

from typing import Any

import pytest

from kubectl_runtime.core.base.errors import WriteBackError
from kubectl_runtime.resources import Pod
from kubectl_runtime.resources.core_v1 import Container, EnvVar, PodSpec


def received() -> Pod:
    return Pod.from_dict({"metadata": {"name": "a"}, "spec": {"containers": [
        {"name": "c", "image": "i", "env": [{"name": "e", "value": "1"}], "hidden": 1},
        {"name": "d", "image": "i"}, {"name": "e", "image": "i"}]}})


def new() -> Pod:
    return Pod(name="a", spec=PodSpec(containers=[
        Container(name="c", image="i", env=[EnvVar(name="e", value="1")]), Container(name="d", image="i"),
        Container(name="e", image="i")]))


def containers(obj: Pod, **how: Any) -> list[tuple[str, str, str]]:
    return [(each["name"], each.get("image", ""), each.get("env", [{"value": ""}])[0]["value"])
            for each in obj.to_dict(**how)["spec"]["containers"]]


@pytest.mark.parametrize("defaults", [True, False])
@pytest.mark.parametrize("made", [received, new])
def test_changes_of_different_items_are_sent_and_of_one_item_refused(made: Any, defaults: bool) -> None:
    obj = made()
    obj["spec"]["containers"][0]["env"][0]["value"] = "2"
    obj.spec.containers[1].image = "j"
    obj["spec"]["containers"].append({"name": "f"})
    assert containers(obj, defaults=defaults) == [("c", "i", "2"), ("d", "j", ""), ("e", "i", ""), ("f", "", "")]
    obj.spec.containers[0].image = "j"
    with pytest.raises(WriteBackError, match=r"\$\.spec\.containers: an item of this list was changed both"):
        obj.to_dict(defaults=defaults)


@pytest.mark.parametrize("made", [received, new])
def test_an_item_that_one_form_changes_and_the_other_drops_is_dropped(made: Any) -> None:
    obj = made()
    obj.spec.containers[0].image = "j"
    del obj["spec"]["containers"][0]
    assert containers(obj) == [("d", "i", ""), ("e", "i", "")]


@pytest.mark.parametrize("made", [received, new])
def test_lists_that_one_form_alone_changes_do_not_hinder_the_other(made: Any) -> None:
    obj = made()
    obj.spec.containers.reverse()
    obj["spec"]["nodeName"] = "n"
    obj.metadata.labels = {"x": "y"}
    assert containers(obj) == [("e", "i", ""), ("d", "i", ""), ("c", "i", "1")]
    assert obj.to_dict()["spec"]["nodeName"] == "n"
