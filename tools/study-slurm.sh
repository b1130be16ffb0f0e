#!/bin/sh
# Runs the cells of a plan as a Slurm array; each task takes its share of them:
#
#   skyhop study plan all --seeds 20 --json > plan.json
#   skyhop study plan all --seeds 20 --todo > cells.txt
#   sbatch --array=1-100 tools/study-slurm.sh plan.json cells.txt STORE
#
# STORE is a directory that all nodes share; results are written whole or not at all. After a task
# was lost, make cells.txt again and submit the rest.
#SBATCH --job-name=skyhop-study
#SBATCH --cpus-per-task=1
set -eu
plan=$1 cells=$2 store=$3
: "${SLURM_ARRAY_TASK_ID:?submit this with sbatch --array=1-N}"
: "${SLURM_ARRAY_TASK_COUNT:?submit this with sbatch --array=1-N}"

# Every N-th line: the list begins with the longest cells.
awk -v n="$SLURM_ARRAY_TASK_COUNT" -v k="$SLURM_ARRAY_TASK_ID" 'NR % n == k % n' "$cells" |
    xargs -r -n 20 "${SKYHOP:-skyhop}" study cell --plan "$plan" --store "$store"
