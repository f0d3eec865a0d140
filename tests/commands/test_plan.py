"""`stoker plan` and `doctor` on miniature trees, with the real tools."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import PROJECTS, Need, Stoker, heavy
from memory_groups import MakeGroup

MINI = str(PROJECTS / "mini-pytorch")


@pytest.mark.parametrize("project", ["mini-extension", "mini-cmake"])
def test_without_a_variant_a_package_is_portable(stoker: Stoker, project: str) -> None:
    """It was compiled for the CPU of this machine, under a file name that promises every CPU."""
    source = ("--source", str(PROJECTS / project))
    flags = {"CFLAGS": "", "CXXFLAGS": ""}  # those of the user come first
    plan = json.loads(stoker("plan", *source, "--json", **flags).stdout)
    assert plan["variant"]["cpu"] is None
    assert "-m" not in plan["environment"].get("CXXFLAGS", "")
    named = json.loads(stoker("plan", "native", *source, "--json", **flags).stdout)
    assert named["variant"]["cpu"], "what was asked for is done"
    pytorch = json.loads(stoker("plan", "--source", MINI, "--json", **flags).stdout)
    assert pytorch["variant"]["cpu"] == named["variant"]["cpu"]


@pytest.mark.parametrize("form", ["archive", "repository"])
def test_a_source_that_is_no_folder_is_put_into_the_cache_first(
    stoker: Stoker, tmp_path: Path, form: str
) -> None:
    tree = tmp_path / "mine"
    shutil.copytree(PROJECTS / "mini-cmake", tree)
    if form == "archive":
        source = shutil.make_archive(str(tmp_path / "mine-1.0"), "gztar", tmp_path, "mine")
    else:
        git = ("git", "-C", str(tree), "-c", "user.name=x", "-c", "user.email=x@example.org")
        for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "1"), ("tag", "v1")):
            subprocess.run([*git, *words], check=True)
        source = f"{tree}@v1"
    folder = json.loads(stoker("plan", "cpu", "--source", str(tree), "--json").stdout)
    for words in (("cpu", source), ("cpu", "--source", source)):
        plan = json.loads(stoker("plan", *words, "--json").stdout)
        assert plan["source"]["name"] == folder["source"]["name"]
        assert plan["cmake"] == folder["cmake"]
    assert stoker("doctor", source).returncode == stoker("doctor", str(tree)).returncode
    listed = stoker("plan", "--options", "--source", source, "--json")
    assert listed.stdout == stoker("plan", "--options", str(tree), "--json").stdout


def test_commands_start_the_python_that_the_plan_is_about(stoker: Stoker, tmp_path: Path) -> None:
    """An environment may be active without being on the PATH; `python3` was then another Python."""
    active = tmp_path / "active"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(active)], check=True)
    words = ("plan", "cpu", "--source", str(PROJECTS / "mini-wheel"), "--json")
    path = {"VIRTUAL_ENV": str(active), "PATH": "/usr/bin:/bin"}

    def started(**environment: str) -> str:
        done = stoker(*words, **environment)
        assert done.returncode == 0, done.stderr
        (command,) = [c for c in json.loads(done.stdout)["commands"] if c["stage"] == "wheel"]
        return str(command["words"][0])

    assert started(**path) == str(active / "bin/python")
    assert started(**path | {"PATH": f"{active}/bin:/usr/bin:/bin"}) == "python3"


def test_a_python_named_by_its_path(stoker: Stoker, tmp_path: Path) -> None:
    """It need not be on the PATH, and its name need not tell its version."""
    python = tmp_path / "own/bin/python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    plan = json.loads(stoker("plan", "cpu", "--python", python, "--source", MINI, "--json").stdout)
    version = f"py{sys.version_info.major}{sys.version_info.minor}"
    assert version in plan["variant"]["name"]
    assert any(str(python) in command["words"] for command in plan["commands"])
    other = stoker("plan", "cpu", "--python", tmp_path / "bin/python", "--source", MINI)
    assert other.returncode != 0
    assert f"there is no Python at '{tmp_path}/bin/python'" in other.stderr


def test_a_tree_cannot_choose_a_program_as_its_python(stoker: Stoker, tmp_path: Path) -> None:
    evil = tmp_path / "evil"
    evil.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    evil.chmod(0o755)
    (tmp_path / "stoker.toml").write_text(f'[defaults]\npython = "{evil}"\n')
    done = stoker("plan", "cpu", "--source", MINI, cwd=tmp_path)
    assert "stoker.toml:2: ignored" in done.stderr
    assert "--trust" in done.stderr
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("command", ["plan", "doctor"])
def test_the_settings_file_is_named_once(
    stoker: Stoker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    (tmp_path / "stoker.toml").write_text('[defaults]\ncache_remote = "redis://there"\n')
    monkeypatch.chdir(tmp_path)
    said = stoker(command, "cpu", "--source", MINI).stderr
    assert said.count(f"stoker: settings of {tmp_path / 'stoker.toml'}") == 1
    assert said.count("stoker.toml:2: ignored") == 1


def test_difference_of_two_plans(stoker: Stoker) -> None:
    done = stoker("plan", "cu130-sm90", "--against", "cu130-sm80", "--source", MINI, "--json")
    differences = json.loads(done.stdout)["differences"]
    (difference,) = [one for one in differences if one["name"] == "TORCH_CUDA_ARCH_LIST"]
    assert (difference["before"], difference["after"]) == ("9.0", "8.0")


def test_named_variant_and_where_it_stands(stoker: Stoker, tmp_path: Path) -> None:
    (tmp_path / "stoker.toml").write_text(
        f'[defaults]\nsource = "{MINI}"\n\n[variants.fleet]\nvariant = "cu124-sm90"\n'
        "define = { USE_KINETO = false }\n"
    )
    plan = json.loads(stoker("plan", "fleet", "--json", STOKER_PYTHON="3.12").stdout)
    assert plan["variant"]["name"] == "cu124-sm90-py312"
    assert plan["origin"]["USE_KINETO"] == "stoker.toml:6"
    assert plan["origin"]["python"] == "environment STOKER_PYTHON"
    assert "stoker.toml:5" in plan["origin"]["gpus"]


def test_variants_explains_a_name_of_the_settings_file(stoker: Stoker, tmp_path: Path) -> None:
    (tmp_path / "stoker.toml").write_text(
        f'[defaults]\nsource = "{MINI}"\n\n[variants.fleet]\nvariant = "cu124-sm90"\n'
        'blas = "openblas"\n'
    )
    done = stoker("plan", "--list", "fleet", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    explained = json.loads(done.stdout)
    planned = json.loads(stoker("plan", "fleet", "--json", cwd=tmp_path).stdout)
    assert explained["name"] == planned["variant"]["name"] == "cu124-sm90-openblas"
    assert explained["variant"]["blas"] == "openblas"
    assert [gpu["arch"] for gpu in explained["gpus"]] == ["9.0"]
    assert "H100" in stoker("plan", "--list", "fleet", cwd=tmp_path).stdout


def test_doctor_finds_the_missing_submodule(stoker: Stoker) -> None:
    done = stoker("doctor", "--variant", "cpu", "--source", MINI, "--json")
    report = json.loads(done.stdout)
    assert done.returncode == 1
    assert not report["ok"]
    (finding,) = [f for f in report["findings"] if f["name"] == "submodules-missing"]
    assert "git" in finding["fix"][0]


def test_doctor_is_content_with_the_example(stoker: Stoker) -> None:
    example = PROJECTS.parent.parent / "examples" / "kiln"
    done = stoker("doctor", "--variant", "cpu", "--source", str(example))
    assert done.returncode == 0, done.stdout


def test_doctor_and_plan_see_a_cgroup_limit(make_group: MakeGroup) -> None:
    group = make_group("plan")
    group.set_limit(2 * 1024**3)
    command = [*group.enter, str(Path(sys.executable).with_name("stoker"))]
    source = ["--source", MINI]
    done = subprocess.run(
        [*command, "plan", "cpu", *source, "--json"], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)["machine"]["memory_bytes"] == 2 * 1024**3
    done = subprocess.run(
        [*command, "doctor", "--variant", "cpu", *source],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "2.0 GiB of memory" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "option"), [("mini-cmake", "MINI_ROUNDS=7"), heavy("mini-wheel", "MINI_FILES=3")]
)
def test_the_script_of_a_plan_configures_what_a_build_configures(
    name: str, option: str, stoker: Stoker, stoker_home: Path, tmp_path: Path
) -> None:
    tree = shutil.copytree(PROJECTS / name, tmp_path / name)
    words = ("--variant", "cpu-debug-native", "-D", option)
    done = stoker("plan", *words, "--source", str(tree), "--shell")
    assert done.returncode == 0, done.stderr
    (tmp_path / "plan.sh").write_text(done.stdout)
    by_hand = subprocess.run(
        ["sh", tmp_path / "plan.sh", "build"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert by_hand.returncode == 0, by_hand.stdout + by_hand.stderr
    expected = cached(tree / "build" / "CMakeCache.txt")
    shutil.rmtree(tree / "build")
    built = stoker("build", str(tree), *words)
    assert built.returncode == 0, built.stderr
    (cache,) = stoker_home.rglob("CMakeCache.txt")
    assert cached(cache) == expected
    name, value = option.split("=")
    assert expected[name] == value
    assert expected["CMAKE_BUILD_TYPE"] == "Debug"
    assert expected["CMAKE_CXX_FLAGS"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("mini-cmake", ("cpu",)),
        ("mini-wheel", ("cpu", "--python", sys.executable)),
        ("mini-gpu", ("cuda-sm90", "-D", "MYLIB_GPU_ARCH=90")),
        ("mini-kernels", ("cuda-sm90", "-D", "MINI_GPU_ARCHS=90", "--python", sys.executable)),
    ],
)
def test_printed_commands_build_in_a_clean_environment(
    name: str, words: tuple[str, ...], stoker: Stoker, tmp_path: Path, need: Need
) -> None:
    """CMake and ninja are not on the PATH: stoker finds those of its own environment."""
    if "cuda-sm90" in words:
        need("nvcc")
    need("ninja")
    tree = shutil.copytree(PROJECTS / name, tmp_path / name)
    clean = {"PATH": str(_programs_without(tmp_path / "programs", "cmake", "ninja")), "HOME": "/"}
    options = ("plan", *words, "--source", str(tree))
    script = stoker(*options, "--shell", **clean).stdout
    page = stoker(*options, **clean).stdout.splitlines()
    first = page.index("Commands") + 1
    commands = page[first : page.index("", first)]
    text = "\n".join(["set -e", script, f"cd {tree}", *commands])
    done = subprocess.run(
        ["sh", "-c", text], env=clean, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    made = [path for path in tree.rglob("*") if path.suffix in (".o", ".whl")]
    assert made


def _programs_without(folder: Path, *names: str) -> Path:
    """Return a folder with the programs of the system, except some."""
    folder.mkdir()
    for path in (*Path("/usr/local/bin").iterdir(), *Path("/usr/bin").iterdir()):
        link = folder / path.name
        if path.name not in names and not link.is_symlink():
            link.symlink_to(path)
    return folder


def cached(path: Path) -> dict[str, str]:
    """The options of a build folder, without the paths that each route has of its own."""
    entries = re.findall(r"^([^#/\n:]+):(\w+)=(.*)$", path.read_text(), re.MULTILINE)
    return {
        name: re.sub(r" *-ffile-prefix-map=\S+", "", value).replace(str(path.parent), "BUILD")
        for name, kind, value in entries
        if kind not in ("INTERNAL", "STATIC", "FILEPATH") and not name.startswith(OF_A_ROUTE)
    }


# What stoker adds to watch the configuration, and what scikit-build-core tells its own projects.
OF_A_ROUTE = (
    *("CMAKE_PROJECT_INCLUDE", "CMAKE_BUILD_RPATH_USE_ORIGIN", "CMAKE_INSTALL_PREFIX"),
    *("SKBUILD", "Python"),
)
