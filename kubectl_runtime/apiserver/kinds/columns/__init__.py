"""What tables show of the built-in kinds, as kube-apiserver's printers have it."""
