"""`kubectl-runtime replay FILE MODULE:NAME`: replays a recording up to the run that failed.

FILE is what `Controller(..., record=FILE)` wrote; MODULE:NAME is the recorded program, as for `run`.
"""
from __future__ import annotations

import argparse
import sys
from pathlib import Path

from kubectl_runtime.cli.places import SEVERAL_LINES, CommandError, imported, place, users_traceback
from kubectl_runtime.cli.program import program_in
from kubectl_runtime.cli.run_options import level_option, set_up_logs
from kubectl_runtime.core.base.guard import described, printable
from kubectl_runtime.testing.lab.recordings import RecordingError
from kubectl_runtime.testing.lab.replay import Replayed, replay

EPILOG = """\
The program runs in this process, on a simulated clock, with recorded stores and answers: `breakpoint()` in its source
stops in the run that failed. A recording does not hold the data of Secrets, random numbers, or what a program reads
elsewhere.

exit status: 0 when the run ends as it was recorded, or with the same class of exception; 1 when it does not, or when
the recording cannot be replayed; 2 when the command line is wrong.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.epilog = EPILOG
    parser.add_argument("file", type=Path, metavar="FILE", help="the recording")
    parser.add_argument("program", type=place, metavar="MODULE:NAME", help="a function that takes a client and returns "
                        "a Manager or Controller(...).bind(reconciler), as for `kubectl-runtime run`")
    parser.add_argument("--run", type=int, dest="number", metavar="ID",
                        help="stop at this run (default: the last that failed)")
    parser.add_argument("--log-level", type=level_option, metavar="LEVELS", help="as for `kubectl-runtime run`")


def run(options: argparse.Namespace) -> int:
    """Replay the recording and return the exit status. Blocks. Raises CommandError."""
    try:
        build = program_in(imported(options.program.module), options.program)
        set_up_logs("text", options.log_level, options.program.module.partition(".")[0])
        replayed = replay(options.file, build, run=options.number)
    except CommandError:
        raise
    except (RecordingError, OSError) as error:
        raise CommandError(str(error)) from error
    except Exception as error:  # noqa: BLE001 - the program is the user's
        text = f"error: {options.program} raised {described(error)}\n{users_traceback(error)}"
        print(printable(text, keep=SEVERAL_LINES), file=sys.stderr)
        return 1
    for line in _told(replayed):
        print(printable(line, keep=SEVERAL_LINES))
    return 0 if replayed.alike else 1


def _told(replayed: Replayed) -> list[str]:
    lines = [f"note: {note}" for note in replayed.notes]
    lines += [f"departs: {departure}" for departure in replayed.departures]
    lines.append(f"{replayed.runs} runs, to {replayed.target}")
    now = None if replayed.error is None else described(replayed.error)
    if replayed.same:
        lines.append("it succeeds, as recorded" if now is None else f"the same exception as recorded: {now}")
    elif replayed.alike:
        lines.append(f"the same class of exception as recorded, with another text: {now}")
        lines.append(f"the recorded exception: {replayed.recorded}")
    else:
        lines.append(f"recorded: {replayed.recorded or 'success'}; now: {now or 'success'}")
        if replayed.recorded:
            lines += ["the recorded traceback:", replayed.recorded_trace.rstrip()]
    if replayed.error is not None:
        lines += ["", users_traceback(replayed.error)]
    return lines
