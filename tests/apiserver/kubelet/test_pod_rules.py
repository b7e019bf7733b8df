"""Rules for Pods: which are meant, and what becomes of them, on the server's clock."""
from __future__ import annotations

import threading

import pytest

from kubectl_runtime import Api, RequestError
from kubectl_runtime.resources import Node
from kubectl_runtime.testing import ApiServer


def test_an_image_that_cannot_be_pulled_backs_off_until_the_rule_goes(world):
    rule = world.rules.on("app=web").fail_image_pull("manifest unknown")
    world.create(labels={"app": "web"})
    assert (world.phase(), world.state()) == ("Pending", "waiting ImagePullBackOff")
    message = world.container()["state"]["waiting"]["message"]
    assert message == ('Back-off pulling image "nginx": ErrImagePull: failed to pull and unpack image '
                       '"docker.io/library/nginx:latest": manifest unknown')
    since = world.version()
    world.advance(10)
    world.advance(19)
    reasons = [each["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] for each in world.history(since)]
    assert reasons == ["ErrImagePull", "ImagePullBackOff"]  # after ten seconds, and the next after twenty more
    world.advance(1)
    assert len(world.history(since)) == 4
    rule.remove()
    assert world.state() == "running"


def test_a_container_that_crashes_backs_off_and_restarts(world):
    world.rules.on().crash(3, after=1)
    world.create()
    assert world.state() == "running"
    world.advance(1)  # the first restart is at once
    assert (world.state(), world.container()["restartCount"]) == ("running", 1)
    last = world.container()["lastState"]["terminated"]
    assert (last["exitCode"], last["reason"]) == (3, "Error")
    world.advance(1)
    assert (world.phase(), world.state()) == ("Running", "waiting CrashLoopBackOff")
    assert world.container()["state"]["waiting"]["message"].startswith(
        "back-off 10s restarting failed container=main pod=web_default(")
    assert world.conditions()["Ready"] == ("False", "ContainersNotReady")
    world.advance(9.5)
    assert world.state() == "waiting CrashLoopBackOff"
    world.advance(0.5)
    assert (world.state(), world.container()["restartCount"]) == ("running", 2)
    world.advance(1)
    assert world.container()["state"]["waiting"]["message"].startswith("back-off 20s")


def test_only_so_many_crashes(world):
    world.rules.on().crash(times=1)
    world.create()
    assert (world.state(), world.container()["restartCount"]) == ("running", 1)
    world.advance(60)
    assert world.container()["restartCount"] == 1


def test_a_pod_that_is_not_restarted_ends(world):
    world.rules.on(name="good").succeed(after=2)
    world.rules.on(name="bad").crash(after=2)
    world.create("good", restartPolicy="Never")
    world.create("bad", restartPolicy="Never")
    world.create("again", restartPolicy="OnFailure")
    world.advance(2)
    assert [world.phase(name) for name in ("good", "bad", "again")] == ["Succeeded", "Failed", "Running"]
    assert world.conditions("good")["Ready"] == ("False", "PodCompleted")
    assert world.conditions("bad")["ContainersReady"] == ("False", "PodFailed")


def test_a_pod_is_ready_later_or_never(world):
    world.rules.on(name="late").be_ready(after=5)
    never = world.rules.on(name="never").never_be_ready()
    world.create("late")
    world.create("never")
    assert {world.conditions(name)["Ready"] for name in ("late", "never")} == {("False", "ContainersNotReady")}
    world.advance(5)
    assert [world.conditions(name)["Ready"][0] for name in ("late", "never")] == ["True", "False"]
    never.remove()
    assert world.conditions("never")["Ready"][0] == "True"
    never.never_be_ready()
    assert world.conditions("never")["Ready"][0] == "False"


def test_a_startup_probe_is_passed_when_the_container_is_ready(world):
    world.rules.on().be_ready(after=5)
    world.create(containers=[{"name": "main", "image": "a", "startupProbe": {"tcpSocket": {"port": 1}}}])
    assert world.container()["started"] is False
    world.advance(5)
    assert world.container()["started"] is True


def test_a_slow_start(world):
    world.rules.on().start(after=5)
    world.create()
    assert (world.phase(), world.state()) == ("Pending", "waiting ContainerCreating")
    world.advance(4.75)
    assert world.phase() == "Pending"
    world.advance(0.25)
    assert world.phase() == "Running"


def test_a_container_that_stops_when_it_is_asked_to_shortens_the_grace(world):
    world.rules.on(name="quick").stop(after=2)
    world.rules.on(name="slow").stop(after=100)
    world.create("quick")
    world.create("slow")
    since = world.version()
    for name in ("quick", "slow"):
        world.pods.delete(name)
    world.advance(2)
    assert [pod.name for pod in world.pods.list()] == ["slow"]
    world.advance(28)
    assert world.pods.list().items == []
    ends = {each["metadata"]["name"]: each["status"] for each in world.history(since)}
    codes = {name: (status["phase"], status["containerStatuses"][0]["state"]["terminated"]["exitCode"])
             for name, status in ends.items()}
    assert codes == {"quick": ("Succeeded", 0), "slow": ("Failed", 137)}


def test_a_pod_for_which_there_is_no_node(world):
    rule = world.rules.on().unschedulable("0/3 nodes are available: 3 Insufficient cpu.")
    world.create()
    condition = world.status()["conditions"][0]
    assert (condition["reason"], condition["message"]) == ("Unschedulable",
                                                           "0/3 nodes are available: 3 Insufficient cpu.")
    version = world.version()
    world.advance(60)
    assert world.version() == version
    rule.remove()
    assert world.phase() == "Running"


def test_later_rules_win_action_by_action(world):
    world.rules.on().start(after=5).be_ready(after=5)
    world.rules.on(name="web").be_ready(after=0)
    world.create()
    world.advance(5)
    assert world.conditions()["Ready"] == ("True", "")


@pytest.mark.parametrize(("arguments", "meant"), [
    ({"selector": "app=web,tier!=x"}, True), ({"selector": {"app": "web"}}, True), ({"selector": "app=other"}, False),
    ({"name": "we*"}, True), ({"name": "e*"}, False), ({"namespace": "default"}, True),
    ({"namespace": "kube-*"}, False), ({"image": "nginx*"}, True), ({"image": "postgres"}, False),
    ({"container": "main"}, True), ({"container": "other"}, False),
    ({"where": lambda pod: pod["metadata"]["labels"]["app"] == "web"}, True),
    ({"where": lambda pod: None}, False), ({"name": "web", "image": "postgres"}, False)])
def test_a_rule_is_about_pods_that_match_all_that_is_given(world, arguments, meant):
    rule = world.rules.on(**arguments).never_be_ready()
    world.create(labels={"app": "web"})
    assert (world.conditions()["Ready"][0] == "False") is meant
    assert rule.pods == (["default/web"] if meant else [])


def test_the_first_pods_only(world):
    rule = world.rules.on("app=web").first(2).fail_image_pull()
    for number in range(4):
        world.create(f"web-{number}", labels={"app": "web"})
    assert [world.phase(f"web-{number}") for number in range(4)] == ["Pending", "Pending", "Running", "Running"]
    assert rule.pods == ["default/web-0", "default/web-1"]


def test_how_many_is_said_before_what_becomes_of_them(world):
    with pytest.raises(ValueError, match="before any action"):
        world.rules.on().never_be_ready().first(1)


def test_a_rule_for_one_container_leaves_the_others(world):
    world.rules.on(container="side").crash()
    world.create(containers=[{"name": "main", "image": "a"}, {"name": "side", "image": "b"}])
    world.advance(1)
    assert world.state(container="main") == "running"
    assert world.state(container="side") == "waiting CrashLoopBackOff"
    assert world.phase() == "Running"


def test_rules_without_a_container_leave_init_containers(world):
    world.rules.on().crash()
    world.create(initContainers=[{"name": "init", "image": "a"}])
    assert world.state(container="init") == "terminated Completed"


def test_a_function_that_fails_is_told_and_passed_over(world, caplog):
    world.rules.on(where=lambda pod: pod["no such key"]).never_be_ready()
    world.create()
    assert world.conditions()["Ready"] == ("True", "")
    world.create("other")
    told = [record.getMessage() for record in caplog.records]
    assert [text.partition(":")[0] for text in told] == [
        f"the function `where` of a Pod rule raised for default/{name}, so the rule was skipped"
        for name in ("web", "other")]


def test_a_function_that_ends_a_test_or_the_program_ends_no_thread_of_the_server(world):
    for error in (SystemExit(1), pytest.fail.Exception("no")):
        def where(pod, error=error):
            raise error
        world.rules.on(where=where).never_be_ready()
    world.create()
    assert world.phase() == "Running"


def test_a_function_may_change_its_pod_and_ask_the_server():
    with ApiServer(controllers=["*"]) as server, server.client() as client:
        asked = threading.Event()

        def where(pod):
            pod["metadata"].clear()
            Api.all(client, Node).list()  # another thread of the server answers: no lock is held meanwhile
            asked.set()
            return True

        server.kubelet.rules.on(where=where).never_be_ready()
        server.load([{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
                      "spec": {"containers": [{"name": "a", "image": "a"}]}}])
        assert asked.wait(10)


def test_clear_takes_all_rules_back(world):
    world.rules.on().fail_image_pull()
    world.create()
    assert len(world.rules) == 1
    world.rules.clear()
    assert (world.state(), list(world.rules)) == ("running", [])


@pytest.mark.parametrize("wrong", [
    lambda rule: rule.crash(0), lambda rule: rule.crash(256), lambda rule: rule.crash(True),
    lambda rule: rule.crash(times=0), lambda rule: rule.first(0), lambda rule: rule.first(True),
    lambda rule: rule.start(after=-1), lambda rule: rule.be_ready(after=float("inf")),
    lambda rule: rule.be_ready(after=float("nan")), lambda rule: rule.unschedulable(""),
    lambda rule: rule.fail_image_pull(""), lambda rule: rule.start(after="5s"), lambda rule: rule.start(after=True),
    lambda rule: rule.log(3), lambda rule: rule.log(None)])
def test_what_makes_no_sense_is_refused_and_nothing_is_in_force(world, wrong):
    rule = world.rules.on()
    with pytest.raises(ValueError, match=r"must be"):
        wrong(rule)
    assert len(world.rules) == 0


@pytest.mark.parametrize("about", [{"where": "app"}, {"name": 3}, {"image": b"x"}])
def test_what_no_pod_can_be_compared_with_is_refused(world, about):
    with pytest.raises(ValueError, match="must be"):
        world.rules.on(**about)


def test_a_selector_that_is_none_is_refused(world):
    with pytest.raises(RequestError):
        world.rules.on("app in (")


def test_exec_may_be_given_for_a_pattern(world):
    kubelet = world.server.kubelet

    def all_of_them(call):
        return 0

    def one(call):
        return 1

    kubelet.exec("*", all_of_them, namespace="*")
    kubelet.exec("web", one, namespace="default")
    kubelet.exec("db-*", one, container="main")
    assert kubelet.find_handler("exec", "default", "web", "any") is one
    assert kubelet.find_handler("exec", "other", "web", "any") is all_of_them
    assert kubelet.find_handler("exec", "default", "db-1", "main") is one
    assert kubelet.find_handler("exec", "default", "db-1", "side") is all_of_them
    assert kubelet.find_handler("attach", "default", "web", "any") is None
