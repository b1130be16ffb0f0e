"""Runs a campaign on two Ray nodes of this machine, one of which is lost in the middle.

Usage: ray_nodes.py ADAPTER SKYHOP PLAN STORE LOSE_AFTER

The second node is killed when the store has LOSE_AFTER results; 0: it stays.
"""

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


def main():
    adapter, skyhop, plan, store, lose_after = sys.argv[1:]
    lose_after = int(lose_after)
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
    cluster.shutdown()
    return code


if __name__ == "__main__":
    sys.exit(main())
