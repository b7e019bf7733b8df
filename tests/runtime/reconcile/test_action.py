"""What a reconciler answers."""
from __future__ import annotations

from datetime import timedelta

import pytest

from kubectl_runtime.runtime.reconcile.action import Action


def test_a_requeue_takes_seconds_or_a_timedelta() -> None:
    assert Action.requeue(1.5) == Action.requeue(timedelta(seconds=1.5)) == Action(1.5)
    assert Action.requeue(0).requeue_after == 0.0


def test_awaiting_a_change_names_no_time() -> None:
    assert Action.await_change().requeue_after is None


@pytest.mark.parametrize("after", ["5m", None])
def test_a_text_is_no_duration(after: object) -> None:
    with pytest.raises(TypeError, match="takes seconds or a timedelta"):
        Action.requeue(after)  # type: ignore[arg-type]


@pytest.mark.parametrize("after", [-1, float("nan"), timedelta(seconds=-1)])
def test_a_time_in_the_past_is_refused(after: float) -> None:
    with pytest.raises(ValueError, match="not negative"):
        Action.requeue(after)
