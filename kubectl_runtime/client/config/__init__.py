"""Configuration, kubeconfigs and proxies: the server's address, the trusted CAs, and the client's credentials."""
