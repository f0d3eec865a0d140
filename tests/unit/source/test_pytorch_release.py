"""What a PyTorch tree says that other releases say differently."""

from pathlib import Path

import pytest

from stoker.model.source import AddedTarget, ReleaseFacts
from stoker.model.variant import Backend
from stoker.source.files import TreeFiles
from stoker.source.pytorch import read_release

LIBRARIES = "tools/build_pytorch_libs.py"
ONE_FILE = """
if(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12.0 AND
  EXISTING_ARCH_FLAGS MATCHES ".*compute_90.*")
  set(FLAGS "-gencode arch=compute_90a,code=sm_90a")
endif()
"""
BY_LISTS = """
function(_BUILD_FOR_ADDITIONAL_ARCHS file archs)
  foreach(_arch ${archs})
    if("${_arch}" STREQUAL "89")
      if(_existing_arch_flags MATCHES ".*compute_86.*")
        list(APPEND flags "-gencode;arch=compute_89,code=sm_89")
      endif()
    endif()
    if("${_arch}" STREQUAL "103a" AND CUDA_VERSION VERSION_GREATER_EQUAL 12.9)
      if(_existing_arch_flags MATCHES ".*compute_100.*")
        list(APPEND flags "-gencode;arch=compute_103a,code=sm_103a")
      endif()
    endif()
    if("${_arch}" STREQUAL "120a")
      if(_existing_arch_flags MATCHES ".*compute_120.*")
        list(APPEND flags "-gencode;arch=compute_120a,code=sm_120a")
      endif()
    endif()
  endforeach()
endfunction()
_BUILD_FOR_ADDITIONAL_ARCHS(
  "a.cu"
  "89;103a")
"""


def release(folder: Path, files: dict[str, str]) -> ReleaseFacts:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return read_release(TreeFiles(folder))


def codegen(folder: Path, text: str) -> tuple[AddedTarget, ...]:
    (folder / "cmake").mkdir()
    (folder / "cmake/Codegen.cmake").write_text(text)
    return read_release(TreeFiles(folder)).added


def test_the_target_of_one_file(tmp_path: Path) -> None:
    assert codegen(tmp_path, ONE_FILE) == (AddedTarget(arch="9.0a", of="9.0", cuda="12.0"),)


def test_targets_by_lists_and_by_the_release_of_cuda(tmp_path: Path) -> None:
    """That which no list names, 12.0a, is added nowhere."""
    assert codegen(tmp_path, BY_LISTS) == (
        AddedTarget(arch="8.9", of="8.6"),
        AddedTarget(arch="10.3a", of="10.0", cuda="12.9"),
    )


def test_pythons_of_a_setup_py(tmp_path: Path) -> None:
    text = "python_min_version = (3, 9, 0)\nversion_range_max = max(sys.version_info[1], 13) + 1\n"
    found = release(tmp_path, {"setup.py": text})
    assert (found.python_oldest, found.python_newest) == ("3.9", "3.13")


def test_pythons_of_a_pyproject_toml(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nrequires-python = ">=3.10"\nclassifiers = [\n'
        '    "Programming Language :: Python :: 3.10",\n'
        '    "Programming Language :: Python :: 3.14",\n]\n'
    )
    found = read_release(TreeFiles(tmp_path))
    assert (found.python_oldest, found.python_newest) == ("3.10", "3.14")


@pytest.mark.parametrize(
    ("backend", "place"),
    [
        (Backend.XPU, "third_party/xpu.txt"),
        (Backend.MPS, "aten/src/ATen/native/mps/kernels/a.metal"),
        (Backend.VULKAN, "aten/src/ATen/native/vulkan/glsl/a.glsl"),
    ],
)
def test_device_code_that_no_gpu_compiler_compiles(
    tmp_path: Path, backend: Backend, place: str
) -> None:
    (tmp_path / place).parent.mkdir(parents=True)
    (tmp_path / place).write_text("x")
    assert set(read_release(TreeFiles(tmp_path)).device_code) == {backend}


def test_an_option_that_the_front_end_turns_on(tmp_path: Path) -> None:
    text = 'build_test = not check_negative_env_flag("BUILD_TEST")\n'
    found = release(tmp_path, {"setup.py": "", LIBRARIES: text})
    assert found.turned_on == {}, "an empty setup.py is no front end"
    again = release(tmp_path, {"setup.py": "setup()"})
    assert again.turned_on == {"BUILD_TEST": LIBRARIES}
