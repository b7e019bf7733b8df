"""lightkube's bare list and watch into a dict, as an informer would keep it: the peer of `side_by_side.py`.

    python tests/benchmarks/lightkube_watch.py URL OBJECTS EVENTS       needs lightkube; prints one JSON line
"""
from __future__ import annotations

import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from calls import lightkube_client  # a script's neighbour, not a package
from firehose import resident_mib
from lightkube.resources.core_v1 import Pod


def main(url: str, objects: int, events: int) -> None:
    client = lightkube_client(url)
    before, begun = resident_mib(), time.perf_counter()
    store = {(pod.metadata.namespace, pod.metadata.name): pod
             for pod in client.list(Pod, namespace="*", chunk_size=500)}
    listed, cpu = time.perf_counter(), time.process_time()
    for number, (_, pod) in enumerate(client.watch(Pod, namespace="*", resource_version=str(1000 + objects)), 1):
        store[pod.metadata.namespace, pod.metadata.name] = pod
        if number == events:
            break
    ended, cpu = time.perf_counter(), time.process_time() - cpu
    print(json.dumps({
        "benchmark": "lightkube", "complete": len(store) == objects, "objects": objects, "events": events,
        "list_per_s": round(objects / (listed - begun)), "events_per_s": round(events / (ended - listed)),
        "cpu_us_per_event": round(cpu / events * 1e6, 2), "rss_added_mib": round(resident_mib() - before)}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
