"""CustomResourceDefinitions: the kind, the controller that serves the defined types, and custom resources."""
