"""The `kubectl-runtime` command, which is also `python -m kubectl_runtime`.

`main` parses the command line and imports the module of the chosen command. `places` finds MODULE:NAME, which most
commands take; `program` calls it.
"""
