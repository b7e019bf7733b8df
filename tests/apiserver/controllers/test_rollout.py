"""The steps of a rollout, as kube-controller-manager takes them."""

from __future__ import annotations

import pytest

from kubectl_runtime.apiserver.controllers.rollout import (
    Limits,
    Size,
    limits_of,
    new_replicas,
    old_replicas,
    proportional,
)


@pytest.mark.parametrize(("replicas", "surge", "unavailable", "limits"), [
    (4, "25%", "25%", Limits(4, 1, 1)),
    (1, "25%", "25%", Limits(1, 1, 0)),
    (10, "25%", "25%", Limits(10, 3, 2)),
    (3, 0, 0, Limits(3, 0, 1)),  # it would stand still
    (2, 0, 5, Limits(2, 0, 2)),
    (0, "25%", "25%", Limits(0, 0, 0)),
])
def test_surge_is_rounded_up_and_what_may_be_unavailable_down(replicas, surge, unavailable, limits):
    rolling = {"maxSurge": surge, "maxUnavailable": unavailable}
    assert limits_of({"replicas": replicas, "strategy": {"type": "RollingUpdate", "rollingUpdate": rolling}}) == limits


def test_recreating_has_no_surge():
    assert limits_of({"replicas": 3, "strategy": {"type": "Recreate"}}) == Limits(3, 0, 0)


@pytest.mark.parametrize(("limits", "new", "others", "wanted"), [
    (Limits(4, 1, 1), 0, 0, 4),
    (Limits(4, 1, 1), 0, 4, 1),
    (Limits(4, 1, 1), 1, 4, 1),
    (Limits(4, 1, 1), 1, 3, 2),
    (Limits(4, 1, 1), 6, 0, 4),
])
def test_the_new_replica_set_grows_into_the_room_that_the_surge_leaves(limits, new, others, wanted):
    assert new_replicas(limits, new, others) == wanted


@pytest.mark.parametrize(("new", "old", "steps"), [
    (Size(1, 0), {"a": Size(4, 4)}, {"a": 3}),  # three are enough
    (Size(2, 0), {"a": Size(3, 3)}, {}),  # none is to spare before a new one is available
    (Size(2, 2), {"a": Size(3, 3)}, {"a": 1}),
    (Size(1, 0), {"a": Size(4, 0)}, {"a": 3}),  # what is not available goes first
    (Size(4, 4), {"a": Size(1, 1), "b": Size(1, 1)}, {"a": 0, "b": 0}),
])
def test_old_replica_sets_shrink_while_enough_are_available(new, old, steps):
    assert old_replicas(Limits(4, 1, 1), new, old) == steps


@pytest.mark.parametrize(("limits", "sizes", "wanted"), [
    (Limits(10, 2, 2), {"new": Size(3, 3, 6), "old": Size(3, 3, 6)}, {"new": 6, "old": 6}),
    (Limits(2, 1, 0), {"old": Size(8, 8, 12), "new": Size(4, 4, 12)}, {"old": 2, "new": 1}),
    (Limits(0, 0, 0), {"old": Size(3, 3, 5), "new": Size(2, 0, 5)}, {"old": 0, "new": 0}),
])
def test_scaling_in_the_midst_of_a_rollout_keeps_the_proportion(limits, sizes, wanted):
    assert proportional(limits, sizes) == wanted
