"""Where the server is, whom to trust and who we are: configuration, kubeconfigs, credentials, proxies."""
