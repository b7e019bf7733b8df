"""How a request reaches the server: configuration, credentials, middleware, retries, `Api[K]`, discovery, streams.

    api        the verbs of one kind                   api, api_base, subresources, pods, kind_verbs, entry, paging,
                                                       watch, codecs, namespaces, fetch
               one server's connections                client, carriers, shared, writes, discovery, queryable
    streaming  websockets, logs, exec, port-forward    websocket, process, forwarding, logs
    server     what is remembered of the server        served_kinds, discovery_documents, missing_subresource,
                                                       server_version, server_warnings, refusals
    wire       all that needs requests and urllib3:    carrier, adapters, connections, session
               imported at the first call              streams, bodies, chunked
    http       base URL, retry, auth, headers          middleware, layers, stack, retry, failures, send
               proxies, TLS, lines                     wire_rules, tls, interrupt, lines
    config     where, whom to trust, who we are        config, kubeconfig, chosen_context, proxies
               credentials that renew themselves       auth, exec_plugin, auth_provider

Each room imports only those below it.

Left out on purpose:

    the kubelet's own port        logs, exec and the like by way of the API server reach every node, with its rights and
                                  its audit; a node's own port needs other credentials, and often cannot be reached
    Client.get and Client.list    a kind in a place is an `Api`, which is as short and checks the scope
"""
from kubectl_runtime.facade import door

__all__, __getattr__, __dir__ = door(__name__)
