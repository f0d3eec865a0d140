"""`stoker package` on wheels made here: installed in an empty environment and really loaded."""

import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from built_libraries import build
from conftest import Need, Stoker, find_tool, missing
from stoker.wheel.inspect.inspecting import inspect
from torch_extensions import WARN, torch_stub
from wheel_files import record, unpacked, zipped

MACHINE = os.uname().machine
WHEEL = f"warm-1.0-py3-none-linux_{MACHINE}.whl"
DIST_INFO = "warm-1.0.dist-info"
BOTH = 'extern "C" { int %s(); int runtime(); int warm() { return %s() + runtime(); } }'
CODE = b"""
import ctypes, pathlib

def ask():
    library = ctypes.CDLL(str(pathlib.Path(__file__).parent / "libwarm.so"))
    return library.warm()
"""


def make_wheel(folder: Path, library: bytes, *requires: str) -> Path:
    """The package `warm`: a library and the code that loads it, as a build leaves them."""
    lines = "".join(f"Requires-Dist: {line}\n" for line in requires)
    metadata = f"Metadata-Version: 2.4\nName: warm\nVersion: 1.0\n{lines}\nWarm.\n"
    about = f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: py3-none-linux_{MACHINE}\n"
    members = {
        "warm/__init__.py": CODE,
        "warm/libwarm.so": library,
        f"{DIST_INFO}/METADATA": metadata.encode(),
        f"{DIST_INFO}/WHEEL": about.encode(),
    }
    members[f"{DIST_INFO}/RECORD"] = record(members, DIST_INFO)
    path = folder / WHEEL
    path.write_bytes(zipped(members, modes={"warm/libwarm.so": 0o755}))
    return path


@pytest.fixture(scope="session")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a library that is linked as on a build machine, beside a folder of those it needs: one
    that represents NVIDIA's runtime, and two others.
    """
    place = tmp_path_factory.mktemp("linked")
    folder = place / "libraries"
    folder.mkdir()
    one = 'extern "C" int %s() { return %s; }'
    soname = "-Wl,-soname,"
    ash = build(
        find_tool, folder, f"{soname}libash.so.2", source=one % ("ash", 1), name="libash.so.2"
    )
    code = 'extern "C" int ash(); extern "C" int fire() { return ash() + 1; }'
    words = (f"{soname}libfire.so.1", str(ash))
    fire = build(find_tool, folder, *words, source=code, name="libfire.so.1")
    words = (f"{soname}libcudart.so.13", "-nostdlib")
    code = one % ("runtime", 40)
    runtime = build(find_tool, folder, *words, source=code, name="libcudart.so.13")
    (folder / "LICENSE").write_text("terms")
    paths = (f"-Wl,-rpath,{folder}", f"-Wl,-rpath-link,{folder}")
    needed = (*paths, "-g", str(fire), str(runtime))
    return build(find_tool, place, *needed, source=BOTH % ("fire", "fire"), name="libwarm.so")


@pytest.fixture
def libraries(linked: Path, tmp_path: Path) -> Iterator[Path]:
    """Return the folder of the libraries, which exists for this test only: it may be moved."""
    folder = linked.parent / "libraries"
    shutil.copytree(folder, tmp_path / "kept")
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
    (tmp_path / "kept").rename(folder)


@pytest.fixture
def wheel(linked: Path, libraries: Path, tmp_path: Path) -> Path:
    """It has the path of a folder that only exists on the build machine."""
    assert libraries.is_dir()
    return make_wheel(tmp_path, linked.read_bytes())


def package(stoker: Stoker, *arguments: Any, **options: Any) -> Path:
    done = stoker("package", *map(str, arguments), **options)
    assert done.returncode == 0, done.stderr
    return Path(options.get("cwd") or "/", done.stdout.strip())


def planned(stoker: Stoker, *arguments: Any) -> Any:
    done = stoker("package", *map(str, arguments), "--dry-run", "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["plan"]


def install(environment: Path, *wheels: Path) -> None:
    venv.create(environment, with_pip=False)
    command = [sys.executable, "-m", "pip", "--python", str(environment / "bin/python"), "install"]
    subprocess.run([*command, "--quiet", "--no-index", "--no-deps", *map(str, wheels)], check=True)


def loaded(environment: Path) -> tuple[int, list[str]]:
    """What the package answers in its environment, and the libraries it has loaded from there."""
    code = f"""
import warm
answer = warm.ask()
paths = {{line.split()[-1] for line in open("/proc/self/maps")}}
print(answer, *sorted(path for path in paths if path.startswith({str(environment)!r})))
"""
    env = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    python = [str(environment / "bin/python"), "-c", code]
    done = subprocess.run(python, env=env, capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode == 0, done.stderr
    answer, *paths = done.stdout.split()
    return int(answer), [Path(path).name for path in paths if ".so" in path]


def test_a_bundle_needs_nothing_of_the_machine(
    stoker: Stoker, wheel: Path, libraries: Path, tmp_path: Path
) -> None:
    before = wheel.read_bytes()
    made = package(stoker, wheel, "--mode", "bundle", "--out", tmp_path / "dist")
    assert wheel.read_bytes() == before
    assert [path.name for path in (tmp_path / "dist").iterdir()] == [made.name]
    libraries.rename(tmp_path / "gone")
    install(tmp_path / "environment", made)
    answer, names = loaded(tmp_path / "environment")
    assert answer == 42
    assert [name.partition("-")[0] for name in names] == [
        "libash",
        "libcudart",
        "libfire",
        "libwarm.so",
    ]
    members = unpacked(made)
    assert f"{DIST_INFO}/licenses/libraries/LICENSE" in members
    assert b"License-File: libraries/LICENSE" in members[f"{DIST_INFO}/METADATA"]


def test_libraries_come_from_the_place_that_is_named(
    stoker: Stoker, wheel: Path, libraries: Path, tmp_path: Path
) -> None:
    libraries.rename(tmp_path / "elsewhere")
    lost = stoker("package", str(wheel), "--mode", "bundle")
    assert lost.returncode == 4
    assert "libfire.so.1 was not found; it is needed by warm/libwarm.so" in lost.stderr
    assert "searched" in lost.stderr
    assert not (tmp_path / "dist").exists()
    named = ("--mode", "bundle", "--library-folder", tmp_path / "elsewhere")
    install(tmp_path / "environment", tmp_path / package(stoker, wheel, *named, cwd=tmp_path))
    assert loaded(tmp_path / "environment")[0] == 42


def test_with_packages_of_nvidia(
    stoker: Stoker, wheel: Path, libraries: Path, tmp_path: Path
) -> None:
    made = package(stoker, wheel, "--mode", "pypi", "--out", tmp_path / "dist")
    line = b'Requires-Dist: cuda-toolkit[cudart]==13.*; platform_system == "Linux"'
    assert line in unpacked(made)[f"{DIST_INFO}/METADATA"].splitlines()
    install(tmp_path / "environment", made)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = tmp_path / "environment/lib" / version / "site-packages/nvidia/cu13/lib"
    packages.mkdir(parents=True)
    (libraries / "libcudart.so.13").rename(packages / "libcudart.so.13")
    answer, names = loaded(tmp_path / "environment")
    assert answer == 42
    assert "libcudart.so.13" in names


def test_an_extension_of_pytorch(
    stoker: Stoker, need: Need, libraries: Path, tmp_path: Path
) -> None:
    torch = tmp_path / "built/torch/lib"
    torch.mkdir(parents=True)
    two = 'extern "C" int c10() { return 2; }'
    c10 = build(need, torch, "-Wl,-soname,libc10.so", source=two, name="libc10.so")
    linked = build(
        need,
        tmp_path,
        *(str(c10), str(libraries / "libcudart.so.13")),
        source=BOTH % ("c10", "c10"),
        name="libwarm.so",
    )
    wheel = make_wheel(tmp_path, linked.read_bytes(), "torch>=2.1", "numpy")
    unsaid = stoker("package", str(wheel), "--mode", "pypi")
    assert unsaid.returncode == 2
    assert "--torch" in unsaid.stderr
    made = package(stoker, wheel, "--mode", "pypi", "--torch", "2.15.0", "--out", tmp_path / "dist")
    lines = unpacked(made)[f"{DIST_INFO}/METADATA"].decode().splitlines()
    assert [line for line in lines if line.startswith("Requires-Dist: ")] == [
        "Requires-Dist: numpy",
        "Requires-Dist: torch==2.15.0",
        'Requires-Dist: cuda-toolkit[cudart]==13.2.2; platform_system == "Linux"',
    ]
    install(tmp_path / "environment", made)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = tmp_path / "environment/lib" / version / "site-packages"
    (tmp_path / "built/torch").rename(packages / "torch")
    (packages / "nvidia/cu13").mkdir(parents=True)
    libraries.rename(packages / "nvidia/cu13/lib")
    assert loaded(tmp_path / "environment")[0] == 42


def test_plain_only_repairs_the_tag(stoker: Stoker, wheel: Path, tmp_path: Path) -> None:
    made = package(stoker, wheel, "--mode", "plain", "--out", tmp_path / "dist")
    assert made.name.startswith("warm-1.0-py3-none-manylinux_2_")
    before, after = unpacked(wheel), unpacked(made)
    changed = {name for name in before if before[name] != after.get(name)}
    assert changed == {f"{DIST_INFO}/WHEEL", f"{DIST_INFO}/RECORD"}


def test_plain_removes_search_paths_of_the_build_machine(
    stoker: Stoker, need: Need, tmp_path: Path
) -> None:
    linked = build(need, tmp_path, "-Wl,-rpath,/opt/builder:$ORIGIN/more", name="libwarm.so")
    wheel = make_wheel(tmp_path, linked.read_bytes())
    before = stoker("verify", str(wheel))
    assert "--mode plain" in before.stdout  # the fix that the error names
    made = package(stoker, wheel, "--mode", "plain", "--out", tmp_path / "dist")
    after = stoker("verify", str(made), "--json")
    assert after.returncode == 0, after.stdout
    (library,) = inspect(str(made)).libraries
    assert library.runpath == ("$ORIGIN/more",)
    install(tmp_path / "environment", made)


def test_plain_removes_search_paths_where_an_added_requirement_has_the_library(
    stoker: Stoker, need: Need, libraries: Path, tmp_path: Path
) -> None:
    """As the linker flags of a Python that was built from source leave an extension of PyTorch."""
    site = torch_stub(need, tmp_path / "built", (WARN,))
    linked = build(
        need,
        tmp_path,
        *("-Wl,--no-as-needed", "-Wl,-rpath,/opt/python/lib"),
        *(str(site / "torch/lib/libc10.so"), str(libraries / "libcudart.so.13")),
        source=f'extern "C" {{ void {WARN}(); void warm() {{ {WARN}(); }} }}',
        name="libwarm.so",
    )
    wheel = make_wheel(tmp_path, linked.read_bytes(), "numpy")
    words = ("--mode", "plain", "--requires", "torch==2.12.1")
    assert not any(
        "nothing in the wheel" in note for note in planned(stoker, wheel, *words)["notes"]
    )
    made = package(stoker, wheel, *words, "--out", tmp_path / "dist")
    after = stoker("verify", str(made))
    assert after.returncode == 0, after.stdout
    (library,) = inspect(str(made)).libraries
    assert (library.rpath, library.runpath) == ((), ())


def test_plain_says_what_is_missing_and_records_what_the_machine_provides(
    stoker: Stoker, wheel: Path, tmp_path: Path
) -> None:
    plan = planned(stoker, wheel, "--mode", "plain")
    assert any("provides libcudart.so.13, libfire.so.1" in note for note in plan["notes"])
    words = ("--mode", "plain", "--exclude", "libfire*", "--exclude", "libcudart*")
    made = package(stoker, wheel, *words, "--out", tmp_path / "dist")
    done = stoker("verify", str(made), "--json")
    found = {one["name"]: one["severity"] for one in json.loads(done.stdout)["findings"]}
    assert done.returncode == 0
    assert found["excluded-library"] == "note"


def test_the_plan_says_everything_and_does_nothing(
    stoker: Stoker, wheel: Path, tmp_path: Path
) -> None:
    plan = planned(stoker, wheel, "--mode", "bundle", "--label", "cu130.sm90")
    assert plan["file_name"].startswith("warm-1.0+cu130.sm90-py3-none-manylinux")
    assert plan["changed"][0]["rpath"] == "$ORIGIN/../warm.libs"
    assert len(plan["added"]) == 3
    page = stoker("package", str(wheel), "--mode", "bundle", "--dry-run")
    assert (page.returncode, "Bundled libraries: 3" in page.stdout) == (0, True)
    assert not (tmp_path / "dist").exists()


def test_debug_information_goes_beside(
    stoker: Stoker, need: Need, wheel: Path, tmp_path: Path
) -> None:
    need("objcopy")
    readelf = need("readelf")
    made = package(stoker, wheel, "--mode", "bundle", "--strip", "--out", tmp_path / "dist")
    debug = made.with_suffix(".debug") / "warm/libwarm.so.debug"
    install(tmp_path / "environment", made)
    assert loaded(tmp_path / "environment")[0] == 42
    inside = tmp_path / "libwarm.so"
    inside.write_bytes(unpacked(made)["warm/libwarm.so"])

    def sections(path: Path) -> str:
        command = [readelf, "--sections", "--wide", "--string-dump=.gnu_debuglink", str(path)]
        done = subprocess.run(command, check=True, capture_output=True)
        return done.stdout.decode(errors="replace")

    assert ".debug_info" in sections(debug)
    assert ".debug_info" not in sections(inside)
    assert "libwarm.so.debug" in sections(inside)
    assert sorted(path.name for path in made.parent.iterdir()) == sorted(
        [made.name, debug.parents[1].name]
    )


def test_the_same_bytes_every_time(stoker: Stoker, wheel: Path, tmp_path: Path) -> None:
    made = [
        package(stoker, wheel, "--mode", "bundle", "--out", tmp_path / name).read_bytes()
        for name in ("one", "two")
    ]
    assert made[0] == made[1]


def test_what_is_there_stays_there(stoker: Stoker, wheel: Path, tmp_path: Path) -> None:
    arguments = (wheel, "--mode", "plain", "--out", tmp_path / "dist")
    made = package(stoker, *arguments)
    made.write_text("precious")
    refused = stoker("package", *map(str, arguments))
    assert refused.returncode == 2
    assert "--force" in refused.stderr
    assert made.read_text() == "precious"
    assert package(stoker, *arguments, "--force").read_bytes().startswith(b"PK")
    again = stoker("package", str(made), "--mode", "plain", "--out", str(made.parent), "--force")
    assert again.returncode == 2
    assert "would be overwritten" in again.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["nowhere.whl", "--mode", "plain"], 2, "there is no file 'nowhere.whl'"),
        (["text.whl", "--mode", "plain"], 1, "text.whl"),
        ([WHEEL, "--mode", "sideways"], 2, "sideways"),
        ([WHEEL, "--mode", "plain", "--out", "text.whl"], 5, "cannot write"),
    ],
)
def test_bad_input(
    stoker: Stoker, wheel: Path, tmp_path: Path, arguments: list[str], status: int, words: str
) -> None:
    (tmp_path / "text.whl").write_text("not a wheel")
    done = stoker("package", *arguments, cwd=wheel.parent)
    assert done.returncode == status, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_a_full_disk_leaves_nothing(wheel: Path, tmp_path: Path) -> None:
    """A limit on the size of files says no as a full disk does, in the middle of writing."""
    code = """
import resource, signal, sys
from stoker.__main__ import main
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
sys.exit(main())
"""
    full = tmp_path / "full"
    arguments = ["package", str(wheel), "--mode", "bundle", "--out", str(full)]
    python = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(python, capture_output=True, text=True, check=False)
    assert done.returncode == 5, done.stderr
    assert "cannot write" in done.stderr
    assert list(full.iterdir()) == []


@pytest.mark.slow
@pytest.mark.network
def test_nvidia_libraries_from_the_package_index(
    stoker: Stoker, need: Need, tmp_path: Path
) -> None:
    """The real runtime and cuFile, as wheels: a few megabytes."""
    wheels = tmp_path / "wheels"
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--only-binary=:all:",
    ]
    names = ["nvidia-cuda-runtime==13.*", "nvidia-cufile==1.15.*"]
    if subprocess.run([*command, "--dest", str(wheels), *names], check=False).returncode:
        missing("the package index has no NVIDIA libraries for this machine")
    unpack = tmp_path / "unpacked"
    for wheel in wheels.iterdir():
        for name, content in unpacked(wheel).items():
            if ".so" in name:
                unpack.mkdir(exist_ok=True)
                (unpack / Path(name).name).write_bytes(content)
    source = """
    extern "C" {
    struct error { int code, cuda; };
    int cudaRuntimeGetVersion(int*);
    error cuFileGetVersion(int*);
    int warm() {
        int runtime = 0, file = 0;
        cudaRuntimeGetVersion(&runtime);
        cuFileGetVersion(&file);
        return file > 0 ? runtime : -1;
    }
    }
    """
    linked = build(
        need,
        tmp_path,
        *(str(unpack / "libcudart.so.13"), str(unpack / "libcufile.so.0")),
        source=source,
        name="libwarm.so",
    )
    wheel = make_wheel(tmp_path, linked.read_bytes())
    made = package(
        stoker, wheel, "--mode", "bundle", "--library-folder", wheels, "--out", tmp_path / "dist"
    )
    install(tmp_path / "environment", made)
    answer, names = loaded(tmp_path / "environment")
    assert 13000 <= answer < 14000
    assert "libcufile.so.0" in names
    assert any(name.startswith("libcudart-") for name in names)
    licences = [name for name in unpacked(made) if name.endswith("License.txt")]
    assert len(licences) == 2
