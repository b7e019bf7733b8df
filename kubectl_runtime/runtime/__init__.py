"""Controllers and their parts.

    watch          lists objects, then watches their changes: watcher, machine (decides), driver (acts), backoff
    store          keeps the objects: reflector, store, writer, indexes, overlay (own writes)
    triggers       turns changes into reconcile requests: shared watches, triggers, predicates, streams
    queue          decides which key runs when
    reconcile      runs the reconciler: runner, invoker; `reconciler` defines Context and Action
    children       `ctx.ensure`: the objects that an object owns
    controller     assembles a controller from these parts
    lifecycle      starts and stops controllers and managers
    events         Events about objects
    observe        metrics, health, the status page, tracing

`status` and `finalizer` are for reconcilers; `wait`, `conditions`, `apply_crd` and `retry` are blocking calls for
scripts; `recording` records a controller for a replay; `logs` has log lines that name their run.

No lock is held while user code or a log handler runs, or while another lock is taken. Exceptions: `Carriers._change` is
held while `ApiAdapter._resize` is taken, and the locks of credentials are held while a file is read.
"""
