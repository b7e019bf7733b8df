"""Controllers and what they are made of. Rooms along the way of the data, each of which imports only those above it:

    usercode, streams, shutdown    beneath all: user code that raises, streams that close, the two tokens of an end
    events         tells people what happened       recorder, sender, ledger (decides), spam_filter, writing,
                                                    references, texts
    watcher        a list, then changes, for ever   watcher, watch_machine (decides), watch_driver (does), watch_api,
                                                    watcher_config, event, watch_backoff, failure_log, readers
    reflector      into a store, changes out        reflector, store, store_writer, store_state, indexes;
                                                    overlay (decides), written
    triggers       from changes to requests         watches, shared_watches, watch_store, watched_writes,
                                                    subscribers, triggers, predicates, stages, sources, inbox
    queue          which key runs when              scheduler, work_queue (both decide), key_backoff,
                                                    worker_policy, runs
    reconcile      runs it                          runner, executor, invoker, catch_up, fenced_runs; blocked_log;
                                                    reconciler, action, context (the user's)
    flight         keeps it for later               flight_recorder, ring_file, flight_lines, withheld
    controller     puts all that together           controller, plan, assembly, running, well_being, foreground,
                                                    sync_gate, signals
    manifests      sets of objects, for scripts     apply_manifests, diff_manifests, delete_manifests, and their parts
    observe        shows it                         metrics, families, histogram, controller_, watch_, client_series;
                                                    health_server, _application, _checks, wsgi_listener, listen_address
    webhooks       answers API servers              webhook_server, webhook_listener, serving_certificates,
                                                    ca_bundles, apply_webhooks
    manager        several, one of several replicas manager, elector, lease machine, elected client

Locks, none of which is held while user code runs or while another one of this list is taken, except where an arrow
says so: `Sender._changed`, `StoreState.condition`, `Subscriber._lock`, `SharedWatches.lock`, `CatchUp._lock`,
`FlightRecorder._lock`, `Runner._lock`, `SyncGate._changed`, `Shutdown._lock`, `Running._ending`, each
`StopToken`'s. The client's are: `Client._change` -> `ApiAdapter._resize`; `Shared._lock`; those of credentials, while a
file is read or a plugin runs; `Discovery._lock`; `Observers._lock`; `WebSocket.condition`.
"""
