"""Worlds in which Pods run."""
from __future__ import annotations

import pytest

from tests.apiserver.kubelet.world import World


@pytest.fixture
def world():
    made = World()
    yield made
    made.client.close()


@pytest.fixture
def make_world():
    made = []

    def make(*args, **arguments):
        made.append(World(*args, **arguments))
        return made[-1]
    yield make
    for each in made:
        each.client.close()
