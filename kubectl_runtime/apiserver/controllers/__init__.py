"""kube-controller-manager's controllers, which a bare API server lacks. Each controller is a `ControlLoop`."""
