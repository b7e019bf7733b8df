"""The command line of `kubectl-runtime run` as a value, and the operator's log format.

Flags are named as in kubectl, Kubernetes's own components and controller-runtime's projects. None stands for an option
that was not given.

Log formats on standard error:

- `text`: time LEVEL logger: message
- `json`: one object per line
- `short` (for --dev): text with only the time of day, the library's loggers without their prefix, and colours on a
  terminal. The manager's and the servers' lines below WARNING are left out, since the command itself and the
  controllers report the same

`--log-level`, or else the environment variable `KUBECTL_RUNTIME_LOG`, sets the level of the library and of the
program's own package. Other loggers log from INFO on. Python warnings become log lines.

`Order` is what the parent process of `run --dev` sends to the operator process.
"""
from __future__ import annotations

import argparse
import logging
import os
import sys
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

from kubectl_runtime.cli.places import Place, UsageError, checked_namespace, place
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.manager.leases import LeaderElection
from kubectl_runtime.runtime import logs
from kubectl_runtime.runtime.observe.listener import ListenAddress

_SAID_ALREADY = "runtime.observe.health=warn,manager.serving=warn,manager.running=warn"
_COLOURS = {logging.WARNING: "33", logging.ERROR: "31", logging.CRITICAL: "1;31", logging.DEBUG: "2"}

if TYPE_CHECKING:
    from kubectl_runtime.runtime.observe.debug import DebugPage


def level_option(text: str) -> str:
    """Check the value of --log-level, as an argparse type, and return it unchanged."""
    _, wrong = logs.parse_levels(text)
    if wrong:
        raise argparse.ArgumentTypeError(f"{', '.join(map(repr, wrong))}: write a level (debug, info, warn, error or "
                                         "off), or LOGGER=LEVEL")
    return text


class ShortFormatter(logs.TextFormatter):
    """Formats log lines for development: `17:04:59 WARNING controller.widget: message [ID Kind namespace/name]`."""

    def __init__(self, *, colours: bool) -> None:
        super().__init__()
        self.datefmt, self.default_msec_format = "%H:%M:%S", ""
        self._colours = colours

    def formatMessage(self, record: logging.LogRecord) -> str:
        name = record.name
        record.name = name.removeprefix(f"{logs.ROOT}.")
        try:
            text = super().formatMessage(record)
        finally:
            record.name = name  # restored, since other handlers see the same record
        colour = _COLOURS.get(record.levelno) if self._colours else None
        return f"\x1b[{colour}m{text}\x1b[0m" if colour else text


def _log_warning(message: Warning | str, category: type[Warning], filename: str, lineno: int,
                 file: TextIO | None = None, line: str | None = None) -> None:
    """Log each message of `warnings.warn` as one line. (`logging.captureWarnings` writes two.)"""
    if file is not None:
        file.write(warnings.formatwarning(message, category, filename, lineno, line))
        return
    logging.getLogger("py.warnings").warning("%s:%d: %s: %s", filename, lineno, category.__name__, message)


def set_up_logs(form: str, levels: str | None, package: str, *, stream: TextIO | None = None) -> None:
    """Write logs to `stream` (standard error by default). `form`: text, json or short. `levels`: the value of
    `--log-level`; None means the value of the environment variable `KUBECTL_RUNTIME_LOG`. `package`: the program's
    package."""
    stream = sys.stderr if stream is None else stream
    wanted = levels if levels is not None else os.environ.get(logs.VARIABLE) or "info"
    handler = logs.setup(f"{_SAID_ALREADY},{wanted}" if form == "short" else wanted, json=form == "json",
                         stream=stream, environ={})
    if form == "short":
        handler.setFormatter(ShortFormatter(colours=stream.isatty() and "NO_COLOR" not in os.environ))
    warnings.showwarning = _log_warning
    level = logs.parse_levels(wanted)[0].get(logs.ROOT, logging.INFO)
    logging.getLogger().setLevel(max(level, logging.INFO))
    if logging.getLogger(package).level == logging.NOTSET:  # unless --log-level names this logger
        logging.getLogger(package).setLevel(level)


DESCRIPTION = """\
Run an operator: call the function NAME of MODULE with a client, and run the controllers that it returns until a signal.

    def main(client: Client) -> BoundController[Widget]:
        return Controller(Api.all(client, Widget)).owns(Api.all(client, ConfigMap)).bind(reconcile)

NAME returns a controller with its reconciler, as here, or a Manager of several controllers. The options set only what
the Manager does not set itself; an option that contradicts the Manager is an error. MODULE is found as `python -m`
finds it: in the current folder, then on Python's path.
"""

EPILOG = """\
examples:
  kubectl-runtime run operator_of_mine:main --dev       on an API server of its own; a changed .py file restarts it
  kubectl-runtime run operator_of_mine:main             on the cluster of your kubeconfig, or that of the Pod
  kubectl-runtime run operator_of_mine:main --log-format json --leader-elect --leader-elect-resource-name mine

exit status: 0 after SIGINT or SIGTERM; 1 when it cannot run, when it ends by itself (a failure, a lost leadership),
or when something still runs after the grace period; 2 when the command line is wrong; 128 + n after a second signal n.
"""


@dataclass(frozen=True)
class RunOptions:
    """The parsed command line. None stands for an option that was not given; durations are seconds."""

    program: Place
    dev: bool = False
    kubeconfig: str | None = None
    context: str | None = None
    namespace: str | None = None
    leader_elect: bool | None = None
    leader_elect_resource_name: str | None = None
    leader_elect_resource_namespace: str | None = None
    leader_elect_lease_duration: float | None = None
    leader_elect_renew_deadline: float | None = None
    leader_elect_retry_period: float | None = None
    health_probe_bind_address: str | None = None
    metrics: bool = True
    debug_page: str | None = None
    debug_details: bool | None = None
    tracing: bool = False
    log_format: str | None = None
    log_level: str | None = None
    webhook_service: tuple[tuple[str, str], ...] = ()
    load: tuple[str, ...] = ()

    @classmethod
    def of(cls, given: argparse.Namespace) -> RunOptions:
        """Return the options of a command line that argparse has parsed."""
        said = {name: getattr(given, name) for name in cls.__dataclass_fields__}
        return cls(**{**said, "webhook_service": tuple(said["webhook_service"]), "load": tuple(said["load"])})

    @property
    def lease(self) -> dict[str, Any]:
        """The given options for the Lease, under the names of `LeaderElection`'s arguments."""
        said = {"name": self.leader_elect_resource_name, "namespace": self.leader_elect_resource_namespace,
                "lease": self.leader_elect_lease_duration, "renew_deadline": self.leader_elect_renew_deadline,
                "retry": self.leader_elect_retry_period}
        return {name: value for name, value in said.items() if value is not None}

    def election(self) -> LeaderElection | None:
        """Return the election of `--leader-elect` if its Lease is named, otherwise None. With `--dev` the Lease is
        named after the module by default, since no other operator uses that server. Raises RequestError for invalid
        numbers and names."""
        said = self.lease
        if self.dev:
            module = self.program.module.rpartition(".")[2]
            said = {"name": module.strip("_").replace("_", "-").lower() or "dev", **said}
        return LeaderElection(**said) if self.leader_elect and "name" in said else None

    def debug(self, default: DebugPage | None) -> DebugPage | None:
        """Return the status page that the options ask for; `default` replaces options that were not given."""
        if self.debug_page == "off":
            return None
        from kubectl_runtime.runtime.observe.debug import DebugPage

        default = default or DebugPage()
        remote = default.remote if self.debug_page is None else self.debug_page == "remote"
        return DebugPage(remote=remote, details=default.details if self.debug_details is None else self.debug_details)


FLAGS = {"name": "--leader-elect-resource-name", "namespace": "--leader-elect-resource-namespace",
         "lease": "--leader-elect-lease-duration", "renew_deadline": "--leader-elect-renew-deadline",
         "retry": "--leader-elect-retry-period"}
"""The flag for each argument of `LeaderElection`."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.usage = f"{parser.prog} MODULE:NAME [options]"
    parser.add_argument("program", type=place, metavar="MODULE:NAME",
                        help="the function, such as my_package.operator:main")
    parser.add_argument("--dev", action="store_true",
                        help="run without a cluster: start an API server, install the program's CRDs, write a "
                             "kubeconfig for kubectl, and restart the program whenever a .py file below the current "
                             "folder changes (for a module elsewhere: a .py file of its package)")
    parser.add_argument("--webhook-service", type=_service_address, action="append", default=[],
                        metavar="NAMESPACE/NAME=https://HOST:PORT",
                        help="with --dev: the address of a Service that a webhook configuration names, such as that of "
                             "the program's own WebhookServer; may be repeated")
    parser.add_argument("--load", action="append", default=[], metavar="FILE",
                        help="with --dev: manifests, a file or a folder, to load before the program runs, such as "
                             "third-party CRDs that it watches; may be repeated")
    _cluster(parser.add_argument_group("the cluster"))
    _election(parser.add_argument_group("one of several replicas"))
    _telling(parser.add_argument_group("logs, metrics and status page"))


def _cluster(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--kubeconfig", metavar="FILE",
                       help="the kubeconfig to use (default: $KUBECONFIG, ~/.kube/config, else the Pod's account)")
    group.add_argument("--context", metavar="NAME", help="the kubeconfig's context to use (default: its current one)")
    group.add_argument("-n", "--namespace", type=checked_namespace, metavar="NAME",
                       help="the default namespace of the client and of the Lease (default: the context's, or the "
                            "Pod's)")


def _election(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--leader-elect", action=argparse.BooleanOptionalAction, default=None,
                       help="reconcile only while this process holds the Lease; ctx.client refuses writes once it is "
                            "lost")
    group.add_argument(FLAGS["name"], metavar="NAME",
                       help="the name of the Lease, which no other operator may use; required by --leader-elect, "
                            "unless the program's own Manager sets it (default with --dev: the module's name)")
    group.add_argument(FLAGS["namespace"], metavar="NAME", help="the Lease's namespace (default: --namespace)")
    for flag, default, what in ((FLAGS["lease"], "15s", "how long others wait for a holder that does not renew"),
                                (FLAGS["renew_deadline"], "10s", "how long the holder works on when renewals fail"),
                                (FLAGS["retry"], "2s", "the time between two renewals or attempts to acquire it")):
        group.add_argument(flag, type=_duration, metavar="DURATION", help=f"{what} (default: {default})")


def _telling(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--health-probe-bind-address", type=_address, metavar="ADDRESS",
                       help="where /healthz, /readyz, /metrics and /debug are served, such as 127.0.0.1:8080, or 0 to "
                            "turn them off (default: :8080, which is every address of this host; with --dev a free "
                            "port of loopback)")
    group.add_argument("--metrics", action=argparse.BooleanOptionalAction, default=True,
                       help="collect metrics and serve them at /metrics (default: --metrics)")
    group.add_argument("--debug-page", choices=["off", "local", "remote"],
                       help="who may read the status page at /debug, which `kubectl-runtime top` uses: nobody (off), "
                            "this host and kubectl port-forward (local), or every client of the port (remote; default: "
                            "local)")
    group.add_argument("--debug-details", action=argparse.BooleanOptionalAction, default=None,
                       help="show error texts, which may quote objects, on the status page instead of only their class "
                            "and code (default: only with --dev)")
    group.add_argument("--tracing", action=argparse.BooleanOptionalAction, default=False,
                       help="create an OpenTelemetry span for each run and each of its requests; the process must set "
                            "up OpenTelemetry: opentelemetry-instrument kubectl-runtime run ... --tracing (default: "
                            "--no-tracing)")
    group.add_argument("--log-format", choices=["text", "json"],
                       help="the log format: lines of text, or one JSON object per line (default: text)")
    group.add_argument("--log-level", type=level_option, metavar="LEVELS",
                       help=f"debug, info, warn, error or off, also for single loggers: info,controller.widget=debug "
                            f"(default: ${logs.VARIABLE}, or info)")


def _address(text: str) -> str:
    try:
        return text if text == "0" else str(ListenAddress.parse(text))
    except RequestError as error:
        raise argparse.ArgumentTypeError(f"{error}; the address 0 turns off /healthz, /readyz, /metrics and /debug"
                                         ) from None


def checked(options: RunOptions) -> RunOptions:
    """Return the options. Raises UsageError if they contradict each other."""
    if options.dev:
        for flag, said in (("--kubeconfig", options.kubeconfig), ("--context", options.context)):
            if said is not None:
                raise UsageError(f"{flag} names a cluster, and --dev runs on a server of its own: leave one of them "
                                   "out")
    elif options.webhook_service:
        raise UsageError("--webhook-service is for the --dev server; a cluster finds its Services itself")
    elif options.load:
        raise UsageError("--load is for the --dev server; on a cluster use kubectl apply -f")
    if options.debug_page == "off" and options.debug_details:
        raise UsageError("--debug-page off and --debug-details contradict each other")
    if options.leader_elect is False and options.lease:
        raise UsageError(f"--no-leader-elect and {FLAGS[next(iter(options.lease))]} contradict each other")
    return options


# The same parsers as the `server` command. They are imported when used, since other commands need no test tools.


def _duration(text: str) -> float:
    from kubectl_runtime.testing.asking import duration

    return duration(text)


def _service_address(text: str) -> tuple[str, str]:
    from kubectl_runtime.testing.asking import service_address

    return service_address(text)


@dataclass(frozen=True)
class Order:
    """The options with which an operator is run. `serve`: the default address for health and metrics."""

    options: RunOptions
    serve: str
