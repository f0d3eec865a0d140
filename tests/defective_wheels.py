"""A small correct CUDA wheel, built by the real tools, and the defects to add to it."""

import json
import platform
import shutil
from collections.abc import Callable
from pathlib import Path

from built_libraries import build, build_cuda
from conftest import Need
from wheel_files import digest, packed, unpacked, zipped

MACHINE = platform.machine()
TAG = f"manylinux_2_28_{MACHINE}"
DIST_INFO = "mill-1.2.dist-info"
PLAN = {"variant": {"backend": "cuda", "gpus": [{"arch": "8.0"}, {"arch": "9.0"}]}}
METADATA = """\
Metadata-Version: 2.1
Name: mill
Version: 1.2
Requires-Dist: nvidia-cuda-runtime
"""
# CUDA 13 and CUDA 12: the test uses the installed nvcc.
PACKAGES = "$ORIGIN/../nvidia/cu13/lib:$ORIGIN/../nvidia/cuda_runtime/lib"
OLD_TAGS = "-Wl,--disable-new-dtags"


class Workshop:
    """Builds the libraries. ``folder`` has the contents of the correct wheel."""

    def __init__(self, need: Need, folder: Path):
        self.need = need
        self._made = folder / "made"
        self.folder = folder / "clean"
        package, dist_info = self.folder / "mill", self.folder / DIST_INFO
        for path in (self._made, package, dist_info):
            path.mkdir(parents=True)
        (package / "__init__.py").write_text("")
        (dist_info / "METADATA").write_text(METADATA)
        (dist_info / "WHEEL").write_text(_wheel_text(TAG))
        (dist_info / "stoker-plan.json").write_text(json.dumps(PLAN))
        self.stones()
        self.openmp(package / "libgomp.so.1")
        self.grind(OLD_TAGS, "-Wl,-rpath,$ORIGIN")
        self.scale("80", "90")

    def stones(self) -> Path:
        return self._library("libstones.so", 'extern "C" int stones() { return 2; }')

    def openmp(self, target: Path) -> None:
        made = build(
            self.need,
            self._made,
            "-Wl,-soname,libgomp.so.1",
            source='extern "C" int omp_get_num_threads() { return 1; }',
            name="libgomp.so.1",
        )
        target.parent.mkdir(exist_ok=True)
        shutil.copy(made, target)

    def grind(self, *flags: str, source: str = "") -> Path:
        """Build a library that needs libstones.so and libgomp.so.1."""
        code = 'extern "C" int stones(); extern "C" int grind() { return stones(); }' + source
        needed = [str(self._made / name) for name in ("libstones.so", "libgomp.so.1")]
        options = ["-Wl,--no-as-needed", *needed, *flags]
        return self._library("libgrind.so", code, *options)

    def scale(self, *archs: str, linked: str = OLD_TAGS, rpath: str = PACKAGES) -> Path:
        """Build a library with device code for some architectures; it needs libcudart."""
        codes = [f"-gencode=arch=compute_{arch},code=sm_{arch}" for arch in archs]
        words = [linked, f"-Wl,-rpath,{rpath}"]
        # nvcc passes the arguments to the shell.
        hosted = ["-Xcompiler", ",".join("'" + word.replace(",", "\\,") + "'" for word in words)]
        made = build_cuda(self.need, self._made, *codes, *hosted)
        return Path(shutil.copy(made, self.folder / "mill"))

    def _library(self, name: str, source: str, *flags: str) -> Path:
        soname = f"-Wl,-soname,{name}"
        made = build(self.need, self._made, soname, *flags, source=source, name=name)
        return Path(shutil.copy(made, self.folder / "mill"))

    def library(self, name: str, source: str, *flags: str) -> Path:
        """Add one more library to the wheel."""
        return self._library(name, source, *flags)

    def pack(self, into: Path) -> Path:
        return packed(self.folder, into)


def _wheel_text(tag: str) -> str:
    return f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: false\nTag: py3-none-{tag}\n"


def drop_library(workshop: Workshop) -> None:
    (workshop.folder / "mill" / "libstones.so").unlink()


def more_architectures(workshop: Workshop) -> None:
    workshop.scale("80", "86", "90")


def fewer_architectures(workshop: Workshop) -> None:
    workshop.scale("80")


def runpath(workshop: Workshop) -> None:
    workshop.scale("80", "90", linked="-Wl,--enable-new-dtags")


def absolute_rpath(workshop: Workshop) -> None:
    workshop.grind(OLD_TAGS, "-Wl,-rpath,$ORIGIN:/opt/cuda/lib64")


def new_symbol(workshop: Workshop) -> None:
    """Link against a C library with a symbol version that does not exist yet."""
    script = workshop.folder.parent / "versions"
    script.write_text("GLIBC_2.99 { tomorrow; };")
    stub = build(
        workshop.need,
        workshop.folder.parent,
        *("-Wl,-soname,libc.so.6", f"-Wl,--version-script={script}", "-nostdlib"),
        source='extern "C" int tomorrow() { return 1; }',
        name="libfuture.so",
    )
    call = 'extern "C" int tomorrow(); extern "C" int soon() { return tomorrow(); }'
    workshop.grind(OLD_TAGS, "-Wl,-rpath,$ORIGIN", str(stub), source=call)


def other_tag(workshop: Workshop) -> None:
    other = "x86_64" if MACHINE == "aarch64" else "aarch64"
    text = _wheel_text(f"manylinux_2_28_{other}")
    (workshop.folder / DIST_INFO / "WHEEL").write_text(text)


def bundle_driver(workshop: Workshop) -> None:
    source = 'extern "C" int cuInit(unsigned) { return 0; }'
    workshop.library("libcuda.so.1", source)


def second_openmp(workshop: Workshop) -> None:
    workshop.openmp(workshop.folder / "mill.libs" / "libgomp-0a1b2c3d.so.1.0.0")


def world_writable(workshop: Workshop) -> None:
    (workshop.folder / "mill" / "__init__.py").chmod(0o666)


def wrong_hash(wheel: Path) -> None:
    """Change a hash after packing, because the engine writes only correct ones."""
    contents = unpacked(wheel)
    record = contents[f"{DIST_INFO}/RECORD"]
    true, false = digest(contents["mill/__init__.py"]), digest(b"something else")
    contents[f"{DIST_INFO}/RECORD"] = record.replace(true.encode(), false.encode())
    wheel.write_bytes(zipped(contents))


DEFECTS: dict[str, Callable[[Workshop], None]] = {
    "missing-library": drop_library,
    "extra-architecture": more_architectures,
    "missing-architecture": fewer_architectures,
    "runpath-instead-of-rpath": runpath,
    "too-new-symbols": new_symbol,
    "wrong-tag": other_tag,
    "bundled-driver": bundle_driver,
    "second-openmp": second_openmp,
    "absolute-rpath": absolute_rpath,
    "world-writable": world_writable,
}
