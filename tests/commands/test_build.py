"""`stoker build` and `stoker develop` on miniature projects, with the real tools."""

import json
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from builds import TIMEOUT_S, Project, Record, digest
from conftest import Need, Stoker, heavy, missing
from governed import STOKER, wait_until

pytestmark = pytest.mark.timeout(1800)  # each build has its own timeout

FIRST = {"prepare", "configure", "codegen", "compile", "wheel", "package", "verify"}


@pytest.fixture
def project(stoker: Stoker, tmp_path: Path, need: Need, _back_end: None) -> Project:
    need("ninja")
    return Project(stoker, tmp_path, "mini-wheel")


def ask(wheel: Path, folder: Path, expression: str) -> str:
    """What an unpacked wheel answers."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    done = subprocess.run(
        [sys.executable, "-c", f"import mini_wheel; print(mini_wheel.{expression})"],
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_from_a_tree_to_a_wheel_and_again(project: Project, tmp_path: Path) -> None:
    first = project.built()
    assert first.ends == dict.fromkeys(FIRST, "done")
    assert ask(first.wheel, tmp_path / "installed", "total()") == "21"
    assert first.compiled() == [
        "core.cpp",
        "native.cpp",
        *(f"part_{number}.cpp" for number in range(1, 7)),
    ]
    before = digest(first.wheel)

    again = project.built()
    assert again.ends == dict.fromkeys(FIRST, "skipped")
    assert digest(again.wheel) == before

    project.change("src/core.cpp", "int sum = 0", "int sum = 100")
    changed = project.built()
    assert changed.compiled() == ["core.cpp"]
    assert changed.ends["configure"] == changed.ends["codegen"] == "skipped"
    assert ask(changed.wheel, tmp_path / "changed", "total()") == "121"

    loud = project.built("-D", "USE_SHOUT=ON")
    assert loud.compiled() == ["native.cpp"]
    assert ask(loud.wheel, tmp_path / "loud", "loud()") == "True"

    fresh = project.built("-D", "USE_SHOUT=ON", "--fresh")
    assert len(fresh.compiled()) == 8
    assert digest(fresh.wheel) == digest(loud.wheel)


@pytest.mark.slow
def test_the_same_bytes_in_other_folders_and_repeated(
    stoker: Stoker, project: Project, tmp_path: Path
) -> None:
    deeper = tmp_path / "somewhere" / "else" / "entirely"
    deeper.mkdir(parents=True)
    other = Project(stoker, deeper, "mini-wheel")
    wheel, copy = project.built("-D", "USE_SHOUT=ON").wheel, other.built("-D", "USE_SHOUT=ON").wheel
    assert digest(wheel) == digest(copy)
    assert ask(wheel, tmp_path / "installed", "where()") == "mini-wheel/src/core.cpp"
    assert os.fsencode(tmp_path) not in b"".join(_contents(wheel))

    repeated = project.built("--from-record", str(copy), "--out", str(tmp_path / "repeated"))
    assert digest(repeated.wheel) == digest(wheel)
    folder = str(repeated.folder)
    again = stoker("build", "--from-record", folder, "--json")
    assert again.returncode == 0, again.stderr
    assert digest(Path(json.loads(again.stdout)["record"]["outputs"][0])) == digest(wheel)


def _contents(wheel: Path) -> list[bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return [archive.read(name) for name in archive.namelist()]


@pytest.mark.slow
def test_the_record_of_a_build(project: Project) -> None:
    built = project.built(MY_TOKEN="very-secret", INDEX="https://me:very-secret@example.org/")
    record = json.loads((built.folder / "record.json").read_text())
    assert record["environment"]["MY_TOKEN"] == record["environment"]["INDEX"][8:11] == "***"
    assert "very-secret" not in "".join(
        path.read_text() for path in built.folder.iterdir() if path.is_file()
    )
    assert record["plan"]["name"] == "cpu"
    assert record["tools"]["cmake"]
    steps = json.loads((built.folder / "steps.json").read_text())
    assert len(steps["steps"]) >= 8
    with zipfile.ZipFile(built.wheel) as archive:
        plan = json.loads(archive.read("mini_wheel-0.2.0.dist-info/stoker-plan.json"))
    assert plan["variant"]["name"] == "cpu"
    assert plan["cmake"]["CMAKE_BUILD_TYPE"] == "Release"


@pytest.mark.slow
def test_a_feature_that_switched_itself_off_stops_before_compiling(project: Project) -> None:
    if subprocess.run(["sh", "-c", "command -v mpicxx"], check=False, capture_output=True).stdout:
        pytest.skip("MPI is installed")
    done = project.build("-D", "USE_MPI=ON")
    assert done.returncode == 4
    assert "USE_MPI was requested, but CMake switched it off" in done.stderr
    assert "Could NOT find MPI" in done.stderr
    assert "openmpi" in done.stderr  # the package, by whatever manager
    assert "compile" not in done.stderr
    assert not project.out.exists()


@pytest.mark.slow
def test_a_refusal_of_cmake_is_shown_whole_and_without_what_surrounds_it(project: Project) -> None:
    broken = """include(CheckCXXCompilerFlag)
message(WARNING "MPI is not there. Turning the option off")
foreach(number RANGE 20)
  check_cxx_compiler_flag(-no-such-${number} HAS_${number})
endforeach()
macro(choose)
  set(USE_ITT ON STRING "a set with FORCE needs CACHE" FORCE)
endmacro()
choose()
set(CMAKE_CXX_STANDARD 17)
"""
    project.change("CMakeLists.txt", "set(CMAKE_CXX_STANDARD 17)\n", broken)
    done = project.build()
    assert done.returncode == 1
    assert "configure failed: " in done.stderr
    assert "set given invalid arguments" in done.stderr
    assert "(choose)" in done.stderr
    assert "HAS_" not in done.stderr
    assert "optional-dep" not in done.stderr


@pytest.mark.slow
def test_a_newer_cmake_beside_stoker_is_used_where_that_of_the_path_is_too_old(
    project: Project, tmp_path: Path
) -> None:
    old = tmp_path / "old" / "cmake"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho cmake version 3.5.0; test $1 = --version\n")
    old.chmod(0o755)
    path = f"{old.parent}{os.pathsep}{os.environ['PATH']}"
    project.built("--target", "generate_parts", PATH=path)


@pytest.mark.slow
def test_code_generation_fails_as_itself(project: Project) -> None:
    project.change("tools/generate.py", "import sys", "import sys, no_such_module")
    done = project.build()
    assert done.returncode == 1
    assert "codegen failed" in done.stderr
    assert "No module named 'no_such_module'" in done.stderr


@pytest.mark.slow
def test_the_record_of_a_failed_build_is_printed(project: Project) -> None:
    project.change("src/core.cpp", "int sum = 0", "int sum = nothing")
    done = project.build()
    assert done.returncode == 1
    record = json.loads(done.stdout)["record"]
    assert record["stages"][-1]["end"] == "failed"
    assert record["error"].startswith("compile failed: ninja stopped")
    assert record["outputs"] == []


@pytest.mark.slow
def test_a_compile_error_is_shown_and_the_shell_has_the_stage(project: Project) -> None:
    project.change("src/core.cpp", "return sum;", "return sm;")
    done = project.build(
        "--shell-on-failure", SHELL=_script(project.tree.parent / "shell", "env > seen; pwd")
    )
    assert done.returncode == 1
    assert "compile failed" in done.stderr
    assert "was not declared" in done.stderr
    assert "STOKER_SOCKET=" in (project.tree / "seen").read_text()
    project.change("src/core.cpp", "return sm;", "return sum;")
    assert project.built().ends["configure"] == "skipped"


def _script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


BACK_END = """
import base64, hashlib, importlib.util, subprocess, sys, sysconfig, zipfile

TAG = "py3-none-" + sysconfig.get_platform().replace("-", "_")
INFO = "alone-1.dist-info"

def build_wheel(folder, config_settings=None, metadata_directory=None):
    if importlib.util.find_spec("setuptools"):
        sys.exit("there is a setuptools")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", "a.so", "a.c"], check=True)
    members = {
        "alone/a.so": open("a.so", "rb").read(),
        INFO + "/METADATA": b"Metadata-Version: 2.1\\nName: alone\\nVersion: 1\\n",
        INFO + "/WHEEL": f"Wheel-Version: 1.0\\nRoot-Is-Purelib: false\\nTag: {TAG}\\n".encode(),
    }
    record = INFO + "/RECORD,,\\n"
    with zipfile.ZipFile(f"{folder}/alone-1-{TAG}.whl", "w") as wheel:
        for name, content in members.items():
            wheel.writestr(name, content)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode()
            record += f"{name},sha256={digest.rstrip('=')},{len(content)}\\n"
        wheel.writestr(INFO + "/RECORD", record)
    return f"alone-1-{TAG}.whl"
"""


def test_an_environment_of_its_own_begins_empty(stoker: Stoker, tmp_path: Path) -> None:
    """Before Python 3.12 a new environment has a setuptools that is years old, which would meet a
    requirement for which pip's own isolation takes the newest one.
    """
    (tmp_path / "back_end.py").write_text(BACK_END)
    (tmp_path / "a.c").write_text("int a;")
    (tmp_path / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "back_end"\nbackend-path = ["."]\n'
        '[project]\nname = "alone"\nversion = "1"\n'
    )
    words = ("--variant", "cpu", "--isolation", "full", "--out", str(tmp_path / "out"))
    done = stoker("build", str(tmp_path), *words)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_one_target_only(project: Project) -> None:
    built = project.built("--target", "mini_core")
    assert list(built.ends) == ["prepare", "configure", "codegen", "compile"]
    assert "native.cpp" not in built.compiled()
    done = project.build("--target", "mini_coer")
    assert (done.returncode, "did you mean mini_core" in done.stderr) == (2, True)


@pytest.mark.slow
def test_develop_compiles_what_changed(project: Project, tmp_path: Path) -> None:
    python = _environment(tmp_path)
    options = ("--isolation", "none")
    first = project.built(*options, command="develop", VIRTUAL_ENV=str(python.parent.parent))
    assert first.ends["install"] == "done"
    assert _imported(python) == "21"
    project.change("src/core.cpp", "int sum = 0", "int sum = 100")
    done = project.build(*options, command="develop", VIRTUAL_ENV=str(python.parent.parent))
    assert Record(json.loads(done.stdout)).compiled() == ["core.cpp"]
    assert f"installed in editable mode for {python}" in done.stderr
    assert _imported(python) == "121"


def _environment(tmp_path: Path) -> Path:
    """With pip and the packages of the tests, but none of its own yet."""
    words = [sys.executable, "-m", "venv", "--system-site-packages", str(tmp_path / "env")]
    subprocess.run(words, check=True)
    (packages,) = (tmp_path / "env").glob("lib/python*/site-packages")
    (own,) = Path(sys.prefix).glob("lib/python*/site-packages")
    (packages / "tests.pth").write_text(f"{own}\n")
    return tmp_path / "env" / "bin" / "python"


def _imported(python: Path) -> str:
    words = [str(python), "-c", "import mini_wheel; print(mini_wheel.total())"]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.slow
def test_cmake_sees_what_the_back_end_gives_it(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Search paths that packages such as pybind11 announce, and options of pyproject.toml."""
    package = tmp_path / "packages/given"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "GivenConfig.cmake").write_text("set(Given_FOUND TRUE)\n")
    announced = tmp_path / "packages/given-1.0.dist-info"
    announced.mkdir()
    (announced / "METADATA").write_text("Metadata-Version: 2.1\nName: given\nVersion: 1.0\n")
    (announced / "entry_points.txt").write_text("[cmake.prefix]\nany = given\n")
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    with (project.tree / "CMakeLists.txt").open("a") as stream:
        stream.write("find_package(Given REQUIRED)\n")
        stream.write('if(NOT SAID STREQUAL "so")\nmessage(FATAL_ERROR "no option")\nendif()\n')
    with (project.tree / "pyproject.toml").open("a") as stream:
        stream.write('[tool.scikit-build.cmake.define]\nSAID = "so"\n')
    built = project.built()
    assert built.compiled()
    assert "ninja: no work to do." in built.log("wheel")


@pytest.mark.heavy
def test_variants_with_the_same_file_name_do_not_replace_each_other(
    stoker: Stoker, project: Project
) -> None:
    def build(*options: str) -> subprocess.CompletedProcess[str]:
        words = ("build", str(project.tree), "--out", str(project.out), *options)
        return stoker(*words)

    first = Path(build("--variant", "cpu").stdout.strip())
    before = digest(first)
    other = ("--variant", "cpu", "--build-type", "Debug")
    refused = build(*other)
    assert refused.returncode == 1
    assert f"{first} is the wheel of variant cpu" in refused.stderr
    assert "--label auto" in refused.stderr
    assert digest(first) == before
    labelled = build(*other, "--label", "auto")
    assert labelled.returncode == 0, labelled.stderr
    second = Path(labelled.stdout.strip())
    assert "+cpu.debug-" in second.name
    assert {first, second} == set(project.out.iterdir())
    first.write_bytes(b"not a wheel")
    assert "a wheel that stoker did not build" in build("--variant", "cpu").stderr


@pytest.mark.heavy
def test_estimates_learn_from_finished_builds(stoker: Stoker, project: Project) -> None:
    words = ("plan", "cpu", "--source", str(project.tree), "--json")
    assert json.loads(stoker(*words).stdout)["estimate"]["wall_s"]["amount"] is None
    built = project.built()
    project.built()  # in which nothing is compiled
    estimate = json.loads(stoker(*words).stdout)["estimate"]
    cpus = os.cpu_count() or 1
    assert estimate["wall_s"]["amount"] >= built.record["summary"]["cpu_s"] / cpus
    assert "your build of" in estimate["wall_s"]["basis"]
    assert estimate["wheel_bytes"]["amount"] == built.wheel.stat().st_size
    assert estimate["largest_step_bytes"]["amount"] > 0


@pytest.mark.slow
def test_a_secret_option_is_named(project: Project) -> None:
    with (project.tree / "CMakeLists.txt").open("a") as stream:
        stream.write('set(MY_TOKEN "" CACHE STRING "For a server")\n')
    done = project.build("-D", "MY_TOKEN=very-secret", "--target", "core")
    assert "CMake writes the value of MY_TOKEN in clear text to" in done.stderr
    assert "very-secret" not in done.stderr


@pytest.mark.slow
def test_two_builds_of_one_tree_do_not_meet(project: Project) -> None:
    project.built()
    lock = next((Path(os.environ["STOKER_HOME"]) / "cache" / "builds").glob("*.lock"))
    words = ["flock", str(lock), "sh", "-c", "echo held; read line"]
    with subprocess.Popen(words, stdin=-1, stdout=-1, text=True) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        done = project.build()
        holder.communicate("go\n")
    assert (done.returncode, "another build is running" in done.stderr) == (1, True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "status"),
    [heavy(signal.SIGTERM, 143), (signal.SIGINT, 130), heavy(signal.SIGHUP, 129)],
)
def test_an_interrupted_build_exits_promptly_and_resumes_later(
    project: Project, stoker_home: Path, number: signal.Signals, status: int
) -> None:
    """The generator waits for ever; ninja is told, and ends before we do."""
    project.change(
        "tools/generate.py",
        "import sys",
        "import sys, time, os\nopen('begun', 'w').close()\n"
        "while os.environ.get('WAIT'): time.sleep(0.05)\nimport sys",
    )
    words = [STOKER, "build", str(project.tree), "--variant", "cpu", "--out", str(project.out)]
    environment = {**os.environ, "WAIT": "1"}
    with subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True) as build:
        wait_until(lambda: list(stoker_home.glob("cache/builds/*/build/begun")), "it generates")
        build.send_signal(number)
        _, said = build.communicate(timeout=TIMEOUT_S)
    assert build.returncode == status
    assert "codegen    started (" in said
    assert "codegen    interrupted" in said
    assert said.endswith("interrupted\n")
    (record,) = stoker_home.glob("state/runs/*/record.json")
    kept = json.loads(record.read_text())
    assert (kept["stages"][-1]["end"], kept["error"]) == ("interrupted", "interrupted")
    assert not project.out.exists()
    ends = project.built().ends
    assert (ends["configure"], ends["codegen"]) == ("skipped", "done")


def test_an_output_that_cannot_be_written_is_refused_first(
    project: Project, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    done = project.build("--out", str(tmp_path / "file"))
    assert done.returncode == 5
    assert "is not a folder" in done.stderr
    assert "prepare" not in done.stderr


@pytest.mark.slow
def test_a_full_disk_leaves_nothing_half_written(project: Project, tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", str(full)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        missing("a tmpfs cannot be mounted")
    try:
        done = project.build("--out", str(full))
        assert done.returncode == 5
        assert "No space left" in done.stderr
        assert list(full.iterdir()) == []
    finally:
        subprocess.run(["umount", str(full)], check=True)
    assert project.built().ends["verify"] == "skipped"
