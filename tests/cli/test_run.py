"""`kubectl-runtime run`: what its function may be, what the options add, and how a failure is told. In this process."""
from __future__ import annotations

import argparse
import io
import json
import logging
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kubectl_runtime import (
    Action,
    Api,
    BoundController,
    Client,
    Config,
    Controller,
    LeaderElection,
    Manager,
    Sharding,
)
from kubectl_runtime.cli.main import main
from kubectl_runtime.cli.operator import config_of, manager_of, tell_of_replicas
from kubectl_runtime.cli.places import CommandError, Place, UsageError
from kubectl_runtime.cli.program import made_by, program_in
from kubectl_runtime.cli.run_options import RunOptions, add_options, checked, set_up_logs
from kubectl_runtime.manager import running, serving
from kubectl_runtime.resources import ConfigMap
from kubectl_runtime.runtime.observe import health
from kubectl_runtime.runtime.observe.debug import DebugPage
from kubectl_runtime.testing import ApiServer

LEASE = "--leader-elect-resource-name"
PLACE = Place("op", "main")


@pytest.fixture
def client() -> Iterator[Client]:
    with Client(Config(cluster_url="http://127.0.0.1:1")) as client:
        yield client


def options(*arguments: str) -> RunOptions:
    parser = argparse.ArgumentParser()
    add_options(parser)
    return checked(RunOptions.of(parser.parse_args(["op:main", *arguments])))


def bound(client: Client) -> BoundController[ConfigMap]:
    return Controller(Api.all(client, ConfigMap)).bind(lambda obj, ctx: Action.await_change())


def made(client: Client, make: Callable[[Client], Any], *arguments: str) -> Manager:
    return manager_of(options(*arguments), lambda: make(client), client)


# What the options make of a controller


@pytest.mark.parametrize(("arguments", "sharding", "in_a_pod", "told"), [
    ([], None, True, True),
    ([], None, False, False),
    ([], Sharding("op", "default"), True, False),
    (["--leader-elect", LEASE, "op"], None, True, False)])
def test_in_a_pod_it_is_told_that_each_replica_works_where_nothing_divides_the_work(
        client: Client, tmp_path: Path, arguments: list[str], sharding: Sharding | None, in_a_pod: bool, told: bool,
        caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kubectl_runtime")
    for name in ("token", "ca.crt", "namespace"):
        (tmp_path / name).write_text("default")
    pod = Config.incluster(environ={"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"},
                           folder=tmp_path)
    manager = made(client, lambda client: Manager(client, sharding=sharding), *arguments)
    tell_of_replicas(manager, pod if in_a_pod else client.config)
    assert caplog.messages == ["no election: each replica of this program does all of the work; with --leader-elect "
                               f"{LEASE} NAME only one replica works at a time"] * told


@pytest.mark.parametrize(("arguments", "page"), [
    ([], DebugPage()),
    (["--debug-page", "off"], None),
    (["--debug-page", "local"], DebugPage()),
    (["--debug-page", "remote"], DebugPage(remote=True)),
    (["--debug-details"], DebugPage(details=True)),
    (["--debug-page", "remote", "--debug-details"], DebugPage(remote=True, details=True)),
    (["--no-debug-details"], DebugPage())])
def test_the_options_say_who_may_look_at_the_page_and_how_closely(client: Client, arguments: list[str],
                                                                  page: DebugPage | None) -> None:
    assert made(client, bound, *arguments).debug == page


def test_what_a_program_s_own_manager_says_of_the_page_is_kept_and_may_not_be_contradicted(client: Client) -> None:
    def own(client: Client) -> Manager:
        return Manager(client, debug=DebugPage(remote=True))

    assert made(client, own).debug == DebugPage(remote=True)
    assert made(client, own, "--debug-page", "remote").debug == DebugPage(remote=True)
    for arguments in (["--debug-page", "off"], ["--debug-page", "local"], ["--debug-details"]):
        with pytest.raises(CommandError, match=r"--debug-page and --debug-details give .* leave out"):
            made(client, own, *arguments)
    with pytest.raises(CommandError, match="--debug-page off and --debug-details contradict each other"):
        options("--debug-page", "off", "--debug-details")


def test_dev_shows_the_texts_of_errors_unless_it_is_told_not_to(client: Client) -> None:
    def of(*arguments: str) -> DebugPage | None:
        return manager_of(options(*arguments), lambda: bound(client), client, debug=DebugPage(details=True)).debug

    assert of() == DebugPage(details=True)
    assert of("--no-debug-details") == DebugPage()
    assert of("--debug-page", "off") is None


def test_a_controller_is_run_by_a_manager_as_the_options_say(client: Client) -> None:
    manager = made(client, bound, "--leader-elect", LEASE, "mine", "--leader-elect-resource-namespace", "system",
                   "--leader-elect-lease-duration", "1m", "--leader-elect-renew-deadline", "40s",
                   "--leader-elect-retry-period", "1.5s", "--health-probe-bind-address", "127.0.0.1:8081")
    assert manager.leader == LeaderElection("mine", "system", lease=60, renew_deadline=40, retry=1.5)
    assert manager.serve == "127.0.0.1:8081"


def test_without_options_there_is_no_election_and_health_at_port_8080(client: Client) -> None:
    manager = made(client, bound)
    assert (manager.leader, manager.serve) == (None, ":8080")
    assert made(client, bound, "--health-probe-bind-address", "0").serve is None


def test_the_grace_period_is_the_controllers_own(client: Client) -> None:
    def patient(client: Client) -> BoundController[ConfigMap]:
        return Controller(Api.all(client, ConfigMap)).shutdown_on_signal(7).bind(
            lambda obj, ctx: Action.await_change())

    assert made(client, patient)._grace == 7


# What they add to a Manager, and what they may not


def test_options_add_what_a_manager_leaves_open(client: Client) -> None:
    given = Manager(client)
    assert (given.leader, given.serve) == (None, ":8080")
    manager = made(client, Manager, "--leader-elect", LEASE, "mine", "--health-probe-bind-address", ":9090")
    assert manager.leader == LeaderElection("mine")
    assert manager.serve == ":9090"
    after = Manager(client)
    assert (after.leader, after.serve) == (None, ":8080")


def test_a_manager_keeps_what_it_says(client: Client) -> None:
    own = LeaderElection("own", lease=30, renew_deadline=20)
    for arguments in ([], ["--leader-elect"], [LEASE, "own"], ["--leader-elect-lease-duration", "30s"]):
        manager = made(client, lambda client: Manager(client, leader=own, serve="127.0.0.1:1234"), *arguments)
        assert manager.leader is own
        assert manager.serve == "127.0.0.1:1234"
    assert made(client, lambda client: Manager(client, serve=None)).serve is None
    assert made(client, lambda client: Manager(client, serve=":8080"), "--health-probe-bind-address",
                ":8080").serve == ":8080"


@pytest.mark.parametrize(("arguments", "said"), [
    ([LEASE, "other"], "--leader-elect-resource-name is other, but the program's own LeaderElection has name=own: "
                       "leave one of them out"),
    (["--leader-elect-resource-namespace", "system"], "--leader-elect-resource-namespace is system"),
    (["--leader-elect-retry-period", "3s"], "--leader-elect-retry-period is 3.0, but the program's own "
                                            "LeaderElection has retry=2.0"),
    (["--no-leader-elect"], "--no-leader-elect turns the election off, but the program's own Manager has an election, "
                            "with the Lease own: leave out the option"),
    (["--health-probe-bind-address", ":9090"], "--health-probe-bind-address is :9090, but the program's own Manager "
                                               "has serve='127.0.0.1:1234'"),
    (["--health-probe-bind-address", "0"], "--health-probe-bind-address is 0"),
])
def test_what_a_manager_says_otherwise_is_a_contradiction(client: Client, arguments: list[str], said: str) -> None:
    with pytest.raises(CommandError) as told:
        made(client, lambda client: Manager(client, leader=LeaderElection("own"), serve="127.0.0.1:1234"), *arguments)
    assert said in str(told.value)


@pytest.mark.parametrize(("arguments", "said"), [
    (["--leader-elect"], "--leader-elect needs the name of the Lease: add --leader-elect-resource-name NAME"),
    ([LEASE, "mine"], "--leader-elect-resource-name configures an election, but none is enabled: add --leader-elect"),
    (["--no-leader-elect", LEASE, "x"], "--no-leader-elect and --leader-elect-resource-name contradict each other"),
    (["--leader-elect", LEASE, "Not A Name"], "the name of a Lease is 'Not A Name'"),
    (["--leader-elect", LEASE, "x", "--leader-elect-renew-deadline", "20s"],
     "renew_deadline (20 s) has to be less than lease (15 s)"),
    (["--dev", "--kubeconfig", "x"], "--kubeconfig names a cluster, and --dev runs on a server of its own"),
    (["--dev", "--context", "x"], "--context names a cluster"),
    (["--webhook-service", "a/b=https://127.0.0.1:1"], "--webhook-service is for the --dev server"),
])
def test_options_that_do_not_fit_together_are_told(client: Client, arguments: list[str], said: str) -> None:
    with pytest.raises(UsageError) as told:
        made(client, bound, *arguments)
    assert said in str(told.value)
    assert told.value.status == 2


@pytest.mark.usefixtures("logs_as_before")
def test_an_election_without_a_name_is_a_wrong_command_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
                                                            capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "unnamed_op.py").write_text("from kubectl_runtime import Manager\ndef main(client):\n"
                                            "    return Manager(client, serve=None)\n")
    monkeypatch.chdir(tmp_path)
    with ApiServer() as server:
        arguments = ["--kubeconfig", str(server.write_kubeconfig(tmp_path / "kubeconfig")), "--leader-elect",
                     "--no-metrics"]  # whose registry is the process's
        assert main(["run", "unnamed_op:main", *arguments]) == 2
    assert "error: --leader-elect needs the name of the Lease: add --leader-elect-resource-name NAME, a name that no " \
           "other operator uses" in capsys.readouterr().err
    assert main(["run", "unnamed_op:main", "--no-leader-elect", LEASE, "x"]) == 2


def test_with_dev_the_lease_has_the_name_of_the_module(client: Client) -> None:
    for module, name in (("my_shop.order_watcher", "order-watcher"), ("operator_", "operator"), ("__main__", "main")):
        said = replace(options("--dev", "--leader-elect", "-n", "shop"), program=Place(module, "main"))
        assert manager_of(said, lambda: bound(client), client).leader == LeaderElection(name)
    assert made(client, bound, "--dev", "--leader-elect", LEASE, "mine").leader == LeaderElection("mine")
    assert made(client, bound, "--dev").leader is None
    own = LeaderElection("own")
    assert made(client, lambda client: Manager(client, leader=own), "--dev", "--leader-elect").leader is own


@pytest.mark.parametrize(("arguments", "said"), [
    (["--health-probe-bind-address", "8080"], "'8080' is not an address to listen at"),
    (["--leader-elect-lease-duration", "15"], "'15' is not a duration such as 15s or 1m30s"),
    (["--log-level", "info,op=loud"], "'op=loud': write a level (debug, info, warn, error or off), or LOGGER=LEVEL"),
    (["--log-level", "loud"], "'loud': write a level (debug, info, warn, error or off), or LOGGER=LEVEL"),
    (["--log-format", "xml"], "invalid choice: 'xml'"),
    (["--dev", "--webhook-service", "orders=https://127.0.0.1:1"], "is not of the form NAMESPACE/NAME="),
    (["--dev", "--webhook-service", "shop/orders=127.0.0.1:1"], "is not of the form NAMESPACE/NAME="),
])
def test_a_wrong_option_ends_with_status_2(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", "op:main", *arguments])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


# Which cluster


def test_the_cluster_is_that_of_the_kubeconfig_the_context_and_the_namespace(tmp_path: Path) -> None:
    with ApiServer() as server:
        file = server.write_kubeconfig(tmp_path / "kubeconfig")
        found = config_of(options("--kubeconfig", str(file), "--context", "embedded", "-n", "team"))
        assert (found.cluster_url, found.default_namespace) == (server.url, "team")
        assert config_of(options("--kubeconfig", str(file))).default_namespace == "default"


def test_without_a_cluster_the_way_to_try_it_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "absent"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(CommandError, match=r"no cluster is configured.*--dev runs the program on an API server"):
        config_of(options())


# The function


def module(source: str) -> ModuleType:
    made = ModuleType("op")
    exec(compile(source, "/somewhere/op.py", "exec", dont_inherit=True), made.__dict__)
    return made


@pytest.mark.parametrize(("source", "said"), [
    ("def mian(client): ...\ndef f(client): ...", "op has no main (did you mean mian?); its functions: f, mian"),
    ("", "op has no main; its functions: none"),
    ("main = 7", "op:main is an int; it has to be a function that is called with a client, and returns a Manager or "
                 "Controller(...).bind(reconciler)"),
    ("async def main(client): ...", "op:main is an async function"),
    ("def main(): ...", "op:main cannot be called with one argument, the client: too many positional arguments"),
    ("def main(client, more): ...", "cannot be called with one argument, the client: missing a required argument: "
                                    "'more'"),
])
def test_a_function_that_cannot_be_the_program_is_refused_before_it_is_called(source: str, said: str) -> None:
    with pytest.raises(CommandError) as told:
        program_in(module(source), PLACE)
    assert said in str(told.value)


@pytest.mark.parametrize(("body", "said"), [
    ("pass", "op:main returned nothing: is its `return` missing?"),
    ("return Controller(Api.all(client, ConfigMap))", "op:main returned a Controller without its reconciler: return "
                                                      "controller.bind(reconciler)"),
    ("return 'yes'", "op:main returned a str; it has to be a function that"),
])
def test_what_the_function_returns_has_to_run(client: Client, body: str, said: str) -> None:
    source = ("from kubectl_runtime import Api, Controller\nfrom kubectl_runtime.resources import ConfigMap\n"
              f"def main(client):\n    {body}")
    with pytest.raises(CommandError) as told:
        made_by(program_in(module(source), PLACE), client, PLACE)
    assert said in str(told.value)


@pytest.mark.parametrize(("body", "said"), [
    ("raise LookupError('no table')", "op:main raised LookupError: no table\nTraceback"),
    ("raise SystemExit(3)", "op:main raised SystemExit: 3\nTraceback"),
    ("from kubectl_runtime import Controller; Controller(7)", "op:main raised RequestError: "),
])
def test_what_the_function_raises_comes_with_its_own_frames(client: Client, body: str, said: str) -> None:
    with pytest.raises(CommandError) as told:
        made_by(program_in(module(f"def main(client):\n    {body}"), PLACE), client, PLACE)
    assert said in str(told.value)
    assert re.findall(r'File "(.*?)", line (\d+)', str(told.value)) == [("/somewhere/op.py", "2")]


@pytest.mark.parametrize("source", ["class main:\n    def __new__(cls, client): return 1",
                                    "import functools\ndef f(x, client): ...\nmain = functools.partial(f, 1)",
                                    "def main(client, more=1, *rest): ..."])
def test_whatever_can_be_called_with_a_client_may_be_the_program(source: str) -> None:
    assert callable(program_in(module(source), PLACE))


@pytest.mark.usefixtures("logs_as_before")
def test_a_module_that_is_not_there_is_told_on_standard_error_with_status_2(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["run", "run_absent:main"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: there is no module 'run_absent' in ")


# Logs


@pytest.mark.usefixtures("logs_as_before")
@pytest.mark.parametrize(("levels", "environment", "shown"), [
    (None, None, {"kubectl_runtime.x INFO", "op INFO", "else INFO"}),
    ("debug", None, {"kubectl_runtime.x INFO", "kubectl_runtime.x DEBUG", "op INFO", "op DEBUG", "else INFO"}),
    (None, "debug", {"kubectl_runtime.x INFO", "kubectl_runtime.x DEBUG", "op INFO", "op DEBUG", "else INFO"}),
    ("info", "debug", {"kubectl_runtime.x INFO", "op INFO", "else INFO"}),
    ("warn", None, set()),
    ("info,op=debug", None, {"kubectl_runtime.x INFO", "op INFO", "op DEBUG", "else INFO"}),
])
def test_the_level_is_the_librarys_and_the_programs(monkeypatch: pytest.MonkeyPatch, levels: str | None,
                                                    environment: str | None, shown: set[str]) -> None:
    monkeypatch.setenv("KUBECTL_RUNTIME_LOG", environment or "")
    stream = io.StringIO()
    set_up_logs("json", levels, "op", stream=stream)
    for name in ("kubectl_runtime.x", "op", "else"):
        logging.getLogger(name).debug("x")
        logging.getLogger(name).info("x")
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert {f"{line['logger']} {line['level'].upper()}" for line in lines} == shown


@pytest.mark.usefixtures("logs_as_before")
def test_the_short_form_is_for_eyes(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = Terminal()
    set_up_logs("short", "info", "op", stream=stream)
    logging.getLogger("kubectl_runtime.controller.widget").info("all is %s", "well")
    logging.getLogger("op").warning("beware")
    first, second = stream.getvalue().splitlines()
    assert re.fullmatch(r"\d\d:\d\d:\d\d INFO    controller\.widget: all is well", first)
    assert re.fullmatch(r"\x1b\[33m\d\d:\d\d:\d\d WARNING op: beware\x1b\[0m", second)
    monkeypatch.setenv("NO_COLOR", "1")
    stream = Terminal()
    set_up_logs("short", "info", "op", stream=stream)
    logging.getLogger("op").warning("beware")
    assert "\x1b" not in stream.getvalue()


@pytest.mark.usefixtures("logs_as_before")
def test_the_short_form_leaves_out_what_the_command_itself_prints() -> None:
    stream = io.StringIO()
    set_up_logs("short", "info", "op", stream=stream)
    for module in (health, running, serving):  # loggers are called after modules, which may move
        module.log.info("left out")
    running.log.warning("shown")
    assert [line.split()[-1] for line in stream.getvalue().splitlines()] == ["shown"]


@pytest.mark.usefixtures("logs_as_before")
@pytest.mark.parametrize(("form", "read"), [
    ("json", lambda line: json.loads(line)["message"]), ("text", lambda line: line.partition("py.warnings: ")[2]),
    ("short", lambda line: line.partition("py.warnings: ")[2])])
def test_warnings_of_python_are_lines_of_the_log(form: str, read: Callable[[str], str]) -> None:
    stream = io.StringIO()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        set_up_logs(form, None, "op", stream=stream)
        for text in ("old", "two\nlines \x1b[2J"):
            warnings.warn(text, DeprecationWarning, stacklevel=1)
        warnings.warn_explicit("of a file", UserWarning, "there.py", 7)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 3
    assert read(lines[0]).endswith(": DeprecationWarning: old")
    assert read(lines[2]) == "there.py:7: UserWarning: of a file"
    assert all(line.isprintable() for line in lines)
