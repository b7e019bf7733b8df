"""Running reconcilers: the runner, the invoker, the executor, the types of user code and its arguments."""
