from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from stoker.machine.file_tree import FileTree
from stoker.machine.libraries import find_libraries
from stoker.model.machine import Library

Record = Callable[[Mapping[str, str]], FileTree]

TRIPLE = "x86_64-linux-gnu"
CUDNN = "#define CUDNN_MAJOR 9\n#define CUDNN_MINOR 10\n#define CUDNN_PATCHLEVEL 2\n"
NCCL = "#define NCCL_MAJOR 2\n#define NCCL_MINOR 27\n#define NCCL_PATCH 3\n"


def find(
    tree: FileTree, prefixes: tuple[str, ...] = (), **environment: str
) -> dict[str, tuple[str | None, str | None, str | None]]:
    """Version, header and library of each library found, below the root."""

    def below(path: str | None) -> str | None:
        return path and "/" + str(Path(path).relative_to(tree.root))

    variables = {name: value.replace("@", str(tree.root)) for name, value in environment.items()}
    libraries = find_libraries(tree, variables, TRIPLE, map(tree.path, prefixes))
    return {
        library.name: (library.version, below(library.header), below(library.library))
        for library in libraries
    }


def test_system_folders(record: Record) -> None:
    tree = record(
        {
            "/usr/include/cudnn_version.h": CUDNN,
            f"/usr/lib/{TRIPLE}/libcudnn.so.9": "",
            f"/usr/lib/{TRIPLE}/libcudnn.so.9.10.2": "",
            f"/usr/include/{TRIPLE}/openblas-pthread/openblas_config.h": (
                '#define OPENBLAS_VERSION " OpenBLAS 0.3.21 "\n'
            ),
            f"/usr/lib/{TRIPLE}/openblas-pthread/libopenblas.a": "",
            f"/usr/lib/{TRIPLE}/openblas-pthread/libopenblas.so": "",
        }
    )
    assert find(tree) == {
        "cudnn": ("9.10.2", "/usr/include/cudnn_version.h", f"/usr/lib/{TRIPLE}/libcudnn.so.9"),
        "openblas": (
            "0.3.21",
            f"/usr/include/{TRIPLE}/openblas-pthread/openblas_config.h",
            f"/usr/lib/{TRIPLE}/openblas-pthread/libopenblas.so",
        ),
    }


def test_what_variables_name_comes_first_even_in_two_parts(record: Record) -> None:
    tree = record(
        {
            "/usr/include/nccl.h": NCCL.replace("27", "20"),
            "/usr/lib/libnccl.so": "",
            "/one/nccl.h": NCCL,
            "/two/libnccl.so": "",
            "/three/libnccl_static.a": "",
        }
    )
    apart = find(tree, NCCL_INCLUDE_DIR="@/one", NCCL_LIB_DIR="@/two")
    assert apart["nccl"] == ("2.27.3", "/one/nccl.h", "/two/libnccl.so")
    by_file = find(tree, NCCL_INCLUDE_DIR="@/one/nccl.h", NCCL_LIB_DIR="@/three/libnccl_static.a")
    assert by_file["nccl"] == ("2.27.3", "/one/nccl.h", "/three/libnccl_static.a")
    nowhere = find(tree, NCCL_ROOT="@/nowhere")
    assert nowhere["nccl"] == ("2.20.3", "/usr/include/nccl.h", "/usr/lib/libnccl.so")


def test_prefixes_come_before_the_system_and_both_parts_from_one_place(record: Record) -> None:
    tree = record(
        {
            "/usr/include/nccl.h": NCCL,
            "/usr/lib64/libnccl.so.2": "",
            "/cuda/include/nccl.h": NCCL,
            "/site/nvidia/nccl/include/nccl.h": NCCL,
            "/site/nvidia/nccl/lib/libnccl.so.2": "",
        }
    )
    found = find(tree, ("/cuda", "/site/nvidia/nccl"))
    assert found["nccl"][1:] == (
        "/site/nvidia/nccl/include/nccl.h",
        "/site/nvidia/nccl/lib/libnccl.so.2",
    )
    assert find(tree, ("/cuda",))["nccl"][2] == "/usr/lib64/libnccl.so.2"
    assert find(tree, CMAKE_PREFIX_PATH="@/none;@/site/nvidia/nccl")["nccl"][1] == (
        "/site/nvidia/nccl/include/nccl.h"
    )


def test_what_there_is_of_a_library_is_told(record: Record) -> None:
    assert find(record({"/usr/lib/libnuma.so.1": ""})) == {
        "numa": (None, None, "/usr/lib/libnuma.so.1")
    }
    assert find(record({"/usr/include/numa.h": ""})) == {
        "numa": (None, "/usr/include/numa.h", None)
    }


def test_headers_alone_are_a_library_where_there_is_no_more(record: Record) -> None:
    macros = """\
#define EIGEN_WORLD_VERSION 3
#define EIGEN_MAJOR_VERSION 4
#define EIGEN_MINOR_VERSION 0
"""
    tree = record(
        {
            "/usr/include/eigen3/Eigen/Core": "",
            "/usr/include/eigen3/Eigen/src/Core/util/Macros.h": macros,
        }
    )
    (eigen,) = find_libraries(tree, {}, TRIPLE, ())
    assert eigen.version == "3.4.0"
    assert eigen.complete


def test_the_newest_of_the_places_of_its_own(record: Record) -> None:
    files = {}
    for version in ("9", "12"):
        files[f"/usr/lib/gcc/{TRIPLE}/{version}/include/omp.h"] = ""
        files[f"/usr/lib/gcc/{TRIPLE}/{version}/libgomp.so"] = ""
    assert find(record(files))["openmp"][1] == f"/usr/lib/gcc/{TRIPLE}/12/include/omp.h"


def test_a_framework_of_macos(record: Record) -> None:
    framework = (
        "/Library/Developer/CommandLineTools/SDKs/MacOSX.sdk"
        "/System/Library/Frameworks/Accelerate.framework"
    )
    tree = record({f"{framework}/Headers/Accelerate.h": "", f"{framework}/Accelerate.tbd": ""})
    assert find(tree)["accelerate"] == (
        None,
        f"{framework}/Headers/Accelerate.h",
        f"{framework}/Accelerate.tbd",
    )


@pytest.mark.parametrize("header", ["", "#define CUDNN_MAJOR x\n", "\x00\xff"])
def test_a_header_without_a_version(record: Record, header: str) -> None:
    tree = record({"/usr/include/cudnn.h": header, "/usr/lib/libcudnn.so": ""})
    assert find(tree)["cudnn"] == (None, "/usr/include/cudnn.h", "/usr/lib/libcudnn.so")


def test_names_that_only_begin_alike_are_others(record: Record) -> None:
    tree = record({"/usr/lib/libcudnn_ops.so": "", "/usr/lib/libcudnn.so.old": ""})
    assert find(tree) == {}


def test_nothing_is_found_in_nothing(record: Record) -> None:
    assert find_libraries(record({}), {"CUDNN_ROOT": "/no/such"}, TRIPLE, ()) == ()
    assert Library(name="x").complete is False
