"""CustomResourceDefinitions: the kind itself, the controller that serves what they define, and their instances."""
