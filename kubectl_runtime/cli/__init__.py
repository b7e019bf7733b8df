"""The `kubectl-runtime` command, which is also `python -m kubectl_runtime`.

    main    the command line: which commands there are, and how a failure ends       cli/main.py
    crd     prints the CustomResourceDefinitions of classes                          cli/crd.py
    run     runs an operator                                                         cli/run.py, run_options.py
            as this process                                                          cli/operator.py
            on a server of its own, again and again (--dev)                          cli/develop.py, dev_operator.py
    codegen prints a typed module for somebody else's CustomResourceDefinitions     cli/codegen.py
    rbac    prints the role that an operator needs                                   cli/rbac.py
    top     shows what the controllers of a process do                               cli/top.py, top_*.py
    server  the embedded API server until a signal                                   kubectl_runtime.testing.__main__

MODULE:NAME, which most commands take, is found by cli/places.py, and called as a program by cli/program.py.
"""
