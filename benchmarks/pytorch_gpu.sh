#!/bin/bash
# Compares two builds of one PyTorch release on a GPU: pytorch_gpu.sh PYTHON OURS OFFICIAL TESTS OPERATORS RESULT
# PYTHON has the requirements of torch, pytest, pytest-xdist, expecttest, hypothesis and psutil. OURS and OFFICIAL are
# folders with an unpacked wheel of torch each (and NVIDIA's packages, where the wheel looks for them). TESTS is the
# folder test of PyTorch's source, OPERATORS a program that writes a digest of each operator to the file that it is
# given. RESULT gets logs and figures. Environment: ROUNDS of the speed comparison (5), SECONDS_PER_FILE of tests (no
# limit), BUILDS whose tests run ("ours official"), FILES of tests, OFFICIAL_PRELOAD, a library with functions that the
# machine's NVIDIA packages lack. Tests that share a GPU disturb each other, and an illegal access in one ends all later
# ones of its process: tests that failed run again, without others in their process where the file is test_cuda.py (which
# does not stand tests beside it), else one after the other. `python benchmarks/pytorch_gpu_results.py RESULT` counts.
set -euo pipefail
python=$1 ours=$(realpath "$2") official=$(realpath "$3") tests=$(realpath "$4") operators=$(realpath "$5") result=$6
here=$(realpath "$(dirname "$0")")
mkdir -p "$result"
result=$(realpath "$result")

with() { # with BUILD COMMAND...: BUILD (ours or official) is the one that is imported
    local build=$1 preload=
    shift
    [ "$build" = official ] && preload=${OFFICIAL_PRELOAD:-}
    PYTORCH_TESTING_DEVICE_ONLY_FOR=cuda OMP_NUM_THREADS=2 LD_PRELOAD=$preload \
        PYTHONPATH="${!build}${PYTHONPATH:+:$PYTHONPATH}" "$@"
}

for round in $(seq "${ROUNDS:-5}"); do
    echo "speed, round $round"
    for build in ours official; do with $build "$python" "$here/pytorch_gpu_speed.py" >> "$result/speed-$build.jsonl"; done
done
cd "$tests"
for build in ours official; do with $build "$python" "$operators" "$result/operators-$build.json" | tail -n 1; done
for file in ${FILES:-test_torch test_nn test_cuda test_transformers}; do
    workers=$(nproc)
    [ "$file" = test_cuda ] && workers=1
    for build in ${BUILDS:-ours official}; do
        # A failed test is a result. conftest.py is for PyTorch's own CI.
        with "$build" timeout -k 10 -s INT "${SECONDS_PER_FILE:-0}" "$python" -m pytest --noconftest -p no:cacheprovider -n $workers -v \
            "$file.py" > "$result/$file-$build.txt" 2>&1 || true
        echo "$build $file: $(tail -n 1 "$result/$file-$build.txt")"
        again=$result/$file-$build-again
        mkdir -p "$again"
        { grep -oP '(FAILED|ERROR) \K\S+\.py::\S+' "$result/$file-$build.txt" || true; } | sort -u > "$again.txt"
        at_once=1 tests_each=400
        [ "$file" = test_cuda ] && at_once=6 tests_each=1
        with "$build" xargs -r -P $at_once -n $tests_each sh -c 'out=$0
            timeout -k 10 600 "$@" > "$out/$$.txt" 2>&1 || true' "$again" \
            "$python" -m pytest --noconftest -p no:cacheprovider -v < "$again.txt"
    done
done
