"""Running reconcilers: the runner, the invoker, the executors, and the types of user code and its arguments."""
