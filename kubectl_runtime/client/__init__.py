"""How a request reaches the server: configuration, credentials, middleware, retries, `Api[K]`, discovery, streams.

    api      the verbs of one kind                   api, api_base, subresources, paging, watch, codecs
             one server's connections                client, writes, discovery
             what single kinds have                  pods, kind_verbs, entry, fetch
    streaming                                        see its own list: logs, websockets
    http     base URL, retry, auth, headers          middleware, retry, failures, send, interrupt
             adapters, sessions, TLS                 adapters, session, tls
             bytes as they arrive, lines             streams, chunked
    config   where, whom to trust, who we are        config, kubeconfig, proxies
             credentials that renew themselves       auth, exec_plugin, auth_provider

Left out of what kube-rs's client has: requests to a kubelet's own port (the API server offers the same), and the verbs
of `Client` that repeat those of `Api`.

Each room imports only those below it: `api` what is in `streaming`, that what is in `http`, `http` what is in `config`.
"""
