"""Controllers and what they are made of. Layers, from what the server says to what the user's code does with it:

    watcher        a list, then changes, for ever   watcher, watch_machine (decides), watch_driver (does), watch_api,
                                                    watcher_config, events, backoff, failure_log, streams
    reflector      into a store, changes out        reflector, store, store_writer, store_index, views
    subscriptions  from changes to requests         watches, subscribers, triggers, predicates, adapters, sources
    scheduler      which key runs when              scheduler, runqueue (both decide), failures, pace, runs
    runner         runs it                          runner, executor, applier, usercode
    controller     puts all that together           controller, assembly, running, serve, gate, shutdown, signals
    user's side    what reconcilers are and get     reconciler, action, context

Locks, none of which is held while user code runs or while another one of this list is taken, except where an arrow says
so: `StoreState.condition`, `Subscriber._lock`, `Runner._lock`, `SyncGate._changed`, `Shutdown._lock`, `Running._ending`,
each `StopToken`'s. The client's are: `Client._change` -> `ApiAdapter._resize`; those of credentials, while a file is
read or a plugin runs; `Discovery._lock`; `WriteObservers._lock`.
"""
