"""What a reconciler answers."""
from __future__ import annotations

from datetime import timedelta
from math import inf
from typing import Any

import pytest

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.runtime.reconcile.reconciler import Action


def test_a_requeue_takes_seconds_or_a_timedelta() -> None:
    assert Action.requeue(1.5) == Action.requeue(timedelta(seconds=1.5)) == Action(1.5)
    assert Action.requeue(0).requeue_after == 0.0


def test_awaiting_a_change_names_no_time() -> None:
    assert Action.await_change().requeue_after is None


@pytest.mark.parametrize("after", ["5m", "5", b"5", None, True, False, [5], 1j, 10 ** 400])
@pytest.mark.parametrize("make", [Action.requeue, Action], ids=["requeue", "Action"])
def test_what_is_no_duration_is_refused_as_all_wrong_arguments_are(make: Any, after: Any) -> None:
    if make is Action and after is None:
        assert make(after) == Action.await_change()
        return
    with pytest.raises(RequestError, match="seconds or a timedelta"):
        make(after)


@pytest.mark.parametrize("after", [-1, -1e-9, float("nan"), float("-inf"), timedelta(seconds=-1)])
def test_a_time_in_the_past_is_refused(after: float) -> None:
    with pytest.raises(RequestError, match="at least 0 seconds"):
        Action.requeue(after)


def test_a_time_without_an_end_is_refused_and_a_very_long_one_is_not() -> None:
    with pytest.raises(RequestError, match="await_change"):
        Action.requeue(inf)
    assert Action.requeue(timedelta.max).requeue_after == timedelta.max.total_seconds()
