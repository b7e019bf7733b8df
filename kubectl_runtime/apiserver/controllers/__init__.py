"""The controllers that a bare API server lacks; each is a `ControlLoop`."""
