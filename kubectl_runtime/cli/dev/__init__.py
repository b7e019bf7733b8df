"""`kubectl-runtime run --dev`: an operator on an API server of its own, restarted at each change of its source.

    develop             the upper process: the server, the kubeconfig, when the operator comes and goes
    sources             which files make the operator, and which of them have changed
    order               what the upper process tells the lower one
    operator_process    the lower process, as the upper one sees it
    dev_operator        the lower process, as it sees itself
    kinds               the definitions that it installs
"""
