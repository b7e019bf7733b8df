"""Settings of the whole suite."""

from __future__ import annotations

from hypothesis import settings

# How long an example takes says more of the machine than of the code: a busy one fails no test.
settings.register_profile("whole-suite", deadline=None)
settings.load_profile("whole-suite")
