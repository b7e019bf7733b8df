"""Controllers and what they are made of.

The files of this folder that a reconciler or a script calls by itself:

    status, finalizer                            what a reconciler writes on its object
    wait, conditions, drain, apply_crd           blocking calls for scripts
    create_or_update, retry_on_conflict          read, change and write
    logs                                         log lines that name their run

The rooms, in the order in which the data passes through them. Each imports only those above it:

    usercode, streams, shutdown (files)          user code that raises, streams that close, the tokens of a shutdown
    events         tells people what happened    recorder, sender, ledger, spam_filter
    watcher        a list, then its changes      watcher, watch_machine (decides), watch_driver (acts), watch_backoff
    reflector      keeps them in a store         reflector, store, store_state, indexes, overlay (own writes)
    triggers       from changes to requests      watches, shared_watches, subscribers, triggers, predicates, inbox
    queue          which key runs when           work_queue, scheduler, runs, key_backoff, own_writes
    reconcile      runs the reconciler           runner, executor, invoker; reconciler, action, context (the user's)
    flight         records it for a replay       flight_recorder, ring_file, flight_lines, withheld
    controller     puts all of that together     controller, plan, assembly, running, sync_gate; stopping
    observe        shows it                      metrics, health_server, debug_page, tracing
    webhooks       answers API servers           webhook_server, serving_certificates, apply_webhooks
    manager        several controllers           manager, members, servers
                   one of several replicas       elector, lease_machine, elected_client
    sharding       all replicas, each a part     sharding, sharder, shard_machine, shard_fence

    manifests      sets of objects, for scripts  apply_manifests, diff_manifests, delete_manifests

Locks: none is held while user code or a log handler runs, and none while another one is taken, except that
`Carriers._change` is held while `ApiAdapter._resize` is taken, and those of credentials while a file is read.
"""
