"""Answers that users found wrong, each with the right one; and facts that fixes are made of."""

import resource
from io import BytesIO
from pathlib import Path

import pytest

from diagnosed import BOOKWORM, FEDORA, NOBLE, answer, commands, cuda, machine, only
from stoker.diagnose import disk_facts, machine_facts
from stoker.diagnose.about import About
from stoker.diagnose.here import Here
from stoker.diagnose.sieve import read_log
from stoker.diagnose.values import FailedRun, Status
from stoker.diagnose.verdict import diagnose
from stoker.model.shell import Outside

FORMAT = """
a.cpp:1:10: fatal error: format: No such file or directory
    1 | #include <format>
compilation terminated.
"""
NO_TORCH = """
  Getting requirements to build wheel: finished with status 'error'
  error: subprocess-exited-with-error
      Traceback (most recent call last):
        File "/tmp/pip-build-env-x/lib/python3.11/site-packages/setuptools/build_meta.py", line 1
        File "<string>", line 9, in <module>
      ModuleNotFoundError: No module named 'torch'
"""


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return machine(tmp_path, BOOKWORM)


@pytest.mark.parametrize(
    ("log", "version"),
    [
        ("mill.h:3:2: error: #error You need GCC 13\n", "13"),
        ("mill.h:3:2: error: #error You need GCC 14\n", "14"),
        (FORMAT, "13"),
        ("g++: error: unrecognized command-line option '-std=c++26'\n", "14"),
    ],
)
def test_the_version_of_gcc_is_that_of_the_log(log: str, version: str, tmp_path: Path) -> None:
    old = only(log, machine(tmp_path / "old", BOOKWORM, "g++-12"))
    assert f"gcc {version} or later" in old.title
    assert "gcc-12" not in commands(old)
    assert f"Debian GNU/Linux 12 (bookworm) has no gcc {version}" in old.advice[0].text
    new = only(log, machine(tmp_path / "new", NOBLE))
    assert f"install -y g++-{version}\n" in commands(new)
    assert f"CXX=g++-{version}" in commands(new)


def test_the_version_of_python_is_that_of_the_log(here: Here) -> None:
    found = only("ERROR: Package 'mill' requires a different Python: 3.11.2 not in '>=3.14'", here)
    assert "--python 3.14" in commands(found)
    assert "3.12" not in str(found.advice)


def test_the_file_system_that_is_full_is_named(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = disk_facts._Disk(where=str(tmp_path), device=1, free=0, total=1000 * 1024**2)
    monkeypatch.setattr(disk_facts, "_disk", lambda _: full)
    log = "[3/9] c++ -c a.cpp\nfatal error: error writing to a.o: No space left on device\n"
    found = only(log, here, str(tmp_path))
    assert f"{tmp_path} is full (0 B of 1000 MiB free)" in found.title + found.advice[0].text
    assert "TMPDIR" not in commands(found)


def test_a_limit_of_the_address_space_is_named(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (400_000 * 1024, resource.RLIM_INFINITY))
    found = only("virtual memory exhausted: Cannot allocate memory\n", here)
    assert found.cause == "address-space-limit"
    assert "391 MiB" in found.title
    assert commands(found) == "ulimit -v unlimited"


@pytest.mark.parametrize(
    ("header", "debian", "fedora"),
    [("Eigen/Dense", "libeigen3-dev", "eigen3-devel"), ("zstd.h", "libzstd-dev", "libzstd-devel")],
)
def test_a_header_is_installed_by_the_package_manager(
    header: str, debian: str, fedora: str, tmp_path: Path
) -> None:
    log = f"a.cpp:1:10: fatal error: {header}: No such file or directory\n"
    on_debian = commands(only(log, machine(tmp_path / "debian", BOOKWORM)))
    assert f"apt-get install -y {debian}" in on_debian
    assert f"dnf install -y {fedora}" in commands(only(log, machine(tmp_path / "f", FEDORA)))


def test_conda_installs_for_a_build_with_its_compilers(tmp_path: Path) -> None:
    here = machine(tmp_path, BOOKWORM, "conda", CONDA_PREFIX="/opt/env")
    error = "a.cpp:1:10: fatal error: zstd.h: No such file or directory"
    log = f"x86_64-conda-linux-gnu-c++ a.cpp\n{error}"
    assert commands(only(log, here)) == "conda install -y -c conda-forge zstd"


def test_a_module_that_the_isolated_build_lacks_has_one_answer(here: Here) -> None:
    found = only(NO_TORCH, here)
    assert found.cause == "pip-build-isolation"
    assert "flash-attn" not in str(found.advice)


def test_what_defines_a_symbol_is_named(here: Here) -> None:
    log = "a.c:(.text+0x1): undefined reference to `deflate'\ncollect2: error: ld returned 1 exit"
    found = only(log, here)
    assert "z is not linked" in found.title
    assert "-lz" in commands(found)


def test_a_symbol_of_torch_is_a_matter_of_its_version_or_abi(here: Here) -> None:
    string = "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >"
    log = f"a.cpp:(.text+0x1): undefined reference to `c10::Error::Error({string})'\n"
    assert only(log, here).cause in ("cxx11-abi-mismatch", "torch-version-abi-mismatch")


@pytest.mark.parametrize(
    "log",
    [
        "nvcc fatal   : Unsupported gpu architecture 'compute_999'",
        "nvcc fatal   : Value 'sm_999' is not defined for option 'gpu-architecture'",
    ],
)
def test_an_architecture_that_does_not_exist_is_unknown(log: str, here: Here) -> None:
    assert only(log, here).cause == "unknown-arch-name"


def test_an_index_that_is_ignored_is_no_cause(here: Here) -> None:
    log = """
Looking in indexes: https://example.org/simple, https://example.org/other
WARNING: Skipping page https://example.org/other/a/ because the GET request got Content-Type: None
WARNING: The index url "https://example.org/other" seems invalid, please provide a scheme.
Ignoring a: markers 'python_version < "3.8"' don't match your environment
"""
    assert answer(log, here).status is Status.NOTHING_FAILED


def test_an_empty_log_is_said_to_be_empty(here: Here) -> None:
    assert answer("", here).status is Status.EMPTY


def test_jobs_are_at_least_one() -> None:
    _, jobs = machine_facts.FACTS["machine.jobs"]
    found = jobs(About())
    assert isinstance(found, Outside)
    assert int(found.words[0]) >= 1


def test_a_command_needs_sudo_only_where_there_is_one(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    log = "a.cpp:1:10: fatal error: zstd.h: No such file or directory\n"
    assert commands(only(log, here)) == "sudo apt-get install -y libzstd-dev"


def test_the_header_that_declares_a_name_is_included(here: Here) -> None:
    found = only("a.cpp:4:8: error: 'sort' is not a member of 'std'; did you mean 'qsort'?\n", here)
    assert "-include algorithm" in commands(found)


def test_the_headers_of_python_are_those_of_the_version_in_the_log(here: Here) -> None:
    log = "gcc -I/usr/include/python3.8 -c a.c\na.c:1:10: fatal error: Python.h: No such file\n"
    assert "python3.8-dev" in commands(only(log, here))


def test_a_compiler_that_nvcc_refused_is_not_offered_again(here: Here) -> None:
    log = (
        "/usr/lib/gcc/x86_64-linux-gnu/12/include/amxtileintrin.h(42): error: identifier "
        '"__builtin_ia32_ldtilecfg" is undefined\n1 error detected in the compilation of "a.cu".\n'
    )
    assert "gcc-11" in commands(only(log, here))


NO_CUDA_HOME = (
    "OSError: CUDA_HOME environment variable is not set. Please set it to your CUDA root.\n"
)


def test_a_script_that_starts_nvcc_is_followed_to_its_toolkit(here: Here, tmp_path: Path) -> None:
    home = cuda(tmp_path, "12.4")
    assert f"CUDA_HOME={home} " in commands(only(NO_CUDA_HOME, here))


@pytest.mark.parametrize(("torch", "fits"), [("2.6.0+cu124", True), ("2.1.0+cu118", False)])
def test_a_toolkit_is_offered_only_for_the_cuda_of_torch(
    here: Here, tmp_path: Path, torch: str, fits: bool
) -> None:
    home = cuda(tmp_path, "12.6")
    found = only(f"torch.__version__  = {torch}\n{NO_CUDA_HOME}", here)
    assert (f"CUDA_HOME={home} " in commands(found)) is fits


@pytest.mark.parametrize(("header", "has"), [("cublas_v2.h", True), ("", False)])
def test_a_toolkit_without_the_missing_header_is_not_offered(
    here: Here, tmp_path: Path, header: str, has: bool
) -> None:
    home = cuda(tmp_path, "12.6", header)
    found = only("a.cu:1:10: fatal error: cublas_v2.h: No such file or directory\n", here)
    assert (f"{home}/include" in str(found.advice[0].commands)) is has


def test_an_architecture_is_one_that_the_kernel_and_nvcc_have(here: Here, tmp_path: Path) -> None:
    cuda(tmp_path, "13.0")  # it makes nothing older than 7.5
    log = "ptxas a.ptx, line 3; error   : Feature 'mma' requires .target sm_70 or higher\n"
    assert "TORCH_CUDA_ARCH_LIST=7.5+PTX" in commands(only(log, here))


def test_what_uv_built_is_built_again_with_uv(here: Here) -> None:
    log = (
        "  \u00d7 Failed to build `mill==1.0`\n"
        "      ModuleNotFoundError: No module named 'torch'\n"
        "      hint: This error likely indicates that `mill@1.0` depends on `torch`, but doesn't "
        "declare it as a build dependency. Otherwise, `uv pip install torch` into the environment "
        "and re-run with `--no-build-isolation`.\n"
    )
    assert commands(only(log, here)).startswith("uv pip install torch")


def test_a_file_system_without_room_for_files_is_full() -> None:
    full = disk_facts._Disk(where="/a", device=1, free=2**40, total=2**41, has_files=False)
    assert full.is_full
    assert not disk_facts._Disk(where="/a", device=1, free=2**40, total=2**41).is_full
    assert disk_facts._Disk(where="/a", device=1, free=2**20, total=2**24).is_full


def test_a_percentage_is_said_only_where_it_was_compared(here: Here) -> None:
    from stoker.diagnose.texts import sureness

    said = {
        log: sureness(only(log, here))
        for log in (
            "c++: fatal error: Killed signal terminated program cc1plus\n",
            "a.cpp:1:10: fatal error: zstd.h: No such file or directory\n",
            "collect2: error: ld returned 1 exit status\ncurl: (7) Failed\nKilled\n",
            "error while loading shared libraries: libm.so.1: cannot open shared object file\n",
        )
    }
    compared, *others = said.values()
    assert compared.endswith("% sure")
    assert others == ["likely", "likely", "likely"]


NO_CURL = """\
CMake Error at common/CMakeLists.txt:85 (message):
  Could NOT find CURL.  Hint: to disable this feature, set -DLLAMA_CURL=OFF
-- Configuring incomplete, errors occurred!
"""
NO_VULKAN = """\
CMake Error at /usr/share/cmake-3.28/Modules/FindPackageHandleStandardArgs.cmake:230 (message):
  Could NOT find Vulkan (missing: Vulkan_LIBRARY Vulkan_INCLUDE_DIR glslc)
-- Configuring incomplete, errors occurred!
"""
NO_EXTENSION = (
    "ImportError: /root/.cache/torch_extensions/py310_cu121/fused_adam/fused_adam.so: "
    "cannot open shared object file: No such file or directory\n"
)
WGMMA = (
    "ptxas a.ptx, line 812; error   : Instruction 'wgmma.fence' cannot be compiled for "
    "architecture 'sm_90'\n"
)
NO_TORCH_HEADER = "a.cpp:2:10: fatal error: torch/extension.h: No such file or directory\n"
SUFFIX = """\
CMake Error at torch/share/cmake/Caffe2/select_compute_arch.cmake:228 (message):
  Unknown CUDA Architecture Name 9.0a in CUDA_SELECT_NVCC_ARCH_FLAGS
"""


@pytest.mark.parametrize(
    ("log", "cause", "command"),
    [
        (NO_CURL, "cmake-package-missing", "libcurl4-openssl-dev"),
        (NO_VULKAN, "cmake-package-missing", "apt-get install -y libvulkan-dev"),
        (NO_VULKAN, "cmake-package-missing", "apt-get install -y glslc"),
        (SUFFIX, "unknown-arch-name", "TORCH_CUDA_ARCH_LIST=9.0"),
        (WGMMA, "arch-variant-missing", "TORCH_CUDA_ARCH_LIST=9.0a"),
        (NO_TORCH_HEADER, "torch-cmake-missing", "export CPATH"),
    ],
)
def test_reported_failures(log: str, cause: str, command: str, here: Here) -> None:
    found = only(log, here)
    assert found.cause == cause
    assert command in commands(found)


@pytest.mark.parametrize("value", ["native", "all-major"])
def test_an_nvcc_that_lacks_a_kind_of_target_is_too_old(
    value: str, here: Here, tmp_path: Path
) -> None:
    home = cuda(tmp_path, "13.0")
    log = f"nvcc fatal   : Value '{value}' is not defined for option 'gpu-architecture'\n"
    found = only(log, here)
    assert found.cause == "nvcc-too-old-on-path"
    assert f"CUDA_HOME={home} " in commands(found)


def test_a_toolkit_that_lacks_a_library_is_replaced_by_the_same_release(
    here: Here, tmp_path: Path
) -> None:
    cuda(tmp_path, "13.0")
    found = only("/usr/bin/ld: cannot find -lcublas: No such file or directory\n", here)
    installs = [
        command for fix in found.advice for command in fix.commands if "toolchain" in command
    ]
    assert installs
    assert all("cuda==13.0 " in command for command in installs)


def test_the_host_compiler_is_shown_the_headers_that_cuda_13_moved(
    here: Here, tmp_path: Path
) -> None:
    home = cuda(tmp_path, "13.0")
    header = home / "include/cccl/thrust/sort.h"
    header.parent.mkdir(parents=True)
    header.touch()
    found = only("a.cpp:3:10: fatal error: thrust/sort.h: No such file or directory\n", here)
    assert f"{home}/include/cccl" in commands(found)


def failed_wheel(project: str, *lines: str) -> str:
    return "\n".join((*lines, f"  ERROR: Failed building wheel for {project}", ""))


@pytest.mark.parametrize(
    ("project", "line", "packages"),
    [
        ("python-ldap", "Modules/common.h:15:10: fatal error: lber.h: No such file or directory",
         "libldap2-dev libsasl2-dev"),
        # The table of programs names another curl, and the two cannot be installed together.
        ("pycurl", "FileNotFoundError: [Errno 2] No such file or directory: 'curl-config'",
         "libcurl4-gnutls-dev libgnutls28-dev libssh2-1-dev"),
        # libgmp-dev is needed by what Debian names.
        ("gmpy2", "src/gmpy2.h:79:12: fatal error: gmp.h: No such file or directory",
         "libgmp-dev libmpc-dev libmpfr-dev"),
        ("pyscard", "  Install swig and try again", "libpcsclite-dev swig"),
    ],
)  # fmt: skip
def test_the_first_fix_installs_all_that_the_project_needs(
    here: Here, project: str, line: str, packages: str
) -> None:
    found = only(failed_wheel(project, line), here)
    assert found.advice[0].commands == (f"{here.sudo}apt-get install -y {packages}",)


def test_a_tool_that_debian_does_not_name_is_installed_alone(here: Here) -> None:
    found = only(failed_wheel("python-ldap", "  Install cmake and try again"), here)
    assert found.advice[0].commands == (f"{here.sudo}apt-get install -y cmake",)


KLEIDIAI = """\
CMake Error at cmake/Dependencies.cmake:1549 (find_package):
  By not providing "FindKleidiAI.cmake" in CMAKE_MODULE_PATH this project has
  asked CMake to find a package configuration file provided by "KleidiAI", but
  CMake did not find one.

  Could not find a package configuration file provided by "KleidiAI" with any
  of the following names:

    KleidiAIConfig.cmake
    kleidiai-config.cmake

-- Configuring incomplete, errors occurred!
"""
FRONTEND = """\
[7/90] g++ -c aten/src/ATen/native/cudnn/MHA.cpp -o MHA.o
FAILED: MHA.o
aten/src/ATen/native/cudnn/MHA.cpp:5:10: fatal error: cudnn_frontend.h: No such file or directory
    5 | #include <cudnn_frontend.h>
compilation terminated.
ninja: build stopped: subcommand failed.
"""


@pytest.mark.parametrize(
    ("command", "log", "again"),
    [
        ("stoker build --variant cpu", KLEIDIAI, "stoker build --variant cpu -D USE_KLEIDIAI=0"),
        ("stoker build tree", KLEIDIAI, "stoker build tree -D USE_KLEIDIAI=0"),
        ("cmake -B build -S .", KLEIDIAI, "cmake -B build -S . -DUSE_KLEIDIAI=0"),
        ("stoker build tree", FRONTEND, "stoker build tree -D USE_CUDNN=0"),
        ("cmake --build build", KLEIDIAI, None),
        ("make", KLEIDIAI, None),
    ],
)
def test_what_is_missing_can_be_left_out_by_an_option_of_the_tree(
    command: str, log: str, again: str | None, here: Here, tmp_path: Path
) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "CMakeLists.txt").write_text(
        'option(USE_KLEIDIAI_X "no" ON)\ncmake_dependent_option(USE_KLEIDIAI "yes" ON "ARM" OFF)\n'
        'option(\n  USE_CUDNN "yes" ON)\n'
    )
    folder = tmp_path if "tree" in command else tree
    about = About(here=here, run=FailedRun(command=command, folder=str(folder)))
    (found,) = diagnose(read_log(BytesIO(log.encode())), about=about).findings
    offered = [line for fix in found.advice for line in (*fix.commands, fix.build or "")]
    assert (again in offered) if again else not any("USE_" in line for line in offered)


def test_an_option_that_the_tree_does_not_declare_is_not_offered(
    here: Here, tmp_path: Path
) -> None:
    (tmp_path / "CMakeLists.txt").write_text('option(USE_OTHER "Not it" ON)\n')
    about = About(here=here, run=FailedRun(command="stoker build", folder=str(tmp_path)))
    (found,) = diagnose(read_log(BytesIO(KLEIDIAI.encode())), about=about).findings
    assert not any("without it" in fix.text for fix in found.advice)
