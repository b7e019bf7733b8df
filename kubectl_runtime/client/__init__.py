"""How a request reaches the server: configuration, credentials, middleware, retries, `Api[K]`, discovery, streams.

    Api          the verbs of one kind              client/api.py, api_base.py, subresources.py, listing.py, watch.py,
                                                    forms.py
    Client       one server's connections           client/client.py, writes.py, discovery.py
    the stack    base URL, retry, auth, headers     client/layers.py, retry.py, failures.py, exchange.py
    transport    adapters, sessions, TLS, proxies   client/adapters.py, session.py, tls.py, proxies.py
    streams      bytes as they arrive, lines        client/stream.py, chunked.py
    Config       where, whom to trust, who we are   client/config.py, kubeconfig.py, official.py, auth.py,
                                                    exec_plugin.py
"""
