"""Controllers and their parts.

    watch          a list, then its changes: watcher, machine (decides), driver (acts), backoff
    store          keeps them: reflector, store, writer, indexes, overlay (own writes)
    triggers       from changes to requests: shared watches, triggers, predicates, streams
    queue          which key runs when
    reconcile      runs the reconciler: runner, invoker; reconciler has Context and Action
    children       `ctx.ensure`: the objects that an object owns
    controller     puts all of that together
    lifecycle      starts and stops controllers and managers
    events         Events about objects
    observe        metrics, health, the status page, tracing

`status` and `finalizer` are for reconcilers; `wait`, `conditions`, `apply_crd` and `retry` are blocking calls for
scripts; `recording` records a controller for a replay; `logs` has log lines that name their run.

No lock is held while user code or a log handler runs, or while another lock is taken. Exceptions: `Carriers._change` is
held while `ApiAdapter._resize` is taken, and the locks of credentials while a file is read.
"""
