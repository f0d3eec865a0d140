import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import Need
from stoker.machine.cuda import best_first, find_nvccs, parse_archs, read_toolkit
from stoker.machine.file_tree import FileTree
from stoker.machine.python import Probe
from stoker.model.machine import CudaToolkit

Script = Callable[[str, str], Path]

NVCC = """\
case "$1" in
    --version) echo "Cuda compilation tools, release {version}, V{version}.88" ;;
    --list-gpu-code) echo sm_120; echo sm_90; echo sm_90a ;;
    --dryrun) echo "#$ _HERE_=/x" >&2; echo "#$ TOP={top}" >&2; exit 1 ;;
esac"""


def probe(timeout_s: float = 20.0, **environment: str) -> Probe:
    return Probe(environment={"PATH": "", **environment}, timeout_s=timeout_s)


def nvcc(script: Script, tmp_path: Path, home: str, version: str) -> Path:
    return script(f"{home}/bin/nvcc", NVCC.format(version=version, top=tmp_path / home / "bin/.."))


def test_the_compiler_tells_what_it_is(script: Script, tmp_path: Path) -> None:
    path = nvcc(script, tmp_path, "cuda-12.9", "12.9")
    assert read_toolkit(path, probe()) == CudaToolkit(
        home=str(tmp_path / "cuda-12.9"),
        nvcc=str(path),
        version="12.9",
        archs=("9.0", "9.0a", "12.0"),
        lacks=("cublas_v2.h", "cusolverDn.h", "cusparse.h"),
    )


def test_headers_of_its_libraries_are_where_the_compiler_says(
    script: Script, tmp_path: Path
) -> None:
    path = nvcc(script, tmp_path, "cuda-13.0", "13.0")
    for place in (
        "cuda-13.0/include/cublas_v2.h",
        "cuda-13.0/targets/sbsa-linux/include/cusparse.h",
    ):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).touch()
    assert read_toolkit(path, probe()).lacks == ("cusolverDn.h",)


def test_a_script_on_the_path_leads_to_the_compiler_itself(script: Script, tmp_path: Path) -> None:
    real = nvcc(script, tmp_path, "cuda-13.0", "13.0")
    wrapper = script("bin/nvcc", f'exec {real} "$@"')
    toolkit = read_toolkit(wrapper, probe())
    assert (toolkit.home, toolkit.nvcc) == (str(tmp_path / "cuda-13.0"), str(real))
    both = best_first([toolkit, read_toolkit(real, probe())])
    assert both == (toolkit,)


def test_one_that_does_not_tell_its_home_lives_where_it_is(script: Script, tmp_path: Path) -> None:
    path = script("cuda/bin/nvcc", NVCC.format(version="11.8", top="/no/such/folder"))
    assert read_toolkit(path, probe()).home == str(tmp_path / "cuda")


@pytest.mark.parametrize(
    ("body", "problem"),
    [("kill -SEGV $$", "was killed by signal 11"), ("echo hello", "does not tell its version")],
    ids=["crashes", "babbles"],
)
def test_a_compiler_that_does_not_work_stands_last(
    script: Script, tmp_path: Path, body: str, problem: str
) -> None:
    broken = read_toolkit(script("broken/bin/nvcc", body), probe())
    assert broken == CudaToolkit(
        home=str(tmp_path / "broken"),
        nvcc=str(tmp_path / "broken/bin/nvcc"),
        version=None,
        problem=problem,
    )
    works = read_toolkit(nvcc(script, tmp_path, "cuda-13.0", "13.0"), probe())
    assert best_first([broken, works]) == (works, broken)


def test_a_compiler_that_hangs(script: Script) -> None:
    toolkit = read_toolkit(script("cuda/bin/nvcc", "exec /bin/sleep 60"), probe(timeout_s=0.5))
    assert toolkit.problem is not None
    assert toolkit.problem.startswith("did not answer in time")


def test_the_order_in_which_a_build_looks(script: Script, tmp_path: Path) -> None:
    for name in ("usr/local/cuda-9.2", "usr/local/cuda-12.9", "usr/local/cuda-12.10", "own"):
        nvcc(script, tmp_path, name, "1.0")
    for name in ("home", "path", "opt/bin"):
        nvcc(script, tmp_path, name, "1.0")
    (tmp_path / "usr/local/cuda").symlink_to(tmp_path / "usr/local/cuda-12.9")
    found = find_nvccs(
        FileTree(tmp_path),
        {
            "CUDA_HOME": str(tmp_path / "home"),
            "CUDA_PATH": str(tmp_path / "path"),
            "PATH": str(tmp_path / "opt/bin/bin"),
        },
        [tmp_path / "own", tmp_path / "none"],
    )
    assert [str(path.relative_to(tmp_path)) for path in found] == [
        "home/bin/nvcc",
        "path/bin/nvcc",
        "opt/bin/bin/nvcc",
        "usr/local/cuda/bin/nvcc",
        "usr/local/cuda-12.10/bin/nvcc",
        "usr/local/cuda-9.2/bin/nvcc",
        "own/bin/nvcc",
    ]


def test_a_home_without_a_compiler_is_noted(tmp_path: Path) -> None:
    tree = FileTree(tmp_path)
    assert find_nvccs(tree, {"CUDA_HOME": "/no/cuda"}) == []
    assert tree.notes == ("$CUDA_HOME is /no/cuda, where there is no bin/nvcc that can be run",)


def test_archs() -> None:
    printed = "sm_75\nsm_100\nsm_100f\nsm_90a\nsm_90\nnonsense\ncompute_80\n"
    assert parse_archs(printed) == ("7.5", "9.0", "9.0a", "10.0", "10.0f")


def test_a_real_nvcc(need: Need) -> None:
    path = Path(need("nvcc"))
    toolkit = read_toolkit(path, Probe(environment={"PATH": "/usr/bin:/bin"}, timeout_s=10.0))
    assert toolkit.problem is None
    assert toolkit.version is not None
    assert (Path(toolkit.home) / "bin/nvcc").is_file()
    assert shutil.which(toolkit.nvcc)
    assert "9.0" in toolkit.archs
