"""The server's address, whom to trust, and the client's credentials: configuration, kubeconfigs, proxies."""
