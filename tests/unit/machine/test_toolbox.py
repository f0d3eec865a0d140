import os
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from conftest import Need
from stoker.machine.tools import read_toolbox
from stoker.model.errors import MissingError
from stoker.model.machine import Toolbox

Script = Callable[[str, str], Path]


def test_this_machine_goes_through_json_and_back(need: Need) -> None:
    toolbox = read_toolbox(os.environ)
    compiler = toolbox.tool("gcc")
    assert compiler is not None
    assert compiler.path == need("gcc")
    assert compiler.version
    assert toolbox.tool("cc") is not None
    assert toolbox.python.executable == sys.executable
    assert msgspec.json.decode(msgspec.json.encode(toolbox), type=Toolbox) == toolbox


def test_toolkits_of_our_own_and_of_pip(script: Script, tmp_path: Path, stoker_home: Path) -> None:
    packages = tmp_path / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    script(f"{packages}/site-packages/nvidia/cu13/bin/nvcc", "echo release 13.0,")
    script(f"{stoker_home}/data/toolchains/cuda-12.9/bin/nvcc", "echo release 12.9,")
    script(f"{stoker_home}/data/toolchains/.cuda-12.8.half/bin/nvcc", "echo release 12.8,")
    (tmp_path / "pyvenv.cfg").write_text(f"home = {Path(sys.base_prefix) / 'bin'}\n")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").symlink_to(Path(sys.executable).resolve())
    toolbox = read_toolbox({"PATH": ""}, str(tmp_path / "bin/python"), root=tmp_path)
    assert [toolkit.version for toolkit in toolbox.cuda] == ["12.9", "13.0"]


def test_what_does_not_work_is_listed_last_and_stops_nothing(
    script: Script, tmp_path: Path
) -> None:
    broken = script("bin/ninja", "exec /bin/sleep 3600")
    script("cuda/bin/nvcc", "kill -SEGV $$")
    (tmp_path / "bin/git").write_text("")
    (tmp_path / "bin/git").chmod(0o755)
    environment = {"PATH": str(tmp_path / "bin"), "CUDA_HOME": str(tmp_path / "cuda")}
    toolbox = read_toolbox(environment, root=tmp_path, timeout_s=5.0)
    ninjas = [tool for tool in toolbox.tools if tool.name == "ninja"]
    assert ninjas[-1].path == str(broken)
    assert (ninjas[-1].problem or "").startswith("did not answer in time")
    assert [toolkit.problem for toolkit in toolbox.cuda] == ["was killed by signal 11"]


def test_an_empty_environment_is_enough(tmp_path: Path) -> None:
    toolbox = read_toolbox({}, root=tmp_path)
    assert toolbox.cuda == ()
    assert toolbox.python.version


def test_a_python_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(MissingError):
        read_toolbox({}, str(tmp_path / "python"))
