"""The cluster's lock: held, let go for a while, and what is called back when it is free."""
from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from kubectl_runtime.apiserver.storage import Cluster
from kubectl_runtime.core.base.threads import SYSTEM_CLOCK


@pytest.fixture
def cluster() -> Cluster:
    def loopback(*_: object) -> None:
        raise AssertionError("nobody asks")

    return Cluster(SYSTEM_CLOCK, (), loopback)  # type: ignore[arg-type]


def is_free(cluster: Cluster) -> bool:
    """Whether another thread gets the lock."""

    def take() -> bool:
        found: bool = cluster._lock.acquire(blocking=False)
        if found:
            cluster._lock.release()
        return found

    with ThreadPoolExecutor(1) as other:
        return other.submit(take).result(10)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_the_lock_is_free_while_it_is_released_however_deep_it_is_held(cluster: Cluster, depth: int) -> None:
    def within(left: int) -> None:
        if left:
            with cluster.locked():
                within(left - 1)
            return
        with cluster.released():
            assert is_free(cluster)
        called: list[int] = []
        cluster.call_unlocked(lambda: called.append(1))
        with cluster.locked():
            pass
        assert called == []  # it is held again, as deep as before

    within(depth)
    assert is_free(cluster)


def test_the_lock_is_held_again_after_it_was_released(cluster: Cluster) -> None:
    with cluster.locked():
        with cluster.released():
            pass
        assert not is_free(cluster)


def test_a_release_calls_back_first_and_an_error_inside_takes_the_lock_again(cluster: Cluster) -> None:
    called: list[str] = []
    with cluster.locked():
        cluster.call_unlocked(lambda: called.append("back"))
        with pytest.raises(ZeroDivisionError), cluster.released():
            called.append("inside")
            raise ZeroDivisionError
        assert not is_free(cluster)
    assert called == ["back", "inside"]


def test_a_release_of_what_is_not_held_changes_nothing(cluster: Cluster) -> None:
    with cluster.released():
        assert is_free(cluster)
    with cluster.locked():
        assert not is_free(cluster)
