#!/usr/bin/env python3
"""Records files of recordings anew, in place, against any API server; or compares them with it (--check).

Against the embedded server (the lines of tokens.csv are ``admin-token,admin,1,system:masters`` and
``alice-token,alice,2,devs``):

    python -m kubectl_runtime.testing --port 8001 --token-auth-file tokens.csv --authorization-mode RBAC \\
        --compaction-interval 15s --controllers none
    python -m tests.tools.record --server http://127.0.0.1:8001 --token admin-token --user-token alice-token \\
        --without controller-manager --check tests/apiserver/golden/*/*.json tests/apiserver/kinds/refusals/*.json

For the next version of Kubernetes: run its kube-apiserver and etcd with the same two tokens, RBAC, the ServiceAccount
admission plugin off and --etcd-compaction-interval=15s, record every file without --check, and read what git shows as
changed. The vectors that need a ``controller-manager`` are recorded apart, on a server with a kube-controller-manager
(garbage-collector, namespace, deployment, replicaset, serviceaccount, root-ca-certificate-publisher): there new
namespaces hold more, so that the others do not match.

A new recording is a vector or a group without answers in one of these files (recorder/files.py and recorder/refusals.py
have the formats): this fills them in. Vectors do not disturb each other and can be run again and again: each has its
own namespace and its own id for cluster-wide names, which are deleted afterwards.
"""

from __future__ import annotations

import argparse
import random
import re
import string
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from tests.tools.recorder import recording, refusals, replay
from tests.tools.recorder.files import Entry, RecordingFile
from tests.tools.recorder.wire import Server


def arguments(argv: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", required=True, help="base URL")
    parser.add_argument("--token", help="bearer token with all rights")
    parser.add_argument("--user-token", help="bearer token of a user without rights, for vectors that need auth")
    parser.add_argument("--ca", help="file with the CA certificate of the server")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if an answer is another one")
    parser.add_argument("--fresh", action="store_true", help="take over also what is not compared, such as messages")
    parser.add_argument("--only", default="", help="regular expression: only entries whose topic/name it is found in")
    parser.add_argument("--without", default="", help="needs to leave out, as in auth,compaction,controller-manager")
    parser.add_argument("--jobs", type=int, default=4, help="how many vectors to run at the same time (4)")
    parser.add_argument("--lines", type=int, default=12, help="at most so many differences of one entry are shown (12)")
    parser.add_argument("files", nargs="+", type=Path)
    return parser.parse_args(argv)


def chosen(file: RecordingFile, args: argparse.Namespace) -> Iterator[tuple[int, Entry]]:
    """The entries of a file that are asked for, with their places."""
    unmet = set(args.without.split(","))
    for index, entry in enumerate(file.entries):
        if not unmet & set(entry.get("needs", [])) and re.search(args.only, file.label(entry)):
            yield index, entry


def check(file: RecordingFile, server: Server, args: argparse.Namespace, prefix: str,
          pool: ThreadPoolExecutor) -> bool:
    """Compare a file with a server and print each entry's differences; whether there were none."""
    one = refusals.check if file.header is None else replay.check
    jobs = [(file.label(entry), pool.submit(one, entry, server, f"{prefix}{index:03}"))
            for index, entry in chosen(file, args)]
    failed = 0
    for label, job in jobs:
        lines = job.result()
        failed += bool(lines)
        if lines:
            print("\n    ".join([f"MISMATCH {label}", *lines[:args.lines]]), flush=True)
    print(f"{file.path}: {len(jobs) - failed} match, {failed} do not", flush=True)
    return not failed


def record(file: RecordingFile, server: Server, args: argparse.Namespace, prefix: str,
           pool: ThreadPoolExecutor) -> bool:
    """Record a file anew and print the notes; whether every entry could be recorded."""
    one = refusals.record if file.header is None else recording.record
    jobs: dict[int, Future[recording.Recorded]] = {
        index: pool.submit(one, entry, server, f"{prefix}{index:03}", args.fresh)
        for index, entry in chosen(file, args)}
    entries, failed, changed = list(file.entries), 0, 0
    for index, job in jobs.items():
        recorded = job.result()
        for note in recorded.notes:
            print(f"{file.label(recorded.entry)}: {note}", flush=True)
        failed += recorded.failed
        changed += recorded.entry != entries[index]
        entries[index] = recorded.entry
    complete = len(jobs) == len(entries) and not failed
    version = server.send({"method": "GET", "path": "/version"}).json()["gitVersion"] if complete else None
    file.path.write_text(file.with_entries(entries, version).text(), encoding="utf-8")
    print(f"{file.path}: {len(jobs)} recorded, {changed} changed, {failed} failed", flush=True)
    return not failed


def main(argv: list[str]) -> int:
    """Run the command; its exit status."""
    args = arguments(argv)
    server = Server(args.server, args.token, args.user_token, args.ca)
    do = check if args.check else record
    good = True
    for path in args.files:
        file = RecordingFile.read(path)
        prefix = "r" + "".join(random.choices(string.ascii_lowercase + string.digits, k=5))
        with ThreadPoolExecutor(1 if file.header is None else args.jobs) as pool:
            good &= do(file, server, args, prefix, pool)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
