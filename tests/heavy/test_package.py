"""Packaging the real thing: PyTorch's official wheels, NVIDIA's BLAS, the example. Gigabytes."""

import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from built_libraries import build
from conftest import PROJECTS, Need, Stoker, missing
from stoker.model.artifact import LibraryFacts
from stoker.wheel.elf.edit import ElfEdit, Patch, make_patch
from stoker.wheel.elf.elf import STRING_TABLE, Elf
from stoker.wheel.inspect.facts import read_wheel
from stoker.wheel.reader import open_file
from stoker.wheel.zip import Content, Edit, Wheel, open_wheel, rewrite
from stoker.wheel.zip.metadata import edited_metadata
from wheel_files import packed

pytestmark = [pytest.mark.heavy, pytest.mark.network, pytest.mark.timeout(1200)]

PIP = [sys.executable, "-m", "pip"]


def download(folder: Path, *arguments: str) -> None:
    command = [*PIP, "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    if subprocess.run([*command, "--dest", str(folder), *arguments], check=False).returncode:
        missing(f"the package index has no {' '.join(arguments)}")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Gone after each test: pytest would keep the gigabytes of three runs."""
    yield tmp_path
    shutil.rmtree(tmp_path)


def bare(official: Path, into: Path, work: Path) -> Path:
    """The wheel as it was before it was packaged: without the paths and the requirements."""
    with open_wheel(official) as wheel:
        facts, libraries, _ = read_wheel(wheel)
        lines = [line for line in facts.requires if line.startswith(("nvidia-", "cuda-", "triton"))]
        assert lines
        metadata, about = (f"{wheel.dist_info}/{name}" for name in ("METADATA", "WHEEL"))
        contents = {
            metadata: Content.of_bytes(edited_metadata(wheel.read(metadata), drop=lines)),
            about: Content.of_bytes(wheel.read(about).replace(b"manylinux_2_28", b"linux")),
        }
        for library in libraries:
            if any("nvidia" in path for path in library.rpath):
                contents[library.path] = without_path(wheel, library, work)
        assert len(contents) > 12
        return rewrite(wheel, Edit(contents=contents), into)


def without_path(wheel: Wheel, library: LibraryFacts, work: Path) -> Content:
    """Not even its text is left behind, so that it has to be written again."""
    path = work / Path(library.path).name
    with path.open("wb") as stream:
        stream.writelines(wheel.stream(library.path))
    with open_file(path) as reader:
        file = Elf(reader)
        patch = make_patch(file, ElfEdit(rpath=""))
        text = ":".join(library.rpath).encode()
        place = file.offset_of(file.value(STRING_TABLE) or 0)
        place += file.dynamic_strings.content.index(text)
    path.unlink()
    blank = Patch(size=patch.size, overwritten=(*patch.overwritten, (place, b"x" * len(text))))
    member = wheel.content(library.path)
    return Content(size=blank.size, chunks=lambda: blank.applied(member.chunks()))


@pytest.mark.parametrize(
    ("version", "more"),
    [
        ("2.9.1", []),
        # Its libgfortran needs a libquadmath that the official wheel does not bring.
        ("2.15.0", ["--exclude", "libquadmath.so.0"]),
    ],
)
def test_the_official_wheel_comes_back(
    stoker: Stoker, folder: Path, version: str, more: list[str]
) -> None:
    platform = ["--platform", "manylinux_2_28_x86_64", "--python-version", "3.12"]
    download(folder / "official", *platform, f"torch=={version}")
    official = next((folder / "official").iterdir())
    stripped = bare(official, folder / "bare", folder)
    assert "linux_x86_64" in stripped.name
    done = stoker(
        *("package", str(stripped), "--mode", "pypi", "--out", str(folder / "dist"), *more),
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    made = folder / "dist" / official.name
    assert Path(done.stdout.strip()) == made
    with open_wheel(official) as one, open_wheel(made) as other:
        before, after = read_wheel(one), read_wheel(other)
    assert after[0].requires == before[0].requires
    assert after[0].tags == before[0].tags
    assert sorted(after[2]) == sorted(before[2])
    for library, original in zip(after[1], before[1], strict=True):
        if original.path.startswith("torch/"):
            assert (library.path, library.rpath) == (original.path, original.rpath)
            assert library.runpath == original.runpath
        assert (library.needed, library.soname) == (original.needed, original.soname)
    with open_wheel(official) as one, open_wheel(made) as other:
        name = f"{one.dist_info}/METADATA"
        assert one.read(name) == other.read(name)
        assert list(other.wrong_hashes()) == []


def as_wheel(folder: Path, name: str, libraries: list[Path]) -> Path:
    """A package of libraries, and code that loads the last of them."""
    tree = folder / "tree"
    (tree / name).mkdir(parents=True)
    for library in libraries:
        shutil.copy(library, tree / name)
    loading = "import ctypes, pathlib\nfolder = pathlib.Path(__file__).parent\n"
    loading += f"library = ctypes.CDLL(str(folder / {libraries[-1].name!r}))\n"
    (tree / name / "__init__.py").write_text(loading)
    about = tree / f"{name}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {name}\nVersion: 1.0\n")
    (about / "WHEEL").write_text("Wheel-Version: 1.0\nTag: py3-none-any\n")
    return packed(tree, folder / "built")


def evaluate(environment: Path, wheel: Path, code: str) -> str:
    """What code prints in an environment that holds nothing but the wheel."""
    venv.create(environment, with_pip=False)
    python = str(environment / "bin/python")
    install = [*PIP, "--python", python, "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([*install, str(wheel)], check=True)
    command = [python, "-c", code]
    done = subprocess.run(command, env={}, cwd="/", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_blas_goes_along(stoker: Stoker, need: Need, folder: Path) -> None:
    wheels = folder / "wheels"
    download(wheels, "nvidia-cuda-runtime==13.0.96", "nvidia-cublas==13.1.0.3")
    linking = folder / "linking"
    subprocess.run(
        [*PIP, "install", "--quiet", "--no-index", "--no-deps", "--target", str(linking)]
        + [str(path) for path in wheels.iterdir()],
        check=True,
    )
    libraries = linking / "nvidia/cu13/lib"
    source = """
    extern "C" int cublasGetProperty(int, int*);
    extern "C" int cudaRuntimeGetVersion(int*);
    extern "C" int blas() { int value = 0; cublasGetProperty(0, &value); return value; }
    extern "C" int runtime() { int value = 0; cudaRuntimeGetVersion(&value); return value; }
    """
    names = (str(libraries / name) for name in ("libcublas.so.13", "libcudart.so.13"))
    rest = f"-Wl,-rpath-link,{libraries}"
    linked = build(need, folder, *names, rest, source=source, name="libwarm.so")
    wheel = as_wheel(folder, "warm", [linked])
    shutil.rmtree(linking)
    packaging = ("--mode", "bundle", "--library-folder", str(wheels), "--out", str(folder / "dist"))
    done = stoker("package", str(wheel), *packaging, timeout=900)
    assert done.returncode == 0, done.stderr
    code = "import warm; print(warm.library.blas(), warm.library.runtime())"
    assert evaluate(folder / "environment", Path(done.stdout.strip()), code) == "13 13000"


def test_the_example_goes_along_with_its_runtime(stoker: Stoker, need: Need, folder: Path) -> None:
    need("nvcc")
    kiln, built = PROJECTS.parents[1] / "examples/kiln", folder / "build"
    defines = ["-DUSE_CUDA=ON", "-DBUILD_TEST=OFF", "-DKILN_POINTS=1000"]
    defines += ["-DCMAKE_CUDA_RUNTIME_LIBRARY=Shared"]
    configure = [need("cmake"), "-S", str(kiln), "-B", str(built), *defines]
    subprocess.run([*configure, "-DCMAKE_CUDA_ARCHITECTURES=80"], check=True)
    subprocess.run([need("cmake"), "--build", str(built)], check=True)
    wheel = as_wheel(folder, "kiln", [built / "libkiln_core.so", built / "libkiln_ops.so"])
    done = stoker("package", str(wheel), "--mode", "bundle", "--out", str(folder / "dist"))
    assert done.returncode == 0, done.stderr
    shutil.rmtree(built)
    code = "import kiln; print(*sorted({line.split()[-1] for line in open('/proc/self/maps')}))"
    loaded = evaluate(folder / "environment", Path(done.stdout.strip()), code).split()
    ours = [Path(path).name for path in loaded if str(folder) in path and ".so" in path]
    assert {"libkiln_core.so", "libkiln_ops.so"} < set(ours)
    assert any(name.startswith("libcudart-") for name in ours)
