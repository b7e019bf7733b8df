"""Running reconcilers: the runner, the invoker, the executor, and what user code is and gets."""
