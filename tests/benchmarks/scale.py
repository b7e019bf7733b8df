"""What an event costs in a large store, against a small one. Prints one JSON line.

    python tests/benchmarks/scale.py [LARGE] [SMALL] [CHANGES] [REPEATS]     default 200000 2000 2 20; about 2 GiB

In both each object changes CHANGES times, so that an event finds as many of its key waiting. The small one is run
REPEATS times, in turns around the large one, so that it is measured for long enough and at the same time of the day.
Each is a process of its own (`firehose.py`); the figure is CPU time of the whole process, all threads, per event.
"""
from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parent))
from side_by_side import measured  # a script's neighbour, not a package


def main(large: int = 200_000, small: int = 2_000, changes: int = 2, repeats: int = 20) -> None:
    few = [measured("nothing", small, changes * small) for _ in range(repeats // 2)]
    many = measured("nothing", large, changes * large)
    few += [measured("nothing", small, changes * small) for _ in range(repeats - repeats // 2)]
    cost = median(one["cpu_us_per_event"] for one in few)
    print(json.dumps({
        "benchmark": "scale", "complete": many["complete"] and all(one["complete"] for one in few),
        "objects": [small, large], "changes_of_each": changes, "cpu_us_per_event": [cost, many["cpu_us_per_event"]],
        "times_the_cost": round(many["cpu_us_per_event"] / cost, 2),
        "reconciles_per_event": [round(median(one["reconciles"] / one["events"] for one in few), 2),
                                 round(many["reconciles"] / many["events"], 2)],
        "rss_added_mib": many["rss_added_mib"]}), flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
