#!/bin/bash
# Compares two builds of one PyTorch release on a GPU: pytorch_gpu.sh PYTHON OURS OFFICIAL TESTS OPERATORS RESULT
# PYTHON has the requirements of torch, pytest, pytest-xdist, expecttest, hypothesis and psutil. OURS and OFFICIAL are
# folders with an unpacked wheel of torch each (and NVIDIA's packages, where the wheel looks for them). TESTS is the
# folder test of PyTorch's source, OPERATORS a program that writes a digest of each operator to the file that it is
# given. RESULT gets logs and figures. benchmarks/results/pytorch-2.12.1-cuda-gpu.json was measured by these commands,
# with all files of tests at once, which test_cuda.py does not stand; here it runs alone.
set -euo pipefail
python=$1 ours=$(realpath "$2") official=$(realpath "$3") tests=$(realpath "$4") operators=$(realpath "$5") result=$6
here=$(realpath "$(dirname "$0")")
mkdir -p "$result"
result=$(realpath "$result")

with() { # with FOLDER COMMAND...: the build in FOLDER is the one that is imported
    local folder=$1
    shift
    PYTORCH_TESTING_DEVICE_ONLY_FOR=cuda OMP_NUM_THREADS=2 PYTHONPATH="$folder" "$@"
}

for round in 1 2 3 4 5; do
    echo "speed, round $round"
    with "$ours" "$python" "$here/pytorch_gpu_speed.py" >> "$result/speed-ours.jsonl"
    with "$official" "$python" "$here/pytorch_gpu_speed.py" >> "$result/speed-official.jsonl"
done
cd "$tests"
for build in ours official; do
    with "${!build}" "$python" "$operators" "$result/operators-$build.json" | tail -n 1
    for file in test_torch test_nn test_cuda test_transformers; do
        workers=8
        [ $file = test_cuda ] && workers=1
        # A failed test is a result. conftest.py is for PyTorch's own CI.
        with "${!build}" "$python" -m pytest --noconftest -p no:cacheprovider -n $workers -v $file.py > "$result/$file-$build.txt" 2>&1 || true
        echo "$build $file: $(tail -n 1 "$result/$file-$build.txt")"
    done
done
