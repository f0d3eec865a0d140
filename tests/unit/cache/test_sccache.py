"""Compilers that an sccache breaks are not started by it."""

from pathlib import Path

import pytest

from stoker.cache import sccache


def says(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{text}'\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("where", ["PATH", "CUDA_HOME", "CUDACXX", "usual"])
@pytest.mark.parametrize(
    ("engine", "nvcc", "broken"),
    [("0.16.0", "13.3", True), ("0.16.0", "13.2", False), ("0.18.0", "13.3", False)],
)
def test_nvcc_of_which_device_code_is_left_out(
    engine: str,
    nvcc: str,
    broken: bool,
    where: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where a build may find nvcc. sccache leaves out device code of 13.3 until 0.18."""
    program = says(tmp_path / "sccache", f"sccache {engine}")
    compiler = says(
        tmp_path / "cuda-test/bin/nvcc", f"Cuda compilation tools, release {nvcc}, V{nvcc}.0"
    )
    folder = compiler.parents[1]
    environment = {
        "PATH": {"PATH": f"{compiler.parent}:/usr/bin:/bin"},
        "CUDA_HOME": {"PATH": "/usr/bin:/bin", "CUDA_HOME": str(folder)},
        "CUDACXX": {"PATH": "/usr/bin:/bin", "CUDACXX": str(compiler)},
        "usual": {"PATH": "/usr/bin:/bin"},
    }[where]
    monkeypatch.setattr(sccache, "_TOOLKITS", tmp_path if where == "usual" else Path("/nowhere"))
    found = list(sccache.broken_compilers(str(program), environment))
    assert [name for name, _ in found] == (["nvcc"] if broken else [])
