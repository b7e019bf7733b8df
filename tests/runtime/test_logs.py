"""Logs that say which run they belong to, and the levels that the environment asks for."""
from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
from typing import Any

import pytest

from kubectl_runtime.cli.run_options import ShortFormatter
from kubectl_runtime.core.base.errors import TransportError
from kubectl_runtime.runtime import logs
from kubectl_runtime.runtime.controller.controller import Controller
from kubectl_runtime.runtime.reconcile.reconciler import Action, Context
from kubectl_runtime.testing.simulation import Simulation
from tests.runtime.scripted_cluster import Cluster, Parent

LOGGERS = ("kubectl_runtime", "kubectl_runtime.controller.x", "kubectl_runtime.runtime.watch", "app")

pytestmark = pytest.mark.usefixtures("logs_as_before")


def levels() -> list[int]:
    return [logging.getLogger(name).level for name in LOGGERS]


def test_the_variable_sets_levels_by_logger_as_env_logger_does() -> None:
    logs.setup(stream=io.StringIO(), environ={"KUBECTL_RUNTIME_LOG": " debug,controller.x=info, runtime.watch=WARN,"
                                                                     "app=off"})
    assert levels() == [logging.DEBUG, logging.INFO, logging.WARNING, logging.CRITICAL + 10]


def test_without_the_variable_the_default_counts_and_a_logger_alone_means_all_of_it() -> None:
    logs.setup("warn", stream=io.StringIO(), environ={})
    assert levels()[0] == logging.WARNING
    logs.apply_levels("controller.x")
    assert levels()[1] == logging.DEBUG


@pytest.mark.parametrize("text", ["controller.x=loud", "loud", "Verbose", "=debug", "a b", "x=", "a b=info"])
def test_a_directive_that_is_none_is_told_and_changes_nothing(text: str, caplog: pytest.LogCaptureFixture) -> None:
    before = levels()
    logs.apply_levels(text)
    assert f"ignoring {text!r}: write a level (debug, trace, info, warn" in caplog.text
    assert levels() == before


def test_a_second_setup_replaces_the_handler_of_the_first() -> None:
    before = len(logging.getLogger().handlers)
    logs.setup(stream=io.StringIO(), environ={})
    logs.setup(stream=io.StringIO(), environ={})
    assert len(logging.getLogger().handlers) == before + 1


def test_nothing_is_installed_at_import() -> None:
    program = ("import logging; before = logging.getLogRecordFactory(), logging.getLogger().handlers[:]\n"
               "import kubectl_runtime.runtime.logs, kubectl_runtime.runtime.controller.controller\n"
               "assert (logging.getLogRecordFactory(), logging.getLogger().handlers[:]) == before\n"
               "assert not logging.getLogger('kubectl_runtime').handlers\n")
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def reconciled(stream: io.StringIO, *, json_lines: bool) -> list[Any]:
    """The lines of a controller `x` whose reconciler and a library that it calls log something."""
    logs.setup("debug", json=json_lines, stream=stream, environ={})
    logging.getLogger("app").setLevel(logging.INFO)
    simulation = Simulation(5)
    cluster = Cluster(simulation.clock)
    cluster.put(Parent, "a")

    def reconcile(obj: Parent, ctx: Context[Any]) -> Action:
        logging.getLogger("app").info("of a library", extra={"size": 3})
        ctx.logger.info("of mine")
        if ctx.attempt == 1:
            raise TransportError("planned")
        return Action.requeue(300)

    simulation.start(Controller(cluster.api(Parent), name="x"), reconcile)
    simulation.settle(1)
    logging.getLogger("app").info("outside")
    return stream.getvalue().splitlines()


def test_each_record_inside_a_run_carries_the_run_and_none_outside() -> None:
    lines = [json.loads(line) for line in reconciled(io.StringIO(), json_lines=True)]
    of_app = [line for line in lines if line["logger"] == "app"]
    assert [line["message"] for line in of_app] == ["of a library", "of a library", "outside"]
    inside, again, outside = of_app
    run = {"controller": "x", "kind": "Parent", "namespace": "default", "name": "a", "size": 3,
           "reason": "object updated", "level": "info"}
    assert {key: inside[key] for key in run} == run
    assert len(inside["reconcile_id"]) == 8
    assert again["reconcile_id"] != inside["reconcile_id"]
    assert again["reason"] == "tried again after a failure"
    assert not {"controller", "kind", "name", "reconcile_id"} & set(outside)
    mine = next(line for line in lines if line["message"].endswith("of mine"))
    assert mine["logger"] == "kubectl_runtime.controller.x"
    assert mine["reconcile_id"] == inside["reconcile_id"]


def test_at_debug_there_is_a_line_for_each_run_and_at_info_a_recovery_says_after_how_many_attempts() -> None:
    lines = [json.loads(line) for line in reconciled(io.StringIO(), json_lines=True)]
    runs = [line["message"] for line in lines if line["level"] == "debug" and ": ran " in line["message"]]
    assert len(runs) == 2
    assert runs[0].startswith("Parent default/a: ran 0 ms (object updated): error, again in ")
    assert runs[0].endswith(": TransportError: planned")
    assert runs[1] == "Parent default/a: ran 0 ms (tried again after a failure): success, again in 5 min"
    assert [line["message"] for line in lines if "works again" in line["message"]] == [
        next(line["message"] for line in lines
             if line["message"].startswith("Parent default/a: works again after 1 failed attempt in "))]


def test_lines_for_people_name_the_run_where_the_message_does_not() -> None:
    lines = reconciled(io.StringIO(), json_lines=False)
    inside = next(line for line in lines if "app: of a library" in line)
    assert inside.endswith(" Parent default/a]")
    assert next(line for line in lines if "app: outside" in line).endswith("outside")


def test_json_lines_hold_a_traceback_and_whatever_extra_there_is() -> None:
    record = logging.LogRecord("app", logging.ERROR, __file__, 1, "no %s", ("luck",), None)
    record.thing = {1, }
    try:
        raise ValueError("planned")
    except ValueError:
        record.exc_info = sys.exc_info()
    line = json.loads(logs.JsonFormatter().format(record))
    assert line["message"] == "no luck"
    assert line["exception"].endswith("ValueError: planned")
    assert line["time"].endswith("Z")
    assert "thing" in line


HOSTILE = ["bad\n2026-01-01 00:00:00,000 ERROR forged: line", "a\x1b[2J\x1b[31mb", "a\rb", "a\u2028b\x85c", "a\u202eb",
           "a\x00\x07\x9b31m", "a\udc80b", "tab\there"]


def written(form: Any, *arguments: Any, **more: Any) -> str:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(form)
    logger = logging.Logger("x")
    logger.addHandler(handler)
    logger.error(*arguments, **more)
    return stream.getvalue()


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("form", [logs.TextFormatter(), ShortFormatter(colours=False)])
def test_a_text_of_others_is_escaped_in_a_line(form: logging.Formatter, text: str) -> None:
    for line in (written(form, "it said: %s", text), written(form, text), written(form, "%s", ValueError(text))):
        assert line.count("\n") == 1
        assert line[:-1].isprintable()
        assert text.encode("unicode_escape", "backslashreplace").decode() in line


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("form", [logs.TextFormatter(), ShortFormatter(colours=False)])
def test_a_traceback_can_forge_no_line(form: logging.Formatter, text: str) -> None:
    error = ValueError(text)
    error.add_note(f"a note\n{text}")
    error.__cause__ = RuntimeError(text)
    logger_first, *below = written(form, "failed", exc_info=error, stack_info=True).split("\n")[:-1]
    assert logger_first.endswith("failed")
    assert below[0].startswith("  RuntimeError: ")
    assert all(line.startswith("  ") and line.isprintable() for line in below)


def test_a_traceback_that_another_handler_has_formatted_is_not_taken_as_it_is() -> None:
    error = ValueError("a\nERROR forged")
    record = logging.LogRecord("x", logging.ERROR, "f", 1, "failed", (), (ValueError, error, None))
    logging.Formatter().format(record)
    assert "\nERROR" not in logs.TextFormatter().format(record)
    assert "\n  ERROR forged" in logs.TextFormatter().format(record)


def test_lines_of_the_template_itself_stay_lines_below_the_first() -> None:
    first, *below = written(logs.TextFormatter(), "it is here:\n%s", "  File a\n    b\x1b").split("\n")[:-1]
    assert first.endswith("it is here:")
    assert below == ["    File a", "      b\\x1b"]


@pytest.mark.parametrize("text", HOSTILE)
def test_json_is_one_line_whatever_is_in_it(text: str) -> None:
    line = written(logs.JsonFormatter(), "it said: %s", text, extra={"more": text})
    assert line.count("\n") == 1
    assert json.loads(line)["message"] == f"it said: {text}"
