"""Which types are served, the objects and their history, and the cluster that holds both."""
