"""Runs a campaign on two Ray nodes of this machine, one of which is lost in the middle.

Usage: ray_nodes.py ADAPTER SKYHOP PLAN STORE LOSE_AFTER

The second node is killed when the store has LOSE_AFTER results; 0: it stays. Without a loss, prints
what the campaign cost beyond the cells' own processor time, from the first result to the last.
"""

import json
import os
import subprocess
import sys
import tempfile
import time

from ray.cluster_utils import Cluster


def count(store):
    try:
        return len(os.listdir(f"{store}/cells"))
    except FileNotFoundError:
        return 0


# Two nodes of one core, and the adapter's four cells a task.
CORES, FIRST = 2, 8


def overhead(store):
    """Wall-clock time times cores over the cells' processor time, less one."""
    names = os.listdir(f"{store}/cells")
    kept = sorted((os.stat(f"{store}/cells/{name}").st_mtime, name) for name in names)
    # The processor time of each node's first task was spent before its results came.
    spent = 0
    for _, name in kept[FIRST:]:
        with open(f"{store}/timings/{name}", encoding="utf-8") as file:
            spent += json.load(file)["cpu-s"]
    return (kept[-1][0] - kept[0][0]) * CORES / spent - 1


def main():
    adapter, skyhop, plan, store, lose_after = sys.argv[1:]
    lost = lose_after = int(lose_after)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    # A directory of its own, as on another machine: nodes that share one unpack the job's files
    # over each other's, and the second starts to work a minute later.
    second = cluster.add_node(num_cpus=1, temp_dir=tempfile.mkdtemp(dir=os.environ["RAY_TMPDIR"]))
    start = time.monotonic()
    command = [sys.executable, adapter, plan, "--skyhop", skyhop, "--store", store]
    driver = subprocess.Popen([*command, "--address", cluster.address])
    while lose_after and driver.poll() is None:
        if count(store) >= lose_after:
            cluster.remove_node(second, allow_graceful=False)
            print(f"lost a node after {lose_after} results")
            lose_after = 0
        try:
            driver.wait(0.05)
        except subprocess.TimeoutExpired:
            pass
    code = driver.wait()
    print(f"campaign: {time.monotonic() - start:.2f} s")
    if code == 0 and not lost:
        print(f"overhead: {overhead(store):.1%}")
    cluster.shutdown()
    return code


if __name__ == "__main__":
    sys.exit(main())
