"""Controllers that a bare API server lacks; each is a `ControlLoop` (see loop.py)."""
