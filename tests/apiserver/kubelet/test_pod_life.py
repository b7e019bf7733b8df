"""What holds for every Pod at every moment, whatever rules come and go."""
from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.apiserver.kubelet.world import World
from tests.thoroughness import examples

ENDED = ("Succeeded", "Failed")

_SAID = st.sampled_from([
    ("crash", {"after": 0}), ("crash", {"after": 3}), ("crash", {"times": 2}), ("succeed", {"after": 2}),
    ("keep_running", {}), ("fail_image_pull", {}), ("never_be_ready", {}), ("be_ready", {"after": 4}),
    ("start", {"after": 6}), ("stop", {"after": 1}), ("unschedulable", {}), ("log", {"text": "x"})])
_STEPS = st.lists(st.one_of(
    st.tuples(st.just("rule"), _SAID, st.sampled_from([{}, {"container": "side"}, {"container": "init"}])),
    st.tuples(st.just("remove"), st.integers(0, 3)),
    st.tuples(st.just("wait"), st.sampled_from([0.25, 1, 7, 31, 400])),
    st.tuples(st.just("delete"), st.sampled_from([None, 0, 1, 5]))), max_size=12)
_PODS = st.fixed_dictionaries({
    "restartPolicy": st.sampled_from(["Always", "OnFailure", "Never"]),
    "initContainers": st.sampled_from([[], [{"name": "init", "image": "i"}], [
        {"name": "init", "image": "i", "restartPolicy": "Always"}]]),
    "activeDeadlineSeconds": st.sampled_from([None, None, 20])})


def _check(before, pod):
    status = pod["status"]
    conditions = [each["type"] for each in status.get("conditions", ())]
    assert len(conditions) == len(set(conditions))
    true = {each["type"] for each in status.get("conditions", ()) if each["status"] == "True"}
    main, initial = status.get("containerStatuses", []), status.get("initContainerStatuses", [])
    states = [next(iter(each["state"])) for each in (*main, *initial)]
    if "Ready" in true:
        assert all(each["ready"] and "running" in each["state"] for each in main)
        assert "ContainersReady" in true
    if status["phase"] in ENDED:
        assert "running" not in states
        assert "Ready" not in true
    if status["phase"] == "Running":
        assert status["podIP"]
        assert status["startTime"]
    if "running" in states:
        assert pod["spec"]["nodeName"]
    for each in (*main, *initial):
        assert each["restartCount"] == 0 or "terminated" in each["state"] or "terminated" in each["lastState"]
        assert not (each["ready"] and "running" not in each["state"])
    if before is None or before["metadata"]["uid"] != pod["metadata"]["uid"]:
        return
    was = before["status"]
    if was["phase"] in ENDED:
        assert status["phase"] == was["phase"]
    for key in ("podIP", "hostIP", "startTime"):
        assert was.get(key) in (None, status.get(key))
    counts = {each["name"]: each["restartCount"] for each in was.get("containerStatuses", ())}
    assert all(each["restartCount"] >= counts.get(each["name"], 0) for each in main)


@settings(max_examples=examples(150), deadline=None)
@given(_PODS, _STEPS)
@example({"restartPolicy": "Never", "initContainers": [], "activeDeadlineSeconds": None},
         [("rule", ("crash", {"after": 0}), {"container": "side"})])
def test_a_pod_is_always_in_order_and_at_last_at_rest(spec, steps):
    world, rules, seen = World(), [], None
    spec = {key: value for key, value in spec.items() if value not in (None, [])}
    since = world.version()
    try:
        world.create(containers=[{"name": "main", "image": "m"}, {"name": "side", "image": "s"}], **spec)
        for step, *arguments in steps:
            if step == "rule":
                (name, said), about = arguments
                rules.append(getattr(world.rules.on(**about), name)(**said))
            elif step == "remove" and rules:
                rules.pop(arguments[0] % len(rules)).remove()
            elif step == "wait":
                world.clock.advance(arguments[0])
            elif step == "delete" and world.pods.get_opt("web") is not None:
                world.pods.delete("web", grace_period_seconds=arguments[0])
            world.transport.settle()  # comes to an end: nothing goes on at the same moment for ever
        world.rules.clear()
        for _ in range(4):
            world.clock.advance(400)
            world.transport.settle()
        history = world.history(since)
        assert history
        for pod in history:
            _check(seen, pod)
            seen = pod
        left = world.pods.get_opt("web")
        if left is not None and left["status"]["phase"] not in ENDED:
            assert left.deletion_timestamp is None
            states = {world.state(container=name) for name in ("main", "side")}
            # Without rules everything runs in the end, but for what has ended and is not started again.
            failed = {"terminated Error"} if spec["restartPolicy"] == "Never" else set()
            assert states <= {"running", "terminated Completed"} | failed
            assert (world.conditions()["Ready"][0] == "True") is (states == {"running"})
    finally:
        world.client.close()
