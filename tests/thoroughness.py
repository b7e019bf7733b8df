"""How many examples property tests try: all they name in `tox -e thorough`, a part in the fast suite."""
from __future__ import annotations

import os

THOROUGH = os.environ.get("THOROUGH") == "1"
"""Whether time does not matter."""

SHARE = 8
"""The fast suite tries one of so many."""


def examples(most: int) -> int:
    """As hypothesis' `max_examples`."""
    return most if THOROUGH else max(20, most // SHARE)
