"""`kubectl-runtime perturb MODULE:BUILD MODULE:STORY`: checks that controllers reach the same end state despite faults.

It runs `kubectl_runtime.testing.perturb` from the command line. That function's reports name this command.
"""
from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

from kubectl_runtime.cli.places import CommandError, Place, UsageError, hint, imported, place, users_traceback
from kubectl_runtime.cli.program import program_in
from kubectl_runtime.cli.run_options import level_option, set_up_logs
from kubectl_runtime.testing.lab.perturb import Divergence, perturb
from kubectl_runtime.testing.lab.world import Fault, Point

EPILOG = """\
examples:
  kubectl-runtime perturb widgets:main stories:two_widgets                        every fault, at every write
  kubectl-runtime perturb widgets:main stories:two_widgets --only crash-after-3   that run alone, with its logs

exit status: 0 when every run ends as the undisturbed run; 1 when a run does not, or when the story cannot be played;
2 when the command line is wrong.
"""


def _point(text: str) -> Point:
    try:
        return Point.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.epilog = EPILOG
    parser.add_argument("build", type=place, metavar="MODULE:BUILD", help="a function that takes a client and returns "
                        "a Manager or Controller(...).bind(reconciler), as for `kubectl-runtime run`")
    parser.add_argument("story", type=place, metavar="MODULE:STORY", help="a function that takes a client and "
                        "makes the changes that the controllers react to")
    parser.add_argument("--fault", action="append", choices=[str(fault) for fault in Fault], default=[],
                        help="play only faults of this kind; may be repeated (default: all kinds)")
    parser.add_argument("--only", type=_point, metavar="POINT", help="play only this run, such as crash-after-3, and "
                        "write the library's logs")
    parser.add_argument("--ignore", action="append", default=[], metavar="FIELD", help="a field that is not compared, "
                        "such as status.checkedAt; may be repeated")
    parser.add_argument("--seed", type=int, default=0, help="the seed of all random choices (default: 0)")
    parser.add_argument("--log-level", type=level_option, metavar="LEVELS",
                        help="with --only: as for `kubectl-runtime run`")


def run(options: argparse.Namespace) -> int:
    """Play the story with all its faults and return the exit status. Blocks. Raises CommandError."""
    try:
        build = program_in(imported(options.build.module), options.build)
        story = _story_in(options.story)
        if options.only is not None:
            set_up_logs("text", options.log_level, options.build.module.partition(".")[0])
        report = perturb(build, story, faults=[Fault(word) for word in options.fault] or list(Fault),
                         seed=options.seed, only=options.only, ignore=options.ignore)
    except CommandError:
        raise
    except Exception as error:  # noqa: BLE001 - the story is user code, as is its text
        print(f"error: {type(error).__name__}: {error}\n{users_traceback(error)}", file=sys.stderr)
        return 1
    print(report)
    for divergence in report.divergences if options.only is not None else ():
        _tell_error(divergence)
    return 0 if report.ok else 1


def _tell_error(divergence: Divergence) -> None:
    if divergence.error is not None:
        print(users_traceback(divergence.error), file=sys.stderr)


def _story_in(named: Place) -> Callable[[Any], object]:
    module = imported(named.module)
    story: Any = getattr(module, named.name, None)
    if not callable(story):
        functions = [name for name, value in vars(module).items() if callable(value)]
        raise UsageError(f"{named.module} has no function {named.name}{hint(named.name, functions, 'functions')}")
    return story  # type: ignore[no-any-return]
