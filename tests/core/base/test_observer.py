"""Observers are told in turn, cannot harm what they observe, and cost nothing when there are none."""
from __future__ import annotations

import inspect
import logging
import threading

import pytest

from kubectl_runtime.core.base.observer import METHODS, NO_OBSERVER, Observer, RunResult, callbacks, notify, together
from kubectl_runtime.core.base.plain import Key


class Recording(Observer):
    def __init__(self, heard: list[tuple[object, ...]], raises: BaseException | None = None) -> None:
        self.heard = heard
        self.raises = raises

    def store_changed(self, watch: str, objects: int) -> None:
        self.heard.append(("store", watch, objects))
        if self.raises is not None:
            raise self.raises

    def run_ended(self, controller: str, key: Key, result: RunResult, seconds: float,
                  error: BaseException | None) -> None:
        self.heard.append((controller, key, result, seconds, error))


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("observer", [NO_OBSERVER, together(Observer()), together(Recording([]))])
def test_every_method_takes_its_values_by_position_and_says_nothing(name: str, observer: Observer) -> None:
    declared = inspect.signature(getattr(Observer, name)).parameters.values()
    assert {parameter.kind for parameter in declared} == {inspect.Parameter.POSITIONAL_OR_KEYWORD}
    assert getattr(Observer, name).__doc__
    assert getattr(observer, name)(*range(len(declared) - 1)) is None


def test_each_observer_is_told_in_order() -> None:
    heard: list[tuple[object, ...]] = []
    told = together(Recording(heard), Observer(), Recording(heard))
    told.store_changed("pods", 3)
    told.run_ended("c", ("ns", "a"), RunResult.SUCCESS, 0.5, None)
    assert heard == 2 * [("store", "pods", 3)] + 2 * [("c", ("ns", "a"), "success", 0.5, None)]


def test_what_nobody_listens_to_costs_as_much_as_no_observer() -> None:
    assert together() is NO_OBSERVER
    assert together(Recording([]), Observer()).frame_arrived == NO_OBSERVER.frame_arrived


def test_observers_that_were_put_together_are_not_wrapped_again() -> None:
    told = together(Recording([]))
    assert together(told) is told
    assert together(NO_OBSERVER, Observer()).store_changed == together(NO_OBSERVER, NO_OBSERVER).store_changed


def test_what_is_no_observer_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match="an instance of a subclass of Observer, not the class Recording"):
        together(Recording)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not int"):
        together(NO_OBSERVER, 3)  # type: ignore[arg-type]


def test_a_log_handler_that_raises_harms_no_more_than_the_observer_does() -> None:
    class Broken(logging.Handler):
        def handle(self, record: logging.LogRecord) -> bool:
            raise SystemExit(1)

    handler, logger = Broken(), logging.getLogger("kubectl_runtime.core.base.observer")
    heard: list[tuple[object, ...]] = []
    logger.addHandler(handler)
    try:
        together(Recording(heard, ValueError("no")), Recording(heard)).store_changed("pods", 1)
    finally:
        logger.removeHandler(handler)
    assert len(heard) == 2


@pytest.mark.parametrize("raised", [ValueError("no"), SystemExit(1), KeyboardInterrupt()])
def test_what_an_observer_raises_is_logged_and_the_next_is_told(
    raised: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[tuple[object, ...]] = []
    told = together(Recording(heard, raised), Recording(heard))
    thread = threading.Thread(target=told.store_changed, args=("pods", 1))
    with caplog.at_level(logging.ERROR):
        thread.start()
        thread.join(10)
    assert heard == 2 * [("store", "pods", 1)]
    assert "Recording.store_changed raised" in caplog.text


def test_hearers_are_those_who_listen_and_know_whom_it_is_about(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[tuple[object, ...]] = []
    told = together(Recording(heard, ValueError("no")), Observer(), Recording(heard))
    assert callbacks(told, "frame_arrived", "pods") == callbacks(NO_OBSERVER, "store_changed", "pods") == ()
    assert len(callbacks(Recording(heard), "store_changed", "pods")) == 1
    notify(callbacks(told, "store_changed", "pods"), 3)
    assert heard == 2 * [("store", "pods", 3)]
    assert "observer Recording.store_changed raised ValueError" in caplog.text


def test_an_interrupt_from_the_keyboard_passes() -> None:
    with pytest.raises(KeyboardInterrupt):
        together(Recording([], KeyboardInterrupt())).store_changed("pods", 1)
