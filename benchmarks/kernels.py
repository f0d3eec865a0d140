"""Writes a build.ninja that compiles large CUDA kernels for sm_90, for benchmarks/ninja_rows.py.

    python benchmarks/kernels.py flash-attn FOLDER BUILD
    python benchmarks/kernels.py pytorch TREE CUTLASS BUILD [--include FOLDER]

flash-attn: 12 forward kernels (head dimensions 32, 64 and 96) of the unpacked sdist of flash-attn
2.8.3 in FOLDER; needs torch's headers.

pytorch: every fourth CUDA source of a PyTorch 2.6.0 tree whose code was generated in TREE/build, by
a CPU build for example, and every third of its FlashAttention kernels. CUTLASS is the folder of
CUTLASS's headers, such as csrc/cutlass/include of that sdist: those of the version that PyTorch
2.6.0 names do not work with CUDA 13. FOLDER has the headers of CUDA's libraries, if nvcc does not
find them. Sources that include parts of CUB which CUDA 13 no longer has are left out.
"""

import argparse
import sysconfig
from collections.abc import Iterator
from pathlib import Path

TARGET = "-gencode arch=compute_90,code=sm_90"
FLASH_ATTN_FLAGS = f"""-std=c++17 -O3 -U__CUDA_NO_HALF_OPERATORS__ -U__CUDA_NO_HALF_CONVERSIONS__
-U__CUDA_NO_HALF2_OPERATORS__ -U__CUDA_NO_BFLOAT16_CONVERSIONS__ --expt-relaxed-constexpr
--expt-extended-lambda --use_fast_math {TARGET}"""
PYTORCH_FLAGS = f"""-std=c++17 -O3 -Xcompiler -fPIC {TARGET} --expt-relaxed-constexpr
--expt-extended-lambda -w -DCUDA_HAS_FP16=1 -D__CUDA_NO_HALF_OPERATORS__
-D__CUDA_NO_HALF_CONVERSIONS__ -D__CUDA_NO_HALF2_OPERATORS__ -D__CUDA_NO_BFLOAT16_CONVERSIONS__
-DTORCH_CUDA_BUILD_MAIN_LIB -DUSE_CUDA -DAT_PER_OPERATOR_HEADERS -DUSE_C10D=0
-DFLASH_NAMESPACE=pytorch_flash -DFLASHATTENTION_DISABLE_ALIBI -DFLASHATTENTION_DISABLE_SOFTCAP
-DUSE_FLASH_ATTENTION -DUSE_MEM_EFF_ATTENTION"""
PYTORCH_FOLDERS = """cuda native/cuda native/nested/cuda native/quantized/cuda native/sparse/cuda
native/transformers/cuda native/transformers/cuda/mem_eff_attention/kernels"""
FLASH = "native/transformers/cuda/flash_attn"
FAILS_WITH_CUDA_13 = """cuda/cub-RadixSortKeys.cu native/cuda/CumminmaxKernel.cu
native/cuda/EmbeddingBag.cu native/cuda/MixedDtypesLinear.cu native/cuda/Nonzero.cu
native/cuda/Sort.cu native/sparse/cuda/SparseSemiStructuredOps.cu"""
CONFIGURED = {
    "ATen/cuda/CUDAConfig.h": """#pragma once
#define AT_CUDNN_ENABLED() 0
#define AT_CUSPARSELT_ENABLED() 0
#define AT_ROCM_ENABLED() 0
#define AT_MAGMA_ENABLED() 0
#define NVCC_FLAGS_EXTRA ""
""",
    "c10/cuda/impl/cuda_cmake_macros.h": "#pragma once\n#define C10_CUDA_BUILD_SHARED_LIBS\n",
}


def flash_attn(folder: Path) -> tuple[str, list[Path]]:
    """Return the flags and the kernels of flash-attn."""
    from torch.utils.cpp_extension import include_paths

    source = folder / "csrc"
    headers = [source / "flash_attn", source / "flash_attn/src", source / "cutlass/include"]
    headers += map(Path, include_paths())
    headers.append(Path(sysconfig.get_paths()["include"]))
    kernels = [
        source / f"flash_attn/src/flash_fwd_hdim{width}_{kind}{causal}_sm80.cu"
        for width in (32, 64, 96)
        for kind in ("bf16", "fp16")
        for causal in ("_causal", "")
    ]
    return _flags(FLASH_ATTN_FLAGS, headers), kernels


def pytorch(tree: Path, cutlass: Path, include: Path | None, build: Path) -> tuple[str, list[Path]]:
    """Return the flags and the sample of PyTorch's CUDA sources; write the headers that a build
    with CUDA would configure.
    """
    for name, text in CONFIGURED.items():
        file = build / "configured" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    aten = tree / "aten/src/ATen"
    headers = [build / "configured", tree / "build/aten/src", tree / "aten/src", tree / "build"]
    headers += [tree, aten / FLASH, cutlass, tree / "third_party/miniz-3.0.2"]
    headers += [include] if include else []
    flash = sorted((aten / FLASH / "kernels").glob("*.cu"))
    others = sorted(s for folder in PYTORCH_FOLDERS.split() for s in (aten / folder).glob("*.cu"))
    left_out = {*flash, *(aten / name for name in FAILS_WITH_CUDA_13.split())}
    sample = [source for source in sorted([*flash, *others])[1::4] if source not in left_out]
    return _flags(PYTORCH_FLAGS, headers), [*flash[::3], *sample]


def _flags(flags: str, headers: list[Path]) -> str:
    return " ".join([*flags.split(), *(f"-I{folder}" for folder in headers)])


def _lines(flags: str, sources: list[Path]) -> Iterator[str]:
    yield "rule cuda_compile"
    yield f"  command = nvcc $first {flags} -c $in -o $out"
    for source in sources:
        yield f"build {'_'.join(source.parts[-3:])}.o: cuda_compile {source}"
        if FLASH in str(source):  # its own first include has a cycle in CUTLASS 4
            yield "  first = -include cute/tensor.hpp"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    kinds = parser.add_subparsers(dest="kind", required=True)
    kind = kinds.add_parser("flash-attn")
    kind.add_argument("folder", type=Path)
    kind.add_argument("build", type=Path)
    kind = kinds.add_parser("pytorch")
    kind.add_argument("tree", type=Path)
    kind.add_argument("cutlass", type=Path)
    kind.add_argument("build", type=Path)
    kind.add_argument("--include", type=Path)
    given = parser.parse_args()
    build = given.build.resolve()
    build.mkdir(parents=True, exist_ok=True)
    if given.kind == "flash-attn":
        flags, sources = flash_attn(given.folder.resolve())
    else:
        include = given.include and given.include.resolve()
        flags, sources = pytorch(given.tree.resolve(), given.cutlass.resolve(), include, build)
    (build / "build.ninja").write_text("\n".join(_lines(flags, sources)) + "\n")
    print(f"{len(sources)} kernels in {build / 'build.ninja'}")


if __name__ == "__main__":
    main()
