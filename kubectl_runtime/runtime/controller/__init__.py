"""The controller: its plan, its assembly, its running life, its gate and its signals."""
