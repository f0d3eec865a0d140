import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.knowledge.libraries import LibraryRow, library_table
from stoker.knowledge.tools import launchers, programs

ROWS = {row.name: row for row in library_table().library}

# As the headers of released versions define them.
DEFINES = {
    "nvshmem": """\
#define NVSHMEM_VENDOR_MAJOR_VERSION 3
#define NVSHMEM_VENDOR_MINOR_VERSION 4
#define NVSHMEM_VENDOR_PATCH_VERSION 5
""",
    "mkl": """\
#define __INTEL_MKL__          2024
#define __INTEL_MKL_MINOR__    0
#define __INTEL_MKL_UPDATE__   2
#define __INTEL_MKL_PATCH__    1
""",
    "openblas": '#define OPENBLAS_VERSION " OpenBLAS 0.3.28 "\n',
    "atlas": '#define ATL_VERS    "3.10.3"\n',
    "eigen": """\
#define EIGEN_WORLD_VERSION 3
#define EIGEN_MAJOR_VERSION 5
#define EIGEN_MINOR_VERSION 0
#define EIGEN_PATCH_VERSION 1
""",
    "mpi": '#define MPICH_VERSION "4.0.2"\n',
    "protobuf": "  # define GOOGLE_PROTOBUF_VERSION 3021012\n",
    "vulkan": """\
#define VK_HEADER_VERSION 239
#define VK_HEADER_VERSION_COMPLETE VK_MAKE_API_VERSION(0, 1, 3, VK_HEADER_VERSION)
""",
}
VERSIONS = {
    "nvshmem": "3.4.5",
    "mkl": "2024.2.1",
    "openblas": "0.3.28",
    "atlas": "3.10.3",
    "eigen": "5.0.1",
    "mpi": "4.0.2",
    "protobuf": "3.21.12",
    "vulkan": "1.3.239",
}


def test_versions() -> None:
    assert {name: ROWS[name].version(text) for name, text in DEFINES.items()} == VERSIONS


def test_a_version_needs_all_its_parts() -> None:
    assert ROWS["nccl"].version("#define NCCL_MAJOR 2\n#define NCCL_MINOR 27\n") is None
    assert ROWS["nccl"].version("// NCCL_MAJOR 2 NCCL_MINOR 27 NCCL_PATCH 3\n") is None


@pytest.mark.parametrize("row", library_table().library, ids=ROWS)
def test_rows_make_sense(row: LibraryRow) -> None:
    assert row.headers
    assert all(re.compile(pattern).groups for patterns in row.versions for pattern in patterns)
    assert all(place.startswith("/") for place in row.places)
    assert row.version("") is None


@given(st.sampled_from(library_table().library), st.text())
def test_any_header_is_read(row: LibraryRow, text: str) -> None:
    row.version(text)


def test_names_are_unique() -> None:
    assert len(ROWS) == len(library_table().library)
    assert len({program.name for program in programs()}) == len(programs())


def test_programs() -> None:
    assert launchers() == {"ccache", "sccache", "distcc"}
    assert all(re.compile(program.version).groups == 1 for program in programs())
