"""How a request reaches the server: configuration, credentials, middleware, retries, `Api[K]`, discovery, streams.

- `api`: the verbs of one kind, the `Client`, discovery.
- `streaming`: websockets, logs, exec, port-forward.
- `server`: what the server offers: its kinds, its version, its warnings.
- `wire`: everything that needs requests and urllib3; imported at the first call.
- `http`: base URL, retry, authentication, headers, rate limit, TLS, sockets.
- `config`: the server's address, the trusted CAs, and the credentials with their renewal.

Each folder imports only folders that are below it in this list.

Left out on purpose:

- the kubelet's own port: it needs other credentials and often cannot be reached. Logs and exec go through the API
  server, which reaches every node and applies RBAC and audit
- `Client.get` and `Client.list`: a call through an `Api` takes no more code, and the `Api` checks the scope
"""
from kubectl_runtime.facade import door

__all__, __getattr__, __dir__ = door(__name__)
