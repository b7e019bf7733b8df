"""The version of the package. All modules, and the build, read it from here."""
from __future__ import annotations

VERSION = "0.3.0"
