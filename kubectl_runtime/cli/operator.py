"""The operator process: runs the Manager that MODULE:NAME and the options describe, until a signal.

1. Set up logs, so that output at import is visible.
2. Import the module and call `prepare`, which installs the CRDs with --dev.
3. Call the function with the client.
4. Wrap a controller in a Manager, and check the options against the Manager's own.
5. Run until a signal, a failure, or the loss of the Lease.
"""
from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import FrameType
from typing import Any

from kubectl_runtime.cli.places import CommandError, UsageError, imported, shown
from kubectl_runtime.cli.program import made_by, program_in
from kubectl_runtime.cli.run_options import FLAGS, RunOptions, set_up_logs
from kubectl_runtime.client.api.client import Client
from kubectl_runtime.client.config.config import SERVICE_ACCOUNT_ORIGIN, Config, NotConfiguredError
from kubectl_runtime.client.http.layers import Stack
from kubectl_runtime.core.base.errors import KubeError, RequestError
from kubectl_runtime.core.base.guard import described, guarded_logger
from kubectl_runtime.core.base.observer import Observer, together
from kubectl_runtime.core.base.threads import seconds
from kubectl_runtime.manager.leases import LeaderElection
from kubectl_runtime.manager.manager import DEBUG, SERVE, Manager, ManagerDefaults, manager_defaults
from kubectl_runtime.runtime.controller.controller import BoundController
from kubectl_runtime.runtime.observe.debug import DebugPage

log = guarded_logger(__name__)

NOWHERE = "0"
"""The bind address that turns the server off, as in controller-runtime."""


def _nothing(_: object) -> None:
    """The default for `prepare` and `announce`; does nothing."""


def run_operator(options: RunOptions, *, form: str = "text", serve: str | None = SERVE, debug: DebugPage = DEBUG,
                 prepare: Callable[[Client], object] = _nothing,
                 announce: Callable[[Manager], object] = _nothing) -> int:
    """Set up logs, call `operate`, and return the exit status. `form` is the log format unless the options name one.

    An error that ends the operator is printed on standard error, or logged if the log format is JSON.
    """
    set_up_logs(options.log_format or form, options.log_level, options.program.module.partition(".")[0])
    try:
        operate(options, serve=serve, debug=debug, prepare=prepare, announce=announce)
    except (CommandError, KubeError) as error:
        if options.log_format == "json":
            log.error("%s", error)
        else:
            print(f"error: {shown(error)}", file=sys.stderr, flush=True)
        return error.status if isinstance(error, CommandError) else 1
    except KeyboardInterrupt:  # raised before the manager handles signals itself
        return 128 + signal.SIGINT
    return 0


def operate(options: RunOptions, *, serve: str | None = SERVE, debug: DebugPage = DEBUG,
            prepare: Callable[[Client], object] = _nothing, announce: Callable[[Manager], object] = _nothing) -> None:
    """Run the operator in the main thread. Blocks until it ends.

    `serve` and `debug` are the defaults for the address and the status page. `prepare` is called after the module is
    imported; `announce` is called with the Manager before the Manager runs.

    Raises CommandError if the program cannot start or its own code fails; the text names a remedy. Raises KubeError for
    an error of the library, such as ControllerError, LeadershipLost or ConfigError.
    """
    with ends_at_once():
        module = imported(options.program.module)
        function = program_in(module, options.program)
        client = client_of(options)
    with client:
        with ends_at_once():
            prepare(client)
            manager = manager_of(options, lambda: made_by(function, client, options.program), client, serve, debug)
            announce(manager)
            tell_of_replicas(manager, client.config)
        try:
            manager.run()
        except KubeError:
            raise
        except Exception as error:
            raise CommandError(_why_it_ended(error, manager)) from error


def tell_of_replicas(manager: Manager, config: Config) -> None:
    """If the program runs in a Pod without an election and without shards, log that further replicas would do the same
    work."""
    if config.origin == SERVICE_ACCOUNT_ORIGIN and manager.leader is None and manager.sharding is None:
        log.info("no election: each replica of this program does all of the work; with --leader-elect %s NAME only "
                 "one replica works at a time", FLAGS["name"])


def _why_it_ended(error: Exception, manager: Manager) -> str:
    serve, said = manager.serve, error.strerror if isinstance(error, OSError) else None
    if said and said.startswith("cannot listen at"):
        told = said.partition("; ")[0]
        if serve is None or not said.startswith(f"cannot listen at {serve}:"):
            return f"{told}; the program sets where its own servers listen, as in WebhookServer(app, ':9444')"
        if manager._sets_serve:
            return f"{told}; the program's own Manager has serve={serve!r}: change it there, or leave it out"
        return f"{told}; --health-probe-bind-address sets another address, or 0 for none"
    return f"the operator has failed, as the log says: {described(error)}"


WITHOUT_A_CLUSTER = "Without a cluster, --dev runs the program on an API server of its own."


def config_of(options: RunOptions, remedy: str = WITHOUT_A_CLUSTER) -> Config:
    """Return the configuration of the chosen cluster. Raises CommandError, which ends with `remedy`, if no cluster is
    configured, and ConfigError for an invalid configuration."""
    try:
        config = Config.infer(context=options.context) if options.kubeconfig is None else \
            Config.from_kubeconfig(options.kubeconfig, options.context)
    except NotConfiguredError as error:
        raise CommandError(f"{error} {remedy}") from None
    return config if options.namespace is None else replace(config, default_namespace=options.namespace)


def manager_of(options: RunOptions, make: Callable[[], BoundController[Any] | Manager], client: Client,
               serve: str | None = SERVE, debug: DebugPage = DEBUG) -> Manager:
    """Return the Manager to run. If `make` returns a controller, make a Manager for it with the controller's grace
    period.

    Raises UsageError if the Manager and the options contradict each other.
    """
    try:
        election = options.election()
    except RequestError as error:
        raise UsageError(str(error)) from None
    address = options.health_probe_bind_address
    default = serve if address is None else None if address == NOWHERE else address
    page = options.debug(debug)
    with manager_defaults(ManagerDefaults(election, default, page, options.metrics)):
        made = make()
        manager = made if isinstance(made, Manager) else \
            Manager(client, grace=made.controller.plan().grace).add(made)
    _check_election(options, manager)
    if address is not None and (manager.serve or NOWHERE) != address:
        raise UsageError(f"--health-probe-bind-address is {address}, but the program's own Manager has serve="
                           f"{manager.serve!r}: leave one of them out")
    if (options.debug_page, options.debug_details) != (None, None) and manager.debug != page:
        raise UsageError(f"--debug-page and --debug-details give {page}, but the program's own Manager has debug="
                           f"{manager.debug}: leave out the options, or the program's debug=")
    return manager


def _check_election(options: RunOptions, manager: Manager) -> None:
    election, said = manager.leader, options.lease
    if election is None:
        if options.leader_elect:
            raise UsageError(f"--leader-elect needs the name of the Lease: add {FLAGS['name']} NAME, a name that "
                             "no other operator uses")
        if said:
            raise UsageError(f"{FLAGS[next(iter(said))]} configures an election, but none is enabled: add "
                               "--leader-elect")
        return
    if options.leader_elect is False:
        raise UsageError("--no-leader-elect turns the election off, but the program's own Manager has an election, "
                         f"with the Lease {election.name}: leave out the option, or the program's leader=")
    for name, value in said.items():
        own = _value(election, name)
        if value != own:
            raise UsageError(f"{FLAGS[name]} is {value}, but the program's own LeaderElection has {name}={own}: leave "
                               "one of them out")


def _value(election: LeaderElection, name: str) -> Any:
    value = getattr(election, name)
    return seconds(value) if name in ("lease", "renew_deadline", "retry") else value


def client_of(options: RunOptions) -> Client:
    """Return the program's client with the observers that the options ask for. Raises like `config_of`, and
    CommandError for --tracing if OpenTelemetry is not installed."""
    config, observers, layers = config_of(options), list[Observer](), list[Callable[[Stack], Stack]]()
    if options.tracing:
        try:
            from kubectl_runtime.runtime.observe.tracing import Tracing
        except ImportError as error:
            raise CommandError(f"--tracing: {error}") from None
        tracing = Tracing()
        observers.append(tracing)
        layers.append(tracing.layers)
    return Client(config, observer=together(*observers), layers=layers[0] if layers else ())


@contextlib.contextmanager
def ends_at_once() -> Iterator[None]:
    """Let SIGTERM end the process at once inside the block, where nothing needs a graceful stop. Without a handler the
    kernel would ignore SIGTERM for process 1 of a container."""
    def end(number: int, _: FrameType | None) -> None:
        os._exit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
