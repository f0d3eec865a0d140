#!/bin/bash
# Builds PyTorch 2.12.1 with CUDA for sm_90 in a chroot under a memory limit, in as many jobs as it takes:
#   pytorch_cuda.sh ROOT CUDA CUDNN STOP_AFTER [WITH_ATTENTION]
# ROOT is a Debian root with the build dependencies and the source tree in ROOT/build/tree, CUDA a toolkit 13.0, CUDNN the
# folder nvidia/cudnn of an installed PyTorch. WITH_ATTENTION=1 also builds FlashAttention and memory-efficient attention.
# Needs root and cgroup v2. Call it again to continue: ROOT/build/checkpoint may come from another machine. The wheel is in
# ROOT/build/dist, the log in ROOT/build/stoker.log. benchmarks/results/pytorch-2.12.1-cuda.json has what was measured;
# that build had neither --mode pypi nor unversioned library names, which were added because of its wheel.
# setup.py copies third_party/cutlass/examples/python/CuTeDSL/blackwell/grouped_gemm.py into the wheel: the tree needs it.
set -euo pipefail
root=$(realpath "$1") cuda=$(realpath "$2") cudnn=$(realpath "$3") stop_after=$4 attention=${5:-0}
stoker=$(realpath "$(dirname "$0")/..")
limit=32G

# One folder with the toolkit and cuDNN, as PyTorch's configuration expects it.
make_cuda_home() {
    local home=$root/opt/cuda file name
    mkdir -p "$root$cuda" "$root/opt/cudnn" "$home/lib64" "$home/include"
    mount --bind "$cuda" "$root$cuda"
    mount --bind "$cudnn" "$root/opt/cudnn"
    ln -s "$cuda/bin" "$cuda/nvvm" "$home/"
    for file in "$cuda"/include/*; do ln -s "$file" "$home/include/"; done
    for file in "$cuda"/lib64/*; do ln -s "$file" "$home/lib64/"; done
    for file in "$cudnn"/include/*; do ln -sf "/opt/cudnn/include/${file##*/}" "$home/include/"; done
    for file in "$cudnn"/lib/lib*.so*; do
        name=${file##*/}
        ln -sf "/opt/cudnn/lib/$name" "$home/lib64/$name"
        ln -sf "/opt/cudnn/lib/$name" "$home/lib64/${name%%.so*}.so"
    done
}

in_root() {
    env -i PATH=/opt/cuda/bin:/usr/sbin:/usr/bin HOME=/root LC_ALL=C.UTF-8 TERM=dumb STOKER_HOME=/build/home \
        CUDA_HOME=/opt/cuda CUDNN_ROOT=/opt/cuda LD_LIBRARY_PATH=/opt/cuda/lib64 GENERIC_BLAS_LIBRARIES=blas \
        PYTORCH_BUILD_VERSION=2.12.1 PYTORCH_BUILD_NUMBER=1 chroot "$root" "$@"
}

# The root has Python 3.13 but no network: ROOT/build/wheels has the wheels of what stoker needs.
install_stoker() {
    local site=/opt/stoker/lib/python3.13/site-packages wheel
    in_root python3 -m venv --system-site-packages --without-pip /opt/stoker
    for wheel in "$root"/build/wheels/*.whl; do in_root python3 -m zipfile -e "/build/wheels/${wheel##*/}" $site; done
    mkdir -p "$root/build/stoker"
    cp -r "$stoker/src" "$stoker/launcher" "$stoker/CMakeLists.txt" "$root/build/stoker/"
    cp -r "$stoker/src/stoker" "$root$site/"
    in_root cmake -S /build/stoker -B /tmp/launcher -G Ninja -DCMAKE_INSTALL_PREFIX=$site
    in_root cmake --build /tmp/launcher --target install
    printf '#!/opt/stoker/bin/python3\nfrom stoker.__main__ import program\nimport sys\nsys.exit(program())\n' > "$root/opt/stoker/bin/stoker"
    chmod +x "$root/opt/stoker/bin/stoker"
}

if [ ! -d "$root/opt/cuda" ]; then
    for folder in proc sys dev; do mkdir -p "$root/$folder" && mount --rbind "/$folder" "$root/$folder"; done
    make_cuda_home
    install_stoker
fi
features=(--no-distributed --no-mkldnn --no-xnnpack --no-qnnpack --no-fbgemm --no-kineto --no-itt --no-nccl)
defines=(-D USE_SYSTEM_LIBS=ON -D USE_PYTORCH_QNNPACK=0 -D BUILD_CUSTOM_PROTOBUF=OFF -D USE_CUSPARSELT=0 -D USE_MIMALLOC=0
    -D CMAKE_PLATFORM_NO_VERSIONED_SONAME=ON) # Debian's tree gives its libraries versions: three copies in a wheel
[ "$attention" = 1 ] || defines+=(-D USE_FLASH_ATTENTION=0 -D USE_MEM_EFF_ATTENTION=0)
group=/sys/fs/cgroup/pytorch
mkdir -p "$group"
echo $limit > "$group/memory.max"
status=0
(
    echo "$BASHPID" > "$group/cgroup.procs"
    in_root /opt/stoker/bin/stoker build /build/tree --python /usr/bin/python3 --variant cu130-sm90 --blas genericblas \
        "${features[@]}" "${defines[@]}" --stop-after "$stop_after" --stop-grace 20s --checkpoint /build/checkpoint \
        --mode pypi --out /build/dist --progress log
) > "$root/build/stoker.log" 2>&1 || status=$?
tail -n 5 "$root/build/stoker.log"
cat "$group/memory.events" "$group/memory.peak"
exit $status
