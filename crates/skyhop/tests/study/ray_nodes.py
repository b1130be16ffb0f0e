"""Runs a campaign on two Ray nodes of this machine, one of which is lost in the middle.

Usage: ray_nodes.py ADAPTER SKYHOP PLAN STORE LOSE_AFTER FOLDER

The second node is killed when the store has LOSE_AFTER results; 0: it stays. Ray's files are in
FOLDER.
"""

import os
import subprocess
import sys
import time

from ray.cluster_utils import Cluster


def count(store):
    try:
        return len(os.listdir(f"{store}/cells"))
    except FileNotFoundError:
        return 0


def main():
    adapter, skyhop, plan, store, lose_after, folder = sys.argv[1:]
    lose_after = int(lose_after)
    head = {"num_cpus": 1, "temp_dir": folder}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    second = cluster.add_node(num_cpus=1)
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
