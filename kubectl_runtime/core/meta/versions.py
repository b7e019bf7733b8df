"""The two orders of API versions, as keys for `sorted`, `min` and `max`.

    by priority      which a client should use     v10 v2 v1 v11beta2 v10beta3 v3beta1 v12alpha1 v11alpha2 foo1 foo10
    by generation    which is the newest           v12alpha1 v11beta2 v11alpha2 v10 v10beta3 v3beta1 v2 v1 foo1 foo10

Both begin with the best. Versions that are not named by Kubernetes' rule (`v1`, `v1beta2`, `v1alpha3`) come last, in
the order of the alphabet. The order by priority is the one in which servers offer the versions of custom resources.
"""
from __future__ import annotations

import re

_RULE = re.compile(r"v([0-9]+)(?:(alpha|beta)([0-9]+))?")
_STAGES = {"": 0, "beta": 1, "alpha": 2}
_OTHER = len(_STAGES)


def version_priority(version: str) -> tuple[int, int, int, str]:
    """The key for the order by priority: stable before beta before alpha, then the higher numbers.

    >>> sorted(["v1", "v2beta1", "v2", "v10alpha1"], key=version_priority)
    ['v2', 'v1', 'v2beta1', 'v10alpha1']
    """
    found = _RULE.fullmatch(version)
    if found is None:
        return _OTHER, 0, 0, version
    return _STAGES[found[2] or ""], -int(found[1]), -int(found[3] or 0), version


def version_generation(version: str) -> tuple[int, int, int, int, str]:
    """The key for the order by generation: the higher number, then stable before beta before alpha.

    >>> sorted(["v1", "v2beta1", "v2", "v10alpha1"], key=version_generation)
    ['v10alpha1', 'v2', 'v2beta1', 'v1']
    """
    stage, number, minor, text = version_priority(version)
    return int(stage == _OTHER), number, stage, minor, text
