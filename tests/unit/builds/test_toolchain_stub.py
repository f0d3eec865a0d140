"""Stub libraries to link with if the driver is not installed."""

import os
import subprocess
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

from conftest import Need
from stoker.builds.toolchains.assemble import functions, make_stub
from stoker.knowledge.toolchains import Stub

HEADER = """
/* cuInComment does not count. */
#define cuMemAlloc cuMemAlloc_v2  // nor does cuThis
#define cuMemcpyHtoD __CUDA_API_PTDS(cuMemcpyHtoD_v2)
#define cuStreamWait __CUDA_API_PTSZ(cuStreamWait)
typedef enum cuKind_st { CU_KIND } cuKind_t;
typedef int CUresult;
CUresult cuInit(unsigned int Flags);
CUresult cuMemAlloc(void **pointer, cuuint64_t size);
"""


def test_every_name_a_program_may_refer_to() -> None:
    assert functions("cu", [HEADER]) == [
        "cuInit",
        "cuMemAlloc",
        "cuMemAlloc_v2",
        "cuMemcpyHtoD",
        "cuMemcpyHtoD_v2",
        "cuMemcpyHtoD_v2_ptds",
        "cuStreamWait",
        "cuStreamWait_ptsz",
    ]


HEADERS = st.lists(
    st.sampled_from(["cu", "é", "1", "_v2", "(", ")", "#define ", "\n", " ", "__CUDA_API_PTDS("])
)


@given(HEADERS.map("".join))
@example("CUresult cuInit(int);\n#define cuÉ cuA\n")
def test_names_are_names(header: str) -> None:
    names = functions("cu", ["CUresult cuInit(int);", header])
    assert "cuInit" in names
    assert all(name.isidentifier() and name.isascii() for name in names)


def test_a_program_links_with_it(tmp_path: Path, need: Need) -> None:
    compiler = need("g++")
    (tmp_path / "include").mkdir()
    (tmp_path / "include/cuda.h").write_text(HEADER)
    stub = Stub(
        prefix="cu",
        headers=("cuda.h", "absent.h"),
        library="lib/stubs/libcuda.so",
        soname="libcuda.so.1",
    )
    make_stub(tmp_path, stub, compiler=compiler, work=tmp_path)
    main = tmp_path / "main.cpp"
    main.write_text('extern "C" int cuInit(unsigned);\nint main() { return cuInit(0); }\n')
    libraries = tmp_path / "lib/stubs"
    program = tmp_path / "program"
    subprocess.run([compiler, main, f"-L{libraries}", "-lcuda", "-o", program], check=True)
    # It asks for the soname, which only a driver, or this link, provides.
    assert subprocess.run([program], check=False, capture_output=True).returncode != 0
    (libraries / "libcuda.so.1").symlink_to("libcuda.so")
    env = {**os.environ, "LD_LIBRARY_PATH": str(libraries)}
    assert (
        b"libcuda"
        not in subprocess.run([program], env=env, check=False, capture_output=True).stderr
    )


def test_without_headers_there_is_none(tmp_path: Path) -> None:
    stub = Stub(prefix="nvml", headers=("nvml.h",), library="lib/libx.so", soname="libx.so.1")
    make_stub(tmp_path, stub, compiler="no-compiler", work=tmp_path)
    assert list(tmp_path.iterdir()) == []
