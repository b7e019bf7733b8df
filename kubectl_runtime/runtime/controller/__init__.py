"""The controller: its options, its plan, its assembly, and a running controller."""
