"""An embedded server in a process of its own, told what to do line by line: `python -m tests.soak.server_process`.

Prints its URL first. Each line of its input is Python over `server`; each is answered with a line: empty, or an error.
It ends with its input.
"""
from __future__ import annotations

import sys

from kubectl_runtime.apiserver.server import ApiServer


def main() -> None:
    with ApiServer(record=False) as server:
        names = {"server": server}
        print(server.url, flush=True)
        for line in sys.stdin:
            try:
                exec(line, names)
            except Exception as error:
                print(repr(error), flush=True)
            else:
                print(flush=True)


if __name__ == "__main__":
    main()
