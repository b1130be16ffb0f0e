#!/usr/bin/env python3
"""Run the cells of a plan on a Ray cluster, and keep their results in a store.

    skyhop study plan all --seeds 20 --json > plan.json
    tools/study-ray.py plan.json --store skyhop-study --address HOST:6379

The program and the plan go to the nodes with the job; results come back by value, and this process
hands them to `skyhop study add`. Nodes need Ray and no shared disk. Cells of a node that is lost
run again elsewhere. Cells that fail are named at the end. To go on after an interruption, make the plan
again: cells that are in the store are marked as done.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile

import ray
from ray.exceptions import RayError

# Tasks that wait on the cluster: enough to keep it busy, few enough to hold in memory.
WAITING_PER_CPU = 8


def run_cells(cells):
    """Run cells on a node. Returns a line for each result, what was reported, and success."""
    command = ["./skyhop", "study", "cell", *cells, "--plan", "plan.json", "--print"]
    # The job's files need not arrive as executable.
    os.chmod("skyhop", 0o755)
    done = subprocess.run(command, capture_output=True, check=False)
    return done.stdout, done.stderr.decode(errors="replace"), done.returncode == 0


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("plan", help="output of `skyhop study plan … --json`")
    parser.add_argument("--store", default="skyhop-study", help="directory of the results")
    parser.add_argument("--skyhop", default="skyhop", help="the program that made the plan")
    parser.add_argument("--address", default="auto", help="the cluster; local: start one here")
    parser.add_argument("--batch", type=int, default=4, help="cells per task")
    parser.add_argument("--retries", type=int, default=10, help="per task, after losing its node")
    parser.add_argument("--files", nargs="*", default=[], help="presets and traces, by relative paths")
    return parser.parse_args()


def batches(plan, size):
    """Names of the cells that are not done, the longest first."""
    cells = sorted((c for c in plan["cells"] if not c["done"]), key=lambda c: -c["estimate-s"])
    names = [cell["cell"] for cell in cells]
    return [names[i : i + size] for i in range(0, len(names), size)]


def job_files(folder, args):
    """Put what the nodes need into a directory."""
    shutil.copyfile(shutil.which(args.skyhop) or args.skyhop, f"{folder}/skyhop")
    shutil.copyfile(args.plan, f"{folder}/plan.json")
    for path in args.files:
        os.makedirs(os.path.dirname(f"{folder}/{path}"), exist_ok=True)
        shutil.copyfile(path, f"{folder}/{path}")


def campaign(todo, retries, keep):
    """Run all batches; `keep` gets the lines of each. Returns what failed, as texts."""
    options = {"num_cpus": 1, "max_retries": retries, "scheduling_strategy": "SPREAD"}
    task = ray.remote(**options)(run_cells)
    most = int(WAITING_PER_CPU * max(1, ray.cluster_resources().get("CPU", 1)))
    waiting, failed, todo = {}, [], list(reversed(todo))
    while todo or waiting:
        while todo and len(waiting) < most:
            batch = todo.pop()
            waiting[task.remote(batch)] = batch
        ready, _ = ray.wait(list(waiting))
        for reference in ready:
            batch = waiting.pop(reference)
            try:
                lines, report, good = ray.get(reference)
                keep(lines)
                if not good:
                    failed.append(report.strip())
            except RayError as error:
                failed.append(f"cells {' '.join(batch)}: {error}")
    return failed


def main():
    args = arguments()
    with open(args.plan, encoding="utf-8") as file:
        todo = batches(json.load(file), args.batch)
    with tempfile.TemporaryDirectory() as folder:
        job_files(folder, args)
        environment = {"working_dir": folder}
        quiet = {"log_to_driver": False, "logging_level": "error"}
        ray.init(address=args.address, runtime_env=environment, **quiet)
    store = subprocess.Popen(
        [args.skyhop, "study", "add", "--store", args.store], stdin=subprocess.PIPE
    )

    def keep(lines):
        store.stdin.write(lines)
        store.stdin.flush()

    failed = campaign(todo, args.retries, keep)
    store.stdin.close()
    kept = store.wait() == 0
    for report in failed:
        print(report, file=sys.stderr)
    return 0 if kept and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
