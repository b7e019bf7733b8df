"""The `kubectl-runtime` command, which is also `python -m kubectl_runtime`.

`main` parses the command line and imports the module of the chosen command. Most commands take a MODULE:NAME argument:
`places` imports the module and finds the name, and `program` calls the function.
"""
