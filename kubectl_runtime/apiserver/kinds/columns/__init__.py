"""The table columns of the built-in kinds, as in kube-apiserver's printers."""
